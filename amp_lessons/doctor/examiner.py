"""A closer look at one iteration: every operation's result, to name the first that leaves fp16's range."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, _pop_mode, _push_mode

from amp_lessons.doctor.events import dtype_name

if TYPE_CHECKING:
    from amp_lessons.doctor.observer import LoopObserver

MOST_EXAMINATIONS = 6  # each costs a read of every 16-bit result, so only the first step and the first troubles get one
SIXTEEN = (torch.float16, torch.bfloat16)

MOST_OF_A_KIND = 4  # events of one issue in an examination; the first is the one that matters

# Operations by which a small constant guards a log, a root or a division, as x + eps or x.clamp(min=eps).
_GUARDS = frozenset("add radd iadd sub isub clamp clamp_min clip maximum".split())
_IN_PLACE = frozenset("exp_ mul_ __imul__ pow_ add_ __iadd__ square_ div_ __itruediv__ sub_ __isub__ clamp_ clip_".split())

# On the CPU these stay in 16 bits under autocast, on CUDA they run in float32 (registered lists, aten/src/ATen/autocast_mode.h).
FLOAT32_ON_CUDA = frozenset(
    "softmax log_softmax logsumexp exp log log2 log10 log1p expm1 rsqrt reciprocal pow __pow__ square sum cumsum norm layer_norm "
    "rms_norm group_norm cosine_similarity normalize softplus cosh sinh tan acos asin".split()
)


class Examiner:
    """Decides when an iteration is examined, and takes the examination's hooks off again."""

    def __init__(self, observer: LoopObserver) -> None:
        self._observer = observer
        self._mode: _Examination | None = None
        self._labels: dict[int, str] = {}
        self._left = MOST_EXAMINATIONS
        self.modules: list[str] = []  # names of the modules that are running, innermost last

    def maybe_begin(self, number: int, model: nn.Module) -> None:
        """Examine the first iteration, and those after a skipped step until the budget is used up."""
        trouble = self._observer.skips_in_a_row > 0
        if self._mode is not None:
            _take_out(self._mode)  # it may have been paused
            _insert_below(self._mode)
            return
        if self._left == 0 or not (number == 0 or trouble) or _is_compiled(model):
            return
        self._left -= 1
        for name, module in model.named_modules():
            self._labels[id(module)] = f"{name or 'the model'} ({type(module).__name__})"
        self._mode = _Examination(self._observer, self)
        _insert_below(self._mode)

    def knows(self, module: nn.Module) -> bool:
        """Whether a module is part of what is examined."""
        return self._mode is not None and id(module) in self._labels

    def enters(self, module: nn.Module) -> None:
        """A module's call begins."""
        if self.knows(module):
            self.modules.append(self._labels[id(module)])

    def leaves(self, module: nn.Module) -> None:
        """A module's call is over, or has failed."""
        if self.knows(module) and self.modules:
            self.modules.pop()

    def pause(self) -> None:
        """Look away until a model is called again: an evaluation or an optimizer's step is not examined."""
        if self._mode is not None:
            _take_out(self._mode)

    def look_at_inputs(self, inputs: tuple) -> None:
        """Note non-finite values in what the model is given."""
        if self._mode is None:
            return
        with torch._C.DisableTorchFunction():
            for place, value in enumerate(inputs):
                if isinstance(value, Tensor) and value.is_floating_point():
                    bad = int((~(torch.isfinite(value) | (value == -math.inf))).sum())  # -inf is a mask
                    if bad:
                        self._observer.add("input", place=place, bad=bad, total=value.numel())

    def end(self) -> None:
        """Stop examining, if it is being done."""
        if self._mode is None:
            return
        _take_out(self._mode)
        self._mode.over = True
        if self._mode.differs:
            self._observer.add("op", issue="cuda-dtype", name=", ".join(sorted(self._mode.differs)), module="")
        self._mode = None
        self._labels = {}
        self.modules = []


class _Examination(TorchFunctionMode):
    """Runs every operation as it is and looks at 16-bit results."""

    def __init__(self, observer: LoopObserver, examiner: Examiner) -> None:
        super().__init__()
        self.over = False
        self.differs: set[str] = set()
        self._observer = observer
        self._examiner = examiner
        self._found: dict[str, int] = {}

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if torch.compiler.is_dynamo_compiling():
            return func(*args, **kwargs)
        in_place = self._in_place(func, args)
        result = func(*args, **kwargs)
        if not self.over and not self._observer.quiet:
            try:
                with torch.no_grad():  # what looking computes must not reach the user's saved-tensor hooks
                    self._look(func, args, kwargs, result, in_place)
            except Exception as error:  # noqa: BLE001 - looking must never break what is looked at
                self._observer.trouble(error)
        return result

    def _in_place(self, func: Any, args: tuple) -> Tensor | None:
        """A copy of what an in-place operation is about to change; None for all others."""
        name = getattr(func, "__name__", "")
        if name in _IN_PLACE and args and isinstance(args[0], Tensor) and args[0].dtype in SIXTEEN and not _is_wrapped(args[0]):
            with torch.no_grad(), torch._C.DisableTorchFunction():
                return args[0].detach().clone()
        return None

    def _look(self, func: Any, args: tuple, kwargs: dict, result: Any, in_place: Tensor | None) -> None:
        name = getattr(func, "__name__", str(func))
        if not isinstance(result, Tensor) or name == "__get__" or _is_wrapped(result):
            return
        if in_place is not None:
            args = (in_place, *args[1:])
        on_cpu_autocast = result.device.type == "cpu" and torch.is_autocast_enabled("cpu")
        if on_cpu_autocast and func is F.binary_cross_entropy:
            self._add("cuda-raises", name)
        if result.dtype not in SIXTEEN:
            return
        if on_cpu_autocast and name in FLOAT32_ON_CUDA:
            self.differs.add(name)
        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
        numbers = [a for a in (*args, *kwargs.values()) if isinstance(a, float)]
        numbers += [float(t) for t in tensors if t.dim() == 0 and t.is_floating_point() and not t.requires_grad]
        if name.strip("_") in _GUARDS:
            lost = [n for n in numbers if n != 0 and float(torch.tensor(n, dtype=result.dtype)) == 0]
            if lost:
                self._add("epsilon", name, number=lost[0], dtype=dtype_name(result.dtype))
        if bool(torch.isfinite(result).all()) or name.startswith(("zeros", "empty", "full", "detach")):
            return
        finite = all(bool(torch.isfinite(t).all()) for t in tensors if t.is_floating_point())
        if tensors and finite and all(math.isfinite(n) for n in numbers):
            largest = max((float(t.detach().abs().max()) for t in tensors if t.is_floating_point() and t.numel()), default=0.0)
            bad = int((~torch.isfinite(result)).sum())
            # -inf alone is how masks look; without a gradient it is a number for the log.
            harmless = bool((torch.isfinite(result) | (result == -math.inf)).all()) or not result.requires_grad
            self._add("overflow", name, largest=largest, bad=bad, total=result.numel(), dtype=dtype_name(result.dtype), harmless=harmless)

    def _add(self, issue: str, name: str, **facts: Any) -> None:
        self._found[issue] = self._found.get(issue, 0) + 1
        if self._found[issue] > MOST_OF_A_KIND:
            return
        module = self._examiner.modules[-1] if self._examiner.modules else ""
        self._observer.add("op", issue=issue, name=name.strip("_"), module=module, **facts)


def _is_wrapped(tensor: Tensor) -> bool:
    """Whether a tensor stands for others inside vmap or torch.func.grad: it has no values to look at."""
    return torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def _is_compiled(model: nn.Module) -> bool:
    return any(type(m).__name__ == "OptimizedModule" or getattr(m, "_compiled_call_impl", None) is not None for m in model.modules())


def _insert_below(mode: TorchFunctionMode) -> None:
    """Put a mode under all that are active: the user's own are popped from the top when their blocks end.

    Only the mode of ``torch.set_default_device`` stays below it, which PyTorch expects at the very bottom; that of
    ``with torch.device(...)`` is popped from the top like any other.
    """
    default = getattr(getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None), "device_context", None)
    others = [_pop_mode() for _ in _get_current_function_mode_stack()]
    if others and others[-1] is default:
        _push_mode(others.pop())
    _push_mode(mode)
    for other in reversed(others):
        _push_mode(other)


def _take_out(mode: TorchFunctionMode) -> None:
    """Remove a mode wherever it is among those that are active."""
    stack = _get_current_function_mode_stack()
    if any(other is mode for other in stack):
        others = [_pop_mode() for _ in stack]
        for other in reversed(others):
            if other is not mode:
                _push_mode(other)
