"""The claims in the feedback of lesson 7's quick checks, each run on PyTorch; names give the question and the answer."""

import math
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F

MESSAGE = "No inf checks were recorded for this optimizer"
INPUTS = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
TARGETS = INPUTS.sum(dim=1, keepdim=True)


class Loop:
    """A linear layer, a CPU GradScaler, and fp16 autocast in a region for each forward pass, or in none of its own."""

    def __init__(self, kind=torch.optim.SGD, lr=0.1, **options):
        torch.manual_seed(0)
        self.model = torch.nn.Linear(4, 1)
        self.optimizer = kind(self.model.parameters(), lr=lr)
        self.scaler = torch.amp.GradScaler("cpu", **options)

    def loss(self, region=True):
        with torch.autocast("cpu", dtype=torch.float16) if region else nullcontext():
            return F.mse_loss(self.model(INPUTS), TARGETS)

    def end_step(self):
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()

    @property
    def weights(self):
        return torch.cat([parameter.detach().flatten().clone() for parameter in self.model.parameters()])


# -- 7-message ------------------------------------------------------------------------------------------------------


def test_7_message_a_a_nan_gradient_is_checked_and_skipped_without_an_error():
    loop = Loop()
    before = loop.weights
    loss = loop.loss() * math.nan
    loop.scaler.scale(loss).backward()
    assert loss.isnan() and loop.model.weight.grad.isnan().all()
    loop.end_step()
    assert torch.equal(loop.weights, before) and loop.scaler.get_scale() == 2.0**15


def none_reached(loop):
    other = Loop()
    other.optimizer = loop.optimizer  # of the model as it was before its cell ran again
    other.scaler.scale(other.loss()).backward()
    other.scaler.step(other.optimizer)


def cleared(loop):
    loop.scaler.scale(loop.loss()).backward()
    loop.optimizer.zero_grad()
    loop.scaler.step(loop.optimizer)


@pytest.mark.parametrize("sick", [none_reached, cleared])
def test_7_message_b_every_grad_was_none(sick):
    loop = Loop()
    with pytest.raises(AssertionError, match=MESSAGE):
        sick(loop)
    assert all(p.grad is None for group in loop.optimizer.param_groups for p in group["params"])


def test_7_message_b_one_gradient_is_enough():
    loop = Loop()
    loop.scaler.scale(loop.loss()).backward()
    loop.model.bias.grad = None
    loop.end_step()


def test_7_message_c_too_high_a_scale_gives_inf_which_is_checked_and_skipped():
    loop = Loop(init_scale=2.0**40)
    before = loop.weights
    loop.scaler.scale(loop.loss()).backward()
    assert not loop.model.weight.grad.isfinite().all()
    loop.end_step()
    assert torch.equal(loop.weights, before) and loop.scaler.get_scale() == 2.0**39


# -- 7-same-loss ----------------------------------------------------------------------------------------------------


def test_7_same_loss_a_when_every_step_is_skipped_the_weights_stay_and_the_scale_falls():
    loop = Loop()
    before, scales = loop.weights, []
    for _ in range(5):
        loop.scaler.scale(loop.loss() * math.nan).backward()
        loop.end_step()
        scales.append(loop.scaler.get_scale())
    assert torch.equal(loop.weights, before) and scales == [2.0**k for k in range(15, 10, -1)]


def test_7_same_loss_b_flushed_gradients_leave_the_weights_as_they_are():
    loop = Loop()
    before, losses = loop.weights, []
    for _ in range(5):
        loss = loop.loss() * 2.0**-40
        losses.append(loss.item())
        loss.backward()
        assert not loop.model.weight.grad.any()
        loop.optimizer.step()
        loop.optimizer.zero_grad()
    assert torch.equal(loop.weights, before) and len(set(losses)) == 1


def test_7_same_loss_b_without_a_scaler_where_weights_move_the_loss_moves():
    loop = Loop()
    losses = []
    for _ in range(5):
        losses.append(loop.loss())
        losses[-1].backward()
        loop.optimizer.step()
        loop.optimizer.zero_grad()
    assert len({loss.item() for loss in losses}) == 5


@pytest.mark.parametrize("around, different", [(True, 1), (False, 5)])
def test_7_same_loss_c_a_region_around_the_loop_uses_the_copies_of_the_first_step(around, different):
    loop = Loop(init_scale=2.0**10)  # so that no step is skipped
    before, losses = loop.weights, []
    with torch.autocast("cpu", dtype=torch.float16) if around else nullcontext():
        for _ in range(5):
            loss = loop.loss(region=not around)
            losses.append(loss.item())
            loop.scaler.scale(loss).backward()
            loop.end_step()
    assert not torch.equal(loop.weights, before) and len(set(losses)) == different


# -- 7-adam ---------------------------------------------------------------------------------------------------------


def steps_past_the_scaler(kind, scaled, **options):
    """The first step's change of the weights, when optimizer.step() is called with gradients that are scaled or true."""
    loop = Loop(kind, **options)
    before = loop.weights
    loss = loop.loss()
    (loop.scaler.scale(loss) if scaled else loss).backward()
    loop.optimizer.step()
    return loop.weights - before


def test_7_adam_a_c_adam_divides_the_scale_out():
    scaled, true = (steps_past_the_scaler(torch.optim.Adam, scaled, init_scale=2.0**10) for scaled in (True, False))
    torch.testing.assert_close(scaled, true, rtol=1e-3, atol=0.0)


def test_7_adam_c_sgds_steps_are_too_large_by_the_scale():
    scaled, true = (steps_past_the_scaler(torch.optim.SGD, scaled, init_scale=2.0**10) for scaled in (True, False))
    torch.testing.assert_close(scaled / true, torch.full_like(true, 2.0**10), rtol=1e-2, atol=0.0)
    assert torch.amp.GradScaler("cpu").get_scale() == 65536  # a new scaler's factor


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_7_adam_a_b_an_overflow_reaches_the_weights_and_only_scaler_step_looks_for_it(bad):
    past, through = Loop(torch.optim.Adam), Loop(torch.optim.Adam)
    before = through.weights
    for loop in (past, through):
        loop.scaler.scale(loop.loss()).backward()
        loop.model.weight.grad[0, 0] = bad
    past.optimizer.step()
    through.scaler.step(through.optimizer)
    assert not past.weights.isfinite().all()
    assert torch.equal(through.weights, before)
