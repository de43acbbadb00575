"""Loops with one mistake each, and the same loops cured: what people really write, from public reports.

Each case is a function of ``sick``; it trains a small model for a few steps and gives the doctor. The names of the rules are
the doctor's promise, the loops are the field's.
"""

from __future__ import annotations

import contextlib
import copy
import io
import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.amp import GradScaler, autocast

from amp_lessons.doctor import Doctor, watch

CASES: dict[str, list[Callable[[bool], Doctor]]] = {}


def case(rule: str):
    def register(function):
        CASES.setdefault(rule, []).append(function)
        return function

    return register


def mlp(inputs=8, width=16, outputs=1, seed=0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, outputs))


def batches(steps, inputs=8, outputs=1, rows=32):
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        yield torch.randn(rows, inputs, generator=generator), torch.randn(rows, outputs, generator=generator)


def fp16():
    return autocast("cpu", dtype=torch.float16)


def forward_loss(model, x, y):
    with fp16():
        return F.mse_loss(model(x), y)


def run(body, steps=6, model=None, optimizer=None, scaler=None, extra=(), quiet=True) -> Doctor:
    """Watch ``body(model, optimizer, scaler, step, x, y)`` for some steps; an error that PyTorch raises ends the loop."""
    model = model or mlp()
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = scaler or GradScaler("cpu", init_scale=2.0**10)
    with watch([model, *extra], optimizer, scaler) as doctor:
        try:
            for step, (x, y) in enumerate(batches(steps)):
                body(model, optimizer, scaler, step, x, y)
        except (RuntimeError, AssertionError, ValueError):
            if not quiet:
                raise
    return doctor


def finish(scaler, optimizer):
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()


# -- clipping -------------------------------------------------------------------------------------------------------


def _clip_case(clip):
    def function(sick):
        def body(model, optimizer, scaler, step, x, y):
            scaler.scale(forward_loss(model, x, y)).backward()
            if not sick:
                scaler.unscale_(optimizer)
            clip(model)
            finish(scaler, optimizer)

        return run(body)

    function.__name__ = f"clip_{clip.__name__}"
    return case("clip-before-unscale")(function)


def norm_call(model):
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)


def list_call(model):
    torch.nn.utils.clip_grad_norm_(list(model.parameters()), 0.1)


def value_call(model):
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.01)


_imported_early = torch.nn.utils.clip_grad_norm_  # as `from torch.nn.utils import clip_grad_norm_` binds it


def imported_name(model):
    _imported_early(model.parameters(), 0.1)


def two_calls(model):
    total = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
    torch.nn.utils.clip_grads_with_norm_(model.parameters(), 0.1, total)


def by_hand(model):
    norm = torch.sqrt(sum(p.grad.square().sum() for p in model.parameters()))
    for p in model.parameters():
        p.grad.mul_(min(1.0, 0.1 / float(norm)))


def by_clamp(model):
    for p in model.parameters():
        p.grad.clamp_(-0.01, 0.01)


def by_replacing(model):
    for p in model.parameters():
        p.grad = p.grad.clamp(-0.01, 0.01)


def by_clamping_the_data(model):
    for p in model.parameters():
        p.grad.data.clamp_(-0.01, 0.01)


for _clip in (by_clamping_the_data, norm_call, list_call, value_call, imported_name, two_calls, by_hand, by_clamp, by_replacing):
    _clip_case(_clip)


@case("unscaled-by-hand")
def divides_by_the_scale(sick):
    def body(model, optimizer, scaler, step, x, y):
        scaler.scale(forward_loss(model, x, y)).backward()
        if sick:
            for p in model.parameters():
                p.grad.div_(scaler.get_scale())
        else:
            scaler.unscale_(optimizer)
        finish(scaler, optimizer)

    return run(body)


# -- protocol -------------------------------------------------------------------------------------------------------


@case("unscale-twice")
def unscales_every_micro_batch(sick):
    def body(model, optimizer, scaler, step, x, y):
        scaler.scale(forward_loss(model, x, y) / 2).backward()
        if sick or step % 2 == 1:
            scaler.unscale_(optimizer)
        if step % 2 == 1:
            finish(scaler, optimizer)

    return run(body)


@case("unscale-twice")
def unscales_after_the_step(sick):
    def body(model, optimizer, scaler, step, x, y):
        scaler.scale(forward_loss(model, x, y)).backward()
        if not sick:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        if sick:
            scaler.unscale_(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return run(body)


@case("step-twice")
def steps_twice(sick):
    def body(model, optimizer, scaler, step, x, y):
        scaler.scale(forward_loss(model, x, y)).backward()
        scaler.step(optimizer)
        if sick:
            scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return run(body)


@case("missing-update")
def forgets_update(sick):
    def body(model, optimizer, scaler, step, x, y):
        scaler.scale(forward_loss(model, x, y)).backward()
        scaler.step(optimizer)
        if not sick:
            scaler.update()
        optimizer.zero_grad()

    return run(body)


@case("missing-step")
def never_steps(sick):
    def body(model, optimizer, scaler, step, x, y):
        scaler.scale(forward_loss(model, x, y)).backward()
        if not sick:
            finish(scaler, optimizer)

    return run(body, steps=20)


def _past_case(kind):
    def function(sick):
        model = mlp()

        def body(model, optimizer, scaler, step, x, y):
            scaler.scale(forward_loss(model, x, y)).backward()
            if sick:
                optimizer.step()
                scaler.update(scaler.get_scale())
                optimizer.zero_grad()
            else:
                finish(scaler, optimizer)

        return run(body, model=model, optimizer=kind(model.parameters(), lr=1e-3))

    function.__name__ = f"past_{kind.__name__}"
    return case("optimizer-stepped-past-scaler")(function)


for _kind in (torch.optim.SGD, torch.optim.Adam):
    _past_case(_kind)


@case("optimizer-stepped-past-scaler")
def unscales_and_steps_directly(sick):
    def body(model, optimizer, scaler, step, x, y):
        scaler.scale(forward_loss(model, x, y)).backward()
        scaler.unscale_(optimizer)
        if sick:
            optimizer.step()
            scaler.update(scaler.get_scale())
            optimizer.zero_grad()
        else:
            finish(scaler, optimizer)

    return run(body)


@case("no-gradients")
def optimizer_of_another_model(sick):
    model, other = mlp(), mlp(seed=1)
    optimizer = torch.optim.SGD((other if sick else model).parameters(), lr=0.01)

    def body(model, optimizer, scaler, step, x, y):
        scaler.scale(forward_loss(model, x, y)).backward()
        finish(scaler, optimizer)

    return run(body, model=model, optimizer=optimizer)


@case("no-gradients")
def clears_before_the_step(sick):
    def body(model, optimizer, scaler, step, x, y):
        scaler.scale(forward_loss(model, x, y)).backward()
        if sick:
            optimizer.zero_grad()
        finish(scaler, optimizer)

    return run(body)


def _two_optimizers(model, body):
    optimizers = [torch.optim.SGD(model[0].parameters(), lr=0.01), torch.optim.SGD(model[2].parameters(), lr=0.01)]
    scaler = GradScaler("cpu", init_scale=2.0**10, growth_interval=1)
    with watch(model, optimizers, scaler) as doctor:
        for x, y in batches(6):
            scaler.scale(forward_loss(model, x, y)).backward()
            body(scaler, *optimizers)
            for optimizer in optimizers:
                optimizer.zero_grad()
    return doctor


@case("update-between-optimizers")
def updates_after_each_optimizer(sick):
    def body(scaler, first, second):
        scaler.step(first)
        if sick:
            scaler.update()
        scaler.step(second)
        scaler.update()

    return _two_optimizers(mlp(), body)


@case("scale-changed-in-accumulation")
def updates_every_micro_batch(sick):
    scaler = GradScaler("cpu", init_scale=2.0**10, growth_interval=1)

    def body(model, optimizer, scaler, step, x, y):
        scaler.scale(forward_loss(model, x, y) / 2).backward()
        if step % 2 == 1:
            finish(scaler, optimizer)
        elif sick:
            scaler.update(scaler.get_scale() * 2)

    return run(body, scaler=scaler)


@case("scale-changed-in-accumulation")
def scales_only_one_of_two_losses(sick):
    def body(model, optimizer, scaler, step, x, y):
        loss = forward_loss(model, x, y) / 2
        (loss if sick and step % 2 == 0 else scaler.scale(loss)).backward()
        if step % 2 == 1:
            finish(scaler, optimizer)

    return run(body)


# -- the scale ------------------------------------------------------------------------------------------------------


@case("scale-collapse")
def nan_in_the_data(sick):
    def body(model, optimizer, scaler, step, x, y):
        if sick:
            x[3, 0] = float("nan")
        scaler.scale(forward_loss(model, x, y)).backward()
        finish(scaler, optimizer)

    return run(body, steps=12)


@case("scale-collapse")
def overflow_in_the_forward_pass(sick):
    model = mlp()

    def body(model, optimizer, scaler, step, x, y):
        scaler.scale(forward_loss(model, x * (1e5 if sick else 1.0), y)).backward()
        finish(scaler, optimizer)

    return run(body, steps=12, model=model)


@case("scale-below-one")
def starts_far_too_low(sick):
    def body(model, optimizer, scaler, step, x, y):
        scaler.scale(forward_loss(model, x, y)).backward()
        finish(scaler, optimizer)

    return run(body, scaler=GradScaler("cpu", init_scale=2.0**-10 if sick else 2.0**10))


@case("fp16-loss")
def mean_of_fp16_output(sick):
    def body(model, optimizer, scaler, step, x, y):
        with fp16():
            output = model(x)
            loss = ((output if sick else output.float()) * 1e-3).abs().mean()
        scaler.scale(loss).backward()
        finish(scaler, optimizer)

    return run(body, scaler=GradScaler("cpu"))


def _needless_case(dtype):
    def function(sick):
        def body(model, optimizer, scaler, step, x, y):
            with autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
                loss = F.mse_loss(model(x), y)
            scaler.scale(loss).backward()
            finish(scaler, optimizer)

        return run(body, scaler=GradScaler("cpu", init_scale=2.0**10, enabled=sick))

    function.__name__ = f"scaler_with_{dtype or 'float32'}"
    return case("scaler-not-needed")(function)


for _dtype in (torch.bfloat16, None):
    _needless_case(_dtype)


@case("fp16-without-scaler")
def small_gradients_without_scaler(sick):
    def body(model, optimizer, scaler, step, x, y):
        scaler.scale(forward_loss(model, x, y) * 2.0**-14).backward()
        finish(scaler, optimizer)

    return run(body, scaler=GradScaler("cpu", enabled=not sick))


@case("fp16-without-scaler")
def every_gradient_flushed(sick):
    def body(model, optimizer, scaler, step, x, y):
        scaler.scale(forward_loss(model, x, y) * 2.0**-30).backward()
        finish(scaler, optimizer)

    return run(body, scaler=GradScaler("cpu", init_scale=2.0**30, enabled=not sick))


@case("nonfinite-loss")
def nan_without_a_scaler(sick):
    def body(model, optimizer, scaler, step, x, y):
        if sick and step == 3:
            y[0] = float("nan")
        scaler.scale(forward_loss(model, x, y)).backward()
        finish(scaler, optimizer)

    return run(body, scaler=GradScaler("cpu", enabled=False))


@case("no-gradients")
def zeros_in_place_before_the_step(sick):
    def body(model, optimizer, scaler, step, x, y):
        scaler.scale(forward_loss(model, x, y)).backward()
        if sick:
            optimizer.zero_grad(set_to_none=False)
        finish(scaler, optimizer)

    return run(body)


@case("scaler-made-anew")
def scaler_in_each_epoch(sick):
    kept = GradScaler("cpu", init_scale=2.0**10)

    def body(model, optimizer, scaler, step, x, y):
        if sick and step % 12 == 0:
            body.scaler = GradScaler("cpu", init_scale=2.0**10)
        scaler = body.scaler if sick else kept
        scaler.scale(forward_loss(model, x, y)).backward()
        finish(scaler, optimizer)

    return run(body, steps=40, scaler=kept)


@case("scheduler-on-skipped-step")
def schedules_every_iteration(sick):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)

    def body(model, optimizer, scaler, step, x, y):
        scaler.scale(forward_loss(model, x, y)).backward()
        before = scaler.get_scale()
        finish(scaler, optimizer)
        if sick or scaler.get_scale() >= before:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                scheduler.step()

    return run(body, model=model, optimizer=optimizer, scaler=GradScaler("cpu", init_scale=2.0**20))


# -- precision ------------------------------------------------------------------------------------------------------


@case("fp16-parameters")
def half_model_with_autocast(sick):
    model = mlp().half() if sick else mlp()

    def body(model, optimizer, scaler, step, x, y):
        scaler.scale(forward_loss(model, x, y)).backward()
        finish(scaler, optimizer)

    return run(body, model=model)


@case("fp16-parameters")
def one_half_layer_and_a_fused_optimizer(sick):
    model = mlp()
    if sick:
        model[2].half()

    def body(model, optimizer, scaler, step, x, y):
        scaler.scale(forward_loss(model, x, y)).backward()
        finish(scaler, optimizer)

    return run(body, model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.01, fused=True))


@case("optimizer-eps-rounds-to-zero")
def adam_on_half_parameters(sick):
    model = mlp().half() if sick else mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def body(model, optimizer, scaler, step, x, y):
        dtype = model[0].weight.dtype
        F.mse_loss(model(x.to(dtype)).float(), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    return run(body, model=model, optimizer=optimizer, scaler=GradScaler("cpu", enabled=False))


@case("update-does-not-land")
def tiny_updates_in_bfloat16(sick):
    model = mlp().bfloat16() if sick else mlp()

    def body(model, optimizer, scaler, step, x, y):
        dtype = model[0].weight.dtype
        F.mse_loss(model(x.to(dtype)).float(), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    return run(body, model=model, optimizer=optimizer, scaler=GradScaler("cpu", enabled=False))


@case("average-does-not-move")
def moving_average_in_fp16(sick):
    model = mlp()
    average = copy.deepcopy(model)
    if sick:
        average.half()

    def body(model, optimizer, scaler, step, x, y):
        scaler.scale(forward_loss(model, x, y)).backward()
        finish(scaler, optimizer)
        with torch.no_grad():
            for kept, new in zip(average.parameters(), model.parameters()):
                kept.lerp_(new.to(kept.dtype), 1e-3)

    return run(body, steps=40, model=model, extra=[average])


class Squares(nn.Module):
    """A norm written by hand, which overflows at 256 squared, beside the library's."""

    def __init__(self, by_hand: bool) -> None:
        super().__init__()
        self.into, self.out, self.by_hand = nn.Linear(8, 16), nn.Linear(16, 1), by_hand

    def forward(self, x):
        hidden = self.into(x) * 300
        if self.by_hand:
            hidden = hidden * torch.rsqrt((hidden * hidden).mean(-1, keepdim=True) + 1e-6)
        else:
            hidden = F.rms_norm(hidden, (16,))
        return self.out(hidden)


def _module_case(rule, make):
    def function(sick):
        def body(model, optimizer, scaler, step, x, y):
            scaler.scale(forward_loss(model, x, y)).backward()
            finish(scaler, optimizer)

        return run(body, model=make(sick))

    function.__name__ = make.__name__
    return case(rule)(function)


def hand_written_norm(sick):
    torch.manual_seed(0)
    return Squares(by_hand=sick)


class Softmax(nn.Module):
    def __init__(self, by_hand: bool) -> None:
        super().__init__()
        self.into, self.out, self.by_hand = nn.Linear(8, 16), nn.Linear(16, 1), by_hand

    def forward(self, x):
        scores = self.into(x) * 40
        weights = scores.exp() / scores.exp().sum(-1, keepdim=True) if self.by_hand else scores.softmax(-1)
        return self.out(weights)


def hand_written_softmax(sick):
    torch.manual_seed(0)
    return Softmax(by_hand=sick)


class Mask(nn.Module):
    def __init__(self, number: float) -> None:
        super().__init__()
        self.into, self.out, self.number = nn.Linear(8, 16), nn.Linear(16, 1), number

    def forward(self, x):
        scores = self.into(x)
        mask = torch.zeros(16, dtype=torch.bool)
        mask[::2] = True
        if self.number == -1e9:
            scores = scores + mask.to(scores.dtype) * self.number
        else:
            scores = scores.masked_fill(mask, torch.finfo(scores.dtype).min)
        return self.out(scores.softmax(-1))


def mask_of_minus_a_billion(sick):
    torch.manual_seed(0)
    return Mask(-1e9 if sick else 0.0)


class Guard(nn.Module):
    def __init__(self, guard: float) -> None:
        super().__init__()
        self.into, self.guard = nn.Linear(8, 1), guard

    def forward(self, x):
        return torch.log(torch.relu(self.into(x)) + 0.5 + self.guard)


def guard_of_a_hundred_millionth(sick):
    torch.manual_seed(0)
    return Guard(1e-8 if sick else 1e-4)


_module_case("forward-overflow", hand_written_norm)
_module_case("forward-overflow", hand_written_softmax)
_module_case("forward-overflow", mask_of_minus_a_billion)
_module_case("epsilon-rounds-to-zero", guard_of_a_hundred_millionth)


@case("nonfinite-input")
def inf_in_one_row(sick):
    def body(model, optimizer, scaler, step, x, y):
        if sick:
            x[0, 0] = float("inf")
        scaler.scale(forward_loss(model, x, y)).backward()
        finish(scaler, optimizer)

    return run(body)


@case("raises-on-cuda")
def bce_after_sigmoid(sick):
    def body(model, optimizer, scaler, step, x, y):
        with fp16():
            logits = model(x)
            target = (y > 0).float()
            if sick:
                loss = F.binary_cross_entropy(torch.sigmoid(logits).float(), target)
            else:
                loss = F.binary_cross_entropy_with_logits(logits, target)
        scaler.scale(loss).backward()
        finish(scaler, optimizer)

    return run(body)


# -- regions --------------------------------------------------------------------------------------------------------


def _frozen_case(inner, **outer):
    def function(sick):
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        scaler = GradScaler("cpu", init_scale=2.0**10)
        with watch(model, optimizer, scaler) as doctor:
            with autocast("cpu", dtype=torch.float16, **outer) if sick else contextlib.nullcontext():
                for x, y in batches(4):
                    with fp16() if inner or not sick else contextlib.nullcontext():
                        loss = F.mse_loss(model(x), y)
                    scaler.scale(loss).backward()
                    finish(scaler, optimizer)
        return doctor

    function.__name__ = f"outer_{outer.get('enabled', True)}_inner_{inner}"
    return case("loop-inside-autocast")(function)


_frozen_case(inner=False)
_frozen_case(inner=True)  # the cached weights live until the outermost region ends
_frozen_case(inner=True, enabled=False)


@case("step-inside-autocast")
def region_around_the_step(sick):
    def body(model, optimizer, scaler, step, x, y):
        if sick:
            with fp16():
                scaler.scale(F.mse_loss(model(x), y)).backward()
                finish(scaler, optimizer)
        else:
            scaler.scale(forward_loss(model, x, y)).backward()
            finish(scaler, optimizer)

    return run(body)


@case("backward-inside-autocast")
def region_around_backward(sick):
    def body(model, optimizer, scaler, step, x, y):
        with fp16():
            loss = F.mse_loss(model(x), y)
            if sick:
                scaler.scale(loss).backward()
        if not sick:
            scaler.scale(loss).backward()
        finish(scaler, optimizer)

    return run(body)


@case("penalty-on-scaled-gradients")
def gradient_penalty(sick):
    def body(model, optimizer, scaler, step, x, y):
        x.requires_grad_()
        loss = forward_loss(model, x, y)
        (grad,) = torch.autograd.grad(scaler.scale(loss), x, create_graph=True)
        if not sick:
            grad = grad / scaler.get_scale()
        with fp16():
            loss = loss + (grad.float().norm(2, dim=1) - 1).square().mean()
        scaler.scale(loss).backward()
        finish(scaler, optimizer)

    return run(body)


# -- what surrounds the step ----------------------------------------------------------------------------------------


def _accumulation_case(divide):
    def function(sick):
        def body(model, optimizer, scaler, step, x, y):
            scaler.scale(forward_loss(model, x, y) if sick else divide(forward_loss(model, x, y))).backward()
            if step % 4 == 3:
                finish(scaler, optimizer)

        return run(body, steps=12)

    function.__name__ = f"accumulates_{divide.__name__}"
    return case("accumulation-not-divided")(function)


def over_four(loss):
    return loss / 4


def times_a_quarter(loss):
    return loss * 0.25


for _divide in (over_four, times_a_quarter):
    _accumulation_case(_divide)


@case("scaler-not-saved")
def checkpoint_without_the_scaler(sick):
    def body(model, optimizer, scaler, step, x, y):
        scaler.scale(forward_loss(model, x, y)).backward()
        finish(scaler, optimizer)
        checkpoint = {"model": model.state_dict(), "train": {"optimizer": optimizer.state_dict()}}
        if not sick:
            checkpoint["scaler"] = scaler.state_dict()
        torch.save(checkpoint, io.BytesIO())

    return run(body)


@case("scaler-made-anew")
def scaler_in_the_loop(sick):
    kept = GradScaler("cpu", init_scale=2.0**10)

    def body(model, optimizer, scaler, step, x, y):
        scaler = GradScaler("cpu", init_scale=2.0**10) if sick else kept
        scaler.scale(forward_loss(model, x, y)).backward()
        finish(scaler, optimizer)

    return run(body, scaler=kept)


@case("scaler-first-argument")
def scale_as_first_argument(sick):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scaler = GradScaler(2.0**10) if sick else GradScaler("cpu", init_scale=2.0**10)

    def body(model, optimizer, scaler, step, x, y):
        scaler.scale(forward_loss(model, x, y)).backward()
        finish(scaler, optimizer)

    return run(body, scaler=scaler)


@case("deprecated-spelling")
def old_scaler_name(sick):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scaler = torch.cpu.amp.GradScaler(init_scale=2.0**10) if sick else GradScaler("cpu", init_scale=2.0**10)

    def body(model, optimizer, scaler, step, x, y):
        scaler.scale(forward_loss(model, x, y)).backward()
        finish(scaler, optimizer)

    return run(body, scaler=scaler)


@case("deprecated-spelling")
def old_autocast_name(sick):
    def body(model, optimizer, scaler, step, x, y):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            region = torch.cpu.amp.autocast(dtype=torch.float16) if sick else fp16()
        with region:
            loss = F.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        finish(scaler, optimizer)

    return run(body)
