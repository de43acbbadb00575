"""Opens JupyterLab on the course: ``python -m amp_lessons.lab``, with any of ``jupyter lab``'s own options.

The only additions are settings that keep the news question and the kernel question away from a newcomer, and a check
that the port is free: Jupyter would move to another one, and a forgotten browser tab would then talk to the wrong server.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
SETTINGS = Path(__file__).resolve().parent / "jupyter"
DEFAULT_PORT = 8888


def environment() -> dict[str, str]:
    """The process environment in which Jupyter finds the course's settings; a user's own settings still win."""
    paths = [str(SETTINGS), *filter(None, [os.environ.get("JUPYTER_CONFIG_PATH")])]
    return {**os.environ, "JUPYTER_CONFIG_PATH": os.pathsep.join(paths)}


def port_of(options: Sequence[str]) -> int:
    """The port that Jupyter's options ask for, as ``--port 9000``, ``--port=9000`` or ``--ServerApp.port=9000``."""
    for option, following in zip(options, [*options[1:], ""]):
        name, _, value = option.partition("=")
        if name in ("--port", "--ServerApp.port"):
            return int(value or following)
    return DEFAULT_PORT


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of the local machine; 0 means that the system chooses one."""
    with socket.socket() as probe:
        # As Jupyter does on Unix: a port that a stopped server has just left counts as free.
        if os.name == "posix":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def main(options: Sequence[str]) -> int:
    """Run JupyterLab on the start page until it is stopped; gives its exit status, or 1 with one sentence if it cannot start."""
    try:
        port = port_of(options)
    except ValueError:
        print(f"The port in {' '.join(options)!r} is not a number; write it like --port 9000.", file=sys.stderr)
        return 1
    lessons = sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))
    if not lessons:
        print(f"There are no lessons in {NOTEBOOKS}; run this from a checkout of the course.", file=sys.stderr)
        return 1
    if not is_free(port):
        print(
            f"Port {port} is in use, perhaps by a JupyterLab that still runs; stop that one, or choose another port: "
            f'make lab LAB_ARGS="--port {port + 1}"',
            file=sys.stderr,
        )
        return 1
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={NOTEBOOKS}", "--ServerApp.port_retries=0"]
    if not any(option.startswith("--LabApp.default_url") for option in options):  # given twice, it counts for nothing
        # As the default page, so that the link which a headless run prints leads there too.
        command.append(f"--LabApp.default_url=/lab/tree/{lessons[0].name}")
    try:
        return subprocess.call([*command, *options], env=environment())
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
