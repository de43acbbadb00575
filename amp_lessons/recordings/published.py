"""Published figures that lessons quote, each with its source; nothing here was measured by the course."""

from __future__ import annotations

from dataclasses import dataclass

PAPER = "Micikevicius et al. 2018, Mixed Precision Training, arXiv:1710.03740v3"
BLOG_2020 = (
    "PyTorch blog, 28 July 2020, Introducing native PyTorch automatic mixed precision for faster training on NVIDIA GPUs"
)
BLOG_2022 = "PyTorch blog, 2022, What Every User Should Know About Mixed Precision Training in PyTorch"


@dataclass(frozen=True)
class Accuracy:
    """One model's result in FP32 and in mixed precision, and without loss scaling where that was reported.

    ``unscaled`` is None where mixed precision needed no scaling or it was not reported, and NaN where training diverged.
    """

    model: str
    measure: str
    fp32: float
    mixed: float
    source: str
    unscaled: float | None = None
    higher_is_better: bool = True


@dataclass(frozen=True)
class SpeedRange:
    """A range of speed ratios: ``what`` is so many times as fast as ``over``."""

    what: str
    over: str
    low: float
    high: float
    source: str


def _top_1(model: str, fp32: float, mixed: float) -> Accuracy:
    return Accuracy(model, "ILSVRC12 top-1 accuracy, %", fp32, mixed, f"{PAPER}, Table 1")


ACCURACIES = (
    _top_1("AlexNet", 56.77, 56.93),
    _top_1("VGG-D", 65.40, 65.43),
    _top_1("GoogLeNet", 68.33, 68.43),
    _top_1("Inception v2", 70.03, 70.02),
    _top_1("Inception v3", 73.85, 74.13),
    _top_1("ResNet-50", 75.92, 76.04),
    Accuracy("Faster R-CNN", "mean average precision, %", 69.1, 69.7, f"{PAPER}, Table 2", unscaled=68.6),
    Accuracy("Multibox SSD", "mean average precision, %", 76.9, 77.1, f"{PAPER}, Table 2", unscaled=float("nan")),
    Accuracy("Speech, English", "character error rate, %", 2.20, 1.99, f"{PAPER}, Table 3", higher_is_better=False),
    Accuracy("Speech, Mandarin", "character error rate, %", 15.82, 15.01, f"{PAPER}, Table 3", higher_is_better=False),
)

# The two ranges answer different questions: the second compares two GPUs and says nothing about AMP against FP32 on an A100.
SPEEDS = (
    SpeedRange("AMP on a V100", "FP32 on a V100", 1.5, 5.5, f"{BLOG_2020}, Figure 2"),
    SpeedRange("AMP on an A100", "AMP on a V100", 1.3, 2.5, f"{BLOG_2020}, Figure 3"),
    SpeedRange("peak fp16 matrix products on an A100", "peak float32 on an A100", 16, 16, BLOG_2022),
)
