"""The models that are watched: which calls of modules are calls of one of them."""

from __future__ import annotations

import weakref

from torch import nn


class WatchedModels:
    """Knows models without keeping them alive, and which of their calls are open.

    A model may be called itself, as what torch.compile made of it, or through its parts, as ``model.training_step(batch)``
    does: then the outermost part stands for it. With ``every`` any outermost module with parameters is taken for a model.
    """

    def __init__(self, every: bool) -> None:
        self.every = every
        self._numbers: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()
        self._ids: set[int] = set()
        self._whole: dict[int, weakref.ref] = {}  # a part's id -> the model it belongs to
        self._open: list[nn.Module] = []

    def __iter__(self):
        return iter(list(self._numbers))

    def add(self, model: nn.Module) -> bool:
        """Watch a model too; False if it was watched before."""
        if model in self._numbers:
            return False
        self._numbers[model] = len(self._numbers)
        self._ids = {id(known) for known in self._numbers}
        self._whole.update((id(part), weakref.ref(model)) for part in model.modules())
        return True

    def number(self, model: nn.Module) -> int:
        """The number of a watched model, or of the one that it was compiled from; -1 for another."""
        return self._numbers.get(model, self._numbers.get(getattr(model, "_orig_mod", model), -1))

    def counts(self, module: nn.Module) -> bool:
        """Whether a call of this module, made now, is a call of a watched model."""
        if id(module) in self._ids or ("_orig_mod" in module.__dict__.get("_modules", ()) and id(module._orig_mod) in self._ids):
            return True
        if self._open or not (self.every or id(module) in self._whole):
            return False
        return next(module.parameters(), None) is not None  # a loss is a module too, but has nothing to train

    def opens(self, module: nn.Module) -> nn.Module | None:
        """A call begins: the model that it is a call of, or None."""
        if not self.counts(module):
            return None
        self._open.append(module)
        return self._model_of(module)

    def closes(self, module: nn.Module) -> nn.Module | None:
        """A call is over: the model that it was a call of, or None."""
        if not any(module is known for known in self._open):
            return None
        while self._open.pop() is not module:  # an interrupt may have lost the end of an inner call
            pass
        return self._model_of(module)

    def _model_of(self, module: nn.Module) -> nn.Module:
        """The watched model that a called module stands for."""
        whole = self._whole.get(id(module), lambda: None)()
        return module if whole is None or self.every else whole
