"""Lesson 6 in the browser: the speed explorer's sliders stop at measured sizes, and figure and twin follow them."""

import pytest
from playwright.sync_api import expect

LESSON = "06_when_it_pays.ipynb"


@pytest.fixture
def lesson(lab):
    lab.open(LESSON)
    lab.run_all()
    return lab


def test_speed_explorer_by_keyboard(lesson):
    explorer = lesson.explorer("width 2^k")
    picture, twin = lesson.picture(explorer), lesson.twin(explorer)
    assert "Width 256, batch 256" in twin and "FP32 takes" in twin and "FP32's time divided by it is" in twin
    lesson.screenshot("06_speed_light", explorer)

    lesson.press(explorer, "width 2^k", "ArrowLeft")
    lesson.wait_for_new_picture(explorer, picture)
    lesson.wait_for_new_twin(explorer, twin)
    assert "Width 128, batch 256" in lesson.twin(explorer)

    picture, twin = lesson.picture(explorer), lesson.twin(explorer)
    lesson.press(explorer, "batch 2^k", "ArrowLeft")
    lesson.wait_for_new_picture(explorer, picture)
    lesson.wait_for_new_twin(explorer, twin)
    assert "Width 128, batch 64" in lesson.twin(explorer)  # not 128: that was not measured

    for _ in range(4):
        lesson.press(explorer, "batch 2^k", "ArrowLeft")
    expect(explorer.get_by_role("status").last).to_contain_text("Width 128, batch 16")
    lesson.set_theme("dark")
    lesson.screenshot("06_speed_dark", explorer)
    lesson.set_theme("light")


def test_quick_check_and_an_exercise_answer(lesson):
    right = "Weights, gradients and the optimizer's state are most of it"
    question = lesson.page.locator(".widget-vbox", has=lesson.page.get_by_role("button", name=right)).first
    question.get_by_role("button", name=right).press("Space")
    expect(question.get_by_role("status")).to_contain_text("Correct.")

    cell = lesson.cell("def padded(")
    lesson.type(cell, 'def padded(size, multiple=8):\n    return size // multiple * multiple\n\n\nexercise("6-pad").check(padded)')
    lesson.run(cell)
    expect(cell.locator(".jp-OutputArea-output").first).to_contain_text("padding adds and takes nothing away")
