"""Shared by the unit tests: the ``cuda`` marker, the devices, and a problem small enough for a run in milliseconds."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from amp_lessons.problems import Problem, millimetres


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "cuda: needs a CUDA device; skipped with a reason where there is none")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("cuda") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device; there is none here")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Each device of this machine in turn: the same assertions on the CPU and on CUDA."""
    return torch.device(request.param)


@pytest.fixture(scope="session")
def tiny() -> Problem:
    """The millimetres on a 16 by 16 map, 64 points a step."""
    return replace(millimetres(16), batch_size=64)
