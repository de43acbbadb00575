"""Runs somebody's own training script, unchanged, under the doctor; models and optimizers are found as they are used."""

from __future__ import annotations

import runpy
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from amp_lessons.doctor.watch import Doctor


class ScriptDoctor(Doctor):
    """Watches every model with parameters that is called from outside any other, and every optimizer that steps."""

    def __init__(self, steps: int | None = None) -> None:
        super().__init__([], [], [], steps)
        self._thread = threading.get_ident()
        self._depth = 0  # of modules that call modules: only the outermost is a model

    def __enter__(self) -> ScriptDoctor:
        super().__enter__()
        self._handles.append(register_module_forward_pre_hook(self._call_begins))
        self._handles.append(register_module_forward_hook(self._call_ends, always_call=True))
        return self

    def _call_begins(self, module: nn.Module, inputs: tuple) -> None:
        if threading.get_ident() != self._thread:
            return
        self._depth += 1
        if self._depth == 1 and self._is_model(module):
            if not any(module is known for known in self._observer.models):
                self._observer.models.append(module)
                self._observer.ledger.track(module.parameters())
            self._mine(self._observer.forward_begins)(module, inputs)

    def _call_ends(self, module: nn.Module, inputs: tuple, output: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        self._depth = max(self._depth - 1, 0)
        if self._depth == 0 and output is not None and self._is_model(module):
            self._mine(self._observer.forward_ends)(module, inputs, output)

    @staticmethod
    def _is_model(module: nn.Module) -> bool:
        """A loss is a module too, but has nothing to train."""
        return next(module.parameters(), None) is not None


def run(target: str, arguments: Sequence[str], is_module: bool = False, steps: int | None = None) -> int:
    """Run a script file, or a module by its name, print the doctor's report, and give the exit status.

    The script's own status wins if it is not 0 (1 for an exception, whose traceback is printed as usual); else it is 1 when
    the doctor found an error, and 0 when not.
    """
    before = sys.argv, list(sys.path)
    sys.argv = [target, *arguments]
    sys.path.insert(0, "" if is_module else str(Path(target).resolve().parent))
    doctor, status = ScriptDoctor(steps), 0
    try:
        with doctor:
            if is_module:
                runpy.run_module(target, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(target, run_name="__main__")
    except SystemExit as end:
        status = _status_of(end)
    except KeyboardInterrupt:
        status = 130  # what a shell gives for an interrupted program
    except BaseException as error:  # noqa: BLE001 - whatever ended the script, its report is still due
        traceback.print_exception(type(error), error, _without_runner(error.__traceback__))
        status = 1
    finally:
        sys.argv, sys.path[:] = before
    print(f"\namp_lessons doctor, {Path(target).name}: {doctor}", flush=True)
    return status or int(any(finding.severity == "error" for finding in doctor.findings))


def _status_of(end: SystemExit) -> int:
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code
    print(end.code, file=sys.stderr)  # as Python does for sys.exit("text")
    return 1


def _without_runner(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the script's own first line on."""
    skipped = (__file__, runpy.__file__, "<frozen runpy>")
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename in skipped:
        trace = trace.tb_next
    return trace
