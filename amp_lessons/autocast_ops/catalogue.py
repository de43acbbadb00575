"""The ops of the course's table, by family, each with the smallest inputs that show what autocast does to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F


@dataclass(frozen=True)
class Example:
    """One op to ask about. ``inputs`` gives dtype and shape of each tensor; ``call`` takes those tensors."""

    family: str
    name: str
    call: Callable[..., Any]
    inputs: tuple[tuple[torch.dtype, tuple[int, ...]], ...]

    def tensors(self) -> list[torch.Tensor]:
        """The inputs: 0.5 everywhere, which every op of the table accepts, and 0 for indices."""
        return [torch.full(shape, 0.5 if dtype.is_floating_point else 0, dtype=dtype) for dtype, shape in self.inputs]


def f(*shape: int) -> tuple[torch.dtype, tuple[int, ...]]:
    """A float32 input, as a model's weights and data are."""
    return torch.float32, shape


def h(*shape: int) -> tuple[torch.dtype, tuple[int, ...]]:
    """A float16 input, as comes out of a linear layer under autocast."""
    return torch.float16, shape


def i(*shape: int) -> tuple[torch.dtype, tuple[int, ...]]:
    """An int64 input: class numbers or positions."""
    return torch.int64, shape


def d(*shape: int) -> tuple[torch.dtype, tuple[int, ...]]:
    """A float64 input."""
    return torch.float64, shape


FAMILIES: dict[str, list[tuple[str, Callable[..., Any], list]]] = {
    "matrix products": [
        ("a @ b", torch.matmul, [f(4, 4), f(4, 4)]),
        ("F.linear", F.linear, [f(2, 4), f(4, 4), f(4)]),
        ("torch.bmm", torch.bmm, [f(2, 4, 4), f(2, 4, 4)]),
        ("torch.einsum", lambda a, b: torch.einsum("ij,jk->ik", a, b), [f(4, 4), f(4, 4)]),
        ("torch.mv", torch.mv, [f(4, 4), f(4)]),
        ("F.scaled_dot_product_attention", F.scaled_dot_product_attention, [f(1, 2, 4, 8)] * 3),
        ("a @ b in float64", torch.matmul, [d(4, 4), d(4, 4)]),
    ],
    "convolutions": [
        ("F.conv1d", F.conv1d, [f(1, 2, 8), f(2, 2, 3)]),
        ("F.conv2d", F.conv2d, [f(1, 2, 8, 8), f(2, 2, 3, 3)]),
        ("F.conv_transpose2d", F.conv_transpose2d, [f(1, 2, 4, 4), f(2, 2, 3, 3)]),
    ],
    "normalisation": [
        ("F.layer_norm", lambda x: F.layer_norm(x, (4,)), [h(2, 4)]),
        ("F.group_norm", lambda x: F.group_norm(x, 2), [h(2, 4)]),
        ("F.rms_norm", lambda x: F.rms_norm(x, (4,)), [h(2, 4)]),
        ("F.batch_norm", lambda x, mean, var: F.batch_norm(x, mean, var), [h(2, 4), f(4), f(4)]),
        ("F.instance_norm", F.instance_norm, [h(2, 4, 8)]),
        ("F.normalize", F.normalize, [h(2, 4)]),
    ],
    "exponentials": [
        ("torch.softmax", lambda x: torch.softmax(x, -1), [h(2, 4)]),
        ("torch.log_softmax", lambda x: torch.log_softmax(x, -1), [h(2, 4)]),
        ("torch.logsumexp", lambda x: torch.logsumexp(x, -1), [h(2, 4)]),
        ("torch.exp", torch.exp, [h(4)]),
        ("torch.log", torch.log, [h(4)]),
        ("F.softplus", F.softplus, [h(4)]),
        ("torch.sigmoid", torch.sigmoid, [h(4)]),
    ],
    "powers": [
        ("x.pow(2)", lambda x: x.pow(2), [h(4)]),
        ("x ** 2", lambda x: x**2, [h(4)]),
        ("x * x", lambda x: x * x, [h(4)]),
        ("1 / x", lambda x: 1 / x, [h(4)]),
        ("torch.rsqrt", torch.rsqrt, [h(4)]),
        ("torch.sqrt", torch.sqrt, [h(4)]),
    ],
    "reductions": [
        ("x.sum()", torch.sum, [h(4)]),
        ("x.cumsum(0)", lambda x: x.cumsum(0), [h(4)]),
        ("x.norm()", torch.norm, [h(4)]),
        ("x.prod()", torch.prod, [h(4)]),
        ("x.mean()", torch.mean, [h(4)]),
        ("x.var()", torch.var, [h(4)]),
    ],
    "losses": [
        ("F.mse_loss", F.mse_loss, [h(4), h(4)]),
        ("F.l1_loss", F.l1_loss, [h(4), h(4)]),
        ("F.cross_entropy", F.cross_entropy, [h(2, 4), i(2)]),
        ("F.binary_cross_entropy_with_logits", F.binary_cross_entropy_with_logits, [h(4), h(4)]),
    ],
    "elementwise and pooling": [
        ("a / b", torch.div, [h(4), h(4)]),
        ("F.relu", F.relu, [h(4)]),
        ("F.gelu", F.gelu, [h(4)]),
        ("F.dropout", F.dropout, [h(4)]),
        ("F.max_pool2d", lambda x: F.max_pool2d(x, 2), [h(1, 1, 4, 4)]),
        ("F.interpolate", lambda x: F.interpolate(x, scale_factor=2), [h(1, 1, 4, 4)]),
    ],
    "mixed inputs": [
        ("a + b", torch.add, [f(4), h(4)]),
        ("torch.cat", lambda a, b: torch.cat([a, b]), [f(4), h(4)]),
        ("torch.where", lambda a, b: torch.where(a > 0, a, b), [f(4), h(4)]),
        ("torch.dot", torch.dot, [f(4), h(4)]),
        ("x.scatter_add", lambda x, at, y: x.scatter_add(0, at, y), [f(4), i(4), h(4)]),
    ],
    "banned": [
        ("F.binary_cross_entropy", F.binary_cross_entropy, [h(4), h(4)]),
    ],
}

EXAMPLES = tuple(
    Example(family, name, call, tuple(inputs)) for family, ops in FAMILIES.items() for name, call, inputs in ops
)
