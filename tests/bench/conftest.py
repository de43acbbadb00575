"""One thread for all that is timed; at the end a table on the terminal and ``results.json`` beside this file."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from amp_lessons import devices
from tests.bench.race import Cost

_RESULTS = Path(__file__).parent / "results.json"
_costs: list[Cost] = []


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    with devices.one_thread(torch.device("cpu")):
        yield


@pytest.fixture(scope="session")
def report():
    """Takes the costs of a race for the table."""
    return lambda costs: _costs.extend(costs.values())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _costs:
        return
    machine = {"cpu": _cpu(), "cores": os.cpu_count(), "system": platform.platform()}
    versions = {name: version(name) for name in ("torch", "numpy", "tensorboard", "wandb")}
    when = datetime.now(timezone.utc).isoformat(timespec="seconds")
    results = {"when": when, "machine": machine, "versions": versions, "threads": 1, "costs": [asdict(cost) for cost in _costs]}
    _RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")

    write = terminalreporter.write_line
    terminalreporter.section("cost of a training step, one thread", sep="-")
    write(f"{machine['cpu']}, {machine['cores']} cores; " + ", ".join(f"{name} {number}" for name, number in versions.items()))
    for workload in dict.fromkeys(cost.workload for cost in _costs):
        write("")
        write(f"{workload:44} {'ms a step':>9} {'ratio':>7} {'quartiles':>15} {'added ms':>9}")
        for cost in _costs:
            if cost.workload == workload:
                between = f"{cost.ratio.low:.3f} to {cost.ratio.high:.3f}"
                numbers = f"{cost.milliseconds.median:9.2f} {cost.ratio.median:7.3f} {between:>15} {cost.added.median:9.2f}"
                write(f"  {cost.name:42} {numbers}")
    write("")
    write(f"all numbers: {_RESULTS}")


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
