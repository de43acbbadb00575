"""Run code on stand-ins: fake CPU tensors that carry the dtypes another device's autocast would give.

The code sees tensors on the CPU, so that it runs in a PyTorch built without CUDA. Each op it calls is put to the real
dispatcher of the device that is asked about, and the answer's dtypes go on into the code: where it reads a dtype, it
reads what it would read there. Nothing is computed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _pytree as pytree

from amp_lessons.autocast_ops.dispatch import NEEDS_CUDA, Answer, ask, dtypes_of, fake_autocast, like
from amp_lessons.autocast_ops.record import Step, Stop, recording
from amp_lessons.errors import LessonError

_VALUE_IN_PYTHON = ("item", "_local_scalar_dense", "is_nonzero", "equal")


@contextmanager
def stand_ins(
    tree: Any, steps: list[Step], path: Callable[[], str], device_type: str, autocast_dtype: torch.dtype
) -> Iterator[Any]:
    """Gives ``tree`` with a stand-in for each tensor; ops on them inside are answered for ``device_type``.

    Raises LessonError where the code needs a value, or opens a CUDA region that this machine would turn off.
    """
    told: list[warnings.WarningMessage]

    def call(op: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[Answer, Any]:
        came_from: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

        def there(tensor: torch.Tensor) -> torch.Tensor:
            fake = like(tensor, device_type)
            came_from[id(fake)] = fake, tensor
            return fake

        def back(tensor: torch.Tensor) -> torch.Tensor:  # a cast that does nothing gives back the tensor it was given
            return came_from[id(tensor)][1] if id(tensor) in came_from else like(tensor, "cpu")

        if told and device_type == "cuda":
            raise LessonError(
                "The model opens torch.autocast('cuda') itself, which PyTorch turns off on a machine with no CUDA device; "
                "write torch.autocast(x.device.type) in the model."
            )
        args, kwargs = pytree.tree_map_only(torch.Tensor, there, (args, kwargs))
        args, kwargs = pytree.tree_map_only(torch.device, lambda _: torch.device(device_type), (args, kwargs))
        with torch.no_grad(), _region(device_type):
            answer, result = ask(op, args, kwargs, device_type)
        if answer.reason and op.overloadpacket.__name__ in _VALUE_IN_PYTHON:
            raise LessonError(
                "The model's Python code goes by a tensor's value (a branch on it, or .item()), so its ops are not fixed; "
                "measure(model, inputs) can run it and record the ops of that run."
            )
        return answer, pytree.tree_map_only(torch.Tensor, back, result)

    # gradients on, as in training: without them some modules take a fast path; none are taken on stand-ins
    with fake_autocast(device_type, autocast_dtype), torch.enable_grad(), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("ignore")
        warnings.filterwarnings("always", message=".*CUDA is not available.*")
        # the code sees CPU tensors: a region it opens with torch.autocast(x.device.type) is one on the device asked about
        torch.set_autocast_enabled("cpu", True)
        torch.set_autocast_dtype("cpu", autocast_dtype)
        fakes = pytree.tree_map_only(torch.Tensor, _stand_in, tree)
        with recording(steps, path, call):
            yield fakes


def _stand_in(tensor: torch.Tensor) -> torch.Tensor:
    return like(tensor, "cpu").requires_grad_(tensor.requires_grad and tensor.is_leaf)


@contextmanager
def _region(device_type: str) -> Iterator[None]:
    """Autocast as the code's own regions leave it, whether they name the device asked about or the stand-ins' CPU."""
    if device_type == "cpu":
        yield
        return
    found = torch.is_autocast_enabled(device_type), torch.get_autocast_dtype(device_type)
    torch.set_autocast_enabled(device_type, found[0] and torch.is_autocast_enabled("cpu"))
    torch.set_autocast_dtype(device_type, torch.get_autocast_dtype("cpu"))
    try:
        yield
    finally:
        torch.set_autocast_enabled(device_type, found[0])
        torch.set_autocast_dtype(device_type, found[1])


def ask_in_parts(op: Callable[..., Any], args: tuple, kwargs: dict[str, Any], autocast_dtype: torch.dtype) -> Answer:
    """The CUDA answer for a call that cannot be made here in one piece: its ATen ops, asked one at a time."""
    steps: list[Step] = []
    try:
        with stand_ins((args, kwargs), steps, lambda: "", "cuda", autocast_dtype) as fakes:
            result = op(*fakes[0], **fakes[1])
    except Stop:
        return steps[-1].answer
    except LessonError:  # it goes by a value: the first answer stands
        return Answer(reason=NEEDS_CUDA)
    return Answer(dtypes_of(result))
