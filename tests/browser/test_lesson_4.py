"""Lesson 4 in JupyterLab: the scaler's settings and the walk into the window answer to the keyboard, in picture and words."""

from tests.browser.lab import Lab


def test_scaler_and_window_answer_to_the_keyboard(lab: Lab):
    from playwright.sync_api import expect

    lab.open("04_gradscaler_keeps_gradients_alive.ipynb")
    lab.run_all()
    assert lab.errors() == []

    scaler = lab.explorer("growth factor")
    words = scaler.locator('[role="status"]')
    expect(words).to_contain_text("Starting at 2^16, over 200 steps")
    picture = lab.picture(scaler)
    lab.press(scaler, "init scale", "End")
    # The first gradients fit up to 2^27, but shrink while the replayed run trains on: fewer than 13 skips.
    expect(words).to_contain_text("Starting at 2^40, over 200 steps", timeout=10_000)
    expect(words).to_contain_text("at the start; it ends at 2^")
    lab.wait_for_new_picture(scaler, picture)
    picture, said = lab.picture(scaler), lab.twin(scaler)
    lab.press(scaler, "growth interval", "Home")
    lab.wait_for_new_twin(scaler, said)
    lab.wait_for_new_picture(scaler, picture)
    for name in ("16", "1/16"):
        said = lab.twin(scaler)
        scaler.get_by_role("button", name=name, exact=True).press("Space")
        lab.wait_for_new_twin(scaler, said)

    window = lab.explorer("training step")
    words = window.locator('[role="status"]')
    expect(words).to_contain_text("Step 0 is skipped. Its loss scale is 2^40, outside the window")
    picture = lab.picture(window)
    lab.press(window, "training step", "ArrowRight", "ArrowRight")
    expect(words).to_contain_text("Step 2 is skipped. Its loss scale is 2^38, outside the window", timeout=10_000)
    lab.wait_for_new_picture(window, picture)
    lab.press(window, "init scale", "Home")
    expect(words).to_contain_text("Step 2 is taken. Its loss scale is 2^0, outside the window", timeout=10_000)
    lab.press(window, "training step", "End")
    expect(words).to_contain_text("Step 199 is taken. Its loss scale is 2^9,", timeout=10_000)

    question = lab.page.locator(".jp-OutputArea-output .widget-vbox", has_text="What do step and update do?").first
    verdict = question.locator('[role="status"]')
    for answer, said in (("D. Skip the step and raise", "Not quite."), ("B. Skip the step and lower", "Correct.")):
        question.get_by_role("button", name=answer).press("Enter")
        expect(verdict).to_contain_text(said, timeout=10_000)
