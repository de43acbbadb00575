"""Lesson 7's symptom index: every link has its patient, every message is PyTorch's own, word by word."""

import re

import nbformat
import pytest

from amp_lessons.doctor.messages import cause_of
from amp_lessons.lab import NOTEBOOKS
from tests.notebooks import rules

NOTEBOOK = nbformat.read(NOTEBOOKS / "07_the_amp_clinic.ipynb", as_version=4)
INDEX = "\n".join(cell.source for cell in rules.markdown_cells(NOTEBOOK) if "| go to |" in cell.source)
MESSAGES = re.findall(r"^\| (`+)(.+?)\1 \| \[", INDEX, flags=re.M)
COMPARED = [cell for cell in rules.code_cells(NOTEBOOK) if "nbval-ignore-output" not in rules.tags(cell)]
PRINTED = "\n".join(text for cell in COMPARED for text in rules.compared_texts(cell))


def test_every_link_leads_to_a_heading_and_every_patient_is_in_the_index():
    links = re.findall(r"\]\(#([^)]+)\)", INDEX)
    # JupyterLab and nbconvert make a heading's id from its text, with a dash for each space.
    ids = {title.replace("`", "").replace(" ", "-") for _, title in rules.headings(NOTEBOOK)}
    assert set(links) <= ids
    patients = {name for name in ids if name.startswith("Patient-")}
    assert len(patients) == 12 and patients <= set(links)


@pytest.mark.parametrize("message", [text for _, text in MESSAGES])
def test_every_message_of_the_index_is_what_pytorch_said_in_the_lesson(message):
    # Strict nbval keeps the printed text true for the installed PyTorch; the warning's first sentence lost its full stop.
    assert message.rstrip(".") in PRINTED


def test_index_has_the_messages_and_the_doctor_knows_every_error_among_them():
    assert len(MESSAGES) == 6
    assert all(cause_of(RuntimeError(text)) for _, text in MESSAGES if "Error:" in text)


def test_all_patients_recover():
    runs = re.split(r"^(?=learned: )", PRINTED, flags=re.M)
    assert sum(run.startswith("learned: True\nthe doctor finds nothing") for run in runs) >= 11
    assert not any(run.startswith("learned: False\nthe doctor finds nothing") for run in runs)
