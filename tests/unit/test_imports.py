"""Importing the package changes nothing and brings in neither matplotlib nor ipywidgets."""

import subprocess
import sys

PROGRAM = """
import importlib, random, sys, warnings
import torch

def state():
    return (
        torch.get_rng_state().tolist(),
        random.getstate(),
        torch.get_num_threads(),
        torch.get_num_interop_threads(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.is_autocast_enabled("cuda"),
        torch.is_autocast_cache_enabled(),
        torch.get_autocast_dtype("cpu"),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.benchmark,
        torch.backends.cuda.matmul.allow_tf32,
        torch.is_anomaly_enabled(),
        list(warnings.filters),
    )

before = state()
for name in sys.argv[1:]:
    importlib.import_module(name)
    found = {"matplotlib", "ipywidgets", "IPython", "PIL"} & set(sys.modules)
    assert not found, (name, found)
    assert state() == before, name
    assert not torch.cuda.is_initialized(), name
"""
MODULES = "errors formats devices problems recipes histograms gradients history training measure recordings provenance experiments record".split()


def test_imports_have_no_side_effects():
    names = ["amp_lessons", *(f"amp_lessons.{name}" for name in MODULES)]
    done = subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM, *names], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == done.stderr == ""
