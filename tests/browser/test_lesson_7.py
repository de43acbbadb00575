"""Lesson 7 in the browser: the symptom index leads to its patients, the doctor's report is shown, a quick check answers."""

import re

import pytest
from playwright.sync_api import expect

LESSON = "07_the_amp_clinic.ipynb"


@pytest.mark.parametrize(
    ("symptom", "heading"),
    [
        ("ValueError: Attempting to unscale FP16 gradients.", "Patient 1: Attempting to unscale FP16 gradients"),
        ("before `optimizer.step()`.", "Patient 4: Detected call of lr_scheduler.step"),
        ("a moving average of the weights does not move", "Patient 12: an average that stays behind"),
        ("For another message", "Other messages"),
    ],
)
def test_symptom_leads_to_its_patient(lab, symptom, heading):
    lab.open(LESSON)
    target = lab.page.locator(".jp-Notebook").locator("h2, h3", has_text=re.compile(f"^{re.escape(heading)}¶?$"))
    expect(target).to_have_count(1)
    expect(target).not_to_be_in_viewport()
    lab.page.locator(".jp-Notebook").locator("tr, p", has_text=symptom).get_by_role("link").click()
    expect(target).to_be_in_viewport()


def test_report_is_shown_and_every_patient_recovers(lab):
    lab.open(LESSON)
    lab.run_all()
    report = lab.page.locator(".jp-RenderedHTMLCommon", has=lab.page.locator("h4", has_text="error: fp16-without-scaler"))
    expect(report).to_contain_text("subnormal")
    expect(report).to_contain_text("torch.amp.GradScaler(device)")
    lab.screenshot("07_report", report)
    assert lab.page.locator(".jp-OutputArea-output", has_text="learned: True\nthe doctor finds nothing").count() >= 8


def test_quick_check_answers_back(lab):
    lab.open(LESSON)
    lab.run_all()
    label = "B. No: an overflow would reach the weights"
    question = lab.page.locator(".widget-vbox", has=lab.page.get_by_role("button", name=label)).first
    question.get_by_role("button", name=label).press("Space")
    expect(question.get_by_role("status")).to_contain_text("Correct.")
