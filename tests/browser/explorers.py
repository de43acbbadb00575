"""Every explorer of the lessons, for tests that need them all in one page."""

from __future__ import annotations

from dataclasses import dataclass

SETUP = """
import torch
from amp_lessons.figures import bits, dtype_grid, fates, floor, scale_history, speedups, updates, window
from amp_lessons.measure import mlp, speed_table
from amp_lessons.problems import portrait
from amp_lessons.recipes import FP32
from amp_lessons.replay import ceilings, peaks_of
from amp_lessons.training import train
from amp_lessons.widgets.bit_explorer import BitExplorer
from amp_lessons.widgets.floor_explorer import FloorExplorer
from amp_lessons.widgets.op_explorer import OpExplorer
from amp_lessons.widgets.scaler_explorer import ScalerExplorer, WindowExplorer
from amp_lessons.widgets.shrink_explorer import ShrinkExplorer
from amp_lessons.widgets.speed_explorer import SpeedExplorer
from amp_lessons.widgets.update_explorer import UpdateExplorer

run = train(portrait(), FP32, 60, device=torch.device("cpu")).finish()
peaks = peaks_of(run)
table = speed_table(mlp, [16, 32, 64, 128], [16, 32, 64, 128], budget_s=2)
"""


@dataclass(frozen=True)
class Case:
    """An explorer: its class, its arguments, a call that makes its picture anew, and the control to move.

    ``label`` is the slider's; a control without one is a row of buttons.
    """

    explorer: str
    arguments: str
    picture: str
    control: str
    label: str = ""

    @property
    def call(self) -> str:
        return f"{self.explorer}({self.arguments})"


EXPLORERS = [
    Case("BitExplorer", "", "bits.BitPicture()", "exponent", "exponent e"),
    Case("FloorExplorer", "", "floor.FloorLine()", "gradient", "value in 1/16"),
    Case("ShrinkExplorer", "run.records[-1].histogram", "fates.FateHistogram()", "weight", "loss times 2^k"),
    Case("OpExplorer", "", "dtype_grid.DtypeGrid()", "family"),
    Case("UpdateExplorer", "", "updates.UpdateRuler()", "update", "update 2^-k"),
    Case(
        "ScalerExplorer", "peaks", "scale_history.ScaleHistory(len(peaks), ceilings(peaks))", "growth_interval", "growth interval"
    ),
    Case(
        "WindowExplorer",
        "run",
        "window.WindowWalk(len(peaks), [r.histogram.window() for r in run.records])",
        "step",
        "training step",
    ),
    Case("SpeedExplorer", "table", "speedups.SpeedupCurves(table)", "batch", "batch 2^k"),
]
