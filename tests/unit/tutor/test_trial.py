"""Running a learner's function: endless loops end, errors show the learner's own line, timers are left as they were."""

import signal
import threading
import time

import pytest

from amp_lessons.tutor import sources, trial
from amp_lessons.tutor.trial import AnswerFailed, TimeIsUp, Trial, Unfinished, time_limit


def endless():
    while True:
        pass


def endless_but_guarded():
    while True:
        try:
            while True:
                pass
        except Exception:
            pass


def endless_with_a_bare_except():
    count = 0
    while True:
        try:
            count += 1
        except:  # noqa: E722 - what a learner may write
            pass


def in_thread(work):
    """Run the work on a thread that is not the main one, and give what it raised."""
    caught = []

    def run():
        try:
            work()
        except BaseException as error:  # noqa: BLE001
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    return caught[0] if caught else None


def limited(work, seconds=0.05):
    with time_limit(seconds):
        work()


@pytest.mark.parametrize(
    "work", [endless, endless_but_guarded, endless_with_a_bare_except, lambda: Trial(endless)()], ids=["plain", "guarded", "bare", "trial"]
)
def test_a_loop_without_an_end_is_ended(work):
    with pytest.raises(TimeIsUp):
        limited(work)


@pytest.mark.parametrize("work", [endless, lambda: Trial(endless)()])
def test_so_it_is_on_another_thread(work):
    assert isinstance(in_thread(lambda: limited(work)), TimeIsUp)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer signals on this system")
def test_a_sleep_is_ended_too():
    with pytest.raises(TimeIsUp):
        limited(lambda: time.sleep(30))


@pytest.mark.parametrize("on_main", [True, False])
def test_what_ends_in_time_goes_on_undisturbed(on_main):
    def work():
        limited(lambda: None, seconds=0.05)
        until = time.monotonic() + 0.15  # past the limit: nothing may arrive late
        while time.monotonic() < until:
            pass

    assert (work() if on_main else in_thread(work)) is None


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer signals on this system")
def test_somebody_elses_alarm_still_goes_off():
    heard = []
    before = signal.signal(signal.SIGALRM, lambda *_: heard.append(True))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with time_limit(5):
            pass
        time.sleep(0.2)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert heard


def test_an_interrupt_is_passed_on():
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Trial(interrupted)()


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), RecursionError("deep")])
def test_everything_else_is_the_answers_failure(error):
    def answer():
        raise error

    with pytest.raises(AnswerFailed, match=type(error).__name__):
        Trial(answer)()


def test_a_left_ellipsis_is_unfinished():
    with pytest.raises(Unfinished):
        Trial(lambda: ...)()


CELL = """
def helper(x):
    return 1 / x


def answer(x):
    return helper(x)
"""


def test_the_last_line_of_the_learners_own_is_shown():
    answer = sources.run(CELL, "<a cell>")["answer"]
    with pytest.raises(AnswerFailed) as failure:
        Trial(answer)(0)
    assert str(failure.value) == "ZeroDivisionError: division by zero, in line 3 of your cell: `return 1 / x`."


def test_a_line_inside_torch_is_not_the_learners():
    import torch

    def answer():
        return torch.ones(2).reshape(3)

    with pytest.raises(AnswerFailed, match=r"in line \d+ of your cell: `return torch.ones\(2\).reshape\(3\)`"):
        Trial(answer)()


def test_the_limit_is_the_one_that_checks_use():
    assert trial.SECONDS >= 5  # a slow laptop must not run into it
