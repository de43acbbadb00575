"""The clock: turns, budget, blocks, what is left out as disturbed, and that CUDA's work is waited for."""

import time

import pytest
import torch

from amp_lessons.errors import LessonError
from amp_lessons.measure.clock import Block, Subject, Timing, _summary, interleaved, timed

CPU = torch.device("cpu")


def busy(seconds: float) -> None:
    """Keep this thread's processor busy for so long by the thread's own clock."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_median_and_quartiles_are_those_of_the_times():
    timing = Timing.of([5.0, 1.0, 4.0, 2.0, 3.0], wanted=5)
    assert (timing.low_s, timing.median_s, timing.high_s, timing.runs) == (2.0, 3.0, 4.0, 5)
    assert not timing.stopped_early and Timing.of([1.0], wanted=2).stopped_early


def test_subjects_take_turns_and_each_round_begins_with_another():
    order = []

    def subject(name):
        return Subject(lambda: (order.append(name), busy(1.2e-3)))  # over a millisecond: a block is one call

    interleaved({"a": subject("a"), "b": subject("b")}, CPU, runs=6, warm_up=1, budget_s=5)
    rounds = [order[i : i + 2] for i in range(2, len(order), 2)]  # after one warm-up call of each
    assert len(rounds) >= 6
    assert rounds[:4] == [["a", "b"], ["b", "a"], ["a", "b"], ["b", "a"]]


def test_short_calls_are_timed_in_blocks_and_reported_for_one():
    calls = []
    timing = interleaved({"short": Subject(lambda: (calls.append(0), busy(1e-4)))}, CPU, runs=5)["short"]
    assert len(calls) > 4 * timing.runs
    assert 1e-4 <= timing.median_s < 1e-3


def test_a_slow_subject_stops_at_the_budget_and_says_so():
    start = time.perf_counter()
    times = interleaved({"slow": Subject(lambda: time.sleep(0.05))}, CPU, runs=100, budget_s=0.4)
    assert time.perf_counter() - start < 1.0
    assert times["slow"].stopped_early and 1 <= times["slow"].runs <= 7
    # A sleeping call uses no processor, but takes its time all the same.
    assert times["slow"].clock == "wall" and times["slow"].median_s >= 0.05


def test_what_does_not_fit_at_all_has_no_time_and_does_not_take_the_others_along():
    times = interleaved({"quick": Subject(lambda: busy(1e-3)), "slow": Subject(lambda: time.sleep(0.3))}, CPU, runs=3, budget_s=0.4)
    assert times["slow"] is None
    assert times["quick"].runs >= 1


def test_disturbed_blocks_are_left_out_and_counted():
    clean = [Block(1.0, "wall", 1.0)] * 3
    timing = _summary([*clean, Block(9.0, "wall", 1.0), Block(7.0, "wall", 1.0)], runs=3)
    assert (timing.median_s, timing.runs, timing.clock, timing.disturbed) == (1.0, 3, "wall", 2)


def test_on_a_machine_that_is_never_free_the_cpu_time_is_taken_and_named():
    timing = _summary([Block(4.0, "wall", 1.0), Block(6.0, "wall", 2.0), Block(5.0, "wall", 3.0)], runs=3)
    assert (timing.median_s, timing.clock) == (2.0, "cpu")


def test_settings_around_a_subject_are_made_outside_the_timed_part_and_put_back_after_an_error():
    entered, left = [], []

    class Around:
        def __enter__(self):
            entered.append(0)
            time.sleep(0.02)

        def __exit__(self, *_):
            left.append(0)

    timing = interleaved({"a": Subject(lambda: busy(1.2e-3), Around)}, CPU, runs=3, budget_s=2)["a"]
    assert timing.median_s < 0.02 and len(entered) == len(left) >= 4

    def fails():
        raise ValueError("made to fail")

    with pytest.raises(ValueError, match="made to fail"):
        interleaved({"a": Subject(fails, Around)}, CPU)
    assert len(entered) == len(left)


def test_thread_count_is_put_back():
    before = torch.get_num_threads()
    seen = []
    interleaved({"a": Subject(lambda: seen.append(torch.get_num_threads()))}, CPU, runs=1)
    assert set(seen) == {1} and torch.get_num_threads() == before


@pytest.mark.parametrize("wrong", [{"runs": 0}, {"warm_up": 0}, {"budget_s": 0}, {"budget_s": float("nan")}])
def test_numbers_that_cannot_work_are_refused(wrong):
    with pytest.raises(LessonError, match="at least one run"):
        interleaved({"a": Subject(lambda: None)}, CPU, **wrong)


@pytest.mark.cuda
def test_cuda_work_is_waited_for():
    device = torch.device("cuda")
    torch.cuda._sleep(1)
    start = time.perf_counter()
    torch.cuda._sleep(200_000_000)  # about a tenth of a second of a GPU's clock; the call itself returns at once
    launched = time.perf_counter() - start
    torch.cuda.synchronize()
    block = timed(lambda: torch.cuda._sleep(200_000_000), device)
    assert block.clock == "cuda events"
    assert block.seconds > 0.02 > launched
