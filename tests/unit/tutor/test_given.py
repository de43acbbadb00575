"""What is no number and no tensor is told in words, and what will do as one passes."""

import numpy
import pytest
import torch

from amp_lessons.tutor.given import NOTHING, not_a_flag, not_a_number, not_a_tensor


@pytest.mark.parametrize(
    "given", [2, 2.5, float("inf"), float("nan"), torch.tensor(2.0), torch.tensor([[2]]), numpy.float32(2)]
)
def test_what_float_takes_is_a_number(given):
    assert not_a_number(given) is None


@pytest.mark.parametrize(
    "given, words",
    [
        (None, NOTHING),
        (True, "`True`, of type bool"),
        ("2", "`'2'`, of type str"),
        ([2], "`[2]`, of type list"),
        (2j, "of type complex"),
        (torch.zeros(3), "a tensor of shape [3]"),
        (torch.zeros(0), "a tensor of shape [0]"),
        (numpy.zeros(2), "of type ndarray"),
        (torch.float16, "of type dtype"),
    ],
)
def test_what_is_no_number_is_told(given, words):
    assert words in not_a_number(given)


def test_a_value_is_not_called_returned():
    assert "returns" in not_a_number("2") and "returns" not in not_a_number("2", returned=False)
    assert "`None`" in not_a_number(None, returned=False)


def test_a_long_answer_is_cut_short():
    assert len(not_a_number([0] * 10_000)) < 200


@pytest.mark.parametrize(
    "given, words",
    [
        (None, NOTHING),
        ([1.0, 2.0], "of type list; a tensor is asked for"),
        (torch.zeros(2, 1).half(), "shape [2, 1]; it should be [2]"),
        (torch.zeros(2), "It returns float32; it should be float16"),
    ],
)
def test_what_is_another_tensor_is_told(given, words):
    assert words in not_a_tensor(given, torch.Size([2]), torch.float16)


def test_the_right_tensor_passes():
    assert not_a_tensor(torch.zeros(2).half(), torch.Size([2]), torch.float16) is None


@pytest.mark.parametrize("given", [True, False, torch.tensor(True), torch.tensor([[False]]), numpy.bool_(True), numpy.array([False])])
def test_true_and_false_are_flags(given):
    assert not_a_flag(given) is None


@pytest.mark.parametrize(
    "given, words",
    [(None, NOTHING), (1, "`1`, of type int"), (65536.0, "of type float"), ("True", "of type str"), (torch.tensor([True, True]), "of type Tensor")],
)
def test_what_is_no_flag_is_told(given, words):
    assert words in not_a_flag(given)
