"""Where a step's memory goes by recipe: one stacked bar each, its parts named and numbered in place."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.patches import Patch

from amp_lessons.errors import LessonError
from amp_lessons.figures.picture import Picture
from amp_lessons.figures.step_times import LABELS
from amp_lessons.figures.style import INK, new_figure
from amp_lessons.figures.units import bytes_text, digits
from amp_lessons.measure.memory import MemorySplit

# Name, field, colour and hatch of each part, from the axis outwards.
PARTS = (
    ("weights", "weights_bytes", "#56b4e9", ""),
    ("gradients", "gradients_bytes", "#e69f00", "////"),
    ("optimizer state", "optimizer_bytes", "#b5b5b5", ".."),
    ("16-bit copies of weights", "weight_copies_bytes", "#cc79a7", "xxxx"),
    ("activations", "activations_bytes", "#009e73", "\\\\\\\\"),
)
_CAPTION = (
    "Bytes of one training step by recipe, as stacked bars: weights, gradients, optimizer state, autocast's 16-bit copies of "
    "weights, and the activations kept for the backward pass."
)


def memory_bars(splits: Sequence[MemorySplit], caption: str = _CAPTION) -> Picture:
    """One bar a split, in MB; where CUDA's allocator counted a peak, a diamond marks it.

    Rows name the recipe, and the batch where it differs between them. Raises LessonError without a split.
    """
    if not splits:
        raise LessonError("There is no memory split to draw.")
    figure, axes = new_figure(7.6, 1.3 + 0.55 * len(splits))
    longest = max(max(split.sum_bytes, split.peak_bytes or 0) for split in splits)
    for row, split in enumerate(splits):
        left = 0
        for _, field, colour, hatch in PARTS:
            size = getattr(split, field)
            if size:
                axes.barh(row, size / 1e6, left=left / 1e6, height=0.6, color=colour, hatch=hatch, edgecolor=INK, linewidth=0.6)
            if size > 0.11 * longest:
                axes.text(
                    (left + size / 2) / 1e6, row, bytes_text(size), ha="center", va="center", fontsize=8.5,
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2},
                )  # fmt: skip
            left += size
        axes.text(left / 1e6, row, f"  {bytes_text(left)}", va="center", fontweight="bold", fontsize=9)
        if split.peak_bytes:
            axes.plot([split.peak_bytes / 1e6], [row - 0.38], "D", color=INK, markersize=5, clip_on=False)
            axes.annotate(
                "peak", (split.peak_bytes / 1e6, row - 0.38), xytext=(6, 0), textcoords="offset points", va="center", fontsize=8
            )
    several = len({(split.workload, split.width, split.batch) for split in splits}) > 1
    axes.set_yticks(range(len(splits)), [_row_name(split, several) for split in splits])
    axes.tick_params(axis="y", length=0)
    axes.set(ylim=(len(splits) - 0.5, -0.6), xlim=(0, 1.16 * longest / 1e6), xlabel="bytes of a training step (MB)")
    patches = [Patch(facecolor=c, hatch=h, edgecolor=INK, linewidth=0.6, label=name) for name, _, c, h in PARTS]
    figure.legend(handles=patches, loc="outside upper left", ncols=3, fontsize=9, frameon=False)
    return Picture(figure, " ".join(_sentence(split, splits) for split in splits), caption=caption)


def _row_name(split: MemorySplit, several: bool) -> str:
    return f"{split.setting}, {split.workload},\nbatch {split.batch}" if several else split.setting


def _sentence(split: MemorySplit, splits: Sequence[MemorySplit]) -> str:
    parts = ", ".join(f"{name} {bytes_text(getattr(split, field))}" for name, field, _, _ in PARTS)
    text = f"{LABELS[split.setting]}, {split.workload} of width {split.width}, batch {split.batch}: {parts}; together {bytes_text(split.sum_bytes)}"
    for other in splits:
        same = (other.workload, other.width, other.batch) == (split.workload, split.width, split.batch)
        if same and other.setting == "fp32" and other is not split:
            text += f", {digits(split.sum_bytes / other.sum_bytes)} of FP32's"
    return f"{text}." if split.peak_bytes is None else f"{text}; the allocator's peak was {bytes_text(split.peak_bytes)}."
