"""Forecast and measurement of the gradients that fp16 loses, side by side over the loss weight."""

from __future__ import annotations

from collections.abc import Sequence

from amp_lessons.errors import LessonError
from amp_lessons.figures.picture import Picture
from amp_lessons.figures.style import FATE_INKS, FATE_LINES, INK, new_figure, power_of_two


def lost_share_curves(exponents: Sequence[int], forecast: Sequence[float], measured: Sequence[float]) -> Picture:
    """Two curves over the loss weight 2^k, which shrinks from left to right.

    ``forecast`` and ``measured`` are shares, from 0 to 1, of the gradients that are not zero in float32, one for each
    exponent k. Raises LessonError when the three differ in length.
    """
    if not len(exponents) == len(forecast) == len(measured) > 0:
        raise LessonError("The curves need one forecast and one measured share for each exponent, and at least one.")
    figure, axes = new_figure(7.6, 3.2)
    axes.plot(exponents, measured, "-o", color=FATE_LINES["flushed"], linewidth=2)
    axes.plot(exponents, forecast, linestyle=(0, (4, 2)), marker="s", color=INK, markerfacecolor="none", linewidth=1.4)
    axes.set(xlim=(max(exponents) + 0.5, min(exponents) - 0.5), ylim=(-0.03, 1.08), xlabel="loss weight")
    axes.set_ylabel("lost, of the gradients that\nfloat32 keeps above zero")
    axes.set_xticks(exponents, [power_of_two(k) for k in exponents])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    # Where the curves are furthest apart there is room for their names.
    widest = max(range(len(exponents)), key=lambda i: abs(measured[i] - forecast[i]))
    for shares, words, colour, offset, side in (
        (measured, "measured under\nfp16 autocast", FATE_INKS["flushed"], (-14, -2), "right"),
        (forecast, "forecast from the\nfloat32 histogram", INK, (12, -6), "left"),
    ):
        axes.annotate(
            words, (exponents[widest], shares[widest]), xytext=offset, textcoords="offset points", color=colour, ha=side,
            va="center" if side == "right" else "top", fontweight="bold", fontsize=9,
        )  # fmt: skip
    pairs = "; ".join(f"2^{k}: {f:.0%} and {m:.0%}" for k, f, m in zip(exponents, forecast, measured, strict=True))
    return Picture(
        figure,
        f"Share of the gradients lost in fp16, forecast and measured, by loss weight. {pairs}.",
        caption="Two curves over a shrinking loss weight: the share of gradients that the float32 histogram forecasts as lost "
        "in fp16, and the share that a paired run under fp16 autocast did lose.",
    )
