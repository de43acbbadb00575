"""Timing done right: warm-up, synchronisation, many runs in turns, a median with its quartiles, and a time budget."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from amp_lessons import devices
from amp_lessons.errors import LessonError

_BLOCK_S = 1e-3  # shorter calls are timed many at once: a clock's own cost and a kernel's launch then weigh little
_MOST_IN_A_BLOCK = 50


@dataclass(frozen=True)
class Timing:
    """Seconds that one call takes: the median over ``runs`` timed blocks, and the quartiles around it.

    ``stopped_early`` says that the time budget allowed fewer runs than were asked for.
    """

    median_s: float
    low_s: float
    high_s: float
    runs: int
    stopped_early: bool = False

    @classmethod
    def of(cls, seconds: list[float], wanted: int) -> Timing:
        """The median and the quartiles of measured times."""
        times = torch.tensor(seconds, dtype=torch.float64)
        low, middle, high = times.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)).tolist()
        return cls(middle, low, high, len(seconds), len(seconds) < wanted)


@dataclass(frozen=True)
class Subject:
    """Something to time, and the settings around it, which are made and put back outside the timed part."""

    call: Callable[[], object]
    around: Callable[[], AbstractContextManager] = nullcontext


def seconds_of(call: Callable[[], object], device: torch.device, times: int = 1) -> float:
    """Seconds for one of ``times`` calls in a row, by CUDA events on CUDA, else by the wall clock.

    A CUDA kernel runs on after the call that launched it has returned; the work is waited for on both sides.
    """
    if device.type != "cuda":
        start = time.perf_counter()
        for _ in range(times):
            call()
        return (time.perf_counter() - start) / times
    with torch.cuda.device(device):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        for _ in range(times):
            call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3 / times


def interleaved(
    subjects: Mapping[str, Subject],
    device: str | torch.device | None = None,
    runs: int = 15,
    budget_s: float = 2.0,
    warm_up: int = 3,
) -> dict[str, Timing | None]:
    """Time several subjects in turns, so that a busy moment or a warming chip meets all of them.

    Each round times every subject once, and each round begins with another one. A subject that does not fit into what is
    left of ``budget_s`` gets no more rounds; one that had no timed run at all is None. A call that has begun is not
    interrupted, so the last may end a little past the budget. Raises LessonError for numbers that cannot work.
    """
    if runs < 1 or warm_up < 1 or not budget_s > 0:
        raise LessonError("Timing needs at least one run, one warm-up and a budget above 0 seconds.")
    device = devices.pick(device)
    end = time.perf_counter() + budget_s
    taken: dict[str, list[float]] = {name: [] for name in subjects}
    expected: dict[str, float] = {}
    with devices.one_thread(device):
        for name, subject in subjects.items():
            fair_end = time.perf_counter() + budget_s / (4 * len(subjects))  # the larger part of the time is for the runs
            with subject.around():
                for _ in range(warm_up):
                    if time.perf_counter() + expected.get(name, 0.0) > (min(end, fair_end) if name in expected else end):
                        break
                    expected[name] = seconds_of(subject.call, device)
        blocks = {name: _calls_in_a_block(one) for name, one in expected.items()}
        names = list(expected)
        for turn in range(runs):
            for name in names[turn % len(names) :] + names[: turn % len(names)] if names else []:
                if time.perf_counter() + expected[name] * blocks[name] > end:
                    continue
                with subjects[name].around():
                    expected[name] = seconds_of(subjects[name].call, device, blocks[name])
                taken[name].append(expected[name])
    return {name: Timing.of(seconds, runs) if seconds else None for name, seconds in taken.items()}


def _calls_in_a_block(one_s: float) -> int:
    return max(1, min(_MOST_IN_A_BLOCK, math.ceil(_BLOCK_S / max(one_s, 1e-9))))
