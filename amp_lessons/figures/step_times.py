"""The time of a training step by recipe: a point with its quartiles for each, labelled where it stands."""

from __future__ import annotations

from collections.abc import Sequence

from amp_lessons.errors import LessonError
from amp_lessons.figures.picture import Picture
from amp_lessons.figures.style import FAINT, INK, RECIPE_COLOURS, RECIPE_INKS, new_figure
from amp_lessons.figures.units import digits, seconds_text
from amp_lessons.measure.settings import SETTINGS
from amp_lessons.measure.steps import SpeedPoint, ratio

LABELS = {setting.name: setting.label for setting in SETTINGS}
_CAPTION = (
    "Time of one training step by recipe on this machine: the median as a point, the quartiles as a bar, and FP32's time "
    "divided by it."
)


def step_time_points(points: Sequence[SpeedPoint], caption: str = _CAPTION) -> Picture:
    """One row a recipe on an axis of milliseconds that begins at 0; ``points`` are of one size, FP32 among them.

    A recipe that was not measured has its reason in place of a point. Raises LessonError where FP32 is missing.
    """
    reference = next((point for point in points if point.setting == "fp32"), None)
    if reference is None:
        raise LessonError("The points have no FP32 time to compare with; measure the setting 'fp32' too.")
    figure, axes = new_figure(7.6, 0.9 + 0.65 * len(points))
    said = []
    farthest = max((point.time.high_s for point in points if point.time), default=1e-3)
    for row, point in enumerate(points):
        colour = RECIPE_COLOURS[point.setting]
        if point.time is None:
            axes.text(0, row, f" not measured: {point.why_not}", va="center", color=FAINT, fontsize=9)
            said.append(f"{LABELS[point.setting]} was not measured: {point.why_not}.")
            continue
        low, middle, high = (1e3 * s for s in (point.time.low_s, point.time.median_s, point.time.high_s))
        axes.plot([low, high], [row, row], color=colour, linewidth=4, solid_capstyle="butt")
        axes.plot([middle], [row], "o", color=colour, markersize=8, markeredgecolor=INK, markeredgewidth=0.6)
        times = ratio(reference, point)
        label = seconds_text(point.time.median_s)
        if point is not reference and times is not None:
            label += f",  FP32's time ÷ this = {digits(times)}"
        # Above the bar, where neither a short nor a long time can run into it.
        axes.text(0, row - 0.22, f" {label}", va="bottom", fontsize=9)
        said.append(_sentence(point, times if point is not reference else None))
    axes.set_yticks(range(len(points)), [LABELS[point.setting] for point in points])
    for label, point in zip(axes.get_yticklabels(), points):
        label.set_color(RECIPE_INKS[point.setting])
    axes.set(ylim=(len(points) - 0.6, -0.75), xlim=(0, 1.12 * 1e3 * farthest), xlabel="time of one training step (ms)")
    axes.tick_params(axis="y", length=0)
    where = f"{point.workload} of width {point.width}, batch {point.batch}" if points else ""
    return Picture(figure, f"Time of one training step, {where}. {' '.join(said)}", caption=caption)


def _sentence(point: SpeedPoint, times: float | None) -> str:
    time = point.time
    text = f"{LABELS[point.setting]}: {seconds_text(time.median_s)} (quartiles {seconds_text(time.low_s)} to {seconds_text(time.high_s)})"
    return f"{text}." if times is None else f"{text}, FP32's time divided by it is {digits(times)}."
