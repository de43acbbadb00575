"""Exercise 5-snapshot: everything of a training run that has to be kept to go back to it."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.given import NOTHING
from amp_lessons.tutor.trial import Trial

STUB = '''
def snapshot(model, optimizer, scaler):
    """The run's state in memory: a dict with "model", "optimizer" and "scaler", one state dict each.

    It must still hold the same numbers after training has gone on.

    >>> model = torch.nn.Linear(2, 1)
    >>> saved = snapshot(model, torch.optim.Adam(model.parameters()), torch.amp.GradScaler("cpu"))
    >>> saved["model"]["weight"].data_ptr() == model.weight.data_ptr()
    False
    """
    ...
'''

ANSWER = """
import copy


def snapshot(model, optimizer, scaler):
    parts = {"model": model, "optimizer": optimizer, "scaler": scaler}
    saved = {name: part.state_dict() for name, part in parts.items()}
    return copy.deepcopy(saved)
"""

PARTS = ("model", "optimizer", "scaler")


class Run:
    """A small network with Adam and a scaler whose scale has moved; ``go`` takes steps."""

    def __init__(self, init_scale: float = 2.0**16, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=init_scale, growth_interval=3)

    def go(self, steps: int) -> None:
        generator = torch.Generator().manual_seed(1)
        for _ in range(steps):
            x = torch.randn(16, 4, generator=generator)
            with torch.autocast("cpu", dtype=torch.float16):
                loss = F.mse_loss(self.model(x), x.sum(1, keepdim=True))
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad()

    def load(self, saved: dict[str, Any]) -> None:
        for name in PARTS:
            getattr(self, name).load_state_dict(saved[name])

    @property
    def state(self) -> dict[str, Any]:
        return {name: getattr(self, name).state_dict() for name in PARTS}


def examine(snapshot: Trial) -> str | None:
    for init_scale, before in ((2.0**8, 7), (2.0**4, 2)):
        run = Run(init_scale)
        run.go(before)
        kept = copy.deepcopy(run.state)
        saved = snapshot(run.model, run.optimizer, run.scaler)
        if wrong := _unfit(saved) or _first_difference(saved, kept, "The snapshot differs from the run at once"):
            return wrong
        run.go(4)
        if wrong := _first_difference(saved, kept, "After four more steps the snapshot has changed along with the run"):
            return f"{wrong} A state dict refers to the tensors themselves, and training changes those in place: copy them."
        back = Run(seed=5)
        back.load(saved)
        if wrong := _first_difference(back.state, kept, "A run that loaded the snapshot is not where the old one was"):
            return wrong
    return None


def _unfit(saved: Any) -> str | None:
    if saved is None:
        return NOTHING
    if not isinstance(saved, dict):
        return f"It returns {type(saved).__name__}; a dict with the keys {', '.join(PARTS)} is asked for."
    missing = [name for name in PARTS if name not in saved]
    if "scaler" in missing:
        return "The scaler's state is missing: a run that goes back would start again at the first scale, with an empty growth count."
    if "optimizer" in missing:
        return "The optimizer's state is missing: Adam would start again with empty moments."
    if missing:
        return f"Under {missing[0]!r} there is nothing; the keys are {', '.join(PARTS)}."
    for name in PARTS:
        if not isinstance(saved[name], dict):
            return f"Under {name!r} there is {type(saved[name]).__name__}; its state_dict() is asked for."
    return None


def _first_difference(saved: Any, kept: Any, where: str, path: tuple = ()) -> str | None:
    place = "".join(f"[{key!r}]" for key in path)
    if isinstance(kept, dict):
        if not isinstance(saved, dict) or set(saved) != set(kept):
            return f"{where}: {place or 'it'} has not the same entries."
        return next((wrong for key in kept if (wrong := _first_difference(saved[key], kept[key], where, (*path, key)))), None)
    if isinstance(kept, (list, tuple)):
        pairs = enumerate(zip(saved, kept))
        return next((wrong for i, (a, b) in pairs if (wrong := _first_difference(a, b, where, (*path, i)))), None)
    if isinstance(kept, Tensor) and isinstance(saved, Tensor):
        if saved.dtype != kept.dtype:
            names = [str(tensor.dtype).removeprefix("torch.") for tensor in (saved, kept)]
            return f"{where}: {place} is {names[0]} and was {names[1]}. What was rounded does not come back."
        same = torch.equal(saved, kept)
    else:
        same = bool(saved == kept)
    return None if same else f"{where}: {place} is no longer the same."


PRAISE = (
    "Two runs went on after it and came back to it, number for number: weights, running statistics, Adam's moments, the scale and "
    "its growth count."
)

HINTS = (
    Hint("I do not know what belongs in it", "Which three objects change from step to step? Each of them can say its state."),
    Hint("It changes along with the run", "`state_dict()` does not copy: it hands out the very tensors that training writes to."),
    Hint("I copied it, and the optimizer still changes", "Its tensors lie deeper, in a dict of dicts. Which copy goes all the way down?"),
)

ALTERNATIVES = (
    """
from copy import deepcopy


def snapshot(model, optimizer, scaler):
    return {
        "model": deepcopy(model.state_dict()),
        "optimizer": deepcopy(optimizer.state_dict()),
        "scaler": scaler.state_dict(),
    }
""",
    """
def snapshot(model, optimizer, scaler):
    with tempfile.TemporaryFile() as file:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}
        torch.save(state, file)
        file.seek(0)
        return torch.load(file, weights_only=True)
""",
)

_RETURN = "import copy\n\n\ndef snapshot(model, optimizer, scaler):\n    return "

WRONG = (
    Wrong(
        "does not copy",
        f'{_RETURN}{{"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}}',
        "training changes those in place",
    ),
    Wrong(
        "copies only the outermost dict",
        f'{_RETURN}copy.copy({{"model": dict(model.state_dict()), "optimizer": dict(optimizer.state_dict()), "scaler": scaler.state_dict()}})',
        "training changes those in place",
    ),
    Wrong(
        "copies the weights and not the optimizer's tensors",
        f'{_RETURN}{{"model": {{k: v.clone() for k, v in model.state_dict().items()}}, "optimizer": optimizer.state_dict(), '
        '"scaler": scaler.state_dict()}',
        "['optimizer']['state'][0]",
    ),
    Wrong(
        "forgets the scaler",
        f'{_RETURN}copy.deepcopy({{"model": model.state_dict(), "optimizer": optimizer.state_dict()}})',
        "The scaler's state is missing",
    ),
    Wrong("keeps the weights alone", f'{_RETURN}{{"model": copy.deepcopy(model.state_dict()), "scaler": scaler.state_dict()}}', "Adam would start again"),
    Wrong(
        "keeps the scale and not the growth count",
        f'{_RETURN}copy.deepcopy({{"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": {{"scale": scaler.get_scale()}}}})',
        "['scaler'] has not the same entries",
    ),
    Wrong(
        "keeps the weights in 16 bits to save memory",
        f'{_RETURN}copy.deepcopy({{"model": {{k: v.half() for k, v in model.state_dict().items()}}, "optimizer": optimizer.state_dict(), '
        '"scaler": scaler.state_dict()})',
        "What was rounded does not come back",
    ),
    Wrong("keeps the objects", f'{_RETURN}copy.deepcopy({{"model": model, "optimizer": optimizer, "scaler": scaler}})', "its state_dict() is asked for"),
)

EXERCISE = Exercise(
    name="5-snapshot",
    title="A way back",
    target="snapshot",
    stub=STUB,
    answer=ANSWER,
    lines=3,
    examine=examine,
    praise=PRAISE,
    hints=HINTS,
    alternatives=ALTERNATIVES,
    wrong=WRONG,
    setup="import tempfile\n\nimport torch",
)
