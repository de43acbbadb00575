"""What PyTorch's dispatcher answers for one op under autocast: a dtype, an error, or nothing.

CUDA's list of ops differs from the CPU's, so a question about CUDA must go to the CUDA dispatcher. It answers with no GPU
when it is given *fake* tensors: they have a shape, a dtype and the device 'cuda', but no memory behind them.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from amp_lessons.errors import LessonError

DEVICE_TYPES = ("cpu", "cuda")
AUTOCAST_DTYPES = (torch.float16, torch.bfloat16)

# What PyTorch says when an op needs a piece of CUDA itself: in a build without it, and with no driver.
_NO_CUDA = ("not linked with support for cuda", "not compiled with CUDA enabled", "Found no NVIDIA driver")
# These exceptions of fake tensors say that they cannot know, not that the op is wrong. Names: the module is semi-private.
_CANNOT_KNOW = {
    "DataDependentOutputException": "the result depends on the values, and a fake tensor has none",
    "DynamicOutputShapeException": "the output's shape depends on the values, and a fake tensor has none",
    "UnsupportedOperatorException": "fake tensors do not support this op",
    "UnsupportedFakeTensorException": "fake tensors do not support this op",
}
NEEDS_CUDA = "the op needs CUDA itself, which this PyTorch or this machine does not have"
# batch_norm is made of other ops, none of which autocast knows; so autocast leaves it alone as well.
_LEFT_ALONE = {"aten::batch_norm": ("_batch_norm_impl_index", "native_batch_norm", "cudnn_batch_norm")}


@dataclass(frozen=True)
class Answer:
    """What PyTorch says about one call under autocast.

    ``dtypes`` has one dtype for each tensor that comes out. It is empty where the op raises (``error`` then holds the
    exception's name and text) and where PyTorch cannot answer (``reason`` then says why).
    """

    dtypes: tuple[torch.dtype, ...] = ()
    error: str = ""
    reason: str = ""

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype of the first tensor that comes out, None if there is none."""
        return self.dtypes[0] if self.dtypes else None

    @property
    def short(self) -> str:
        """One or two words: 'float16', 'error' or 'no answer'."""
        if self.error:
            return "error"
        if self.reason:
            return "no answer"
        return ", ".join(dict.fromkeys(name_of(dtype) for dtype in self.dtypes)) or "no tensor"

    def __str__(self) -> str:
        if self.reason:
            return f"PyTorch cannot answer here: {self.reason}."
        return self.error or self.short


def op_dtype(
    op: Callable[..., Any],
    *args: Any,
    device_type: str = "cuda",
    autocast_dtype: torch.dtype = torch.float16,
    **kwargs: Any,
) -> Answer:
    """The dtype that ``op(*args, **kwargs)`` gives inside ``torch.autocast(device_type, dtype=autocast_dtype)``.

    Tensors among the arguments are examples. For 'cuda' only their shapes and dtypes count, and the answer comes from the
    CUDA dispatcher whether or not there is a GPU; for 'cpu' the call is really run, on copies. What the op raises comes
    back as the answer's ``error``. Raises LessonError if the question itself cannot be put.

    >>> op_dtype(torch.softmax, torch.ones(4, dtype=torch.float16), 0, device_type="cuda").dtype
    torch.float32
    """
    check_question(device_type, autocast_dtype)
    if isinstance(op, torch.nn.Module):
        raise LessonError("op_dtype asks about one op; for a module with its parameters use trace(model, inputs).")
    if not callable(op):
        raise LessonError(f"op_dtype needs an op to call, such as torch.softmax, not {op!r}.")
    if not any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves((args, kwargs))):
        raise LessonError("op_dtype needs at least one example tensor; autocast goes by the tensors that come in.")
    if any(isinstance(leaf, torch.Tensor) and leaf.layout != torch.strided for leaf in pytree.tree_leaves((args, kwargs))):
        raise LessonError("op_dtype takes ordinary dense tensors only.")
    if device_type == "cpu":
        with quiet(), torch.random.fork_rng(devices=[]), torch.no_grad(), torch.autocast("cpu", dtype=autocast_dtype):
            copies = pytree.tree_map_only(torch.Tensor, lambda t: t.detach().cpu().clone(), (args, kwargs))
            return attempt(lambda: op(*copies[0], **copies[1]))[0]
    with fake_autocast("cuda", autocast_dtype), _NoAutograd():
        fakes = pytree.tree_map_only(torch.Tensor, lambda t: like(t, "cuda"), (args, kwargs))
        answer = attempt(lambda: op(*fakes[0], **fakes[1]))[0]
    if answer.reason == NEEDS_CUDA:
        from amp_lessons.autocast_ops.standins import ask_in_parts

        return ask_in_parts(op, args, kwargs, autocast_dtype)
    return answer


def registered_ops(device_type: str = "cuda") -> tuple[str, ...]:
    """Names of the ops with an autocast rule of their own for this device type, sorted, one for each overload.

    An op that is not here runs in the dtype of its inputs, unless it is made of ops that are.
    """
    check_question(device_type, torch.float16)
    return tuple(sorted(name for name in torch._C._dispatch_get_all_op_names() if _has_rule(name, device_type)))


def is_registered(op: str, device_type: str = "cuda") -> bool:
    """Whether autocast has a rule for this op, named as in 'softmax' (any overload) or 'aten::softmax.int' (that one).

    Raises LessonError for an op that PyTorch does not have.
    """
    check_question(device_type, torch.float16)
    full = op if "::" in op else f"aten::{op}"
    names = [name for name in torch._C._dispatch_get_all_op_names() if full in (name, name.split(".")[0])]
    if not names:
        raise LessonError(f"PyTorch has no op {op!r}; ops are named as in ATen: 'softmax', 'mm', 'cross_entropy_loss'.")
    return any(_has_rule(name, device_type) for name in names)


def _has_rule(name: str, device_type: str) -> bool:
    key = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}[device_type]
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, key)


def ask(op: torch._ops.OpOverload, args: tuple, kwargs: dict[str, Any], device_type: str) -> tuple[Answer, Any]:
    """Call one ATen op on fake tensors inside fake_autocast; the answer and the fake result.

    Where the op needs CUDA itself and autocast has no rule for it, it runs on 'meta' tensors instead, which need nothing:
    autocast would have left it alone anyway.
    """
    answer, result = attempt(lambda: op(*args, **kwargs))
    if answer.reason != NEEDS_CUDA or not _left_alone(op.name(), device_type):
        return answer, result
    args, kwargs = pytree.tree_map_only(torch.Tensor, lambda t: like(t, "meta"), (args, kwargs))
    kwargs = {key: torch.device("meta") if isinstance(value, torch.device) else value for key, value in kwargs.items()}
    answer, result = attempt(lambda: op(*args, **kwargs))
    return answer, pytree.tree_map_only(torch.Tensor, lambda t: like(t, device_type), result)


def _left_alone(name: str, device_type: str) -> bool:
    """Whether autocast certainly does nothing to this op: no rule for it, nor for any op it is made of."""
    if _has_rule(name, device_type):
        return False
    if torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd"):
        parts = _LEFT_ALONE.get(name)
        return parts is not None and not any(_has_rule(f"aten::{part}", device_type) for part in parts)
    return True


def attempt(call: Callable[[], Any]) -> tuple[Answer, Any]:
    """Run the call and put into words what came out: dtypes, an error of the op's, or that PyTorch cannot tell."""
    try:
        result = call()
    except LessonError:
        raise
    except Exception as error:  # whatever an op raises is the answer that was asked for
        text = str(error).strip()
        if any(words in text for words in _NO_CUDA):
            return Answer(reason=NEEDS_CUDA), None
        if type(error).__name__ in _CANNOT_KNOW:
            return Answer(reason=_CANNOT_KNOW[type(error).__name__]), None
        if "convert all Tensors to FakeTensors" in text:
            raise LessonError("The op uses a tensor that it was not given; pass every tensor as an argument.") from None
        return Answer(error=f"{type(error).__name__}: {text}"), None
    return Answer(dtypes_of(result)), result


class _NoAutograd(TorchFunctionMode):
    """Refuses to turn gradients on: recording them on a fake CUDA tensor ends the process in a build without CUDA."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        turns_on = func is torch._C._set_grad_enabled and bool(args[0])
        setter = func == torch.Tensor.requires_grad.__set__ and bool(args[1])
        name = getattr(func, "__name__", "")
        if turns_on or setter or name in ("requires_grad_", "backward") or kwargs.get("requires_grad"):
            raise LessonError("op_dtype asks about the forward pass only; leave gradients and backward out of the op.")
        return func(*args, **kwargs)


@contextmanager
def fake_autocast(device_type: str, autocast_dtype: torch.dtype) -> Iterator[None]:
    """Inside: fake tensors, autocast on for this device type alone, no gradients; afterwards all as it was found.

    no_grad, not inference mode: there an op made of others (an LSTM) skips the dispatcher's autocast for its parts.
    """
    try:
        from torch._subclasses.fake_tensor import FakeTensorMode
    except ImportError:
        raise LessonError(f"PyTorch {torch.__version__} has no FakeTensorMode where this course looks for it.") from None
    found = {name: (torch.is_autocast_enabled(name), torch.get_autocast_dtype(name)) for name in DEVICE_TYPES}
    try:
        for name in DEVICE_TYPES:
            torch.set_autocast_enabled(name, name == device_type)
        # set by hand: torch.autocast('cuda') turns itself off where there is no GPU
        torch.set_autocast_dtype(device_type, autocast_dtype)
        with quiet(), torch.no_grad(), FakeTensorMode():
            yield
    finally:
        for name, (enabled, dtype) in found.items():
            torch.set_autocast_enabled(name, enabled)
            torch.set_autocast_dtype(name, dtype)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep PyTorch's warnings and log lines off stderr: what an op raises is reported as an Answer instead."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def like(tensor: torch.Tensor, device_type: str) -> torch.Tensor:
    """A tensor of the same shape, strides and dtype on another device type; its values are not copied."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device_type)


def dtypes_of(tree: Any) -> tuple[torch.dtype, ...]:
    """The dtype of every tensor in nested tuples, lists and dicts, in order."""
    return tuple(leaf.dtype for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor))


def name_of(dtype: torch.dtype) -> str:
    """'float16' for torch.float16."""
    return str(dtype).removeprefix("torch.")


def check_question(device_type: str, autocast_dtype: torch.dtype) -> None:
    """Raise LessonError unless autocast can be asked about this device type and dtype."""
    if device_type not in DEVICE_TYPES:
        raise LessonError(f"device_type must be 'cuda' or 'cpu', not {device_type!r}.")
    if autocast_dtype not in AUTOCAST_DTYPES:
        raise LessonError(f"autocast_dtype must be torch.float16 or torch.bfloat16, not {autocast_dtype!r}.")
