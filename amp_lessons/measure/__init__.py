"""Speed and memory, measured: every number comes from a clock or from real tensors, with a limit on the time it may take.

On the CPU everything is measured on one thread, as the lessons train (``devices.one_thread``).
"""

from amp_lessons.measure.clock import Subject, Timing, interleaved
from amp_lessons.measure.memory import MemorySplit, SavedBytes, memory_split, saved_for_backward
from amp_lessons.measure.ops import CopySpeed, OpPoint, add_speeds, copy_speed, matmul_flop, matmul_speeds, sizes_around
from amp_lessons.measure.peaks import Peak, peak_of
from amp_lessons.measure.plain import from_plain, to_plain
from amp_lessons.measure.settings import SETTINGS, Setting, settings_for
from amp_lessons.measure.steps import SpeedPoint, SpeedTable, TrainingStep, speed_table, step_times
from amp_lessons.measure.tf32 import float32_products
from amp_lessons.measure.workloads import Workload, lesson_sizes, mlp, transformer

__all__ = [
    "SETTINGS",
    "CopySpeed",
    "MemorySplit",
    "OpPoint",
    "Peak",
    "SavedBytes",
    "Setting",
    "SpeedPoint",
    "SpeedTable",
    "Subject",
    "Timing",
    "TrainingStep",
    "Workload",
    "add_speeds",
    "copy_speed",
    "float32_products",
    "from_plain",
    "interleaved",
    "lesson_sizes",
    "matmul_flop",
    "matmul_speeds",
    "memory_split",
    "mlp",
    "peak_of",
    "saved_for_backward",
    "settings_for",
    "sizes_around",
    "speed_table",
    "step_times",
    "to_plain",
    "transformer",
]
