"""Measures the course's experiments on this machine: ``python -m amp_lessons.record``, or ``make record``.

It takes under four minutes and writes one JSON file with full provenance, by default among the package's recordings.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from amp_lessons import devices
from amp_lessons.errors import LessonError
from amp_lessons.experiments import EXPERIMENTS, Experiment
from amp_lessons.measure.tf32 import float32_products
from amp_lessons.provenance import provenance
from amp_lessons.recordings import FOLDER, FORMAT

SECONDS = 215.0  # for all parts together; starting Python and CUDA takes the rest of four minutes


def record(
    device: str | torch.device | None = None,
    experiments: Sequence[Experiment] = EXPERIMENTS,
    seconds: float = SECONDS,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Run the experiments one after the other and give the recording as plain values.

    A part that fails is recorded with its reason, and the others still run; so is a part for which no time was left.
    """
    chosen = devices.pick(device)
    begun = time.perf_counter()
    whole = sum(experiment.seconds for experiment in experiments)
    result: dict[str, Any] = {"format": FORMAT, "provenance": provenance(chosen), "parts": {}}
    for experiment in experiments:
        left = begun + seconds - time.perf_counter()
        share = min(experiment.seconds * min(1.0, seconds / whole), left)
        say(f"{experiment.name} (about {max(share, 0):.0f} s at most)")
        start = time.perf_counter()
        part = _guarded(experiment, chosen, share)
        part["seconds"] = round(time.perf_counter() - start, 2)
        result["parts"][experiment.name] = part
        say(f"  {part['error'] or 'done'}, {part['seconds']:.1f} s")
        gc.collect()
        if chosen.type == "cuda":
            with suppress(RuntimeError):
                torch.cuda.empty_cache()  # so that one part's memory is not another's failure
    result["provenance"]["seconds"] = round(time.perf_counter() - begun, 1)
    return result


def _guarded(experiment: Experiment, device: torch.device, seconds: float) -> dict[str, Any]:
    if seconds <= 0:
        return {"result": None, "error": "no time was left for it"}
    try:
        with float32_products(False):  # said, not left to defaults; what measures TF32 sets it itself
            result = experiment.run(device, seconds)
        json.dumps(result, allow_nan=False)  # what cannot be written must fail here, where the other parts are safe
    except Exception as error:  # noqa: BLE001 - whatever goes wrong in one part, the others are worth having
        reason = str(error).strip().splitlines() or ["no message"]
        return {"result": None, "error": f"{type(error).__name__}: {reason[0]}"}
    return {"result": result, "error": None}


def file_name(recording: dict[str, Any]) -> str:
    """A file name from the kind of device, its name and the day: ``cpu-intel-r-xeon-r-processor-2026-12-01.json``."""
    facts = recording["provenance"]
    name = re.sub(r"[^a-z0-9]+", "-", facts["device"]["name"].lower()).strip("-")
    return f"{facts['device']['type']}-{name}-{facts['date'][:10]}.json"


def write(recording: dict[str, Any], path: Path) -> Path:
    """Write the recording; an existing file is replaced only once the new one is complete."""
    unfinished = path.parent / f".{path.name}.{os.getpid()}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(json.dumps(recording, allow_nan=False, indent=1) + "\n", encoding="utf-8")
        os.replace(unfinished, path)
    except OSError as error:
        raise LessonError(f"The recording could not be written to {path}: {error.strerror}; choose a place with --output.") from None
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
    return path


def main(options: Sequence[str]) -> int:
    """Record and write; gives 0, or 1 with one sentence if no part came out or the file could not be written."""
    parser = argparse.ArgumentParser(prog="python -m amp_lessons.record", description="Measures the course's experiments here.")
    parser.add_argument("--device", help="cpu, cuda or cuda:1; the GPU where there is one")
    parser.add_argument("--output", type=Path, help="the file, or a folder for it; the package's recordings by default")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="time for all parts together (%(default)g)")
    chosen = parser.parse_args(options)
    try:
        print(f"Recording on {devices.describe(chosen.device)}", flush=True)
        recording = record(chosen.device, seconds=chosen.seconds, say=lambda line: print(line, flush=True))
        path = chosen.output or FOLDER
        path = write(recording, path if path.suffix == ".json" else path / file_name(recording))
    except LessonError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted; nothing was written.", file=sys.stderr)
        return 130
    parts = recording["parts"]
    failed = [name for name, part in parts.items() if part["error"]]
    print(f"{len(parts) - len(failed)} of {len(parts)} parts in {recording['provenance']['seconds']:.0f} s: {path}")
    return int(len(failed) == len(parts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
