"""Runs somebody's own training script, unchanged, under the doctor; models and optimizers are found as they are used."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from amp_lessons.doctor.watch import Doctor


class ScriptDoctor(Doctor):
    """Watches every model with parameters that is called from outside any other, and every optimizer that steps."""

    def __init__(self, steps: int | None = None) -> None:
        super().__init__([], [], [], steps)


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
    if str(doctor).startswith("0 iterations"):
        print("No model was trained on the script's main thread, so there was nothing to judge.", flush=True)
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
