"""Which dtype each op gets under CUDA and CPU autocast, asked of PyTorch itself; a GPU is not needed."""

from amp_lessons.autocast_ops.dispatch import Answer, is_registered, op_dtype, registered_ops
from amp_lessons.autocast_ops.measure import differences, measure
from amp_lessons.autocast_ops.record import Step
from amp_lessons.autocast_ops.table import OpTable, Row, op_table
from amp_lessons.autocast_ops.trace import Trace, trace

__all__ = [
    "Answer",
    "OpTable",
    "Row",
    "Step",
    "Trace",
    "differences",
    "is_registered",
    "measure",
    "op_dtype",
    "op_table",
    "registered_ops",
    "trace",
]
