"""What is stored of a lesson's outputs."""

from nbformat.v4 import new_code_cell, new_notebook, new_output

from amp_lessons.lessons import clean


def test_a_text_that_the_kernel_cut_is_stored_in_one_piece():
    pieces = [new_output("stream", name="stdout", text=text) for text in ("True\n", " 1.0 ", "{}\n")]
    pieces.insert(2, new_output("stream", name="stderr", text="between"))
    cell = new_code_cell("print(1)", outputs=pieces)
    clean(new_notebook(cells=[cell]))
    assert [(o.name, o.text) for o in cell.outputs] == [("stdout", "True\n 1.0 "), ("stderr", "between"), ("stdout", "{}\n")]
