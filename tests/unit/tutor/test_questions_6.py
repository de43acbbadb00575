"""The claims in the feedback of lesson 6's quick checks, each run on PyTorch; names give the question and the answer."""

import time

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from amp_lessons import measure
from amp_lessons.measure.settings import SETTINGS
from amp_lessons.measure.steps import TrainingStep

CPU = torch.device("cpu")
FP32, AMP = (next(setting for setting in SETTINGS if setting.name == name) for name in ("fp32", "amp"))


def split(setting, batch):
    return measure.memory_split(measure.mlp(128, batch), setting, CPU)


def test_6_memory_a_the_scaler_divides_in_place_and_keeps_no_copy():
    weight = torch.nn.Parameter(torch.ones(1000))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale((weight * 3).sum()).backward()
    place = weight.grad.data_ptr()
    scaler.unscale_(optimizer)
    assert weight.grad.data_ptr() == place and torch.equal(weight.grad, torch.full((1000,), 3.0))
    kept = [value for value in vars(scaler).values() if isinstance(value, torch.Tensor)]
    assert all(tensor.numel() == 1 for tensor in kept) and scaler.state_dict().keys() >= {"scale", "_growth_tracker"}


def test_6_memory_b_what_stays_float32_is_most_of_it_and_then_the_memory_hardly_falls():
    fp32, amp = split(FP32, 256), split(AMP, 256)
    for part in ("weights_bytes", "gradients_bytes", "optimizer_bytes"):
        assert getattr(fp32, part) == getattr(amp, part)
    assert fp32.weights_bytes + fp32.gradients_bytes + fp32.optimizer_bytes > 0.6 * fp32.sum_bytes
    assert 0.9 < amp.sum_bytes / fp32.sum_bytes < 1


def test_6_memory_b_only_the_activations_shrink_and_they_grow_with_the_batch():
    small, large = split(AMP, 64), split(AMP, 256)
    assert large.activations_bytes == 4 * small.activations_bytes < split(FP32, 256).activations_bytes
    assert (large.weights_bytes, large.optimizer_bytes) == (small.weights_bytes, small.optimizer_bytes)


def test_6_memory_c_what_a_16_bit_operation_gives_is_kept_in_16_bits():
    kept = []
    layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        with torch.autocast("cpu", dtype=torch.float16):
            layers(torch.randn(4, 8))
    assert {tensor.dtype for tensor in kept if len(tensor) == 4} == {torch.float16}


@pytest.mark.cuda
def test_6_clock_a_kernels_run_on_after_the_call_and_b_it_is_the_queueing_that_was_timed():
    matrix = torch.ones(8192, 8192, device="cuda")

    def seconds(wait):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(10):
            matrix @ matrix
        if wait:
            torch.cuda.synchronize()
        return time.perf_counter() - start

    seconds(wait=True)
    assert seconds(wait=False) < 0.1 * seconds(wait=True)


class Calls(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_6_clock_b_amp_has_more_calls_than_fp32():
    counts = []
    for setting in (FP32, AMP):
        step = TrainingStep(measure.mlp(16, 8), setting, CPU)
        step()
        with Calls() as calls:
            step()
        counts.append(calls.count)
    assert counts[1] > 1.2 * counts[0]


# 6-clock C, no message: that is the test on CUDA above, which passes without one.


def test_6_addition_a_an_addition_has_no_product_in_it():
    a = torch.ones(64, 64)
    with FlopCounterMode(display=False) as products:
        a + a
    with FlopCounterMode(display=False) as one_product:
        a @ a
    assert products.get_total_flops() == 0 and one_product.get_total_flops() == measure.matmul_flop(64, 64, 64)


def test_6_addition_b_and_c_half_the_bytes_move_and_there_is_little_arithmetic_for_each():
    point = {p.dtype: p for p in measure.add_speeds((64,), ("float32", "float16"), "cpu", runs=1)}
    assert point["float16"].bytes * 2 == point["float32"].bytes == 3 * 64 * 64 * 4
    assert point["float32"].flop_per_byte == 1 / 12 and point["float16"].flop_per_byte == 1 / 6
    assert all((torch.ones(2, dtype=dtype) + 1).dtype == dtype for dtype in (torch.float16, torch.bfloat16))


def test_6_addition_c_autocast_does_not_widen_an_addition_of_16_bit_numbers():
    with torch.autocast("cpu", dtype=torch.float16):
        outputs = F.linear(torch.ones(2, 2), torch.ones(2, 2))
        assert (outputs + outputs).dtype == torch.float16
