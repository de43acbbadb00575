"""Where the doctor listens: PyTorch's own functions, wrapped while somebody watches and put back afterwards.

A wrapper tells the observers of the calling thread what happens and then calls the original; in other threads it only
calls the original. An observer's own failure never reaches the user's loop.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook


class Observer(Protocol):
    """What an observer offers: ``before`` and ``after`` (or ``failed``) are told a call's name, arguments and result.

    Of modules it hears only those that it ``wants``.
    """

    def wants(self, module: nn.Module) -> bool: ...

    def before(self, name: str, args: tuple, kwargs: dict) -> None: ...
    def failed(self, name: str, args: tuple, kwargs: dict) -> None: ...
    def after(self, name: str, args: tuple, kwargs: dict, result: Any) -> None: ...
    def trouble(self, error: Exception) -> None: ...


_local = threading.local()
_lock = threading.RLock()
_undo: list[Callable[[], None]] = []
_watchers = 0


def observers() -> tuple[Observer, ...]:
    """The observers of this thread, outermost first."""
    return getattr(_local, "observers", ())


def attach(observer: Observer) -> None:
    """Let an observer hear what this thread does."""
    global _watchers
    with _lock:
        if _watchers == 0:
            _install()
        _watchers += 1
    _local.observers = (*observers(), observer)


def detach(observer: Observer) -> None:
    """Stop telling an observer; the last one to go puts everything back."""
    global _watchers
    _local.observers = tuple(other for other in observers() if other is not observer)
    with _lock:
        _watchers -= 1
        if _watchers == 0:
            while _undo:
                _undo.pop()()


def _tell(phase: str, name: str, *details: Any) -> None:
    if torch._C._functorch.maybe_current_level() is not None:
        return  # inside vmap or torch.func.grad tensors have no values to look at
    # Without no_grad the observers' arithmetic would reach the user's saved-tensor hooks, and checkpointing counts those.
    with torch.no_grad():
        for observer in observers():
            try:
                getattr(observer, phase)(name, *details)
            except Exception as error:  # noqa: BLE001 - watching must never break what is watched
                observer.trouble(error)


def _wrap(owner: Any, attribute: str, name: str) -> None:
    original = vars(owner)[attribute]
    if isinstance(original, staticmethod):
        return

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling() or not observers():  # a compiler must see the original alone
            return original(*args, **kwargs)
        try:
            _tell("before", name, args, kwargs)
            result = original(*args, **kwargs)
        except BaseException:
            _tell("failed", name, args, kwargs)
            raise
        _tell("after", name, args, kwargs, result)
        return result

    _replace(owner, attribute, original, wrapper)


def _wrap_module_calls() -> None:
    """Listen to the calls of modules. Hooks would do it too, but would be copied and pickled with the user's model."""
    original = vars(nn.Module)["__call__"]

    @functools.wraps(original)
    def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            return original(self, *args, **kwargs)
        for observer in observers():
            if observer.wants(self):
                break
        else:
            return original(self, *args, **kwargs)
        details = (self, torch.is_grad_enabled(), args, kwargs), {}
        try:
            _tell("before", "call", *details)
            result = original(self, *args, **kwargs)
        except BaseException:
            _tell("failed", "call", *details)
            raise
        _tell("after", "call", *details, result)
        return result

    _replace(nn.Module, "__call__", original, call)


def _replace(owner: Any, attribute: str, original: Any, wrapper: Any) -> None:
    setattr(owner, attribute, wrapper)

    def put_back() -> None:
        # Somebody may have wrapped our wrapper meanwhile: then theirs stays, and ours only passes calls on.
        if vars(owner).get(attribute) is wrapper:
            setattr(owner, attribute, original)

    _undo.append(put_back)


def _install() -> None:
    for owner, attribute, name in _targets():
        if attribute in vars(owner):
            _wrap(owner, attribute, name)
    _wrap_module_calls()
    # The arguments that these hooks are given begin with the optimizer.
    pre = register_optimizer_step_pre_hook(lambda optimizer, args, kwargs: _tell("before", "step", args, kwargs))
    post = register_optimizer_step_post_hook(lambda optimizer, args, kwargs: _tell("after", "step", args, kwargs, None))
    _undo.extend([pre.remove, post.remove])


def _targets() -> list[tuple[Any, str, str]]:
    scaler = torch.amp.GradScaler
    clip = torch.nn.utils.clip_grad
    found = [(scaler, method, f"scaler.{method}") for method in ("__init__", "scale", "unscale_", "step", "update", "get_scale", "state_dict")]
    found += [
        (torch.autograd, "backward", "backward"),
        (torch.autograd, "grad", "grad"),
        (torch.amp.autocast_mode.autocast, "__enter__", "region.enter"),
        (torch.amp.autocast_mode.autocast, "__exit__", "region.exit"),
        (torch.optim.Optimizer, "zero_grad", "zero_grad"),
        (torch.optim.Optimizer, "__init__", "optimizer.__init__"),
        (torch.nn.Module, "zero_grad", "zero_grad"),
        (torch, "save", "save"),
        # clip_grad_norm_ ends in this function whatever name the user imported it by.
        (clip, "_clip_grads_with_norm_", "clip"),
        (clip, "clip_grads_with_norm_", "clip"),
        (torch.nn.utils, "clip_grads_with_norm_", "clip"),
        (clip, "clip_grad_value_", "clip_value"),
        (torch.nn.utils, "clip_grad_value_", "clip_value"),
    ]
    found += [(cls, "step", "scheduler") for cls in _family(torch.optim.lr_scheduler.LRScheduler)]
    return found


def _family(cls: type) -> list[type]:
    return [cls] + [member for child in cls.__subclasses__() for member in _family(child)]
