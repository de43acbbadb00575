"""Ways of recording the gradients of every step: ours, and what people use or write instead."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import torch
from torch import nn

from amp_lessons.gradients import GradientRecorder
from tests.bench.race import Runner
from tests.bench.workloads import Workload

OURS = "amp_lessons GradientRecorder"
TENSORBOARD = f"TensorBoard {version('tensorboard')} add_histogram"
WANDB = f"wandb {version('wandb')} watch, offline"
TEXTBOOK = "textbook log2 + histc"


def ours(workload: Workload, model: nn.Module) -> Runner:
    histograms, recorder = [], GradientRecorder(model)
    return Runner(OURS, workload.loop(model, lambda loss: histograms.append(recorder.parameters())))


def textbook(workload: Workload, model: nn.Module) -> Runner:
    """What one would write first: not exact at the borders, and blind to zeros and NaN."""
    histograms = []

    def record(loss: float) -> None:
        exponents = [parameter.grad.abs().log2().floor() for parameter in model.parameters()]
        histograms.append(sum(torch.histc(each, bins=64, min=-48, max=16) for each in exponents))

    return Runner(TEXTBOOK, workload.loop(model, record))


@contextlib.contextmanager
def tensorboard(workload: Workload, model: nn.Module, folder: Path) -> Iterator[Runner]:
    from torch.utils.tensorboard import SummaryWriter

    steps = itertools.count()
    with SummaryWriter(str(folder)) as writer:

        def record(loss: float) -> None:
            step = next(steps)
            for name, parameter in model.named_parameters():
                writer.add_histogram(name, parameter.grad, step)

        # Its thread writes on while others are timed, so that is waited for, at no charge.
        yield Runner(TENSORBOARD, workload.loop(model, record), writer.flush)


@contextlib.contextmanager
def wandb(workload: Workload, folder: Path) -> Iterator[Runner]:
    import wandb

    model = workload.make_model()  # its own, since wandb leaves hooks on it
    settings = wandb.Settings(silent=True, console="off", x_disable_stats=True, x_disable_meta=True)
    with wandb.init(project="bench", mode="offline", dir=str(folder), settings=settings) as run:
        run.watch(model, log="gradients", log_freq=1)
        step = workload.loop(model, lambda loss: run.log({"loss": loss}))
        yield Runner(WANDB, step, lambda: time.sleep(0.05))  # for its process, which cannot be waited for
