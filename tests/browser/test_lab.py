"""The harness itself: it waits for the last cell, and an error or a dead kernel does not pass it by."""

import json
import urllib.request

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

# Stored with counts and an older output, as lessons are: none of it may be taken for a run.
OLD = new_output("stream", name="stdout", text="old\n")


@pytest.fixture
def opened(lab):
    """Open a notebook of the given sources in the running JupyterLab."""

    def open_cells(*sources, tags=()):
        cells = [
            new_code_cell(source, execution_count=count, outputs=[OLD], metadata={"tags": list(tags)})
            for count, source in enumerate(sources, 1)
        ]
        kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
        notebook = new_notebook(cells=cells, metadata={"kernelspec": kernel})
        body = json.dumps({"type": "notebook", "format": "json", "content": json.loads(nbformat.writes(notebook))}).encode()
        request = urllib.request.Request(f"{lab.url}/api/contents/sample.ipynb", body, method="PUT")
        urllib.request.urlopen(request).close()
        lab.open("sample.ipynb")
        return lab

    return open_cells


def test_run_all_waits_for_the_last_cell(opened):
    lab = opened("import time", "time.sleep(2)\nprint('new')")
    lab.run_all()
    assert lab.page.locator(".jp-OutputArea-output").all_inner_texts() == ["new\n"]
    assert lab.errors() == []


def test_error_in_the_last_cell_is_found(opened):
    with pytest.raises(AssertionError, match="ZeroDivisionError: division by zero"):
        opened("1", "1 / 0").run_all()


def test_error_on_purpose_is_none(opened):
    lab = opened("1 / 0", "print('after')", tags=["raises-exception"])
    lab.run_all()
    assert "after\n" in lab.page.locator(".jp-OutputArea-output").all_inner_texts()
    assert lab.errors() == []


def test_dead_kernel_is_found(opened):
    with pytest.raises(AssertionError, match="perhaps the kernel died"):
        opened("import os\nos._exit(1)", "2").run_all()
