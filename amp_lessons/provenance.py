"""Where a number was measured: the device, the versions, the settings, the date and the command, as plain values."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

import amp_lessons
from amp_lessons import devices
from amp_lessons.measure.tf32 import tf32_state

# They change what a CPU measurement means, and a reader could not know that they were set.
_VARIABLES = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NVIDIA_TF32_OVERRIDE")


def provenance(device: str | torch.device | None = None) -> dict[str, Any]:
    """All that someone needs to judge or repeat a measurement made now on this device; None where a thing has no value."""
    chosen = devices.pick(device)
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": shlex.join([Path(sys.executable).name, *sys.orig_argv[1:]]),
        "git": git_state(),
        "device": _device(chosen),
        "cpu": {
            "model": cpu_model(),
            "logical_cores": os.cpu_count(),
            "threads_by_default": torch.get_num_threads(),
            "threads_while_measuring": 1 if chosen.type == "cpu" else torch.get_num_threads(),
            "instructions": torch.backends.cpu.get_cpu_capability(),
        },
        "os": platform.platform(),
        "versions": {
            "amp_lessons": amp_lessons.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None,
        },
        "tf32": {**tf32_state(), "note": "PyTorch's state before; measured with TF32 off, but for what is called tf32"},
        "environment": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
    }


def cpu_model() -> str:
    """The CPU's name as the system gives it, or the kind of processor where it gives none."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.lower().startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    if sys.platform == "darwin":
        return _said_by("sysctl", "-n", "machdep.cpu.brand_string") or platform.machine()
    return platform.processor() or platform.machine()


def git_state() -> dict[str, Any] | None:
    """The commit of the course's own checkout and whether its package was changed since; None without one."""
    folder = Path(__file__).resolve().parent
    # An installed package may lie inside somebody else's repository, whose commit would mean nothing.
    if _said_by("git", "-C", str(folder), "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    commit = _said_by("git", "-C", str(folder), "rev-parse", "HEAD")
    changed = _said_by("git", "-C", str(folder), "status", "--porcelain", ".", ":!recordings/*.json")
    return {"commit": commit, "changed": bool(changed)} if commit else None


def _device(device: torch.device) -> dict[str, Any]:
    if device.type == "cpu":
        return {"type": "cpu", "name": cpu_model(), "compute_capability": None, "memory_bytes": None, "driver": None}
    properties = torch.cuda.get_device_properties(device)
    driver = _said_by("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return {
        "type": device.type,
        "name": properties.name,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "memory_bytes": properties.total_memory,
        "driver": driver.splitlines()[0] if driver else None,
    }


def _said_by(*command: str) -> str | None:
    """What a program prints, or None where it is missing, fails or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
