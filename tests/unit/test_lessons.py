"""What is stored of a lesson's outputs."""

import base64
import io

import nbformat
import numpy
import pytest
from matplotlib.figure import Figure
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from amp_lessons.errors import LessonError
from amp_lessons.lessons import clean, keep_pictures, look_the_same, main, store


def test_a_text_that_the_kernel_cut_is_stored_in_one_piece():
    pieces = [new_output("stream", name="stdout", text=text) for text in ("True\n", " 1.0 ", "{}\n")]
    pieces.insert(2, new_output("stream", name="stderr", text="between"))
    cell = new_code_cell("print(1)", outputs=pieces)
    clean(new_notebook(cells=[cell]))
    assert [(o.name, o.text) for o in cell.outputs] == [("stdout", "True\n 1.0 "), ("stderr", "between"), ("stdout", "{}\n")]


def write(path, *sources, tags=((),)):
    cells = [new_markdown_cell("# Sample")]
    tags = [*tags, *[()] * len(sources)]
    cells += [new_code_cell(source, metadata={"tags": list(own)}) for source, own in zip(sources, tags)]
    nbformat.write(new_notebook(cells=cells, metadata={"widgets": {}}), path)
    return path


WIDGET = """
import ipywidgets, base64, io
from PIL import Image
buffer = io.BytesIO(); Image.new("RGB", (16, 16)).save(buffer, "png")
class Box(ipywidgets.VBox):
    def _repr_mimebundle_(self, **kwargs):
        picture = base64.b64encode(buffer.getvalue()).decode()
        return {**super()._repr_mimebundle_(**kwargs), "image/png": picture, "text/plain": "a black square"}
Box([ipywidgets.IntSlider()])
"""


def test_what_is_stored_reads_without_a_kernel_and_stays_the_same(tmp_path):
    path = write(tmp_path / "a.ipynb", "print('one')", "", WIDGET)
    ids = [cell.id for cell in nbformat.read(path, as_version=4).cells]
    store(path)
    first = path.read_text()
    notebook = nbformat.reads(first, as_version=4)
    assert [cell.id for cell in notebook.cells] == ids
    assert [cell.execution_count for cell in notebook.cells[1:]] == [1, None, 2]
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert "widget-view" not in first and "iopub" not in first
    (shown,) = notebook.cells[3].outputs
    assert set(shown.data) == {"text/plain", "image/png"} and shown.execution_count == 2
    assert all(set(cell.metadata) <= {"tags", "reason"} for cell in notebook.cells)
    store(path)
    assert path.read_text() == first
    assert [file.name for file in tmp_path.iterdir()] == ["a.ipynb"]


def test_failing_lesson_is_left_alone_and_named(tmp_path, capsys):
    path = write(tmp_path / "b.ipynb", "1 / 0", "x = 1\nx.nothing", tags=(["raises-exception"],))
    before = path.read_bytes()
    with pytest.raises(LessonError, match=r"b\.ipynb, code cell 2 \(x = 1\): AttributeError: .*Nothing was stored"):
        store(path)
    assert path.read_bytes() == before and [file.name for file in tmp_path.iterdir()] == ["b.ipynb"]
    assert main([str(path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_nobody_s_progress_is_stored(tmp_path, monkeypatch):
    monkeypatch.setenv("AMP_LESSONS_PROGRESS", str(tmp_path / "mine.json"))
    path = write(tmp_path / "d.ipynb", "from amp_lessons.tutor import progress\nprint(progress.path())")
    store(path)
    assert nbformat.read(path, as_version=4).cells[1].outputs[0].text == "None\n"


def test_file_that_is_no_notebook_is_one_sentence(tmp_path):
    (tmp_path / "c.ipynb").write_text("not JSON")
    with pytest.raises(LessonError, match="could not be read as a notebook"):
        store(tmp_path / "c.ipynb")


def png(title="The loss", wiggle=0.0, width=6):
    figure = Figure(figsize=(width, 3))
    x = numpy.linspace(0, 10, 200)
    figure.subplots().plot(x, numpy.exp(-x / 3) * (1 + wiggle * numpy.sin(37 * x)))
    figure.suptitle(title)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return base64.b64encode(buffer.getvalue()).decode()


def test_a_curve_that_differs_in_its_last_digits_keeps_its_picture():
    assert look_the_same(png(), png(wiggle=1e-3))
    was, now = ([new_output("display_data", data={"image/png": png(wiggle=w)})] for w in (0, 1e-3))
    assert keep_pictures(was, now)[0].data["image/png"] == png()


@pytest.mark.parametrize("change", [{"title": "The lass"}, {"title": "The loss."}, {"wiggle": 0.05}, {"width": 7}])
def test_a_change_that_can_be_seen_is_stored(change):
    assert not look_the_same(png(), png(**change))
