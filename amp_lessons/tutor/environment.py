"""Whether this computer can run the course: checks that say what to do, and the facts to quote when asking for help."""

from __future__ import annotations

import os
import platform
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata

import torch

from amp_lessons import devices, problems
from amp_lessons.tutor import progress

PYTHON = (3, 10)
PYTORCH = (2, 6)
_INSTALL = "Stop JupyterLab, run `make lab` in the course's folder (or `pip install -c constraints.txt -e .`), and start again."
_MANAGER = ("@jupyter-widgets", "jupyterlab-manager", "package.json")


@dataclass(frozen=True)
class Check:
    """One thing that has to work; ``advice`` is None where it does, else what is wrong and what to do."""

    what: str
    advice: str | None

    def __str__(self) -> str:
        return f"OK    {self.what}" if self.advice is None else f"FAIL  {self.what}\n      {self.advice}"


def checks() -> list[Check]:
    """All checks, run now; it takes about a second. The words do not depend on the machine where all is well."""
    return [Check(what, _advice_of(check)) for what, check in _CHECKS.items()]


def report() -> str:
    """All checks, one line each, and a second line with advice where one fails."""
    return "\n".join(map(str, checks()))


def facts() -> str:
    """Versions, device and where progress is kept: what somebody who helps will ask for."""
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("jupyterlab", "ipywidgets", "matplotlib"))
    kept = progress.path() or f"not kept here ({progress.VARIABLE} can name a file)"
    system = f"Python {platform.python_version()} on {platform.system()}"
    return f"{system}, {versions}\n{devices.describe()}\nprogress: {kept}"


def _advice_of(check: Callable[[], str | None]) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return check()
    except Exception as error:  # noqa: BLE001 - whatever a broken installation raises is the answer
        return f"{type(error).__name__}: {error}. {_INSTALL}"


def _python() -> str | None:
    if sys.version_info >= PYTHON:
        return None
    return f"This is Python {platform.python_version()}. Name a newer one: make clean lab PYTHON=python3.12"


def _pytorch() -> str | None:
    numbers = torch.__version__.split("+")[0].split(".")
    return None if tuple(map(int, numbers[:2])) >= PYTORCH else f"This is PyTorch {torch.__version__}. {_INSTALL}"


def _gpu() -> str | None:
    with warnings.catch_warnings(record=True) as caught:  # an old driver is only a warning to PyTorch
        warnings.simplefilter("always")
        found = torch.cuda.is_available()
    if not found:
        return f"{_one_line(caught[0].message)} The lessons run on the CPU instead." if caught else None
    try:
        (torch.ones(8, 8, device="cuda", dtype=torch.float16) * 2).cpu()
    except RuntimeError as error:
        without = 'To go on without it, start JupyterLab with CUDA_VISIBLE_DEVICES="" in its environment.'
        return f"PyTorch finds a GPU and cannot use it: {_one_line(error)} {without}"
    return None


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:300].rstrip(".") + "."


def _autocast() -> str | None:
    device = devices.pick()
    a = torch.ones(8, 8, device=device)
    with torch.autocast(device.type, dtype=torch.float16):
        dtype = (a @ a).dtype
    return None if dtype == torch.float16 else f"A matrix product came out as {dtype}. {_INSTALL}"


def _scaler() -> str | None:
    """One step that must be taken, and one with an inf that must be skipped."""
    device = devices.pick()
    weight = torch.nn.Parameter(torch.ones(1, device=device))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    scaler = torch.amp.GradScaler(device.type, init_scale=2.0**10)
    values = []
    for factor in (1.0, float("inf")):
        optimizer.zero_grad()
        scaler.scale(factor * weight.sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        values.append((weight.item(), scaler.get_scale()))
    return None if values == [(0.5, 2.0**10), (0.5, 2.0**9)] else f"It gave {values}. {_INSTALL}"


def _widgets() -> str | None:
    from jupyter_core.paths import jupyter_path

    metadata.version("ipywidgets")
    if any(os.path.exists(os.path.join(folder, *_MANAGER)) for folder in jupyter_path("labextensions")):
        return None
    return f"JupyterLab's part of ipywidgets, the package jupyterlab_widgets, is missing. {_INSTALL}"


def _pictures() -> str | None:
    from amp_lessons.figures.picture import Picture
    from amp_lessons.figures.style import new_figure

    figure, axes = new_figure(1, 1)
    axes.imshow(problems.portrait(8).targets.reshape(8, 8, 3))
    return None if Picture(figure, "").png().startswith(b"\x89PNG") else f"The picture is no PNG. {_INSTALL}"


_CHECKS: dict[str, Callable[[], str | None]] = {
    f"Python is {PYTHON[0]}.{PYTHON[1]} or newer": _python,
    f"PyTorch is {PYTORCH[0]}.{PYTORCH[1]} or newer": _pytorch,
    "no GPU is needed; one that PyTorch finds can be used": _gpu,
    "fp16 autocast gives float16 on the device that the lessons use": _autocast,
    "GradScaler takes a step, and skips one that overflows": _scaler,
    "sliders and buttons: ipywidgets and its part of JupyterLab are installed": _widgets,
    "pictures: matplotlib draws the portrait that the lessons learn": _pictures,
    "progress can be saved, or is switched off": progress.trouble,
}
