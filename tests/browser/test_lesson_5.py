"""Lesson 5 in the browser: the portraits train, stop and reset, and knobs are there for the keyboard."""

import re

from playwright.sync_api import expect

LESSON = "05_the_full_amp_step.ipynb"


def test_portraits_train_stop_and_reset(lab):
    lab.open(LESSON)
    lab.run_all()
    trainer = lab.trainer()
    state = trainer.locator(".widget-hprogress .widget-label")
    expect(state).to_have_text("finished, step 300")
    assert "20" not in lab.twin(trainer).split("after")[0]  # the text begins with the finished runs' PSNR

    lab.click(trainer, "Reset")
    expect(state).to_have_text("ready, step 0")
    assert "press Run" in lab.twin(trainer)
    before = lab.picture(trainer)

    lab.press(trainer, "loss weight", "ArrowLeft", "ArrowLeft", "ArrowLeft")
    box = trainer.locator(".widget-text input").first
    expect(box).to_have_value("-13")

    lab.click(trainer, "Run")
    expect(state).to_have_text(re.compile(r"training, step \d+"), timeout=20_000)
    lab.wait_for_new_picture(trainer, before, timeout=20_000)

    lab.click(trainer, "Stop")
    expect(state).to_have_text(re.compile(r"stopped, step \d+"), timeout=5_000)
    steps = int(state.inner_text().split()[-1])
    assert 0 < steps < 300
    assert f"after {steps} steps" in lab.twin(trainer)
    lab.screenshot("05_portraits_stopped", trainer)

    lab.click(trainer, "Run")
    expect(state).to_have_text(re.compile(r"training, step \d+"), timeout=20_000)
    lab.click(trainer, "Stop")
    expect(state).to_have_text(re.compile(r"stopped, step \d+"), timeout=5_000)
    assert int(state.inner_text().split()[-1]) >= steps
    assert lab.errors() == []


def test_quick_check_answers_back(lab):
    lab.open(LESSON)
    lab.run_all()
    question = lab.page.locator(".widget-vbox", has=lab.page.get_by_role("button", name="Between unscale_() and step()"))
    question.first.get_by_role("button", name="Between unscale_() and step()").press("Space")
    expect(question.first.get_by_role("status")).to_contain_text("Correct.")
