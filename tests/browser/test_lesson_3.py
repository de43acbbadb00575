"""Lesson 3 in JupyterLab: the ops' buttons and the update's slider change picture and twin, by keyboard alone."""

from playwright.sync_api import expect

LESSON = "03_autocast_picks_the_precision.ipynb"


def test_widgets_answer_to_the_keyboard(lab):
    lab.open(LESSON)
    lab.run_all()
    assert lab.errors() == []

    updates = lab.explorer("update 2^-k")
    assert "In fp16 the sum rounds back to the weight" in lab.twin(updates)  # 1 - 2^-13
    for key, fact in (("ArrowLeft", "In fp16 the sum rounds back"), ("ArrowLeft", "In fp16 it becomes 0.9995117188, exactly")):
        picture, twin = lab.picture(updates), lab.twin(updates)
        lab.press(updates, "update 2^-k", key)
        lab.wait_for_new_twin(updates, twin)
        lab.wait_for_new_picture(updates, picture)
        assert fact in lab.twin(updates)
    assert "update 2^-11, subtracted" in lab.twin(updates)

    # Tab reaches the buttons and Space presses them.
    twin = lab.twin(updates)
    press_button(updates, "weight + update")
    lab.wait_for_new_twin(updates, twin)
    assert "update 2^-11, added" in lab.twin(updates) and "In fp16 the sum rounds back" in lab.twin(updates)
    for theme in ("light", "dark"):
        lab.set_theme(theme)
        lab.screenshot(f"lesson_3_updates_{theme}", updates)

    ops = lab.explorer("inputs")
    assert "torch.softmax, float16 in: float16 on the CPU, float32 on CUDA." in lab.twin(ops)
    for button, fact in (
        ("elementwise and pooling", "F.relu, float16 in: float16 on both."),
        ("all float32", "F.relu, float32 in: float32 on both."),
    ):
        picture, twin = lab.picture(ops), lab.twin(ops)
        press_button(ops, button)
        lab.wait_for_new_twin(ops, twin)
        lab.wait_for_new_picture(ops, picture)
        assert fact in lab.twin(ops)
    for theme in ("light", "dark"):
        lab.set_theme(theme)
        lab.screenshot(f"lesson_3_ops_{theme}", ops)


def test_quick_check_answers(lab):
    lab.open(LESSON)
    lab.run_all()
    question = lab.page.locator(".jp-OutputArea-output .widget-vbox", has_text="Which lines of a training step belong").first
    press_button(question, "D. The whole training loop")
    expect(question.get_by_role("status")).to_contain_text("Not quite.")
    press_button(question, "B. The forward pass and the loss")
    expect(question.get_by_role("status")).to_contain_text("Correct.")


def press_button(box, label: str) -> None:
    button = box.get_by_role("button", name=label, exact=True)
    button.scroll_into_view_if_needed()
    button.focus()
    button.press("Space")
