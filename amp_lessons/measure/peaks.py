"""What a few GPUs can do at most, from their makers' data sheets; a GPU that is not in the table has no peak here."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Peak:
    """Dense matrix products at the boost clock, in FLOP/s, and where that is written."""

    flop_per_s: float
    source: str


# Tera-FLOP/s, without structured sparsity, 16-bit products summed in float32. The patterns take in whole names: a slice of
# a GPU (MIG) or a laptop's chip of the same number has another peak.
_TABLE = (
    (r"Tesla V100-SXM2-\d+GB", {"float32": 15.7, "float16": 125}, "NVIDIA V100 data sheet"),
    (r"Tesla T4", {"float32": 8.1, "float16": 65}, "NVIDIA T4 data sheet"),
    (
        r"(NVIDIA )?A100-(SXM4|PCIE)-\d+GB|NVIDIA A100 80GB PCIe",
        {"float32": 19.5, "tf32": 156, "float16": 312, "bfloat16": 312},
        "NVIDIA A100 data sheet",
    ),
    (
        r"NVIDIA H100 80GB HBM3|NVIDIA H200",
        {"float32": 66.9, "tf32": 494.7, "float16": 989.4, "bfloat16": 989.4},
        "NVIDIA H100 architecture white paper, H100 SXM5 (the H200 has the same chip)",
    ),
    (
        r"NVIDIA GeForce RTX 4090",
        {"float32": 82.6, "tf32": 82.6, "float16": 165.2, "bfloat16": 165.2},
        "NVIDIA Ada architecture white paper, GeForce RTX 4090",
    ),
)


def peak_of(device_name: str, dtype: str) -> Peak | None:
    """The peak of the GPU that CUDA calls ``device_name``, for products of this dtype; None where it is not known."""
    for pattern, teraflops, source in _TABLE:
        if re.fullmatch(pattern, device_name.strip()):
            return Peak(teraflops[dtype] * 1e12, source) if dtype in teraflops else None
    return None
