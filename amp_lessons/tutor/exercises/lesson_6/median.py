"""Exercise 6-median: a timing that warms up, waits for the device and takes the median."""

from __future__ import annotations

import math
import statistics

from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.given import not_a_number
from amp_lessons.tutor.trial import Trial

STUB = '''
def median_time(call, wait, clock, runs):
    """Median seconds of one call: of as many runs, after at least one that is not timed.

    wait() returns when the device has finished, and clock() tells the seconds.

    >>> clock = iter([0.0, 1.0, 10.0, 13.0, 20.0, 22.0]).__next__
    >>> median_time(dict, dict, clock, runs=3)  # nothing to do
    2.0
    """
    ...
'''

ANSWER = """
def median_time(call, wait, clock, runs):
    call()
    times = []
    for _ in range(runs):
        wait()
        start = clock()
        call()
        wait()
        times.append(clock() - start)
    return sorted(times)[runs // 2]
"""

_QUEUE_S = 0.001  # until a call returns
_FIRST_S = 0.5
_STEPS_S = (0.020, 0.024, 0.022, 0.200, 0.023)  # over and over; in the fourth another program had the device


class _Device:
    """A device that works on after a call has returned, as a GPU does, and a clock that is sure: nothing else moves it."""

    def __init__(self) -> None:
        self.now = self.busy_until = 0.0
        self.events: list[str] = []

    def call(self) -> None:
        number = self.events.count("call")
        self.events.append("call")
        self.now += _QUEUE_S
        work = _STEPS_S[(number - 1) % len(_STEPS_S)] if number else _FIRST_S
        self.busy_until = max(self.busy_until, self.now) + work

    def wait(self) -> None:
        self.events.append("wait")
        self.now = max(self.now, self.busy_until)

    def clock(self) -> float:
        self.events.append("clock")
        return self.now


def examine(median_time: Trial) -> str | None:
    for runs in (1, 5, 15):
        device = _Device()
        given = median_time(device.call, device.wait, device.clock, runs)
        if wrong := not_a_number(given):
            return wrong
        if mistake := _mistake(device.events, float(given), runs):
            return mistake
    return None


def _mistake(events: list[str], given: float, runs: int) -> str | None:
    calls = events.count("call")
    if not calls or "clock" not in events:
        what = "`call` was never called" if not calls else "`clock` was never read, so it was another clock that told the time"
        return f"With runs={runs}, {what}."
    if calls <= runs:
        return (
            f"With runs={runs}, `call` was called {'once' if calls == 1 else f'{calls} times'}. It takes once more at least: the first "
            f"call takes {_FIRST_S:g} s on this device, the others about {statistics.median(_STEPS_S):g} s, and it must not be timed."
        )
    steps = _STEPS_S if runs > 1 else (_STEPS_S[(calls - 2) % len(_STEPS_S)],)
    right = statistics.median(steps) + _QUEUE_S
    if math.isclose(given, right, rel_tol=1e-4):
        return None
    told = f"With runs={runs} you say {given:.4g} s; it is {right:.4g} s."
    pairs = list(zip(events, events[1:]))
    if math.isclose(given, _QUEUE_S, rel_tol=1e-4):
        return f"{told} That is how long a call takes to return. The device is still at work then: wait before the second reading."
    if runs == 1 and ("call", "clock") in pairs and given > _FIRST_S / 2 and events.index("call") < events.index("clock"):
        return f"{told} When the clock started, the call before was still at work: wait before the first reading too."
    if events.index("clock") < events.index("call") and given > _FIRST_S / 2:
        return f"{told} The first call is in it, and it takes {_FIRST_S:g} s on this device."
    slow = f"one run in five takes {max(_STEPS_S):g} s, since another program had the device"
    for value, name in ((statistics.mean(steps), "mean"), (min(steps), "smallest"), (max(steps), "largest")):
        # Calls that are queued together take less than the time to queue each.
        if value - 1e-6 <= given <= value + _QUEUE_S + 1e-6:
            return f"{told} That is the {name} of the times, and the median is asked for: {slow}."
    if "wait" not in events:
        return f"{told} `wait` was never called: the calls return before the device has finished."
    return f"{told} Which calls lie between your two readings of the clock, and has the device finished at both?"


PRAISE = (
    "The device here is a made-up one whose times are known, and you found them: without the slow first call, the run that was disturbed, "
    "or work left over from the call before. `torch.cuda.synchronize` and `time.perf_counter` fit your function as they are."
)

HINTS = (
    Hint("I get 0.001", "A call returns at once and the device works on. What has to happen before the clock is read a second time?"),
    Hint("I get 0.5 or more", "Something slow is between your two readings: the first call, or what the device had not finished when you started."),
    Hint("I am a little off", "One run in five is disturbed. A mean takes its part of that; the middle one of the sorted times does not."),
)

_HEAD = "\ndef median_time(call, wait, clock, runs):\n"


def _answer(warm_up: str, loop: tuple[str, ...], end: str) -> str:
    body = "".join(f"        {line}\n" for line in loop)
    return f"{_HEAD}    {warm_up}\n    times = []\n    for _ in range(runs):\n{body}    return {end}\n"


_LOOP = ("wait()", "start = clock()", "call()", "wait()", "times.append(clock() - start)")
_MIDDLE = "sorted(times)[runs // 2]"

ALTERNATIVES = (
    # All calls timed, the first ones dropped.
    f"""{_HEAD}    import statistics

    times = []
    for _ in range(3 + runs):
        wait()
        start = clock()
        call()
        wait()
        times.append(clock() - start)
    return statistics.median(times[3:])
""",
    # The end of one run is the start of the next.
    f"""{_HEAD}    call()
    wait()
    ticks = [clock()]
    for _ in range(runs):
        call()
        wait()
        ticks.append(clock())
    return torch.tensor(ticks, dtype=torch.float64).diff().median()
""",
    # A function inside, and a long warm-up.
    f"""{_HEAD}    def once():
        wait()
        start = clock()
        call()
        wait()
        return clock() - start

    for _ in range(10):
        once()
    return torch.tensor([once() for _ in range(runs)]).quantile(0.5).item()
""",
)

WRONG = (
    Wrong("does not wait", _answer("call()", _LOOP[1:3] + _LOOP[4:], _MIDDLE), "how long a call takes to return"),
    Wrong("waits before the call only", _answer("call()", _LOOP[:3] + _LOOP[4:], _MIDDLE), "wait before the second reading"),
    Wrong(
        "waits after the clock is read",
        _answer("call()", ("start = clock()", "call()", "times.append(clock() - start)", "wait()"), _MIDDLE),
        "how long a call takes to return",
    ),
    Wrong("does not warm up", _answer("pass", _LOOP, _MIDDLE), "It takes once more at least"),
    Wrong("does not wait for the warm-up", _answer("call()", _LOOP[1:], _MIDDLE), "wait before the first reading too"),
    Wrong("takes the mean", _answer("call()", _LOOP, "sum(times) / runs"), "That is the mean"),
    Wrong("takes the best", _answer("call()", _LOOP, "min(times)"), "That is the smallest"),
    Wrong(
        "times all runs together",
        f"""{_HEAD}    call()
    wait()
    start = clock()
    for _ in range(runs):
        call()
    wait()
    return (clock() - start) / runs
""",
        "That is the mean",
    ),
    Wrong("does not sort", _answer("call()", _LOOP, "times[runs // 2]"), "Which calls lie between"),
    Wrong(
        "brings its own clock",
        f"""{_HEAD}    import time

    call()
    start = time.perf_counter()
    for _ in range(runs):
        call()
    wait()
    return (time.perf_counter() - start) / runs
""",
        "`clock` was never read",
    ),
    Wrong("times the first call alone", f"{_HEAD}    start = clock()\n    call()\n    wait()\n    return clock() - start\n", "It takes once more at least"),
    Wrong("prints", _answer("call()", _LOOP, _MIDDLE).replace("    return ", "    result = "), "is the `return` missing?"),
)

EXERCISE = Exercise(
    name="6-median",
    title="A time to trust",
    target="median_time",
    stub=STUB,
    answer=ANSWER,
    lines=9,
    examine=examine,
    praise=PRAISE,
    hints=HINTS,
    alternatives=ALTERNATIVES,
    wrong=WRONG,
)
