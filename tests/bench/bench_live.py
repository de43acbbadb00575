"""What watching costs: lesson 5's live training in a real kernel, with its pictures and without, in turns in one run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from datetime import datetime

import pytest
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

from tests.bench.race import Cost, Spread

WORKLOAD = "live training, a step of each of four recipes"
ROUNDS, SECONDS = 7, 2.0
LIMIT = 1 / 0.9  # a tenth of the speed
PICTURES_A_SECOND = 8

# The kernel's own loop drives both, and nothing but the pictures makes the difference: without them none is ever due.
CODE = f"""
import asyncio, math, time
from datetime import datetime, timezone
from amp_lessons.widgets import trainer
from amp_lessons.widgets.portrait_trainer import PortraitTrainer

portraits, drawn_every, laps = PortraitTrainer(steps=10**6), trainer.SHOW_EVERY, []
for number in range({ROUNDS} + 1):
    for drawn in ((True, False), (False, True))[number % 2]:
        trainer.SHOW_EVERY = drawn_every if drawn else math.inf
        portraits.reset()
        portraits.run()
        await asyncio.sleep(0.3)  # the caches are warm, the first picture is out
        steps, begun, start = len(portraits.runs[-1].history.records), datetime.now(timezone.utc), time.perf_counter()
        await asyncio.sleep({SECONDS})
        taken, ended = time.perf_counter() - start, datetime.now(timezone.utc)
        steps = len(portraits.runs[-1].history.records) - steps
        portraits.stop()
        if number:  # the first round warms up
            laps.append((drawn, taken / steps, begun.isoformat(), ended.isoformat()))
print(laps)
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[BlockingKernelClient]:
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        yield client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_pictures_take_a_tenth_of_the_speed_at_most_at_eight_a_second(kernel, report):
    pictures: list[tuple[datetime, bytes]] = []
    printed: list[str] = []

    def receive(message: dict) -> None:
        content = message["content"]
        assert message["msg_type"] != "error", "\n".join(content["traceback"])
        if message["msg_type"] == "stream" and content["name"] == "stdout":
            printed.append(content["text"])
        elif message["msg_type"] == "comm_msg" and ["value"] in content["data"].get("buffer_paths", []):
            pictures.append((message["header"]["date"], bytes(message["buffers"][0])))

    kernel.execute_interactive(CODE, timeout=300, output_hook=receive)
    laps = ast.literal_eval("".join(printed))

    rates = []
    for drawn, _, begun, ended in laps:
        begun, ended = datetime.fromisoformat(begun), datetime.fromisoformat(ended)
        inside = [number for number, (sent, _) in enumerate(pictures) if begun <= sent < ended]
        new = sum(pictures[number][1] != pictures[number - 1][1] for number in inside)
        if drawn:
            rates.append(new / (ended - begun).total_seconds())
        else:
            assert not new, "a picture was drawn where none should be"

    times = {drawn: [seconds * 1e3 for was_drawn, seconds, *_ in laps if was_drawn == drawn] for drawn in (True, False)}
    costs = {}
    for name, mine in (("no pictures", times[False]), (f"{min(rates):.1f} pictures a second or more", times[True])):
        ratio = Spread.of([a / b for a, b in zip(mine, times[False])])
        added = Spread.of([a - b for a, b in zip(mine, times[False])])
        costs[name] = Cost(WORKLOAD, name, Spread.of(mine), ratio, added)
    report(costs)
    assert costs[name].ratio.median <= LIMIT
    assert sorted(rates)[len(rates) // 2] >= PICTURES_A_SECOND
