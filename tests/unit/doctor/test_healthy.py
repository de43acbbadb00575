"""Healthy loops, in the field's many spellings: the doctor has nothing to say against them."""

from __future__ import annotations

import copy
import io
import os
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.amp import GradScaler, autocast
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from amp_lessons.doctor import watch
from amp_lessons.doctor.script import ScriptDoctor
from tests.unit.doctor.cases import batches, finish, forward_loss, fp16, mlp

ZOO = []


def healthy(loop):
    ZOO.append(pytest.param(loop, id=loop.__name__))
    return loop


def named_all(models, optimizers=None, scaler=None, **more):
    return watch(models, optimizers, scaler, **more)


def named_model_only(models, optimizers=None, scaler=None, **more):
    return watch(models)


def named_nothing(models, optimizers=None, scaler=None, **more):
    return ScriptDoctor()


@pytest.mark.parametrize("watching", [named_all, named_model_only, named_nothing])
@pytest.mark.parametrize("loop", ZOO)
def test_healthy_loop_has_no_error_and_no_warning(loop, watching):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        doctor = loop(watching)
    assert not [finding for finding in doctor.findings if finding.severity != "advice"], str(doctor)
    assert not doctor._observer.troubles
    assert doctor._steps >= 2, "it has seen the loop"


def sgd(model, lr=0.01, **options):
    return torch.optim.SGD(model.parameters(), lr=lr, **options)


def low_scaler(**options):
    return GradScaler("cpu", init_scale=2.0**10, **options)


def plain(model, optimizer):
    def step(x, y):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()

    return step


# -- precisions -----------------------------------------------------------------------------------------------------


@healthy
def float32(watching):
    model = mlp()
    optimizer = sgd(model)
    with watching(model, optimizer) as doctor:
        for x, y in batches(6):
            plain(model, optimizer)(x, y)
    return doctor


@healthy
def amp(watching):
    model, scaler = mlp(), low_scaler()
    optimizer = sgd(model)
    with watching(model, optimizer, scaler) as doctor:
        for x, y in batches(6):
            scaler.scale(forward_loss(model, x, y)).backward()
            finish(scaler, optimizer)
    return doctor


@healthy
def amp_from_the_default_scale_on(watching):
    model, scaler = mlp(), GradScaler("cpu")
    optimizer = sgd(model)
    with watching(model, optimizer, scaler) as doctor:
        for x, y in batches(60):
            scaler.scale(forward_loss(model, x, y)).backward()
            finish(scaler, optimizer)
    return doctor


@healthy
def scaler_made_inside_the_watch(watching):
    model = mlp()
    optimizer = sgd(model)
    with watching(model, optimizer) as doctor:
        scaler = low_scaler()
        for x, y in batches(6):
            scaler.scale(forward_loss(model, x, y)).backward()
            finish(scaler, optimizer)
    return doctor


@healthy
def bfloat16_without_scaler(watching):
    model = mlp()
    optimizer = sgd(model)
    with watching(model, optimizer) as doctor:
        for x, y in batches(6):
            with autocast("cpu", dtype=torch.bfloat16):
                loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return doctor


@healthy
def scaler_switched_off(watching):
    model, scaler = mlp(), GradScaler("cpu", enabled=False)
    optimizer = sgd(model)
    with watching(model, optimizer, scaler) as doctor:
        for x, y in batches(6):
            with autocast("cpu", dtype=torch.bfloat16):
                loss = F.mse_loss(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            finish(scaler, optimizer)
    return doctor


class RegionInside(nn.Module):
    """Opens its own autocast region and answers in float32, as many published models do."""

    def __init__(self) -> None:
        super().__init__()
        self.body = mlp()

    @autocast("cpu", dtype=torch.float16)
    def forward(self, x):
        return self.body(x).float()


@healthy
def autocast_region_inside_the_model(watching):
    model, scaler = RegionInside(), low_scaler()
    optimizer = sgd(model)
    with watching(model, optimizer, scaler) as doctor:
        for x, y in batches(6):
            scaler.scale(F.mse_loss(model(x), y)).backward()
            finish(scaler, optimizer)
    return doctor


@healthy
def part_of_the_model_outside_autocast(watching):
    model, scaler = mlp(), low_scaler()
    head = nn.Linear(1, 1)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.01)
    with watching([model, head], optimizer, scaler) as doctor:
        for x, y in batches(6):
            with fp16():
                hidden = model(x)
                with autocast("cpu", enabled=False):
                    loss = F.mse_loss(head(hidden.float()), y)
            scaler.scale(loss).backward()
            finish(scaler, optimizer)
    return doctor


# -- clipping, accumulation, changed gradients ----------------------------------------------------------------------


@healthy
def clipping_after_unscale(watching):
    model, scaler = mlp(), low_scaler()
    optimizer = sgd(model)
    with watching(model, optimizer, scaler) as doctor:
        for x, y in batches(6):
            scaler.scale(forward_loss(model, x, y)).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            finish(scaler, optimizer)
    return doctor


@healthy
def clipping_in_float32(watching):
    model = mlp()
    optimizer = sgd(model)
    with watching(model, optimizer) as doctor:
        for x, y in batches(6):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            nn.utils.clip_grad_value_(model.parameters(), 0.01)
            optimizer.step()
    return doctor


@healthy
def clipping_by_a_norm_written_by_hand(watching):
    model, scaler = mlp(), low_scaler()
    optimizer = sgd(model)
    with watching(model, optimizer, scaler) as doctor:
        for x, y in batches(6):
            scaler.scale(forward_loss(model, x, y)).backward()
            scaler.unscale_(optimizer)
            norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
            for p in model.parameters():
                p.grad.mul_((0.1 / norm).clamp(max=1.0))
            finish(scaler, optimizer)
    return doctor


def _accumulation(clip, parts=4, total=14):
    def loop(watching):
        model, scaler = mlp(), low_scaler()
        optimizer = sgd(model)
        with watching(model, optimizer, scaler) as doctor:
            for i, (x, y) in enumerate(batches(total)):
                scaler.scale(forward_loss(model, x, y) / parts).backward()
                if (i + 1) % parts == 0 or i + 1 == total:  # the last, incomplete group too
                    if clip:
                        scaler.unscale_(optimizer)
                        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                    finish(scaler, optimizer)
        return doctor

    loop.__name__ = f"accumulation_of_{parts}_{'with' if clip else 'without'}_clipping"
    return healthy(loop)


_accumulation(clip=False)
_accumulation(clip=True)
_accumulation(clip=False, parts=24, total=72)


@healthy
def watch_ends_in_the_middle_of_a_long_accumulation(watching):
    model, scaler = mlp(), low_scaler()
    optimizer = sgd(model)
    with watching(model, optimizer, scaler) as doctor:
        for i, (x, y) in enumerate(batches(72)):
            scaler.scale(forward_loss(model, x, y) / 24).backward()
            if (i + 1) % 24 == 0 and i < 48:
                finish(scaler, optimizer)
    return doctor


@healthy
def accumulation_in_float32(watching):
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with watching(model, optimizer) as doctor:
        for i, (x, y) in enumerate(batches(12)):
            (F.mse_loss(model(x), y) / 4).backward()
            if (i + 1) % 4 == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
    return doctor


@healthy
def gradients_averaged_by_hand(watching):
    model, scaler = mlp(), low_scaler()
    optimizer = sgd(model)
    with watching(model, optimizer, scaler) as doctor:
        for i, (x, y) in enumerate(batches(12)):
            scaler.scale(forward_loss(model, x, y)).backward()
            if (i + 1) % 4 == 0:
                for p in model.parameters():
                    p.grad /= 4
                finish(scaler, optimizer)
    return doctor


@healthy
def gradients_averaged_after_unscale(watching):
    model, scaler = mlp(), low_scaler()
    optimizer = sgd(model)
    with watching(model, optimizer, scaler) as doctor:
        for i, (x, y) in enumerate(batches(12)):
            scaler.scale(forward_loss(model, x, y)).backward()
            if (i + 1) % 3 == 0:
                scaler.unscale_(optimizer)
                torch._foreach_div_([p.grad for p in model.parameters()], 3)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                finish(scaler, optimizer)
    return doctor


# -- optimizers -----------------------------------------------------------------------------------------------------


def _optimizer(kind, **options):
    def loop(watching):
        model, scaler = mlp(), low_scaler()
        optimizer = kind(model.parameters(), lr=1e-3, **options)
        with watching(model, optimizer, scaler) as doctor:
            for x, y in batches(6):
                scaler.scale(forward_loss(model, x, y)).backward()
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                finish(scaler, optimizer)
            for x, y in batches(3):
                scaler.scale(forward_loss(model, x, y)).backward()
                finish(scaler, optimizer)
        return doctor

    loop.__name__ = "_".join([kind.__name__, *options])
    return healthy(loop)


for _kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
    for _options in ({"fused": True}, {"foreach": True}):
        _optimizer(_kind, **_options)
for _kind in (torch.optim.RMSprop, torch.optim.Adagrad, torch.optim.NAdam):
    _optimizer(_kind)


@healthy
def lbfgs_with_a_closure(watching):
    model = mlp()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    with watching(model, optimizer) as doctor:
        for x, y in batches(5):

            def closure(x=x, y=y):
                optimizer.zero_grad()
                loss = F.mse_loss(model(x), y)
                loss.backward()
                return loss

            optimizer.step(closure)
    return doctor


@healthy
def adam_with_a_closure(watching):
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with watching(model, optimizer) as doctor:
        for x, y in batches(5):

            def closure(x=x, y=y):
                optimizer.zero_grad()
                loss = F.mse_loss(model(x), y)
                loss.backward()
                return loss

            optimizer.step(closure)
    return doctor


@healthy
def two_optimizers_and_one_update(watching):
    model, scaler = mlp(), low_scaler(growth_interval=2)
    optimizers = [sgd(model[0]), torch.optim.Adam(model[2].parameters())]
    with watching(model, optimizers, scaler) as doctor:
        for x, y in batches(6):
            scaler.scale(forward_loss(model, x, y)).backward()
            for optimizer in optimizers:
                scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            for optimizer in optimizers:
                scaler.step(optimizer)
            scaler.update()
            for optimizer in optimizers:
                optimizer.zero_grad()
    return doctor


@healthy
def sparse_embedding_beside_a_dense_head(watching):
    torch.manual_seed(0)
    embedding, head = nn.Embedding(50, 8, sparse=True), nn.Linear(8, 1)
    model, scaler = nn.Sequential(embedding, head), low_scaler()
    optimizers = [torch.optim.SparseAdam(embedding.parameters(), lr=1e-3), sgd(head)]
    generator = torch.Generator().manual_seed(0)
    with watching(model, optimizers, scaler) as doctor:
        for _ in range(6):
            words, y = torch.randint(0, 50, (32,), generator=generator), torch.randn(32, 1, generator=generator)
            scaler.scale(forward_loss(model, words, y)).backward()
            for optimizer in optimizers:
                scaler.step(optimizer)
            scaler.update()
            for optimizer in optimizers:
                optimizer.zero_grad()
    return doctor


@healthy
def frozen_and_unused_parameters(watching):
    model, scaler = mlp(), low_scaler()
    model[0].requires_grad_(False)
    model.unused = nn.Linear(3, 3)
    model.forward = lambda x: model[2](model[1](model[0](x)))
    optimizer = sgd(model)
    with watching(model, optimizer, scaler) as doctor:
        for x, y in batches(6):
            scaler.scale(forward_loss(model, x, y)).backward()
            finish(scaler, optimizer)
    return doctor


@healthy
def parameters_shared_by_two_optimizers(watching):
    model = mlp()
    every, last = sgd(model), sgd(model[2])
    with watching(model, [every, last]) as doctor:
        for i, (x, y) in enumerate(batches(8)):
            optimizer = every if i % 2 else last
            every.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
    return doctor


@healthy
def an_optimizer_for_every_task(watching):
    model = mlp()
    with watching(model) as doctor:
        for x, y in batches(40):
            optimizer = sgd(model)
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
    assert len(doctor._observer.optimizers) < 10, "optimizers that are gone are not kept"
    return doctor


# -- zeroing --------------------------------------------------------------------------------------------------------


def _zeroing(name, zero, first):
    def loop(watching):
        model, scaler = mlp(), low_scaler()
        optimizer = sgd(model)
        with watching(model, optimizer, scaler) as doctor:
            for x, y in batches(6):
                if first:
                    zero(model, optimizer)
                scaler.scale(forward_loss(model, x, y)).backward()
                scaler.step(optimizer)
                scaler.update()
                if not first:
                    zero(model, optimizer)
        return doctor

    loop.__name__ = f"zero_{name}_{'first' if first else 'last'}"
    return healthy(loop)


def _set_none(model, optimizer):
    for p in model.parameters():
        p.grad = None


def _zero_in_place(model, optimizer):
    for p in model.parameters():
        if p.grad is not None:
            p.grad.zero_()


def _zero_data(model, optimizer):
    for p in model.parameters():
        if p.grad is not None:
            p.grad.data.zero_()


for _first in (True, False):
    _zeroing("grad", lambda model, optimizer: optimizer.zero_grad(), _first)
    _zeroing("grad_in_place", lambda model, optimizer: optimizer.zero_grad(set_to_none=False), _first)
    _zeroing("model_grad", lambda model, optimizer: model.zero_grad(), _first)
    _zeroing("by_hand_to_none", _set_none, _first)
    _zeroing("by_hand_in_place", _zero_in_place, _first)
    _zeroing("by_hand_through_data", _zero_data, _first)


@healthy
def zero_between_forward_and_backward(watching):
    model, scaler = mlp(), low_scaler()
    optimizer = sgd(model)
    with watching(model, optimizer, scaler) as doctor:
        for x, y in batches(6):
            loss = forward_loss(model, x, y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    return doctor


# -- GANs and several losses ----------------------------------------------------------------------------------------


def _gan(two_scalers, one_update, three_backwards=False):
    def loop(watching):
        generator, critic = mlp(4, 16, 8), mlp(8, 16, 1, seed=1)
        opt_g, opt_d = torch.optim.Adam(generator.parameters(), 1e-3), torch.optim.Adam(critic.parameters(), 1e-3)
        scaler_d = low_scaler(growth_interval=3)
        scaler_g = low_scaler(growth_interval=3) if two_scalers else scaler_d
        noise = torch.Generator().manual_seed(5)
        one, zero = torch.ones(32, 1), torch.zeros(32, 1)
        with watching([generator, critic], [opt_g, opt_d], [scaler_d, scaler_g]) as doctor:
            for x, _ in batches(8):
                z = torch.randn(32, 4, generator=noise)
                opt_d.zero_grad()
                with fp16():
                    fake = generator(z)
                    real_loss = F.binary_cross_entropy_with_logits(critic(x), one)
                scaler_d.scale(real_loss).backward()
                with fp16():
                    fake_loss = F.binary_cross_entropy_with_logits(critic(fake.detach()), zero)
                scaler_d.scale(fake_loss).backward()
                if three_backwards:
                    with fp16():
                        drift = critic(x).float().square().mean() * 1e-3 + 0.0
                    scaler_d.scale(drift).backward()
                scaler_d.step(opt_d)
                if two_scalers or not one_update:
                    scaler_d.update()
                opt_g.zero_grad()
                with fp16():
                    loss = F.binary_cross_entropy_with_logits(critic(fake), one)
                scaler_g.scale(loss).backward()
                scaler_g.step(opt_g)
                scaler_g.update()
        return doctor

    loop.__name__ = f"gan_{'two_scalers' if two_scalers else 'one_scaler'}_{'one_update' if one_update else 'two_updates'}"
    loop.__name__ += "_three_backwards" if three_backwards else ""
    return healthy(loop)


_gan(two_scalers=True, one_update=False)
_gan(two_scalers=False, one_update=True)
_gan(two_scalers=False, one_update=False)
_gan(two_scalers=True, one_update=False, three_backwards=True)


@healthy
def gan_in_float32_with_one_loss(watching):
    generator, critic = mlp(4, 16, 8), mlp(8, 16, 1, seed=1)
    opt_g, opt_d = torch.optim.Adam(generator.parameters(), 1e-3), torch.optim.Adam(critic.parameters(), 1e-3)
    with watching([generator, critic], [opt_g, opt_d]) as doctor:
        for x, _ in batches(6):
            fake = generator(torch.randn(32, 4))
            opt_d.zero_grad()
            (critic(fake.detach()).mean() - critic(x).mean()).backward()
            opt_d.step()
            opt_g.zero_grad()
            (-critic(fake).mean()).backward()
            opt_g.step()
    return doctor


@healthy
def two_scalers_both_backwards_first(watching):
    first, second = mlp(), mlp(seed=1)
    optimizers, scalers = [sgd(first), sgd(second)], [low_scaler(growth_interval=2), low_scaler(growth_interval=3)]
    with watching([first, second], optimizers, scalers) as doctor:
        for x, y in batches(8):
            scalers[0].scale(forward_loss(first, x, y)).backward()
            scalers[1].scale(forward_loss(second, x, y)).backward()
            for scaler, optimizer in zip(scalers, optimizers):
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
    return doctor


@healthy
def two_scalers_and_both_unscaled_first(watching):
    first, second = mlp(), mlp(seed=1)
    optimizers, scalers = [sgd(first), sgd(second)], [low_scaler(growth_interval=2), low_scaler(growth_interval=3)]
    with watching([first, second], optimizers, scalers) as doctor:
        for x, y in batches(8):
            for model, scaler, optimizer in zip((first, second), scalers, optimizers):
                optimizer.zero_grad()
                scaler.scale(forward_loss(model, x, y)).backward()
                scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_([*first.parameters(), *second.parameters()], 0.1)
            for scaler, optimizer in zip(scalers, optimizers):
                scaler.step(optimizer)
                scaler.update()
    return doctor


@healthy
def two_losses_over_one_graph(watching):
    model, scaler = mlp(), low_scaler()
    optimizer = sgd(model)
    with watching(model, optimizer, scaler) as doctor:
        for x, y in batches(6):
            with fp16():
                output = model(x)
                first, second = F.mse_loss(output, y), F.l1_loss(output, y)
            scaler.scale(first).backward(retain_graph=True)
            scaler.scale(second).backward()
            finish(scaler, optimizer)
    return doctor


@healthy
def list_of_losses_scaled_together(watching):
    model, scaler = mlp(), low_scaler(growth_interval=2)
    optimizer = sgd(model)
    with watching(model, optimizer, scaler) as doctor:
        for x, y in batches(6):
            with fp16():
                output = model(x)
                losses = [F.mse_loss(output, y), F.l1_loss(output, y)]
            torch.autograd.backward(scaler.scale(losses))
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            finish(scaler, optimizer)
    return doctor


@healthy
def scaled_losses_added_up(watching):
    model, scaler = mlp(), low_scaler()
    optimizer = sgd(model)
    with watching(model, optimizer, scaler) as doctor:
        for x, y in batches(6):
            with fp16():
                first, second = F.mse_loss(model(x), y), F.l1_loss(model(x), y)
            (scaler.scale(first) + scaler.scale(second)).backward()
            finish(scaler, optimizer)
    return doctor


@healthy
def model_called_twice_a_step(watching):
    model, scaler = mlp(), low_scaler()
    optimizer = sgd(model)
    with watching(model, optimizer, scaler) as doctor:
        for x, y in batches(6):
            with fp16():
                loss = F.mse_loss(model(x), y) + F.mse_loss(model(x + 0.1), y)
            scaler.scale(loss).backward()
            finish(scaler, optimizer)
    return doctor


@healthy
def sharpness_aware_two_steps(watching):
    """Two backward passes and two different changes of the weights an iteration, only one of them the optimizer's."""
    model = mlp()
    optimizer = sgd(model)
    with watching(model, optimizer) as doctor:
        for x, y in batches(6):
            F.mse_loss(model(x), y).backward()
            moves = [0.05 * p.grad for p in model.parameters()]
            with torch.no_grad():
                torch._foreach_add_(list(model.parameters()), moves)
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            with torch.no_grad():
                torch._foreach_sub_(list(model.parameters()), moves)
            optimizer.step()
            optimizer.zero_grad()
    return doctor


# -- gradient penalties ---------------------------------------------------------------------------------------------


def _penalty(name, unscaled):
    def loop(watching):
        model, scaler = mlp(), low_scaler()
        optimizer = sgd(model)
        with watching(model, optimizer, scaler) as doctor:
            for x, y in batches(6):
                inverse = 1.0 / scaler.get_scale()
                loss = forward_loss(model, x, y)
                grads = torch.autograd.grad(scaler.scale(loss), model.parameters(), create_graph=True)
                with fp16():
                    loss = loss + 1e-2 * unscaled(scaler, grads, inverse)
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                finish(scaler, optimizer)
        return doctor

    loop.__name__ = f"penalty_{name}"
    return healthy(loop)


def _norm(grads):
    return torch.stack([g.float().square().sum() for g in grads]).sum().sqrt()


_penalty("as_documented", lambda scaler, grads, _: _norm([g * (1.0 / scaler.get_scale()) for g in grads]))
_penalty("by_division", lambda scaler, grads, _: _norm([g / scaler.get_scale() for g in grads]))
_penalty("with_the_inverse_taken_early", lambda scaler, grads, inverse: _norm([g * inverse for g in grads]))
_penalty("unscaled_after_joining", lambda scaler, grads, inverse: torch.cat([g.flatten() for g in grads]).mul(inverse).norm())
_penalty("whose_norm_is_unscaled", lambda scaler, grads, _: _norm(grads) / scaler.get_scale())


@healthy
def penalty_on_an_unscaled_loss(watching):
    model, scaler = mlp(), low_scaler()
    optimizer = sgd(model)
    with watching(model, optimizer, scaler) as doctor:
        for x, y in batches(6):
            x.requires_grad_()
            loss = forward_loss(model, x, y)
            (grad,) = torch.autograd.grad(loss, x, create_graph=True)
            scaler.scale(loss + grad.float().square().sum()).backward()
            finish(scaler, optimizer)
    return doctor


@healthy
def penalty_in_float32(watching):
    model = mlp()
    optimizer = sgd(model)
    with watching(model, optimizer) as doctor:
        for x, y in batches(6):
            x.requires_grad_()
            output = model(x)
            (grad,) = torch.autograd.grad(output.sum(), x, create_graph=True)
            (F.mse_loss(output, y) + 0.1 * (grad.norm(2, dim=1) - 1).square().mean()).backward()
            optimizer.step()
            optimizer.zero_grad()
    return doctor


# -- schedules, epochs, checkpoints, averages -----------------------------------------------------------------------


@healthy
def scheduler_stepped_unless_skipped(watching):
    model, scaler = mlp(), GradScaler("cpu", init_scale=2.0**24)
    optimizer = sgd(model)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=40)
    with watching(model, optimizer, scaler, scheduler=scheduler) as doctor:
        for x, y in batches(20):
            scaler.scale(forward_loss(model, x, y)).backward()
            before = scaler.get_scale()
            finish(scaler, optimizer)
            if scaler.get_scale() >= before:
                scheduler.step()
    return doctor


@healthy
def scheduler_every_epoch(watching):
    model, scaler = mlp(), low_scaler()
    optimizer = sgd(model)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
    with watching(model, optimizer, scaler, scheduler=[scheduler]) as doctor:
        for _ in range(4):
            for x, y in batches(4):
                scaler.scale(forward_loss(model, x, y)).backward()
                finish(scaler, optimizer)
            scheduler.step()
    return doctor


@healthy
def one_cycle_every_step(watching):
    model, scaler = mlp(), low_scaler()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with watching(model, optimizer, scaler) as doctor:
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-3, total_steps=10)
        for x, y in batches(8):
            scaler.scale(forward_loss(model, x, y)).backward()
            finish(scaler, optimizer)
            scheduler.step()
    return doctor


@healthy
def skipped_steps_of_calibration(watching):
    model, scaler = mlp(), GradScaler("cpu", init_scale=2.0**24)
    optimizer = sgd(model)
    with watching(model, optimizer, scaler) as doctor:
        for x, y in batches(30):
            scaler.scale(forward_loss(model, x, y)).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            finish(scaler, optimizer)
    assert scaler.get_scale() < 2.0**24, "the first steps were skipped"
    return doctor


@healthy
def calibration_from_a_very_high_scale(watching):
    model, scaler = mlp(), GradScaler("cpu", init_scale=2.0**40)
    optimizer = sgd(model)
    with watching(model, optimizer, scaler) as doctor:
        for x, y in batches(40):
            scaler.scale(forward_loss(model, x, y)).backward()
            finish(scaler, optimizer)
    assert scaler.get_scale() < 2.0**24, "more than sixteen steps were skipped in a row"
    return doctor


@healthy
def frozen_half_base_with_float32_adapter(watching):
    class Adapted(nn.Module):
        def __init__(self):
            super().__init__()
            self.base, self.adapter = mlp().half().requires_grad_(False), nn.Linear(8, 1)

        def forward(self, x):
            return self.base(x) + self.adapter(x)

    model, scaler = Adapted(), low_scaler()
    optimizer = sgd(model.adapter)
    with watching(model, optimizer, scaler) as doctor:
        for x, y in batches(6):
            scaler.scale(forward_loss(model, x, y)).backward()
            finish(scaler, optimizer)
    return doctor


@healthy
def region_without_cache_around_the_loop(watching):
    model = mlp()
    optimizer = sgd(model)
    with watching(model, optimizer) as doctor, autocast("cpu", dtype=torch.bfloat16, enabled=False, cache_enabled=False):
        for x, y in batches(6):
            F.mse_loss(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    return doctor


@healthy
def evaluation_between_epochs(watching):
    model, scaler = nn.Sequential(mlp(), nn.Dropout(0.1)), low_scaler()
    optimizer = sgd(model)
    with watching(model, optimizer, scaler) as doctor:
        for _ in range(3):
            model.train()
            for x, y in batches(4):
                scaler.scale(forward_loss(model, x, y)).backward()
                finish(scaler, optimizer)
            model.eval()
            with torch.no_grad():
                for x, y in batches(3):
                    F.mse_loss(model(x), y).item()  # evaluated in float32, as many do
            with torch.inference_mode(), fp16():
                for x, _ in batches(3):
                    model(x)
    return doctor


@healthy
def evaluation_of_thousands_of_batches(watching):
    model, scaler = mlp(), low_scaler()
    optimizer = sgd(model)
    with watching(model, optimizer, scaler) as doctor:
        for _ in range(2):
            for x, y in batches(3):
                scaler.scale(forward_loss(model, x, y)).backward()
                finish(scaler, optimizer)
            with torch.no_grad():
                for _ in range(2500):
                    model(x)
    assert doctor._steps <= 9
    return doctor


@healthy
def checkpoint_with_the_scaler(watching):
    model, scaler = mlp(), low_scaler()
    optimizer = sgd(model)
    with watching(model, optimizer, scaler) as doctor:
        for x, y in batches(4):
            scaler.scale(forward_loss(model, x, y)).backward()
            finish(scaler, optimizer)
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}
            torch.save(state, io.BytesIO())
            torch.save(model, io.BytesIO())  # a whole model is pickled too, and the watch must not be in it
    return doctor


@healthy
def resumed_from_a_checkpoint(watching):
    model, scaler = mlp(), low_scaler()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with watching(model, optimizer, scaler) as doctor:
        for x, y in batches(4):
            scaler.scale(forward_loss(model, x, y)).backward()
            finish(scaler, optimizer)
            model.load_state_dict(copy.deepcopy(model.state_dict()))
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            scaler.load_state_dict(scaler.state_dict())
    return doctor


@healthy
def average_of_the_weights_in_float32(watching):
    model, scaler = mlp(), low_scaler()
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99))
    optimizer = sgd(model)
    with watching([model, average], optimizer, scaler) as doctor:
        for x, y in batches(30):
            scaler.scale(forward_loss(model, x, y)).backward()
            finish(scaler, optimizer)
            average.update_parameters(model)
    return doctor


# -- models ---------------------------------------------------------------------------------------------------------


class Attention(nn.Module):
    """One attention layer with a causal mask of minus infinity, by hand or by PyTorch's function."""

    def __init__(self, by_hand: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.into, self.qkv, self.out, self.by_hand = nn.Linear(1, 16), nn.Linear(16, 48), nn.Linear(16, 1), by_hand
        self.norm, self.drop = nn.LayerNorm(16), nn.Dropout(0.1)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(self.into(x.unsqueeze(-1)))).chunk(3, dim=-1)
        if self.by_hand:
            scores = q @ k.transpose(-1, -2) / 4.0
            later = torch.ones(scores.shape[-1], scores.shape[-1]).triu(1).bool()
            mixed = scores.masked_fill(later, float("-inf")).softmax(-1) @ v
        else:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(self.drop(mixed)).mean(1)


class AddedMask(Attention):
    """The mask as a tensor that is added, as many transformers do it."""

    def forward(self, x):
        q, k, v = self.qkv(self.norm(self.into(x.unsqueeze(-1)))).chunk(3, dim=-1)
        size = x.shape[1]
        mask = torch.full((size, size), float("-inf")).triu(1)
        scores = q @ k.transpose(-1, -2) / 4.0
        mixed = (scores + mask.to(scores.dtype)).softmax(-1) @ v
        return self.out(self.drop(mixed)).mean(1)


def _model(name, make):
    def loop(watching):
        model, scaler = make(), low_scaler()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        with watching(model, optimizer, scaler) as doctor:
            for x, y in batches(4, rows=8):
                scaler.scale(forward_loss(model, x, y)).backward()
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                finish(scaler, optimizer)
        return doctor

    loop.__name__ = name
    return healthy(loop)


class Checkpointed(nn.Module):
    """Two blocks that are computed again in the backward pass."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.first, self.second, self.reentrant = nn.Linear(8, 16), mlp(16), reentrant
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        hidden = torch.relu(self.first(x))
        return checkpoint(lambda h: self.drop(self.second(h)), hidden, use_reentrant=self.reentrant)


class WatchedBlock(nn.Module):
    """The whole model is called once more in the backward pass."""

    def __init__(self, model: nn.Module, reentrant: bool) -> None:
        super().__init__()
        self.first, self.model, self.reentrant = nn.Linear(8, 8), model, reentrant

    def forward(self, x):
        return checkpoint(self.model, self.first(x), use_reentrant=self.reentrant)


_model("attention_by_hand_with_infinite_mask", lambda: Attention(by_hand=True))
_model("attention_with_added_mask", lambda: AddedMask(by_hand=True))
_model("attention_by_pytorch", lambda: Attention(by_hand=False))
_model("dropout_and_norm", lambda: nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Dropout(0.2), nn.GELU(), nn.Linear(16, 1)))
_model("batch_norm", lambda: nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1)))
_model("checkpointing_reentrant", lambda: Checkpointed(True))
_model("checkpointing_not_reentrant", lambda: Checkpointed(False))
_model("scripted", lambda: torch.jit.script(mlp()))
_model("compiled_eager", lambda: torch.compile(mlp(), backend="eager"))
_model("compiled_eager_fullgraph", lambda: torch.compile(mlp(), backend="eager", fullgraph=True))
_model("compiled_aot_eager", lambda: torch.compile(mlp(), backend="aot_eager"))


@healthy
def compiled_in_place(watching):
    model, scaler = mlp(), low_scaler()
    model.compile(backend="eager", fullgraph=True)
    optimizer = sgd(model)
    with watching(model, optimizer, scaler) as doctor:
        for x, y in batches(4):
            scaler.scale(forward_loss(model, x, y)).backward()
            finish(scaler, optimizer)
    return doctor


@healthy
def compiled_and_the_original_is_watched(watching):
    model, scaler = mlp(), low_scaler()
    compiled = torch.compile(model, backend="eager")
    optimizer = sgd(model)
    with watching(model, optimizer, scaler) as doctor:
        for x, y in batches(4):
            scaler.scale(forward_loss(compiled, x, y)).backward()
            finish(scaler, optimizer)
    return doctor


@healthy
def compiled_loss_function(watching):
    model, scaler = mlp(), low_scaler()
    loss_of = torch.compile(lambda output, y: (output.float() - y).square().mean(), backend="eager", fullgraph=True)
    optimizer = sgd(model)
    with watching(model, optimizer, scaler) as doctor:
        for x, y in batches(4):
            with fp16():
                loss = loss_of(model(x), y)
            scaler.scale(loss).backward()
            finish(scaler, optimizer)
    return doctor


@healthy
def checkpointed_whole_model(watching):
    inner, scaler = mlp(), low_scaler()
    model = WatchedBlock(inner, reentrant=True)
    optimizer = sgd(model)
    with watching([model, inner], optimizer, scaler) as doctor:
        for x, y in batches(6):
            scaler.scale(forward_loss(model, x, y)).backward()
            finish(scaler, optimizer)
    return doctor


@healthy
def step_in_the_backward_pass(watching):
    """An optimizer for each parameter steps as soon as its gradient is there (PyTorch's tutorial on saving memory)."""
    model = mlp()
    optimizers = {p: torch.optim.Adam([p], lr=1e-3) for p in model.parameters()}

    def step_now(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(step_now)
    with watching(model, list(optimizers.values())) as doctor:
        for x, y in batches(6):
            F.mse_loss(model(x), y).backward()
    return doctor


@healthy
def step_in_the_backward_pass_of_a_checkpointed_model(watching):
    inner = mlp()
    model = WatchedBlock(inner, reentrant=True)
    optimizers = {p: torch.optim.Adam([p], lr=1e-3) for p in model.parameters()}

    def step_now(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(step_now)
    with watching([model, inner], list(optimizers.values())) as doctor:
        for x, y in batches(6):
            F.mse_loss(model(x), y).backward()
    return doctor


@healthy
def one_optimizer_skipped_and_the_other_not(watching):
    """The loss reaches one of two optimizers only every other step, and only those that have gradients are stepped."""
    first, second, scaler = mlp(), mlp(seed=1), low_scaler()
    optimizers = [sgd(first), sgd(second)]
    with watching([first, second], optimizers, scaler) as doctor:
        for i, (x, y) in enumerate(batches(8)):
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss = forward_loss(first, x, y)
            if i % 2:
                loss = loss + forward_loss(second, x, y)
            scaler.scale(loss).backward()
            scaler.step(optimizers[0])
            if i % 2:
                scaler.step(optimizers[1])
            scaler.update()
    return doctor


@healthy
def gradient_clipping_with_a_generator_of_some_parameters(watching):
    model, scaler = mlp(), low_scaler()
    optimizer = sgd(model)
    with watching(model, optimizer, scaler) as doctor:
        for x, y in batches(6):
            scaler.scale(forward_loss(model, x, y)).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_((p for name, p in model.named_parameters() if "weight" in name), 0.1)
            nn.utils.clip_grad_norm_(model[2].bias, 0.1)
            finish(scaler, optimizer)
    return doctor


@healthy
def gradients_looked_at_but_not_changed(watching):
    model, scaler = mlp(), low_scaler()
    optimizer = sgd(model)
    with watching(model, optimizer, scaler) as doctor:
        for x, y in batches(6):
            scaler.scale(forward_loss(model, x, y)).backward()
            torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]).item()
            finish(scaler, optimizer)
    return doctor


@healthy
def teacher_and_student(watching):
    student, teacher, scaler = mlp(), mlp(seed=1).eval().requires_grad_(False), low_scaler()
    optimizer = sgd(student)
    with watching([student, teacher], optimizer, scaler) as doctor:
        for x, _ in batches(6):
            with torch.no_grad():
                target = teacher(x)
            with fp16():
                loss = F.mse_loss(student(x), target)
            scaler.scale(loss).backward()
            finish(scaler, optimizer)
    return doctor


def test_region_around_each_step_is_not_taken_for_one_around_the_loop():
    """A region that is entered anew has no stale weights: another mistake, and a smaller one."""
    model, scaler = mlp(), low_scaler()
    optimizer = sgd(model)
    with watch(model, optimizer, scaler) as doctor:
        for x, y in batches(4):
            with fp16():
                scaler.scale(F.mse_loss(model(x), y)).backward()
                finish(scaler, optimizer)
    rules = {finding.rule for finding in doctor.findings}
    assert "step-inside-autocast" in rules and "loop-inside-autocast" not in rules


def test_gradients_left_over_from_the_last_step_are_named_as_such():
    """Without zero_grad, scaled gradients are added to the unscaled ones of the step before."""
    model, scaler = mlp(), low_scaler()
    optimizer = sgd(model)
    with watch(model, optimizer, scaler) as doctor:
        for x, y in batches(4):
            scaler.scale(forward_loss(model, x, y)).backward()
            scaler.step(optimizer)
            scaler.update()
    (finding,) = [f for f in doctor.findings if f.severity == "error"]
    assert finding.rule == "scale-changed-in-accumulation" and finding.step == 1
    assert finding.fix.startswith("optimizer.zero_grad()")


# -- two processes --------------------------------------------------------------------------------------------------


def _of_two(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    model = DistributedDataParallel(mlp())
    optimizer, scaler = sgd(model), GradScaler("cpu", init_scale=2.0**20)
    with watch(model, optimizer, scaler) as doctor:
        for i, (x, y) in enumerate(batches(16)):
            part = slice(rank * 16, rank * 16 + 16)
            last = i % 2 == 1
            if not last:
                with model.no_sync():
                    scaler.scale(forward_loss(model, x[part], y[part]) / 2).backward()
                continue
            scaler.scale(forward_loss(model, x[part], y[part]) / 2).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            finish(scaler, optimizer)
    text = "\n".join([str(doctor), *doctor._observer.troubles]) if _bad(doctor) else f"silent after {doctor._steps}"
    Path(folder, f"rank{rank}").write_text(text)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # gloo's threads now and then abort a process that takes Python down around them, long after the test


def _bad(doctor):
    return doctor._observer.troubles or [f for f in doctor.findings if f.severity != "advice"]


@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="this torch build has no gloo")
def test_distributed_data_parallel_with_two_processes(tmp_path):
    mp.spawn(_of_two, args=(str(tmp_path),), nprocs=2)
    for rank in (0, 1):
        assert (tmp_path / f"rank{rank}").read_text() == "silent after 8"
