"""``python -m amp_lessons.doctor script.py [arguments]``: a training script under the doctor."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from amp_lessons.doctor.script import run


def main(arguments: Sequence[str]) -> int:
    """Read the command line and run the script; gives the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m amp_lessons.doctor",
        description="Run a training script unchanged and name the mistakes in its mixed-precision loop. Exits with 1 on errors.",
    )
    parser.add_argument("--steps", type=int, help="watch only so many iterations, then let the script run on")
    parser.add_argument("-m", dest="module", action="store_true", help="the script is a module's name, as in python -m")
    parser.add_argument("script", help="the training script, or with -m the module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")
    given = parser.parse_args(arguments)
    if given.steps is not None and given.steps < 1:
        parser.error(f"--steps is {given.steps}; watch at least one, or leave it out to watch all")
    if not given.module and not Path(given.script).is_file():
        parser.error(f"there is no script {given.script}")
    return run(given.script, given.arguments, is_module=given.module, steps=given.steps)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
