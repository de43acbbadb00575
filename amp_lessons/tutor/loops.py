"""Small training loops in which a learner's step is tried, watched by the doctor and compared with a right one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from amp_lessons.doctor import watch
from amp_lessons.doctor.report import Finding
from amp_lessons.tutor.trial import AnswerFailed

Batch = tuple[Tensor, Tensor]
Step = Callable[..., Any]


@dataclass
class Loop:
    """A model of 8 inputs and 1 output with SGD, a real CPU GradScaler and batches of 16 examples.

    ``batches`` are (inputs [16, 8], targets [16, 1]) in float32; two loops made alike start and go on alike. ``dtypes`` fills
    with autocast's dtype in each forward pass, or None outside a region.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    batches: list[Batch]
    dtypes: list[torch.dtype | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        def note(*_: object) -> None:
            self.dtypes.append(torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None)

        self.model.register_forward_pre_hook(note)

    @classmethod
    def make(
        cls, steps: int = 5, overflow_at: int | None = None, init_scale: float = 2.0**10, size: float = 1.0, seed: int = 0
    ) -> Loop:
        """A new loop; the targets of batch ``overflow_at`` are so large that its gradients overflow, ``size`` scales the rest."""
        generator = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng(devices=[]):
            torch.random.default_generator.manual_seed(seed)
            model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
        batches = []
        for number in range(steps):
            inputs = torch.randn(16, 8, generator=generator)
            targets = size * inputs.sum(dim=1, keepdim=True)
            batches.append((inputs, targets * 1e5 if number == overflow_at else targets))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        return cls(model, optimizer, torch.amp.GradScaler("cpu", init_scale=init_scale), batches)

    @property
    def weights(self) -> Tensor:
        """All parameters in one float32 vector."""
        return torch.cat([parameter.detach().float().flatten() for parameter in self.model.parameters()])


def mistake(
    step: Step,
    reference: Step,
    data: Callable[[Batch], Sequence] = tuple,
    variants: Mapping[str, Step] = {},
    dtype: torch.dtype | None = torch.float16,
    **loop: Any,
) -> str | None:
    """What is wrong with a step that is called as ``step(model, optimizer, scaler, *data(batch))``, or None.

    The doctor's findings come first, since they name the mistake; then autocast's dtype, and after every step the weights
    and the scale, are compared with those of ``reference``. Weights that differ may be those of a known mistake: the keys of
    ``variants`` name them, its values are the steps that make them. ``loop`` goes to ``Loop.make``. An error of the step's own
    is raised as it came, unless the doctor has named what led to it.
    """
    tried = Loop.make(**loop)
    trace = []
    try:
        with watch(tried.model, tried.optimizer, tried.scaler) as doctor:
            for batch in tried.batches:
                step(tried.model, tried.optimizer, tried.scaler, *data(batch))
                trace.append(_State.of(tried))
    except AnswerFailed as failure:
        named = [finding for finding in doctor.findings if finding.severity == "error"]
        if named:
            return f"{failure} {told(named[0])}"
        raise
    for severity in ("error", "warning"):
        named = [finding for finding in doctor.findings if finding.severity == severity]
        if named:
            return told(named[0])
        if severity == "error" and (wrong := _wrong_dtype(tried.dtypes, dtype)):
            return wrong
    return _difference(trace, _trace(reference, data, loop), variants, data, loop)


def told(finding: Finding) -> str:
    """A finding of the doctor in one paragraph."""
    first, _, rest = finding.evidence.rstrip(".").partition(" ")
    evidence = f"{first.capitalize() if first.isalpha() else first} {rest}"  # backward() and unscale_ are written as in code
    return f"{evidence}. {finding.why} Fix: `{finding.fix}`"


def _wrong_dtype(seen: Sequence[torch.dtype | None], wanted: torch.dtype | None) -> str | None:
    if not seen:
        return "The model was never called."
    if set(seen) == {wanted}:
        return None
    if None in seen:
        return "The model ran outside autocast, in float32. Call it inside `with torch.autocast(\"cpu\", dtype=torch.float16):`."
    found = next(str(dtype).removeprefix("torch.") for dtype in seen if dtype != wanted)
    return f"autocast ran in {found}, which is the CPU's default. Give `dtype=torch.float16`."


@dataclass(frozen=True)
class _State:
    """What a step leaves behind."""

    weights: Tensor
    scale: float
    clean: bool  # no gradients are left
    kept_dtype: bool

    @classmethod
    def of(cls, loop: Loop) -> _State:
        parameters = list(loop.model.parameters())
        clean = not any(parameter.grad is not None and parameter.grad.any() for parameter in parameters)
        kept = all(parameter.dtype == torch.float32 for parameter in parameters)
        return cls(loop.weights, loop.scaler.get_scale(), clean, kept)


def _trace(step: Step, data: Callable[[Batch], Sequence], situation: Mapping[str, Any]) -> list[_State]:
    loop = Loop.make(**situation)
    states = []
    for batch in loop.batches:
        step(loop.model, loop.optimizer, loop.scaler, *data(batch))
        states.append(_State.of(loop))
    return states


def _difference(
    tried: Sequence[_State],
    right: Sequence[_State],
    variants: Mapping[str, Step],
    data: Callable[[Batch], Sequence],
    situation: Mapping[str, Any],
) -> str | None:
    uncleared = ""  # a loop may clear its gradients before backward; one that does not comes out with other weights
    before = Loop.make(**situation).weights
    for number, (mine, theirs) in enumerate(zip(tried, right), start=1):
        after = f"After step {number}"
        if not mine.kept_dtype:
            return f"{after} the model's weights are no longer float32. Autocast casts copies of them: leave the model as it is."
        if not torch.isfinite(mine.weights).all():
            return f"{after} there are inf or NaN in the weights: a step was taken with gradients that had overflowed."
        if not _alike(mine.weights, theirs.weights):
            still = torch.equal(mine.weights, before)
            same = torch.equal if still else _alike  # a tiny step is like none at all
            for name, variant in variants.items():
                if all(same(a.weights, b.weights) for a, b in zip(tried, _trace(variant, data, situation))):
                    return name
            if still:
                return f"{after} the weights are as they were before it: the optimizer took no step, or its gradients were 0."
            if uncleared:
                return uncleared
            distance = (mine.weights - theirs.weights).norm() / theirs.weights.norm()
            return f"{after} the weights differ from those of a right step by {distance:.2g} of their size."
        if mine.scale != theirs.scale:
            return (
                f"{after} the loss scale is {mine.scale:g} where it should be {theirs.scale:g}. Only `scaler.update()` may "
                "change it, once a step."
            )
        before = mine.weights
        if theirs.clean and not mine.clean and not uncleared:
            uncleared = f"{after} the old gradients are still there, and the next backward adds to them. Call `optimizer.zero_grad()`."
    return None


def _alike(one: Tensor, other: Tensor) -> bool:
    # Rounding in fp16 moves a right answer that is written another way by less than this.
    return bool((one - other).norm() <= 2e-3 * other.norm())
