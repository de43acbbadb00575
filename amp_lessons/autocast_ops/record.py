"""Listen to PyTorch's dispatcher above autocast, and write down each ATen op of a forward pass as a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from amp_lessons.autocast_ops.dispatch import Answer, dtypes_of, name_of
from amp_lessons.errors import LessonError


@dataclass(frozen=True)
class Step:
    """One ATen op of a model: where it was called, what came in, and what autocast made of it.

    ``module`` is the path of the module that called it ('' for the outermost), ``inputs`` the dtype of each tensor that
    came in. ``moves_only`` marks views and reshapes, which never change a dtype.
    """

    module: str
    op: str
    inputs: tuple[torch.dtype, ...]
    answer: Answer
    moves_only: bool = False

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype that comes out, None where PyTorch raises or cannot answer."""
        return self.answer.dtype

    def __str__(self) -> str:
        inputs = ", ".join(name_of(dtype) for dtype in self.inputs)
        return f"{self.module + ': ' if self.module else ''}{self.op}({inputs}) -> {self.answer}"


class Stop(Exception):
    """Ends a forward pass at an op that raises or that PyTorch cannot answer for; the last step says which."""


@contextmanager
def recording(
    steps: list[Step], path: Callable[[], str], call: Callable[[Any, tuple, dict], tuple[Answer, Any]]
) -> Iterator[None]:
    """Every ATen op that runs inside is made by ``call(op, args, kwargs)`` and added to ``steps``.

    It listens at the place where torch.export does: above autocast, before composite ops are taken apart. Ops on
    integers alone are made but not listed. Raises Stop after an answer without a result.
    """
    try:
        from torch._dispatch.python import enable_pre_dispatch, enable_python_dispatcher, no_python_dispatcher
        from torch._subclasses.schema_check_mode import SchemaCheckMode
        from torch.utils._python_dispatch import TorchDispatchMode
    except ImportError:
        raise LessonError(f"PyTorch {torch.__version__} cannot record ops where this course looks for it.") from None

    class Recorder(SchemaCheckMode):  # the one kind of mode, besides export's own, that may listen above autocast
        def __init__(self) -> None:
            TorchDispatchMode.__init__(self, _dispatch_key=torch._C.DispatchKey.PreDispatch)

        def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
            kwargs = kwargs or {}
            inputs = dtypes_of((args, kwargs))
            with no_python_dispatcher():  # it puts others in place of some ops, an LSTM say, past their autocast rules
                answer, result = call(func, args, kwargs)
            ends = bool(answer.error or answer.reason)
            if ends or any(dtype.is_floating_point for dtype in inputs + answer.dtypes):
                op = func.overloadpacket.__name__
                steps.append(Step(path(), op, inputs, answer, _moves_only(func, inputs, answer.dtypes)))
            if ends:
                raise Stop
            return result

    with enable_python_dispatcher(), enable_pre_dispatch(), Recorder():
        yield


def _moves_only(op: Any, inputs: tuple, outputs: tuple) -> bool:
    """Whether the op only looks at the same values in another shape (a cast that did nothing does not count)."""
    return op.overloadpacket.__name__ != "to" and bool(getattr(op, "is_view", False)) and set(outputs) <= set(inputs)


@contextmanager
def module_paths(model: nn.Module) -> Iterator[Callable[[], str]]:
    """A function that says which module is running; afterwards every module is as it was, hooks and attributes."""
    found = [(m, dict(vars(m)), {k: dict(vars(m)[k]) for k in ("_parameters", "_buffers")}) for m in model.modules()]
    stack, handles = [""], []
    for path, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(lambda *_, path=path: stack.append(path)))
        handles.append(module.register_forward_hook(lambda *_: stack.pop() and None, always_call=True))
    try:
        yield lambda: stack[-1]
    finally:
        for handle in handles:
            handle.remove()
        for module, attributes, tensors in found:
            vars(module).clear()
            vars(module).update(attributes)
            for name, values in tensors.items():
                vars(module)[name].clear()
                vars(module)[name].update(values)
