"""Lesson 1 in the browser: the bit explorer answers to the keyboard and to its buttons."""

LESSON = "01_what_mixed_precision_means.ipynb"


def test_bit_explorer_by_keyboard(lab):
    lab.open(LESSON)
    lab.run_all()
    explorer = lab.explorer("exponent e")
    picture, twin = lab.picture(explorer), lab.twin(explorer)
    assert "FP16 stores 0.1" in twin

    lab.press(explorer, "exponent e", "ArrowRight")
    lab.wait_for_new_picture(explorer, picture)
    lab.wait_for_new_twin(explorer, twin)
    assert "FP16 stores 0.2" in lab.twin(explorer)

    picture, twin = lab.picture(explorer), lab.twin(explorer)
    explorer.get_by_role("button", name="BF16").press("Space")
    lab.wait_for_new_picture(explorer, picture)
    lab.wait_for_new_twin(explorer, twin)
    assert "BF16 stores 0.2" in lab.twin(explorer)
    lab.screenshot("01_bit_explorer", explorer)


def test_number_box_reaches_overflow(lab):
    lab.open(LESSON)
    lab.run_all()
    explorer = lab.explorer("exponent e")
    twin = lab.twin(explorer)
    box = explorer.locator(".widget-text input").first
    box.fill("16")
    box.press("Enter")
    lab.wait_for_new_twin(explorer, twin)
    assert "That is inf: the wanted value is past 65504" in lab.twin(explorer)
