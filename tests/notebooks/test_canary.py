"""Strict nbval really compares: a lesson with one altered output fails, at that cell, and the unaltered one passes."""

import re
import shutil
import subprocess
import sys

import nbformat
import pytest

from amp_lessons.lab import NOTEBOOKS

LESSON = min(NOTEBOOKS.glob("01_*.ipynb"))


def nbval(path):
    command = [sys.executable, "-m", "pytest", "-q", "--nbval", "--nbval-current-env", "--nbval-cell-timeout", "120"]
    return subprocess.run([*command, "-p", "no:cacheprovider", str(path)], capture_output=True, text=True)


@pytest.fixture(scope="module")
def altered(tmp_path_factory):
    """A copy of the first lesson in which the first printed text has one more character, and that cell's number."""
    path = tmp_path_factory.mktemp("canary") / LESSON.name
    shutil.copy(LESSON, path)
    notebook = nbformat.read(path, as_version=4)
    place, output = next(
        (place, output)
        for place, cell in enumerate(c for c in notebook.cells if c.cell_type == "code")
        for output in cell.outputs
        if output.output_type == "stream"
    )
    output.text = output.text.rstrip("\n") + "!\n"
    nbformat.write(notebook, path)
    return path, place


def test_altered_output_is_noticed(altered):
    path, place = altered
    result = nbval(path)
    assert result.returncode == 1, result.stdout
    failed = [line for line in result.stdout.splitlines() if line.startswith("FAILED")]
    assert len(failed) == 1 and re.search(rf"::Cell {place}\b", failed[0]), result.stdout


def test_unaltered_lesson_passes(tmp_path):
    shutil.copy(LESSON, tmp_path)
    result = nbval(tmp_path / LESSON.name)
    assert result.returncode == 0, result.stdout
