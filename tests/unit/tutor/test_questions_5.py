"""Quick checks of lesson 5: what each feedback claims is run on a real GradScaler."""

import math

import pytest
import torch

SCALE = 2.0**8


class Step:
    """One weight with SGD(lr=1), a scaler at 2^8, and a scaled backward that leaves ``gradient`` times the scale."""

    def __init__(self, gradient: float = 8.0, scale: float = SCALE) -> None:
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.optimizer = torch.optim.SGD([self.weight], lr=1.0)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        self.backward(gradient)

    def backward(self, gradient: float) -> None:
        self.scaler.scale((self.weight * gradient).sum()).backward()

    def clip(self) -> float:
        return torch.nn.utils.clip_grad_norm_([self.weight], 1.0).item()


def test_5_order_a_the_clip_before_unscale_cuts_too_far():
    step = Step()
    assert step.clip() == 8.0 * SCALE  # still multiplied by the scale
    step.scaler.unscale_(step.optimizer)
    assert step.weight.grad.item() == pytest.approx(1 / SCALE, rel=1e-4)  # and not the 1 that was meant


def test_5_order_b_between_unscale_and_step_they_have_their_true_size_and_are_unused():
    step = Step()
    step.scaler.unscale_(step.optimizer)
    assert step.weight.item() == 0.0 and step.clip() == 8.0
    step.scaler.step(step.optimizer)
    assert step.weight.item() == pytest.approx(-1.0, rel=1e-4)


def test_5_order_c_after_step_nothing_is_clipped_in_time():
    step = Step()
    step.scaler.step(step.optimizer)
    step.clip()
    assert step.weight.item() == -8.0


def test_5_order_d_the_skip_catches_inf_and_nan_only():
    for gradient, moved in ((1e6, True), (math.inf, False), (math.nan, False)):
        step = Step(gradient)
        step.scaler.step(step.optimizer)
        assert (step.weight.item() != 0.0) is moved


def test_5_accumulation_a_an_update_in_between_can_change_the_scale_of_the_next_parts():
    step = Step()
    step.scaler.update(2 * SCALE)  # as growth or backoff would
    step.backward(8.0)
    step.scaler.unscale_(step.optimizer)
    assert step.weight.grad.item() == (8.0 * SCALE + 8.0 * 2 * SCALE) / (2 * SCALE) != 16.0
    # And by itself it is refused: nothing has been stepped yet.
    with pytest.raises(AssertionError, match="No inf checks were recorded prior to update"):
        Step().scaler.update()


def test_5_accumulation_b_the_parts_share_one_scale_and_one_step_is_counted():
    step = Step(2.0)
    for _ in range(3):
        step.backward(2.0)
    step.scaler.step(step.optimizer)
    step.scaler.update()
    assert step.weight.item() == -8.0 and step.scaler.state_dict()["_growth_tracker"] == 1


def test_5_accumulation_c_without_update_the_next_step_raises_and_the_scale_stays():
    step = Step(math.inf)
    step.scaler.step(step.optimizer)
    assert step.scaler.get_scale() == SCALE  # an overflow, and it has not adapted
    step.optimizer.zero_grad()
    step.backward(1.0)
    with pytest.raises(RuntimeError, match=r"step\(\) has already been called since the last update"):
        step.scaler.step(step.optimizer)


def test_5_resume_a_the_models_state_dict_knows_nothing_of_the_scaler():
    assert set(torch.nn.Linear(1, 1).state_dict()) == {"weight", "bias"}


def test_5_resume_b_a_new_scaler_begins_at_2_to_16_and_skips_until_the_scale_fits():
    scaler = torch.amp.GradScaler("cpu")
    assert scaler.get_scale() == 2.0**16 and scaler.state_dict()["_growth_tracker"] == 0
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    skipped = 0
    for _ in range(20):
        # Through fp16, with a gradient that fits at 2^8 and not at 2^9.
        scaler.scale((weight.half().float() * 200.0).sum()).backward()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        skipped += scaler.get_scale() < before
    assert skipped == 8 and scaler.get_scale() == 2.0**8


def test_5_resume_c_nothing_is_said_when_the_scaler_is_left_out(recwarn):
    model, other = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
    optimizer = torch.optim.Adam(model.parameters())
    other.load_state_dict(model.state_dict())
    torch.optim.Adam(other.parameters()).load_state_dict(optimizer.state_dict())
    torch.amp.GradScaler("cpu")
    assert not recwarn.list
