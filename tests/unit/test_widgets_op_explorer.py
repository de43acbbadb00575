"""The op explorer shows PyTorch's answers for the chosen family and inputs."""

import pytest
import torch

from amp_lessons.errors import LessonError
from amp_lessons.figures.dtype_grid import ROWS, DtypeGrid
from amp_lessons.widgets.op_explorer import OpExplorer


@pytest.fixture(scope="module")
def explorer() -> OpExplorer:
    return OpExplorer()


def at(explorer: OpExplorer, family: str, inputs: str = "as in a model") -> str:
    explorer.family.value, explorer.inputs.value = family, inputs
    return explorer.text


def drawn(grid: DtypeGrid) -> list[tuple[str, ...]]:
    rows = [tuple(text.get_text() for text in row) for row in grid._texts]
    return [row for row in rows if any(row)]


def test_softmax_stays_16_bit_on_the_cpu_only(explorer):
    assert "torch.softmax, float16 in: float16 on the CPU, float32 on CUDA." in at(explorer, "exponentials")
    assert drawn(explorer.picture)[0] == ("torch.softmax", "float16", "float16", "float32", "differ")


def test_matrix_products_are_16_bit_whatever_comes_in(explorer):
    for inputs, dtype in (("all float32", "float32"), ("all float16", "float16")):
        assert f"a @ b, {dtype} in: float16 on both." in at(explorer, "matrix products", inputs)
    assert "a @ b in float64, float64 in: float64 on both." in explorer.text


def test_elementwise_ops_take_what_comes(explorer):
    assert "F.relu, float32 in: float32 on both." in at(explorer, "elementwise and pooling", "all float32")
    assert "F.relu, float16 in: float16 on both." in at(explorer, "elementwise and pooling", "all float16")


def test_equal_inputs_need_no_promotion(explorer):
    assert "torch.dot, float32, float16 in: error on the CPU, float32 on CUDA." in at(explorer, "mixed inputs")
    assert "x.scatter_add, float32, int64 in: float32 on both." in at(explorer, "mixed inputs", "all float32")


def test_banned(explorer):
    assert "F.binary_cross_entropy, float16 in: float32 on the CPU, error on CUDA." in at(explorer, "banned")
    assert len(drawn(explorer.picture)) == 1  # the rows of a longer family are gone


def test_every_family_and_input_is_drawn_in_full(explorer):
    for family, _ in explorer.family.options:
        for inputs, _ in explorer.inputs.options:
            text = at(explorer, family, inputs)
            rows = list(explorer.tables[inputs].family(family))
            assert [row[0] for row in drawn(explorer.picture)] == [row.op for row in rows]
            assert 'role="status"' in explorer._twin.value and len(text.splitlines()) == 1 + len(rows)


def test_cells_have_one_colour_a_dtype(explorer):
    at(explorer, "exponentials")
    colours = [tuple(colour) for colour in explorer.picture._cells.get_facecolor()]
    cells = [cell for row in drawn(explorer.picture) for cell in row[2:4]]
    assert len(colours) == len(cells) and len(set(zip(cells, colours))) == len(set(colours)) == 2


def test_bfloat16():
    explorer = OpExplorer(torch.bfloat16)
    assert "torch.softmax, bfloat16 in: bfloat16 on the CPU, float32 on CUDA." in at(explorer, "exponentials", "all bfloat16")


def test_too_many_rows_get_a_sentence():
    with pytest.raises(LessonError, match=f"room for {ROWS} ops"):
        DtypeGrid().show([("op", "", "", "", "")] * (ROWS + 1))
