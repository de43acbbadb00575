"""Timing done right: warm-up, synchronisation, many runs in turns, a median with its quartiles, and a time budget."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from amp_lessons import devices
from amp_lessons.errors import LessonError

_BLOCK_S = 1e-3  # shorter calls are timed many at once: a clock's own cost and a kernel's launch then weigh little
_MOST_IN_A_BLOCK = 50
_MOST_ROUNDS = 200
_HAD_THE_CPU = 1.1  # wall time over the thread's own CPU time; above it something else ran on the processor meanwhile


@dataclass(frozen=True)
class Timing:
    """Seconds that one call takes: the median over ``runs`` timed blocks, and the quartiles around it.

    ``clock`` is "cuda events", "wall", or "cpu": on a machine so busy that hardly any block had the processor to itself, the
    thread's own CPU time is taken, which is the wall time it would have needed alone. ``disturbed`` counts the blocks that
    were left out because another program had the processor for a part of them. ``stopped_early`` says that the time budget
    allowed fewer runs than were asked for.
    """

    median_s: float
    low_s: float
    high_s: float
    runs: int
    clock: str = "wall"
    disturbed: int = 0
    stopped_early: bool = False

    @classmethod
    def of(cls, seconds: Sequence[float], wanted: int, clock: str = "wall", disturbed: int = 0) -> Timing:
        """The median and the quartiles of measured times."""
        times = torch.tensor(seconds, dtype=torch.float64)
        low, middle, high = times.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)).tolist()
        return cls(middle, low, high, len(seconds), clock, disturbed, len(seconds) < wanted)


@dataclass(frozen=True)
class Subject:
    """Something to time, and the settings around it, which are made and put back outside the timed part."""

    call: Callable[[], object]
    around: Callable[[], AbstractContextManager] = nullcontext


@dataclass(frozen=True)
class Block:
    """Seconds for one call in a timed block, by which clock, and by the thread's own CPU time where that is known."""

    seconds: float
    clock: str
    cpu_seconds: float | None = None

    @property
    def undisturbed(self) -> bool:
        """Whether the thread had the processor to itself, as far as can be told."""
        return self.cpu_seconds is None or self.seconds <= _HAD_THE_CPU * self.cpu_seconds


def timed(call: Callable[[], object], device: torch.device, times: int = 1) -> Block:
    """Time ``times`` calls in a row, by CUDA events on CUDA, else by the wall clock.

    A CUDA kernel runs on after the call that launched it has returned; the work is waited for on both sides.
    """
    if device.type != "cuda":
        start, start_cpu = time.perf_counter(), time.thread_time()
        for _ in range(times):
            call()
        seconds, cpu = time.perf_counter() - start, time.thread_time() - start_cpu
        return Block(seconds / times, "wall", cpu / times if _CPU_TIME_IS_FINE else None)
    with torch.cuda.device(device):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        for _ in range(times):
            call()
        end.record()
        end.synchronize()
        return Block(begin.elapsed_time(end) / 1e3 / times, "cuda events")


# Windows counts CPU time in steps of 16 ms, which tells nothing about a block of one.
_CPU_TIME_IS_FINE = time.get_clock_info("thread_time").resolution < 1e-5


def interleaved(
    subjects: Mapping[str, Subject],
    device: str | torch.device | None = None,
    runs: int = 15,
    budget_s: float = 2.0,
    warm_up: int = 3,
) -> dict[str, Timing | None]:
    """Time several subjects in turns, so that a busy moment or a warming chip meets all of them.

    Each round times every subject once, and each round begins with another one, until all have ``runs`` undisturbed blocks.
    A subject that does not fit into what is left of ``budget_s`` gets no more rounds; one that had no timed run at all is
    None. A call that has begun is not interrupted, so the last may end a little past the budget. Raises LessonError for
    numbers that cannot work.
    """
    if runs < 1 or warm_up < 1 or not budget_s > 0:
        raise LessonError("Timing needs at least one run, one warm-up and a budget above 0 seconds.")
    device = devices.pick(device)
    end = time.perf_counter() + budget_s
    expected: dict[str, float] = {}  # seconds of the latest call
    quickest: dict[str, float] = {}  # the first call is often slow, and would make a block too short
    with devices.one_thread(device):
        for name, subject in subjects.items():
            fair_end = time.perf_counter() + budget_s / (4 * len(subjects))  # the larger part of the time is for the runs
            with subject.around():
                for _ in range(warm_up):
                    if time.perf_counter() + expected.get(name, 0.0) > (min(end, fair_end) if name in expected else end):
                        break
                    expected[name] = timed(subject.call, device).seconds
                    quickest[name] = min(quickest.get(name, math.inf), expected[name])
        sizes = {name: _calls_in_a_block(one) for name, one in quickest.items()}
        blocks: dict[str, list[Block]] = {name: [] for name in subjects}
        names = list(expected)
        for turn in range(_MOST_ROUNDS):
            if time.perf_counter() > end or all(sum(b.undisturbed for b in blocks[name]) >= runs for name in names):
                break
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                if time.perf_counter() + expected[name] * sizes[name] > end:
                    continue
                with subjects[name].around():
                    blocks[name].append(timed(subjects[name].call, device, sizes[name]))
                expected[name] = blocks[name][-1].seconds
    return {name: _summary(taken, runs) for name, taken in blocks.items()}


def _summary(blocks: Sequence[Block], runs: int) -> Timing | None:
    if not blocks:
        return None
    good = [block.seconds for block in blocks if block.undisturbed]
    if len(good) >= min(3, runs):
        return Timing.of(good, runs, blocks[0].clock, len(blocks) - len(good))
    wall = Timing.of([block.seconds for block in blocks], runs, blocks[0].clock)
    cpu = Timing.of([block.cpu_seconds for block in blocks], runs, "cpu")
    # A call that hardly computes is not kept from the processor by others: it waits for something of its own.
    return cpu if cpu.median_s > 0.1 * wall.median_s else wall


def _calls_in_a_block(one_s: float) -> int:
    return max(1, min(_MOST_IN_A_BLOCK, math.ceil(_BLOCK_S / max(one_s, 1e-9))))
