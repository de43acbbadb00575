"""The start page in the browser: all is well, the map shows what is solved and leads to the lessons, Reset asks first."""

import json

from playwright.sync_api import expect

PAGE = "00_start_here.ipynb"
LESSON = "01_what_mixed_precision_means.ipynb"


def course_map(lab):
    return lab.page.locator(".jp-RenderedHTMLCommon:has(table)", has_text="quick checks").first


def row(lab, number):
    """The texts of a lesson's row: number, lesson, time, exercises, quick checks."""
    return course_map(lab).locator("tbody tr").nth(number - 1).locator("th, td").all_inner_texts()


def panel(lab):
    box = lab.page.locator(".jp-OutputArea-output .widget-vbox", has=lab.page.get_by_role("button", name="Reset my progress"))
    box.first.scroll_into_view_if_needed()
    return box.first


def solve_one_quick_check(lab):
    lab.open(LESSON)
    lab.run_all()
    question = lab.page.locator(".jp-OutputArea-output .widget-vbox", has_text="What does bf16 do better?").first
    question.get_by_role("button", name="It reaches further").press("Enter")
    expect(question.get_by_role("status")).to_contain_text("Correct. It has float32's 8 exponent bits")
    return question


def test_all_is_well_and_nothing_is_solved(lab, progress_file):
    lab.open(PAGE)
    lab.run_all()
    report = lab.page.locator(".jp-OutputArea-output", has_text="GradScaler takes a step").first.inner_text()
    assert {line[:6] for line in report.strip().splitlines()} == {"OK    "}
    assert f"progress: {progress_file}" in lab.page.locator(".jp-OutputArea-output", has_text="progress: ").first.inner_text()
    assert row(lab, 1)[-1] == "0 of 3" and "You have solved 0 of" in course_map(lab).inner_text()

    practice = lab.explorer("k")
    lab.press(practice, "k", "ArrowRight")
    expect(practice.get_by_role("status")).to_have_text("2^11 = 2,048")

    reset = panel(lab)
    reset.get_by_role("button", name="Reset my progress").press("Enter")
    expect(reset.get_by_role("status")).to_contain_text("nothing to forget")
    assert reset.get_by_role("button", name="Yes").is_hidden()


def test_progress_is_shown_kept_over_a_reload_and_forgotten_only_after_yes(lab, progress_file):
    solve_one_quick_check(lab)
    assert list(json.loads(progress_file.read_text())["solved"]) == ["1-bf16"]
    lab.open(PAGE)
    lab.run_all()
    assert row(lab, 1)[-1] == "1 of 3" and "You have solved 1 of" in course_map(lab).inner_text()
    for theme in ("light", "dark"):
        lab.set_theme(theme)
        lab.screenshot(f"00_map_{theme}", course_map(lab))
    lab.set_theme("light")

    lab.open(PAGE)  # a new page: what it stores of the old outputs is not what counts
    lab.restart_and_clear()
    lab.run_all()
    assert row(lab, 1)[-1] == "1 of 3"

    reset = panel(lab)
    button, no = reset.get_by_role("button", name="Reset my progress"), reset.get_by_role("button", name="No, keep it")
    assert no.is_hidden()
    button.press("Enter")
    expect(reset.get_by_role("status")).to_contain_text("Forget 1 solved exercise or quick check?")
    expect(no).to_be_focused()
    lab.screenshot("00_reset_asks", reset)
    lab.page.keyboard.press("Enter")
    expect(reset.get_by_role("status")).to_have_text("Nothing has changed.")
    lab.run_all()
    assert row(lab, 1)[-1] == "1 of 3"

    reset = panel(lab)
    reset.get_by_role("button", name="Reset my progress").click()
    lab.page.keyboard.press("Tab")
    expect(reset.get_by_role("button", name="Yes, forget it")).to_be_focused()
    lab.page.keyboard.press("Enter")
    expect(reset.get_by_role("status")).to_contain_text("Your progress is reset.")
    assert reset.get_by_role("button", name="Yes").is_hidden() and not progress_file.exists()
    lab.run_all()
    assert row(lab, 1)[-1] == "0 of 3"


def test_the_map_opens_a_lesson(lab):
    lab.open(PAGE)
    lab.run_all()
    course_map(lab).get_by_role("link", name="What mixed precision means").click()
    lab.page.locator(f'.lm-TabBar-tabLabel:text-is("{LESSON}")').wait_for()


def test_a_question_says_that_it_was_answered(lab):
    solve_one_quick_check(lab)
    lab.run_all()
    question = lab.page.locator(".jp-OutputArea-output .widget-vbox", has_text="What does bf16 do better?").first
    expect(question.get_by_role("status")).to_contain_text("Answered correctly on 20")
