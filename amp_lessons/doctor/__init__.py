"""The doctor: watch a mixed-precision training loop and be told what is wrong with it."""

from amp_lessons.doctor.report import Finding
from amp_lessons.doctor.watch import Doctor, watch

__all__ = ["Doctor", "Finding", "watch"]
