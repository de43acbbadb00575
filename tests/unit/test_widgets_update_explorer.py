"""The update explorer says and draws what fp16 and float32 subtraction in PyTorch give."""

import pytest
import torch

from amp_lessons.widgets.update_explorer import UpdateExplorer, numbers_around


@pytest.fixture(scope="module")
def explorer() -> UpdateExplorer:
    return UpdateExplorer()


def at(explorer: UpdateExplorer, weight: int, update: int, sign: int) -> str:
    explorer.weight.value, explorer.update.value, explorer.sign.value = weight, update, sign
    return explorer.text


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("weight", [-8, -3, 0, 8])
def test_agrees_with_pytorch_for_every_update(explorer, weight, sign):
    for update in range(1, 25):
        text = at(explorer, weight, update, sign)
        for name, dtype in (("fp16", torch.float16), ("float32", torch.float32)):
            before = torch.tensor(2.0**weight, dtype=dtype)
            after = before + sign * torch.tensor(2.0**-update, dtype=dtype)
            lost = f"In {name} the sum rounds back to the weight: nothing happened." in text
            assert lost == (after == before).item(), (weight, update, sign, name)
            if not lost:
                assert f"In {name} it becomes {after.item():.10g}, " in text


def test_the_update_that_never_lands(explorer):
    text = at(explorer, 0, 13, -1)
    assert "In float32 it becomes 0.9998779297, exactly." in text
    assert "an update up to half of that, 2^-12, is lost" in text
    assert "nothing happened" in explorer.picture._verdict.get_text()


def test_stagnation_is_asymmetric_at_a_power_of_two(explorer):
    assert "In fp16 it becomes 0.9995117188" in at(explorer, 0, 11, -1)
    assert "In fp16 the sum rounds back" in at(explorer, 0, 11, 1)
    assert "half of that, 2^-11, is lost" in explorer.text


def test_ratio_of_2048_at_every_weight(explorer):
    """Micikevicius et al. 2018, section 3.1: an update is lost when the weight is 2,048 times as large."""
    for weight in range(-8, 9):
        update = 11 - weight
        if 1 <= update <= 24:
            assert "In fp16 the sum rounds back" in at(explorer, weight, update, 1)
        if 1 <= update - 1 <= 24:
            assert "In fp16 it becomes" in at(explorer, weight, update - 1, 1)


@pytest.mark.parametrize("weight", [2.0**-8, 1.0, 256.0])
def test_ruler_holds_fp16s_own_neighbours(weight):
    code = torch.tensor(weight, dtype=torch.float16).view(torch.int16).item()
    codes = torch.arange(code - 6, code + 4, dtype=torch.int16)
    assert numbers_around(weight, 3.4 * weight * 2.0**-10) == codes.view(torch.float16).tolist()


def test_picture_points_where_fp16_stores(explorer):
    at(explorer, 0, 10, 1)
    assert list(explorer.picture._arrow.get_xdata()) == [1, 1]
    at(explorer, 0, 12, -1)
    assert list(explorer.picture._arrow.get_xdata()) == [-0.25, 0]


def test_no_setting_fails_and_twin_follows(explorer):
    for weight in range(-8, 9, 4):
        for update in (1, 8, 24):
            for sign in (-1, 1):
                before = explorer._image.value
                at(explorer, weight, update, sign)
                assert 'role="status"' in explorer._twin.value and f"update 2^-{update}" in explorer._twin.value
    assert explorer._image.value != before
