"""Right loops that look like mistakes, each once a false alarm, and mistakes in unusual spellings, each once missed."""

from __future__ import annotations

import copy
import io

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.amp import GradScaler

from amp_lessons.doctor import watch
from tests.unit.doctor.cases import batches, finish, forward_loss, fp16, mlp

RIGHT, WRONG = [], []


def right(loop):
    RIGHT.append(pytest.param(loop, id=loop.__name__))
    return loop


def wrong(rule, severity):
    def register(loop):
        WRONG.append(pytest.param(loop, rule, severity, id=loop.__name__))
        return loop

    return register


@pytest.mark.parametrize("loop", RIGHT)
def test_right_loop_is_left_alone(loop):
    doctor = loop()
    assert not [finding for finding in doctor.findings if finding.severity != "advice"], str(doctor)
    assert not doctor._observer.troubles


@pytest.mark.parametrize(("loop", "rule", "severity"), WRONG)
def test_mistake_is_named(loop, rule, severity):
    doctor = loop()
    assert (rule, severity) in {(finding.rule, finding.severity) for finding in doctor.findings}, str(doctor)
    assert not doctor._observer.troubles


def run(body, model=None, optimizer=None, scaler=None, steps=8):
    model = model or mlp()
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = scaler or GradScaler("cpu", init_scale=2.0**10)
    with watch(model, optimizer, scaler) as doctor:
        for step, (x, y) in enumerate(batches(steps)):
            body(model, optimizer, scaler, step, x, y)
    return doctor


def edit_scaled(edit):
    def body(model, optimizer, scaler, step, x, y):
        scaler.scale(forward_loss(model, x, y)).backward()
        edit(model, scaler)
        finish(scaler, optimizer)

    return run(body)


@right
def rows_of_a_gradient_masked():
    return edit_scaled(lambda model, scaler: model[0].weight.grad[:4].zero_())


@right
def one_layer_with_a_smaller_rate():
    return edit_scaled(lambda model, scaler: model[2].weight.grad.mul_(0.3))


@right
def average_over_many_ranks():
    return edit_scaled(lambda model, scaler: [p.grad.div_(96) for p in model.parameters()])


@right
def norm_that_is_only_logged():
    return edit_scaled(lambda model, scaler: nn.utils.clip_grad_norm_(model.parameters(), float("inf")))


@right
def threshold_multiplied_by_the_scale():
    return edit_scaled(lambda model, scaler: nn.utils.clip_grad_norm_(model.parameters(), 1.0 * scaler.get_scale()))


@right
def causal_mask_as_an_input():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.into, self.out = nn.Linear(8, 32), nn.Linear(32, 1)

        def forward(self, x, mask):
            return self.out((self.into(x) + mask).softmax(-1))

    torch.manual_seed(0)
    mask = torch.zeros(32, 32).masked_fill(torch.ones(32, 32).triu(1).bool(), float("-inf"))

    def body(model, optimizer, scaler, step, x, y):
        with fp16():
            loss = F.mse_loss(model(x, mask), y)
        scaler.scale(loss).backward()
        finish(scaler, optimizer)

    return run(body, model=Attention())


@right
def mask_that_reaches_minus_infinity():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.into, self.out = nn.Linear(8, 16), nn.Linear(16, 1)

        def forward(self, x):
            scores = self.into(x)
            kept = torch.arange(16) % 2
            scores = scores - 40 + (1 - kept.to(scores.dtype)) * torch.finfo(scores.dtype).min
            return self.out(scores.softmax(-1))

    torch.manual_seed(0)

    def body(model, optimizer, scaler, step, x, y):
        scaler.scale(forward_loss(model, x, y)).backward()
        finish(scaler, optimizer)

    return run(body, model=Masked())


@right
def optimizer_in_a_wrapper():
    class Lookahead(torch.optim.Optimizer):
        def __init__(self, base):
            self.base, self.defaults, self.state, self.param_groups = base, base.defaults, base.state, base.param_groups

        def step(self, closure=None):
            return self.base.step(closure)

        def zero_grad(self, set_to_none=True):
            self.base.zero_grad(set_to_none)

    model = mlp()
    base = torch.optim.SGD(model.parameters(), lr=0.01)
    wrapper = Lookahead(base)
    scaler = GradScaler("cpu", init_scale=2.0**10)
    with watch(model, base, scaler) as doctor:
        for x, y in batches(6):
            scaler.scale(forward_loss(model, x, y)).backward()
            finish(scaler, wrapper)
    return doctor


@right
def loss_scaled_by_a_constant():
    def body(model, optimizer, scaler, step, x, y):
        (forward_loss(model, x, y) * 2.0**-14 * 2.0**16).backward()
        for parameter in model.parameters():
            parameter.grad.div_(2.0**16)
        optimizer.step()
        optimizer.zero_grad()

    return run(body, scaler=GradScaler("cpu", enabled=False))


@right
def first_step_for_nothing():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with watch(model, optimizer) as doctor:
        optimizer.step()  # quiets the scheduler's warning
        for x, y in batches(4):
            F.mse_loss(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    return doctor


@right
def frozen_teacher_in_half():
    student, teacher = mlp(), mlp(seed=1).half().requires_grad_(False)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.01)
    scaler = GradScaler("cpu", init_scale=2.0**10)
    with watch([student, teacher], optimizer, scaler) as doctor:
        for x, _ in batches(40):
            with torch.no_grad():
                wanted = teacher(x.half()).float()
            scaler.scale(forward_loss(student, x, wanted)).backward()
            finish(scaler, optimizer)
    return doctor


@right
def warm_up_from_a_rate_of_zero():
    model = mlp().bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    def body(model, optimizer, scaler, step, x, y):
        F.mse_loss(model(x.bfloat16()).float(), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    return run(body, model=model, optimizer=optimizer, scaler=GradScaler("cpu", enabled=False), steps=3)


@right
def checkpoint_in_several_files():
    def body(model, optimizer, scaler, step, x, y):
        scaler.scale(forward_loss(model, x, y)).backward()
        finish(scaler, optimizer)
        torch.save(scaler.state_dict(), io.BytesIO())
        torch.save(optimizer.state_dict(), io.BytesIO())

    return run(body)


@right
def two_divided_terms():
    def body(model, optimizer, scaler, step, x, y):
        loss = forward_loss(model, x, y) / 4 + 0.01 * model(x).abs().mean() / 4
        scaler.scale(loss).backward()
        if step % 4 == 3:
            finish(scaler, optimizer)

    return run(body, steps=12)


@right
def search_over_settings_with_short_runs():
    model = mlp()
    with watch(model) as doctor:
        for _ in range(5):
            trial, scaler = copy.deepcopy(model), GradScaler("cpu", init_scale=2.0**10)
            optimizer = torch.optim.SGD(trial.parameters(), lr=0.01)
            for x, y in batches(3):
                scaler.scale(forward_loss(trial, x, y)).backward()
                finish(scaler, optimizer)
    return doctor


@right
def per_sample_gradients():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def loss_of(parameters, x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.mse_loss(torch.func.functional_call(model, parameters, (x[None],)), y[None])

    with watch(model, optimizer) as doctor:
        for x, y in batches(3):
            parameters = {name: p.detach() for name, p in model.named_parameters()}
            grads = torch.func.vmap(torch.func.grad(loss_of), in_dims=(None, 0, 0))(parameters, x, y)
            for name, p in model.named_parameters():
                p.grad = grads[name].mean(0)
            optimizer.step()
            optimizer.zero_grad()
    return doctor


class Lightning(nn.Module):
    """A model whose forward is never called: its loop calls ``training_step``."""

    def __init__(self):
        super().__init__()
        self.net = mlp()

    def training_step(self, x, y):
        with fp16():
            return F.mse_loss(self.net(x), y)


@wrong("fp16-without-scaler", "error")
def training_step_without_a_scaler():
    model = Lightning()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with watch(model, optimizer) as doctor:
        for x, y in batches(6):
            (model.training_step(x, y) * 2.0**-14).backward()
            optimizer.step()
            optimizer.zero_grad()
    return doctor


@wrong("fp16-without-scaler", "error")
def gradients_that_shrink_later():
    """What was advice at first becomes an error."""

    def body(model, optimizer, scaler, step, x, y):
        (forward_loss(model, x, y) * (1.0 if step < 3 else 2.0**-14)).backward()
        optimizer.step()
        optimizer.zero_grad()

    return run(body, scaler=GradScaler("cpu", enabled=False), steps=60)


@wrong("optimizer-stepped-past-scaler", "error")
def inner_optimizer_of_a_wrapper_steps_on_scaled_gradients():
    model = mlp()
    inner = torch.optim.SGD(model.parameters(), lr=1e-6)
    outer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = GradScaler("cpu", init_scale=2.0**10)
    with watch(model, outer, scaler) as doctor:
        for x, y in batches(6):
            scaler.scale(forward_loss(model, x, y)).backward()
            inner.step()
            finish(scaler, outer)
    return doctor


@wrong("clip-before-unscale", "error")
def parameters_added_after_the_watch_began():
    model = mlp()
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.01)

    def body(model, optimizer, scaler, step, x, y):
        if step == 1:
            optimizer.add_param_group({"params": model[0].parameters()})
        scaler.scale(forward_loss(model, x, y)).backward()
        nn.utils.clip_grad_norm_(list(model[0].parameters()), 0.1)
        finish(scaler, optimizer)

    return run(body, model=model, optimizer=optimizer)


@wrong("forward-overflow", "error")
def overflow_in_place():
    class Grows(nn.Module):
        def __init__(self):
            super().__init__()
            self.into, self.out = nn.Linear(8, 16), nn.Linear(16, 1)

        def forward(self, x):
            return self.out(self.into(x).mul(40).exp_())

    torch.manual_seed(0)

    def body(model, optimizer, scaler, step, x, y):
        scaler.scale(forward_loss(model, x, y)).backward()
        finish(scaler, optimizer)

    return run(body, model=Grows())


@wrong("epsilon-rounds-to-zero", "warning")
def guard_as_a_tensor():
    class Guarded(nn.Module):
        def __init__(self):
            super().__init__()
            self.into = nn.Linear(8, 1)

        def forward(self, x):
            return torch.log(self.into(x).relu() + 0.5 + torch.tensor(1e-8))

    torch.manual_seed(0)

    def body(model, optimizer, scaler, step, x, y):
        scaler.scale(forward_loss(model, x, y)).backward()
        finish(scaler, optimizer)

    return run(body, model=Guarded())
