"""The claims in the feedback of lesson 3's quick checks, each run on PyTorch; names give the question and the answer."""

from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from amp_lessons.autocast_ops import op_dtype

HALF = torch.float16


def linear_then_softmax(x, weight):
    return torch.softmax(F.linear(x, weight), dim=-1)


@pytest.mark.parametrize("device, dtype", [("cpu", torch.float16), ("cuda", torch.float32)])
def test_3_softmax_a_b_float16_on_the_cpu_and_float32_on_cuda(device, dtype):
    x, weight = torch.ones(2, 4), torch.ones(3, 4)
    assert op_dtype(F.linear, x, weight, device_type=device, autocast_dtype=HALF).short == "float16"
    assert op_dtype(linear_then_softmax, x, weight, device_type=device, autocast_dtype=HALF).short == str(dtype).removeprefix("torch.")


def test_3_softmax_a_the_cpu_region_itself_says_float16():
    layer = nn.Linear(4, 3)
    with torch.autocast("cpu", dtype=HALF):
        assert torch.softmax(layer(torch.ones(2, 4)), dim=-1).dtype == HALF


def test_3_softmax_c_weights_are_float32_and_the_choice_does_not_depend_on_them():
    assert nn.Linear(4, 3).weight.dtype == torch.float32
    x = torch.ones(2, 4)
    answers = {
        op_dtype(linear_then_softmax, x, torch.ones(3, 4, dtype=dtype), device_type="cuda", autocast_dtype=HALF).short
        for dtype in (torch.float32, HALF)
    }
    assert answers == {"float32"}


@pytest.mark.parametrize("loss, targets", [(F.cross_entropy, torch.zeros(8, dtype=torch.long)), (F.mse_loss, torch.zeros(8, 3).half())])
def test_3_region_a_a_loss_outside_takes_the_dtype_that_comes_out(loss, targets):
    with torch.autocast("cpu", dtype=HALF):
        output = nn.Linear(4, 3)(torch.ones(8, 4))
        inside = loss(output, targets)
    assert (output.dtype, loss(output, targets).dtype, inside.dtype) == (HALF, HALF, torch.float32)


class Products(TorchDispatchMode):
    """Notes the dtypes that matrix products get."""

    def __init__(self):
        super().__init__()
        self.dtypes = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm):
            self.dtypes.append({arg.dtype for arg in args if isinstance(arg, torch.Tensor)})
        return func(*args, **(kwargs or {}))


def test_3_region_b_backward_ops_run_in_the_dtypes_of_the_forward_ops():
    model, inputs, targets = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1)), torch.randn(16, 4), torch.zeros(16, 1)
    with torch.autocast("cpu", dtype=HALF):
        output = model(inputs)
        loss = F.mse_loss(output, targets)
    output.retain_grad()
    loss.retain_grad()
    with Products() as products:
        loss.backward()  # outside
    assert len(products.dtypes) == 3 and all(dtypes == {HALF} for dtypes in products.dtypes)
    assert output.grad.dtype == HALF and loss.grad.dtype == torch.float32


def gradients(backward_inside):
    torch.manual_seed(0)
    model, inputs, targets = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), torch.randn(16, 4), torch.zeros(16, 1)
    with torch.autocast("cpu", dtype=HALF):
        loss = F.mse_loss(model(inputs), targets)
        if backward_inside:
            loss.backward()
    if not backward_inside:
        loss.backward()
    return [parameter.grad for parameter in model.parameters()]


def test_3_region_c_backward_gains_nothing_inside_and_the_documentation_advises_against_it():
    assert all(torch.equal(inside, outside) for inside, outside in zip(gradients(True), gradients(False)))
    assert "Backward passes under autocast are not recommended." in torch.autocast.__doc__


def test_3_region_d_the_cast_copies_are_renewed_only_when_the_region_ends():
    def losses(around):
        weight = nn.Parameter(torch.ones(1, 1))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        seen = []
        with around:
            for _ in range(3):
                with torch.autocast("cpu", dtype=HALF):
                    loss = F.mse_loss(F.linear(torch.ones(1, 1), weight), torch.zeros(1, 1))
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                seen.append(loss.item())
        assert weight.item() < 0.7  # it moves all the same
        return seen

    assert losses(torch.autocast("cpu", dtype=HALF)) == [1.0, 1.0, 1.0]
    first, second, third = losses(nullcontext())
    assert third < second < first == 1.0


def grown(dtype, steps=1000, update=0.0004):
    weight = torch.tensor(1.0, dtype=dtype)
    for _ in range(steps):
        weight = weight + update
    return weight


def test_3_update_a_float32_gives_1_4_and_so_would_fp16_that_rounds_once():
    assert grown(torch.float32).item() == pytest.approx(1.4, abs=1e-3)
    assert grown(torch.float32).half().item() == pytest.approx(1.4, abs=1e-3)
    assert grown(HALF, steps=1).item() == 1.0  # rounded back at once


def test_3_update_b_half_of_the_spacing_above_1_is_2_to_minus_11():
    assert grown(HALF).item() == 1.0
    one = torch.tensor(1.0, dtype=HALF)
    above = torch.nextafter(one, torch.tensor(2.0, dtype=HALF)).item()
    assert (above - 1) / 2 == 2.0**-11 == pytest.approx(0.00049, abs=5e-6) and 2.0**-11 > 0.0004
    assert (one + 2.0**-11 * 1.001).item() == above  # and an update just over it lands


def test_3_update_c_1_0004_is_rounded_to_the_nearest_and_not_to_inf():
    assert torch.tensor(1.0004, dtype=HALF).item() == 1.0
    assert torch.tensor(65519.0, dtype=HALF).item() == 65504.0 == torch.finfo(HALF).max  # inf begins far above
