"""Published figures: each with its source, and the ones that are easily mixed up kept apart."""

import math

from amp_lessons.recordings.published import ACCURACIES, SPEEDS


def test_every_figure_has_its_source():
    assert all("arXiv:1710.03740" in row.source and "Table" in row.source for row in ACCURACIES)
    assert all("PyTorch blog" in row.source for row in SPEEDS)


def test_table_1_of_the_2018_paper():
    rows = {row.model: (row.fp32, row.mixed) for row in ACCURACIES if row.source.endswith("Table 1")}
    assert rows["ResNet-50"] == (75.92, 76.04) and rows["AlexNet"] == (56.77, 56.93) and len(rows) == 6
    # The paper's point: mixed precision is as good, within a third of a per cent here.
    assert all(abs(mixed - fp32) < 0.3 for fp32, mixed in rows.values())


def test_table_2_where_scaling_was_needed():
    rows = {row.model: row for row in ACCURACIES if row.source.endswith("Table 2")}
    assert math.isnan(rows["Multibox SSD"].unscaled)  # it diverged
    assert rows["Faster R-CNN"].unscaled == 68.6 < rows["Faster R-CNN"].fp32 == 69.1


def test_the_two_speed_ranges_compare_different_things():
    v100, a100 = SPEEDS[:2]
    assert (v100.low, v100.high, v100.over) == (1.5, 5.5, "FP32 on a V100")
    assert (a100.low, a100.high, a100.over) == (1.3, 2.5, "AMP on a V100")
