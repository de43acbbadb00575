"""Lesson 6 shows a GPU recording as soon as one lies in the folder, and says that there is none as long as there is none."""

import json

import nbformat
import pytest

from amp_lessons import measure, recordings
from amp_lessons.lab import NOTEBOOKS
from amp_lessons.recordings import FORMAT
from amp_lessons.widgets.speed_explorer import SpeedExplorer
from tests.notebooks import rules

NOTEBOOK = nbformat.read(NOTEBOOKS / "06_when_it_pays.ipynb", as_version=4)
CELL, AFTER = (cell.source for cell in rules.code_cells(NOTEBOOK) if "recordings.load(name)" in cell.source)


@pytest.fixture(scope="module")
def table():
    """A small table measured here; where it was measured does not matter to the cell."""
    return measure.to_plain(measure.speed_table(measure.mlp, (8, 16), (4, 8), device="cpu", runs=1, budget_s=2.0))


def show(folder, monkeypatch, capsys, parts=None):
    """What the lesson's two cells print and display with one recording in the folder, or with none."""
    if parts is not None:
        facts = {"device": {"type": "cuda", "name": "Some GPU"}, "versions": {"torch": "2.13.0", "cuda": "13.0"}, "date": "2026-12-01"}
        text = json.dumps({"format": FORMAT, "provenance": facts, "parts": parts})
        (folder / "cuda-some-gpu-2026-12-01.json").write_text(text, encoding="utf-8")
    monkeypatch.setattr(recordings, "FOLDER", folder)
    displayed = []
    namespace = {"recordings": recordings, "SpeedExplorer": SpeedExplorer, "display": displayed.append}
    exec(CELL, namespace)
    exec(AFTER, namespace)
    return capsys.readouterr().out, displayed


def test_a_recording_is_shown_with_its_provenance_and_sliders(tmp_path, monkeypatch, capsys, table):
    printed, displayed = show(tmp_path, monkeypatch, capsys, {"mlp_speed": {"result": table, "error": None, "seconds": 1.0}})
    assert "Some GPU, PyTorch 2.13.0, CUDA 13.0, 2026-12-01" in printed
    (explorer,) = displayed
    assert explorer.table.widths == [8, 16] and "Width 16, batch 8" in explorer.text
    assert printed.endswith("each says what it ran on, and when: True\n")


def test_a_recording_without_speeds_is_named_all_the_same(tmp_path, monkeypatch, capsys):
    printed, displayed = show(tmp_path, monkeypatch, capsys, {"mlp_speed": {"result": None, "error": "no time was left for it"}})
    assert "Some GPU" in printed and displayed == []


def test_without_a_recording_it_says_so(tmp_path, monkeypatch, capsys):
    printed, displayed = show(tmp_path, monkeypatch, capsys)
    assert printed == "CUDA recordings here: none yet\neach says what it ran on, and when: True\n" and displayed == []


@pytest.mark.skipif(bool(recordings.names("cuda")), reason="there is a recording here, shipped or made on this machine")
def test_the_plain_statement_is_there_as_long_as_there_is_none():
    text = "\n".join(cell.source for cell in rules.markdown_cells(NOTEBOOK))
    assert "No GPU recording ships with the course yet" in text and "make record" in text
