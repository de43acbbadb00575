"""``train()`` with nothing recorded over the same loop written by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from amp_lessons.problems import Problem, portrait
from amp_lessons.recipes import AMP, FP32, Recipe
from amp_lessons.training import train
from tests.bench.race import AGAIN, BARE, Runner, race
from tests.bench.workloads import layers

TRAIN = "train(), nothing recorded"
RECORDED = "train(), every gradient recorded"
CPU = torch.device("cpu")


def mlp() -> Problem:
    draw = torch.Generator().manual_seed(1)
    inputs, targets = torch.randn(4096, 512, generator=draw), torch.randn(4096, 10, generator=draw)
    return Problem("MLP", inputs, targets, layers, batch_size=256, learning_rate=1e-3)


def by_hand(problem: Problem, recipe: Recipe) -> Callable[[], None]:
    """The loop of PyTorch's own AMP examples, with the loss read each step as everybody does."""
    torch.manual_seed(0)
    model, batches, losses = problem.make_model(), torch.Generator().manual_seed(0), []
    optimizer = torch.optim.Adam(model.parameters(), lr=problem.learning_rate)
    scaler = torch.amp.GradScaler("cpu", enabled=recipe.uses_scaler)

    def step() -> None:
        inputs, targets = problem.batch(batches)
        with torch.autocast("cpu", dtype=recipe.autocast_dtype, enabled=recipe.autocast_dtype is not None):
            loss = problem.loss_weight * F.mse_loss(model(inputs), targets)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(loss.item())

    return step


@pytest.mark.parametrize(
    "make, recipe, steps", [(mlp, FP32, 5), (portrait, FP32, 25), (portrait, AMP, 25)], ids=["MLP", "portrait", "portrait AMP"]
)
def test_train_costs_what_the_loop_by_hand_costs(make, recipe, steps, report):
    problem = make()
    plain = train(problem, recipe, 10**9, device=CPU, histograms=False)
    recorded = train(problem, recipe, 10**9, device=CPU)
    runners = [Runner(BARE, by_hand(problem, recipe)), Runner(AGAIN, by_hand(problem, recipe))]
    runners += [Runner(TRAIN, lambda: next(plain)), Runner(RECORDED, lambda: next(recorded))]
    found = race(f"train, {problem.name}, {recipe.label}", runners, 40, steps)
    report(found)
    assert found[TRAIN].ratio.median <= 1.03
