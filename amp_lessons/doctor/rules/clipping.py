"""Rules on gradients that were clipped or changed while they were multiplied by the loss scale."""

from __future__ import annotations

import math
from collections.abc import Sequence

from amp_lessons.doctor.events import Iteration
from amp_lessons.doctor.report import Finding
from amp_lessons.doctor.rules.wording import at, number, scale

_FIX = "scaler.unscale_(optimizer)  # once, right before torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)"
_WHY = (
    "The threshold was compared with gradients that are still multiplied by the loss scale, so it cuts far too much; unscaling "
    "afterwards makes the step smaller by about the scale."
)


def clip_before_unscale(recent: Sequence[Iteration]) -> Finding | None:
    """A PyTorch clipping function worked on scaled gradients."""
    event = recent[-1].first("clip", scaled=True)
    if event is None or event.scale == 1 or event.norm is None or not math.isfinite(event.norm):
        return None  # an overflow's norm is no evidence; the next iteration's is
    if math.isinf(event.limit) or (recent[-1].of("get-scale") and event.limit / event.scale >= 1e-3):
        return None  # a limit of inf only measures; one that was multiplied by the scale fits scaled gradients
    seen = "gradient norm" if event.by == "norm" else "largest gradient"
    evidence = (
        f"{seen} seen by the clip{at(event)}: {number(event.norm)} with limit {number(event.limit)}; unscaled it is "
        f"{number(event.norm / event.scale)} (loss scale {scale(event.scale)})"
    )
    return Finding("clip-before-unscale", "error", evidence, _WHY, _FIX, lesson=5, step=recent[-1].number)


def changed_before_unscale(recent: Sequence[Iteration]) -> Finding | None:
    """Scaled gradients were made smaller by hand.

    A constant factor or a mask commutes with unscaling. Clipping shows in two iterations: by another factor each time the
    norm, or the largest value, comes out the same.
    """
    for event in recent[-1].all("changed", scaled=True):
        if event.norm is None or not event.before or event.scale == 1 or not math.isfinite(event.norm) or not event.norm:
            continue
        ratio = event.norm / event.before
        earlier = [e for i in recent[:-1] for e in i.all("changed", scaled=True) if e.where == event.where and e.norm and e.before]
        if ratio >= 1 - 1e-4 or _near(ratio, 1 / event.scale) or not earlier or _near(ratio, earlier[-1].norm / earlier[-1].before):
            continue
        pinned = _near(event.norm, earlier[-1].norm) or _near(event.largest, earlier[-1].largest)
        evidence = (
            f"gradients were changed{at(event)} while multiplied by the loss scale {scale(event.scale)}: their norm fell from "
            f"{number(event.before)} to {number(event.norm)}; unscaled it was {number(event.before / event.scale)}"
        )
        if pinned:
            return Finding("clip-before-unscale", "error", evidence, _WHY, _FIX, lesson=5, step=recent[-1].number)
        why = "If this was a clip, its threshold met gradients that are still multiplied by the loss scale; a mask is no mistake."
        return Finding("clip-before-unscale", "advice", evidence, why, _FIX, lesson=5, step=recent[-1].number)
    return None


def divided_by_scale_by_hand(recent: Sequence[Iteration]) -> Finding | None:
    """The gradients were divided by the loss scale by hand and then unscaled by the scaler again."""
    for event in recent[-1].all("changed", scaled=True):
        if event.norm is None or not event.before or event.scale == 1:
            continue
        if _near(event.norm / event.before, 1 / event.scale) and recent[-1].of("unscale", "scaler-step"):
            evidence = (
                f"gradient norm {number(event.before)} became {number(event.norm)}{at(event)}, exactly divided by the loss scale "
                f"{scale(event.scale)}; scaler.step divided it by the scale once more"
            )
            why = "scaler.step unscales by itself what unscale_ has not unscaled, so the step was too small by the whole scale."
            fix = "scaler.unscale_(optimizer)  # in place of dividing by scaler.get_scale()"
            return Finding("unscaled-by-hand", "error", evidence, why, fix, lesson=4, step=recent[-1].number)
    return None


def _near(value: float, target: float) -> bool:
    return math.isclose(value, target, rel_tol=1e-3)


RULES = (clip_before_unscale, changed_before_unscale, divided_by_scale_by_hand)
