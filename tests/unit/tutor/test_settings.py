"""Whatever a learner's code does to torch's global settings, a check leaves them as they were."""

import random

import numpy
import pytest
import torch

from amp_lessons.tutor import settings


def autocast_left_open():
    torch.autocast("cpu", dtype=torch.float16).__enter__()


MESSES = {
    "seed": lambda: torch.manual_seed(1),
    "python's seed": lambda: random.seed(1),
    "numpy's seed": lambda: numpy.random.seed(1),
    "random numbers used": lambda: torch.rand(5),
    "default dtype": lambda: torch.set_default_dtype(torch.float64),
    "default device": lambda: torch.set_default_device("meta"),
    "grad off": lambda: torch.set_grad_enabled(False),
    "autocast on": lambda: torch.set_autocast_enabled("cpu", True),
    "autocast dtype": lambda: torch.set_autocast_dtype("cpu", torch.float16),
    "CUDA's autocast": lambda: torch.set_autocast_enabled("cuda", True),
    "region left open": autocast_left_open,
    "cache off": lambda: torch.set_autocast_cache_enabled(False),
    "threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "deterministic": lambda: torch.use_deterministic_algorithms(True, warn_only=True),
    "anomaly": lambda: torch.autograd.set_detect_anomaly(True, check_nan=False),
    "tf32": lambda: torch.set_float32_matmul_precision("medium"),
}


def state():
    return (
        random.getstate(),
        repr(numpy.random.get_state()),
        torch.random.get_rng_state().tolist(),
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.is_grad_enabled(),
        [(torch.is_autocast_enabled(name), torch.get_autocast_dtype(name)) for name in ("cpu", "cuda")],
        torch.is_autocast_cache_enabled(),
        settings._depth(),
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.is_anomaly_enabled(),
        torch.is_anomaly_check_nan_enabled(),
        torch.get_float32_matmul_precision(),
    )


@pytest.mark.parametrize("ends", ["well", "with an error"])
@pytest.mark.parametrize("mess", MESSES.values(), ids=MESSES)
def test_it_is_put_back(mess, ends):
    before = state()
    try:
        with settings.kept():
            mess()
            if ends != "well":
                raise ValueError
    except ValueError:
        pass
    assert state() == before


@pytest.mark.parametrize("mess", MESSES.values(), ids=MESSES)
def test_the_messes_are_real(mess):
    before = state()
    with settings.kept():
        inside = state()
        mess()
        changed = state() != inside
    assert changed and state() == before


def test_a_check_begins_with_the_defaults():
    with settings.kept(), torch.autocast("cpu", dtype=torch.float16), torch.no_grad():
        torch.set_default_dtype(torch.float64)
        with settings.kept():
            assert torch.get_default_dtype() == torch.float32 and torch.is_grad_enabled()
            assert not torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
        # And the region around it is still one.
        assert (torch.eye(2, dtype=torch.float32) @ torch.eye(2, dtype=torch.float32)).dtype == torch.float16
    assert settings._depth() == 0


def test_a_check_sees_the_same_random_numbers_each_time():
    with settings.kept():
        first = torch.rand(3)
    torch.rand(1)
    with settings.kept():
        assert torch.equal(torch.rand(3), first)
