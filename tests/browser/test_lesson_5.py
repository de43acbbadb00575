"""Lesson 5 in the browser: the portraits train, stop and reset, and knobs count from the next run."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.training import run_in_kernel, start, state_of, steps_of, stop

LESSON = "05_the_full_amp_step.ipynb"


@pytest.fixture
def lesson(lab):
    lab.open(LESSON)
    lab.run_all()
    return lab


def test_portraits_train_stop_and_reset(lesson):
    trainer = lesson.trainer()
    state = state_of(trainer)
    expect(state).to_have_text("finished, step 300")
    assert "FP32: 3" in lesson.twin(trainer)  # 30 dB or more, of the runs that the lesson has made
    lesson.screenshot("05_portraits_finished", trainer)

    lesson.click(trainer, "Reset")
    expect(state).to_have_text("ready, step 0")
    assert "press Run" in lesson.twin(trainer)
    untrained = lesson.picture(trainer)

    start(lesson, trainer)
    lesson.wait_for_new_picture(trainer, untrained, timeout=20_000)
    stop(lesson, trainer)
    steps = steps_of(trainer)
    assert 0 < steps < 300
    expect(trainer.get_by_role("status")).to_contain_text(re.compile(rf"FP32: [\d.]+ dB after {steps} steps"))
    lesson.screenshot("05_portraits_stopped", trainer)
    stopped = lesson.picture(trainer)
    lesson.page.wait_for_timeout(500)
    assert lesson.picture(trainer) == stopped and steps_of(trainer) == steps

    lesson.click(trainer, "Run")
    expect(state).to_have_text(re.compile(f"training, step (?!{steps}$)"), timeout=20_000)
    assert steps_of(trainer) > steps
    stop(lesson, trainer)


def test_a_knob_moved_by_keyboard_counts_from_the_next_run_and_a_quick_check_answers(lesson):
    trainer = lesson.trainer()
    before = lesson.twin(trainer)
    lesson.press(trainer, "loss weight", "ArrowLeft", "ArrowLeft", "ArrowLeft")
    expect(trainer.locator(".widget-text input").first).to_have_value("-13")
    lesson.wait_for_new_twin(trainer, before)
    assert "The controls have changed" in lesson.twin(trainer)
    start(lesson, trainer)
    stop(lesson, trainer)
    expect(trainer.get_by_role("status")).not_to_contain_text("The controls have changed")
    assert steps_of(trainer) < 300
    assert run_in_kernel(lesson, "print(all(run.problem.loss_weight == 2.0**-13 for run in trainer.runs))") == "True\n"

    right = "Between unscale_() and step()"
    question = lesson.page.locator(".widget-vbox", has=lesson.page.get_by_role("button", name=right)).first
    question.get_by_role("button", name=right).press("Space")
    expect(question.get_by_role("status")).to_contain_text("Correct.")
