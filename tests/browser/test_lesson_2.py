"""Lesson 2 in JupyterLab: both sliders answer to the keyboard, in picture and words, and the quick check answers back."""

from tests.browser.lab import Lab


def test_sliders_and_quick_check_answer_to_the_keyboard(lab: Lab):
    from playwright.sync_api import expect

    lab.open("02_when_small_gradients_vanish.ipynb")
    lab.run_all()
    assert lab.errors() == []

    floor = lab.explorer("value in 1/16")
    words = floor.locator('[role="status"]')
    expect(words).to_contain_text("The float32 value 1.25 · 2^-24")
    picture = lab.picture(floor)
    lab.press(floor, "value in 1/16", *["ArrowLeft"] * 12)
    # 8 sixteenths are 2^-25, the largest value that fp16 flushes; one more is saved.
    expect(words).to_contain_text("0.5 · 2^-24 = 2.98e-08 is flushed to 0", timeout=10_000)
    lab.wait_for_new_picture(floor, picture)
    lab.press(floor, "value in 1/16", "ArrowRight")
    expect(words).to_contain_text("becomes 1 · 2^-24", timeout=10_000)

    shrink = lab.explorer("loss times 2^k")
    words = shrink.locator('[role="status"]')
    expect(words).to_contain_text("Loss times 2^0:")
    picture = lab.picture(shrink)
    lab.press(shrink, "loss times 2^k", "Home")
    expect(words).to_contain_text("Loss times 2^-24:", timeout=10_000)
    expect(words).to_contain_text("Nothing is left to learn from.")
    lab.wait_for_new_picture(shrink, picture)

    question = lab.page.locator(".jp-OutputArea-output .widget-vbox", has_text="A gradient of 2^-25 is stored").first
    verdict = question.locator('[role="status"]')
    for answer, said in (("B. 2^-24", "Not quite."), ("C. 0", "Correct.")):
        question.get_by_role("button", name=answer).press("Enter")
        expect(verdict).to_contain_text(said, timeout=10_000)
