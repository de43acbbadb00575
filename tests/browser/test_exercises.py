"""An exercise of each lesson, solved by typing: not attempted, incorrect with the mistake named, correct, and kept."""

import json
import re

import pytest
from playwright.sync_api import expect

from amp_lessons.instructor import lesson_path
from amp_lessons.tutor.exercises import exercise, lessons, of_lesson

# Another than the first where that shows more: the whole step in lesson 5.
CHOSEN = {5: "5-step"}
SOLVED = [CHOSEN.get(lesson, of_lesson(lesson)[0].name) for lesson in lessons()]


def begin(lab, found):
    """Open the lesson and run its imports; gives the exercise's cell."""
    lab.open(lesson_path(found.lesson).name)
    lab.run(lab.cell("from amp_lessons.tutor.exercises import exercise"))
    return lab.cell(f'exercise("{found.name}").check(')


def status(cell):
    return cell.locator('.jp-Cell-outputArea [role="status"]').first


@pytest.mark.parametrize("name", SOLVED)
def test_solved_by_typing_and_kept_over_a_reload(lab, progress_file, name):
    found = exercise(name)
    cell = begin(lab, found)
    lab.run(cell)
    expect(status(cell)).to_contain_text(f"Exercise {name}: not attempted.")

    wrong = found.wrong[0]
    lab.type(cell, found.cell(wrong.source))
    lab.run(cell)
    expect(status(cell)).to_contain_text(f"Exercise {name}: incorrect.")
    expect(status(cell)).to_contain_text(wrong.message.replace("`", ""))
    assert not progress_file.exists()
    lab.screenshot(f"exercise_{name}_incorrect", cell)

    lab.type(cell, found.cell(found.answer))
    lab.run(cell)
    expect(status(cell)).to_contain_text(f"Exercise {name}: correct.")
    assert list(json.loads(progress_file.read_text())["solved"]) == [name]

    cell = begin(lab, found)  # a new page with the notebook as it was stored
    lab.run(cell)
    expect(status(cell)).to_contain_text(re.compile(r"You solved it on 20\d\d-\d\d-\d\d\."))


def test_hints_and_solution_open_by_keyboard_and_read_in_both_themes(lab):
    found = exercise("5-step")
    cell = begin(lab, found)
    lab.type(cell, found.cell(found.wrong[0].source))
    lab.run(cell)
    expect(status(cell)).to_contain_text("incorrect")
    hint = found.hints[0]
    button = cell.get_by_role("button", name=f"Hint: {hint.symptom}")
    button.focus()
    lab.page.keyboard.press("Enter")
    expect(cell.get_by_role("status").last).to_contain_text(hint.text)
    cell.get_by_role("button", name="Show a solution").press("Space")
    expect(cell.get_by_role("status").last).to_contain_text("scaler.unscale_(optimizer)")
    for theme in ("light", "dark"):
        lab.set_theme(theme)
        lab.screenshot(f"exercise_{theme}", cell)


def test_an_endless_loop_is_ended_and_the_kernel_lives(lab):
    found = exercise("5-step")
    cell = begin(lab, found)
    endless = "def amp_step(model, optimizer, scaler, inputs, targets):\n    while True:\n        pass"
    lab.type(cell, f'{endless}\n\n\nexercise("5-step").check(amp_step, seconds=1)')
    lab.run(cell)
    expect(status(cell)).to_contain_text("could not run. It was stopped after 1 seconds. Is there a loop that does not end?", timeout=20_000)
    lab.type(cell, found.cell("def amp_step(model, optimizer, scaler, inputs, targets):\n    return 1 / 0"))
    lab.run(cell)
    expect(status(cell)).to_contain_text("could not run. ZeroDivisionError: division by zero, in line 2 of your cell: return 1 / 0.")
    assert not [error for error in lab.console_errors if "favicon" not in error]
