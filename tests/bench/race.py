"""Several ways of running the same training loop, taken in turns in one process, so that a busy machine slows them all."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

BARE = "bare loop"
AGAIN = "bare loop again"  # how far two equal things lie apart here


class Runner(NamedTuple):
    """``step()`` runs one training step; ``pause()`` waits, untimed, for work it left to others."""

    name: str
    step: Callable[[], object]
    pause: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class Spread:
    """Median and quartiles over the rounds."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        return cls(*statistics.quantiles(values, n=4))


@dataclass(frozen=True)
class Cost:
    """What one runner took: milliseconds a step, and the ratio to, and milliseconds above, the bare loop in the same round."""

    workload: str
    name: str
    milliseconds: Spread
    ratio: Spread
    added: Spread


def race(workload: str, runners: list[Runner], rounds: int, steps: int) -> dict[str, Cost]:
    """Time ``steps`` steps of each runner in every round, in an order drawn anew, after one step untimed."""
    order, draw = list(runners), random.Random(0)
    times: dict[str, list[float]] = {runner.name: [] for runner in runners}
    for lap in range(rounds + 1):
        draw.shuffle(order)
        for runner in order:
            runner.step()  # its memory comes back into the caches, and what ran before fades out
            start = time.perf_counter()
            for _ in range(steps):
                runner.step()
            taken = (time.perf_counter() - start) / steps * 1e3
            runner.pause()
            if lap:  # the first lap warms up
                times[runner.name].append(taken)
    bare = times[BARE]
    return {
        name: Cost(
            workload,
            name,
            Spread.of(taken),
            Spread.of([mine / plain for mine, plain in zip(taken, bare)]),
            Spread.of([mine - plain for mine, plain in zip(taken, bare)]),
        )
        for name, taken in times.items()
    }
