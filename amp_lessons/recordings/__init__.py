"""Measured runs with their provenance: one JSON file each, written by ``make record`` and read here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from amp_lessons.errors import LessonError
from amp_lessons.measure.memory import MemorySplit
from amp_lessons.measure.ops import CopySpeed, OpPoint
from amp_lessons.measure.plain import from_plain
from amp_lessons.measure.steps import SpeedTable

T = TypeVar("T")

FOLDER = Path(__file__).resolve().parent
FORMAT = "amp_lessons recording 1"


@dataclass(frozen=True)
class Recording:
    """What ``make record`` measured on one machine: ``provenance`` says where and how, ``parts`` hold the results."""

    name: str
    provenance: dict[str, Any]
    parts: dict[str, dict[str, Any]]

    def part(self, name: str) -> Any:
        """One part's result as plain values; raises LessonError with the reason where it has none."""
        if name not in self.parts:
            raise LessonError(f"The recording {self.name} has no part {name!r}; it has {', '.join(self.parts)}.")
        part = self.parts[name]
        if part["error"]:
            raise LessonError(f"The part {name!r} of the recording {self.name} could not be measured: {part['error']}.")
        return part["result"]

    def speed(self, workload: str) -> SpeedTable:
        """The step times of ``"mlp"`` or ``"transformer"``."""
        return self._results(SpeedTable, [self.part(f"{workload}_speed")])[0]

    def memory(self) -> tuple[MemorySplit, ...]:
        """The memory of a step by setting, of both workloads with a small and a large batch."""
        return self._results(MemorySplit, self.part("memory"))

    def ops(self, kind: str) -> tuple[OpPoint, ...]:
        """``"matmul"`` by size, ``"around"`` a multiple of 8, or ``"add"``."""
        kinds = self.part("matmuls")
        if kind not in kinds or kind == "copy":
            raise LessonError(f"The recording {self.name} has no ops {kind!r}; ask for 'matmul', 'around' or 'add'.")
        return self._results(OpPoint, kinds[kind])

    def copy(self) -> CopySpeed:
        """The copy from memory to memory."""
        return self._results(CopySpeed, [self.part("matmuls").get("copy")])[0]

    def _results(self, kind: type[T], data: Any) -> tuple[T, ...]:
        try:
            return tuple(from_plain(kind, item) for item in data)
        except (KeyError, TypeError, ValueError) as error:
            raise LessonError(
                f"The recording {self.name} is damaged or from another version of the course ({error}). Make it again with: "
                "make record"
            ) from None

    def __str__(self) -> str:
        facts = self.provenance
        cuda = f", CUDA {facts['versions']['cuda']}" if facts["device"]["type"] == "cuda" else ""
        return f"{facts['device']['name']}, PyTorch {facts['versions']['torch']}{cuda}, {facts['date'][:10]}"


def names(device_type: str | None = None) -> list[str]:
    """Names of the recordings that are here, of ``"cuda"`` or ``"cpu"`` devices only if asked; often none."""
    found = sorted(path.stem for path in FOLDER.glob("*.json"))
    return [name for name in found if device_type is None or name.startswith(f"{device_type}-")]


def load(name: str | Path) -> Recording:
    """The recording of this name, or at this path; raises LessonError for a missing, damaged or foreign file."""
    path = Path(name) if str(name).endswith(".json") else FOLDER / f"{name}.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        here = ", ".join(names()) or "none yet"
        raise LessonError(f"There is no recording {name} (there are: {here}); make one with: make record") from None
    except OSError as error:
        raise LessonError(f"The recording {path} could not be read: {error.strerror}.") from None
    except ValueError:
        raise LessonError(f"The recording {path} is damaged: it is not complete JSON. Make it again with: make record") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise LessonError(f"{path} is not a recording of this course; give a file that make record wrote.")
    try:
        facts, parts = data["provenance"], data["parts"]
        facts["device"]["name"], facts["device"]["type"], facts["versions"]["torch"], facts["date"]
        for part in parts.values():
            part["result"], part["error"]
    except (KeyError, TypeError, AttributeError):
        raise LessonError(f"The recording {path} is damaged: parts of it are missing. Make it again with: make record") from None
    return Recording(path.stem, facts, parts)
