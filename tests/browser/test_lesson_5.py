"""Lesson 5 in the browser: the portraits train, stop and reset, whatever else happens to the kernel meanwhile."""

import re

import pytest
from playwright.sync_api import expect

LESSON = "05_the_full_amp_step.ipynb"
TRAINING = re.compile(r"training, step [1-9]\d*")
STOPPED = re.compile(r"stopped, step [1-9]\d*")


@pytest.fixture
def lesson(lab):
    lab.open(LESSON)
    lab.run_all()
    return lab


def state_of(trainer):
    return trainer.locator(".widget-hprogress .widget-label")


def steps_of(trainer):
    return int(state_of(trainer).inner_text().split()[-1])


def start(lab, trainer):
    lab.click(trainer, "Run")
    expect(state_of(trainer)).to_have_text(TRAINING, timeout=20_000)


def stop(lab, trainer):
    lab.click(trainer, "Stop")
    expect(state_of(trainer)).to_have_text(STOPPED, timeout=5_000)


def run_in_kernel(lab, code):
    """What a cell with this code would print."""
    return lab.page.evaluate(
        """async code => {
            const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
            const future = kernel.requestExecute({code});
            let printed = '';
            future.onIOPub = message => { printed += message.content.text ?? message.content.evalue ?? ''; };
            await future.done;
            return printed;
        }""",
        code,
    )


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


def test_other_cells_interrupts_and_a_restart_leave_it_usable(lesson):
    trainer = lesson.trainer()
    start(lesson, trainer)
    waited = "n = len(trainer.runs[0].history.records); import time; time.sleep(0.5)"
    assert run_in_kernel(lesson, f"{waited}; print(n == len(trainer.runs[0].history.records))") == "True\n"
    lesson.click(trainer, "Run")  # a second time
    lesson.page.evaluate("window.jupyterapp.commands.execute('notebook:interrupt-kernel')")
    assert run_in_kernel(lesson, "print(1 + 1)") == "2\n"
    if state_of(trainer).inner_text().startswith("training"):
        stop(lesson, trainer)
    start(lesson, trainer)
    lesson.click(trainer, "Reset")
    expect(state_of(trainer)).to_have_text("ready, step 0")

    start(lesson, trainer)
    run_in_kernel(lesson, "import amp_lessons.training\namp_lessons.training.training_step = lambda *_, **__: 1 / 0")
    expect(trainer.get_by_role("alert")).to_contain_text("ZeroDivisionError", timeout=5_000)
    lesson.restart_and_clear()
    lesson.run_all()
    trainer = lesson.trainer()
    start(lesson, trainer)
    stop(lesson, trainer)
