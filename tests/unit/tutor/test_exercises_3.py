"""What the texts of lesson 3's exercises say about PyTorch beyond what a check itself runs."""

import math

import pytest
import torch
import torch.nn.functional as F

from amp_lessons.autocast_ops import op_dtype
from amp_lessons.tutor.exercises.lesson_3 import dtypes

HALF = torch.float16


def on(device, op, *inputs):
    return op_dtype(op, *inputs, device_type=device, autocast_dtype=HALF).short


def ones(dtype):
    return torch.ones(4, 4, dtype=dtype)


def test_3_dtypes_cuda_gives_the_same_five():
    x, half = ones(torch.float32), ones(HALF)
    cuda = [
        on("cuda", torch.sigmoid, x),
        on("cuda", lambda x, w: F.gelu(x @ w), x, x),
        on("cuda", torch.mul, x, half),
        on("cuda", torch.matmul, x, x),
        on("cuda", F.l1_loss, half, x),
    ]
    assert cuda == [str(result.dtype).removeprefix("torch.") for result in dtypes._run()]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_3_dtypes_sigmoid_and_gelu_give_back_what_they_get_and_products_and_losses_do_not(device, dtype):
    x = ones(getattr(torch, dtype))
    assert (on(device, torch.sigmoid, x), on(device, F.gelu, x)) == (dtype, dtype)
    assert (on(device, torch.matmul, x, x), on(device, F.l1_loss, x, x)) == ("float16", "float32")


def test_3_dtypes_the_wider_wins_without_autocast_too():
    assert (ones(torch.float32) * ones(HALF)).dtype == torch.float32


def test_3_relative_what_goes_wrong_in_float16():
    def half(value):
        return torch.tensor(value, dtype=HALF)

    assert (half(300.0) * half(300.0)).item() == math.inf and half(150.0).square().isfinite()
    assert (half(1e-4) * half(1e-4)).item() == 0 and 1e-8 < 2.0**-24 / 2
    assert (half(8.0) * half(8.0)).item() == 64 and torch.full((1024,), 64.0, dtype=HALF).sum().item() == math.inf
    assert (half(4e4) - half(-4e4)).item() == math.inf


def test_3_relative_cuda_lists_pow_and_sum_and_not_the_product():
    x = ones(HALF)
    assert [on("cuda", op, x) for op in (lambda x: x**2, lambda x: x * x, torch.sum)] == ["float32", "float16", "float32"]
    assert [on("cpu", op, x) for op in (lambda x: x**2, lambda x: x * x, torch.sum)] == ["float16"] * 3


def test_3_master_float16_alone_stays_at_1():
    weight, master = torch.tensor(1.0, dtype=HALF), torch.tensor(1.0)
    for _ in range(20):
        weight, master = weight - 1e-4, master - 1e-4
    assert weight.item() == 1 and master.item() == pytest.approx(0.998, abs=1e-6) and master.half() < 1
