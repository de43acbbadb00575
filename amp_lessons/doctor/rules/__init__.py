"""The rules: one small pure function a mistake, from the last iterations to a finding or None."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from amp_lessons.doctor.events import Iteration
from amp_lessons.doctor.report import Finding
from amp_lessons.doctor.rules import clipping, lifecycle, precision, protocol, regions, scale

Rule = Callable[[Sequence[Iteration]], Finding | None]

RULES: tuple[Rule, ...] = (*clipping.RULES, *protocol.RULES, *scale.RULES, *precision.RULES, *regions.RULES, *lifecycle.RULES)


def judge(recent: Sequence[Iteration]) -> list[Finding]:
    """What every rule says of the newest iteration, with the few before it at hand."""
    return [finding for rule in RULES if (finding := rule(recent)) is not None]
