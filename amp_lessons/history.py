"""What happened in a training run: one record a step, saved to and loaded from one JSON file."""

from __future__ import annotations

import json
import math
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from amp_lessons.errors import LessonError
from amp_lessons.histograms import ExponentHistogram

_FORMAT = "amp_lessons history 1"


@dataclass(frozen=True)
class StepRecord:
    """One training step as it happened.

    ``scale`` is the loss scale the step used (1 without a scaler), ``next_scale`` the one after ``update``. ``grad_norm``
    and ``histogram`` are of the unscaled parameter gradients before clipping. ``activations`` counts the gradients of the
    layers' outputs as they passed, multiplied by ``scale``. What was not asked for is None.
    """

    step: int
    loss: float
    scale: float
    next_scale: float
    skipped: bool
    grad_norm: float | None = None
    histogram: ExponentHistogram | None = None
    activations: ExponentHistogram | None = None

    @property
    def grew(self) -> bool:
        """Whether ``update`` raised the loss scale after this step."""
        return self.next_scale > self.scale


@dataclass
class TrainingHistory:
    """The records of one run, which problem, recipe and seed it was, and where it ran.

    ``stopped`` is None for a run that went to its end, else one sentence on why it did not.
    """

    problem: str
    recipe: str
    seed: int
    device: str
    records: list[StepRecord] = field(default_factory=list)
    stopped: str | None = None

    @property
    def losses(self) -> list[float]:
        """Loss of each step."""
        return [record.loss for record in self.records]

    @property
    def scales(self) -> list[float]:
        """Loss scale that each step used."""
        return [record.scale for record in self.records]

    @property
    def skipped(self) -> list[int]:
        """Numbers of the skipped steps."""
        return [record.step for record in self.records if record.skipped]

    @property
    def grown(self) -> list[int]:
        """Numbers of the steps after which the loss scale grew."""
        return [record.step for record in self.records if record.grew]

    def save(self, path: str | os.PathLike) -> Path:
        """Write the history as JSON; an existing file is replaced only once the new one is complete."""
        data = {"format": _FORMAT, **vars(self), "records": [_record_to_json(record) for record in self.records]}
        path = Path(path)
        unfinished = path.parent / f".{path.name}.{os.getpid()}"
        try:
            unfinished.write_text(json.dumps(data, allow_nan=False) + "\n", encoding="utf-8")
            os.replace(unfinished, path)
        except OSError as error:
            raise LessonError(f"The history could not be written to {path}: {error.strerror}.") from None
        finally:
            with suppress(OSError):  # the folder itself may be what is wrong
                unfinished.unlink(missing_ok=True)
        return path

    @classmethod
    def load(cls, path: str | os.PathLike) -> TrainingHistory:
        """Read a history that ``save`` wrote; raises LessonError for a missing, damaged or foreign file."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise LessonError(f"The history {path} could not be read: {error.strerror}.") from None
        except ValueError:
            raise LessonError(f"The history {path} is damaged: it is not complete JSON. Save it again.") from None
        if not isinstance(data, dict) or data.pop("format", None) != _FORMAT:
            raise LessonError(f"{path} is not a training history; give a file that TrainingHistory.save wrote.")
        try:
            records = [_record_from_json(record) for record in data.pop("records")]
            return cls(records=records, **data)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError) as error:
            raise LessonError(f"The history {path} is damaged ({error}). Save it again.") from None

    def __str__(self) -> str:
        end = self.stopped or "ran to its end."
        return f"{self.problem} by {self.recipe}: {len(self.records)} steps, {len(self.skipped)} skipped; {end}"


_FLOATS = ("loss", "scale", "next_scale", "grad_norm")
_HISTOGRAMS = ("histogram", "activations")
_NOT_ALWAYS_ASKED_FOR = ("grad_norm", *_HISTOGRAMS)


def _record_to_json(record: StepRecord) -> dict:
    data = dict(vars(record))
    for name in _FLOATS:
        if data[name] is not None and not math.isfinite(data[name]):
            data[name] = str(data[name])  # JSON has no inf or NaN
    for name in _HISTOGRAMS:
        if data[name] is not None:
            data[name] = data[name].to_json()
    return data


def _record_from_json(data: dict) -> StepRecord:
    data = dict(data)
    for name in (*_FLOATS, *_HISTOGRAMS):
        if not (data[name] is None and name in _NOT_ALWAYS_ASKED_FOR):
            data[name] = float(data[name]) if name in _FLOATS else ExponentHistogram.from_json(data[name])
    return StepRecord(**data)
