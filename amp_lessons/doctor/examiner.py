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
                    bad = int((~torch.isfinite(value)).sum())
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
        self._found = 0

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if torch.compiler.is_dynamo_compiling():
            return func(*args, **kwargs)
        result = func(*args, **kwargs)
        if not self.over and not self._observer.quiet and self._found < 8:
            try:
                with torch.no_grad():  # what looking computes must not reach the user's saved-tensor hooks
                    self._look(func, args, kwargs, result)
            except Exception as error:  # noqa: BLE001 - looking must never break what is looked at
                self._observer.trouble(error)
        return result

    def _look(self, func: Any, args: tuple, kwargs: dict, result: Any) -> None:
        name = getattr(func, "__name__", str(func))
        if not isinstance(result, Tensor) or name == "__get__":
            return
        on_cpu_autocast = result.device.type == "cpu" and torch.is_autocast_enabled("cpu")
        if on_cpu_autocast and func is F.binary_cross_entropy:
            self._add("cuda-raises", name)
        if result.dtype not in SIXTEEN:
            return
        if on_cpu_autocast and name in FLOAT32_ON_CUDA:
            self.differs.add(name)
        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
        numbers = [a for a in (*args, *kwargs.values()) if isinstance(a, float)]
        if name in ("add", "__add__", "__radd__", "sub", "__sub__", "clamp", "clamp_min"):
            lost = [n for n in numbers if n != 0 and float(torch.tensor(n, dtype=result.dtype)) == 0]
            if lost:
                self._add("epsilon", name, number=lost[0], dtype=dtype_name(result.dtype))
        if bool(torch.isfinite(result).all()) or name.startswith(("zeros", "empty", "full", "detach")):
            return
        finite = all(bool(torch.isfinite(t).all()) for t in tensors if t.is_floating_point())
        if tensors and finite and all(math.isfinite(n) for n in numbers):
            largest = max((float(t.detach().abs().max()) for t in tensors if t.is_floating_point() and t.numel()), default=0.0)
            bad = int((~torch.isfinite(result)).sum())
            self._add("overflow", name, largest=largest, bad=bad, total=result.numel(), dtype=dtype_name(result.dtype))

    def _add(self, issue: str, name: str, **facts: Any) -> None:
        self._found += 1
        module = self._examiner.modules[-1] if self._examiner.modules else ""
        self._observer.add("op", issue=issue, name=name.strip("_"), module=module, **facts)


def _is_compiled(model: nn.Module) -> bool:
    return any(type(m).__name__ == "OptimizedModule" or getattr(m, "_compiled_call_impl", None) is not None for m in model.modules())


def _insert_below(mode: TorchFunctionMode) -> None:
    """Put a mode under all that are active: the user's own are popped from the top when their blocks end."""
    others = [_pop_mode() for _ in _get_current_function_mode_stack()]
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
