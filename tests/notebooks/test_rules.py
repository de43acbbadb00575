"""Every lesson keeps every rule, and every rule has been seen to complain."""

import re

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from amp_lessons.lab import NOTEBOOKS
from tests.notebooks import rules

PAGES = sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))
LESSONS = [path for path in PAGES if not path.name.startswith("00_")]


def test_there_are_a_start_page_and_seven_lessons():
    assert PAGES[0].name == "00_start_here.ipynb"
    assert [path.name[:2] for path in LESSONS][:7] == ["01", "02", "03", "04", "05", "06", "07"]


@pytest.mark.parametrize(
    ("path", "rule"),
    [pytest.param(path, rule, id=f"{path.name[:2]}-{rule.__name__}") for path in PAGES for rule in rules.rules_for(path.name)],
)
def test_notebook_keeps_rule(path, rule):
    assert rule(nbformat.read(path, as_version=4)) == []


def code(source="x", count=1, outputs=(), **metadata):
    return new_code_cell(source, execution_count=count, outputs=list(outputs), metadata=metadata)


def shown(**data):
    return new_output("display_data", data={kind.replace("__", "/"): value for kind, value in data.items()})


def notebook(*cells, **metadata):
    return new_notebook(cells=list(cells), metadata=metadata)


def printed(text):
    return new_output("stream", name="stdout", text=text)


BAD = [
    (rules.is_valid, nbformat.from_dict({"cells": [{"cell_type": "odd", "id": "a"}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})),
    (rules.counts_run_from_one, notebook(code(count=None))),
    (rules.counts_run_from_one, notebook(code(count=1), code(count=3))),
    (rules.names_its_kernel, notebook()),
    (rules.stores_no_widgets, notebook(widgets={})),
    (rules.stores_no_widgets, notebook(code(outputs=[shown(**{"application/vnd.jupyter.widget-view+json": {}})]))),
    (rules.stores_no_svg, notebook(code(outputs=[shown(**{"image/svg+xml": "<svg/>"})]))),
    (rules.stores_no_stderr, notebook(code(outputs=[new_output("stream", name="stderr", text="warning")]))),
    (rules.stores_no_unexpected_error, notebook(code(outputs=[new_output("error", ename="E", evalue="", traceback=[])]))),
    (rules.prints_nothing_volatile, notebook(code(outputs=[printed("<object at 0x7f8e12>")]))),
    (rules.prints_nothing_volatile, notebook(code(outputs=[printed("/home/me/file.py")]))),
    (rules.prints_nothing_volatile, notebook(code(outputs=[printed("took 1.25 s")]))),
    (rules.prints_nothing_volatile, notebook(code(outputs=[shown(text__plain="30 ms a step")]))),
    (rules.ignores_few_outputs, notebook(code(tags=["nbval-ignore-output"]))),
    (rules.ignores_few_outputs, notebook(*[code(tags=["nbval-ignore-output"], reason="timing") for _ in range(4)])),
    (rules.skips_nothing, notebook(code(tags=["nbval-skip"]))),
    (rules.pictures_have_words, notebook(code(outputs=[shown(image__png="", text__plain="<Figure size 640x480 with 1 Axes>")]))),
    (rules.pictures_have_words, notebook(code(outputs=[shown(image__png="", text__plain="A long enough text, but no alternative text.")]))),
    (rules.code_avoids_traps, notebook(code("x = 1;"))),
    (rules.code_avoids_traps, notebook(code("interact(f, x=1)"))),
    (rules.code_avoids_traps, notebook(code("widgets.Output()"))),
    (rules.code_avoids_traps, notebook(code("%matplotlib inline"))),
    (rules.code_avoids_traps, notebook(code("import matplotlib.pyplot as plt"))),
    (rules.code_is_modern, notebook(code("torch.cuda.amp.GradScaler()"))),
    (rules.code_is_short, notebook(code("\n".join("x" for _ in range(16))))),
    (rules.code_is_short, notebook(code("x"))),
    (rules.has_the_right_length, notebook(*[new_markdown_cell("word " * 100) for _ in range(10)])),
    (rules.has_the_right_length, notebook(*[new_markdown_cell("word") for _ in range(50)])),
    (rules.prose_comes_in_short_pieces, notebook(new_markdown_cell("word " * 151))),
    (rules.headings_do_not_jump, notebook(new_markdown_cell("## Second first"))),
    (rules.headings_do_not_jump, notebook(new_markdown_cell("# One\n\n### Three"))),
    (rules.ends_with_check_and_recap, notebook(new_markdown_cell("# A\n## Recap"))),
    (rules.markdown_pictures_have_alternatives, notebook(new_markdown_cell("![](x.png)"))),
]


@pytest.mark.parametrize(("rule", "bad"), BAD, ids=[f"{rule.__name__}-{n}" for n, (rule, _) in enumerate(BAD)])
def test_rule_complains(rule, bad):
    assert rule(bad)


def test_every_rule_has_a_bad_example():
    assert {rule for rule, _ in BAD} == set(rules.RULES)


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.name[:2])
def test_readme_lists_the_lesson_with_the_time_that_it_names(path):
    opening = nbformat.read(path, as_version=4).cells[0].source
    minutes = re.search(r"[Aa]bout (\d+) minutes", opening).group(1)
    readme = (NOTEBOOKS.parent / "README.md").read_text(encoding="utf-8")
    assert re.search(rf"\(notebooks/{path.name}\) \| {minutes} min \|", readme)
