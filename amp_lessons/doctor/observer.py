"""Turns the calls of a training loop into events, and the events into findings when an iteration is over."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from amp_lessons.doctor.averages import Averages
from amp_lessons.doctor.events import Event, Iteration, dtype_name, user_line
from amp_lessons.doctor.examiner import Examiner
from amp_lessons.doctor.hearing import HANDLERS
from amp_lessons.doctor.ledger import Ledger
from amp_lessons.doctor.report import Finding

KEPT_ITERATIONS = 8
CLOSELY = 5  # iterations at the start whose gradients are measured each time
EVERY = 50  # and from then on every so many
KNOWN_SIGNATURES = 256


class LoopObserver:
    """Hears what one thread's loop does (see ``patches``); keeps a few iterations and the findings, never more.

    Without models or optimizers it watches whichever the loop uses.
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        optimizers: Sequence[torch.optim.Optimizer],
        judge: Callable[[Sequence[Iteration]], list[Finding]],
        steps: int | None,
    ) -> None:
        self.models = list(models)
        self.optimizers: list[torch.optim.Optimizer] = []
        self.findings: dict[str, Finding] = {}
        self.troubles: list[str] = []
        self.recent: deque[Iteration] = deque([Iteration(0)], maxlen=KEPT_ITERATIONS)
        self.ledger = Ledger()
        self._judge = judge
        self._limit = steps
        self.everything = not optimizers
        self.stepped = False  # whether this iteration has had its step: the next forward opens a new one
        self.skips = 0
        self.skips_in_a_row = 0
        self.updates = 0
        self.depth = 0  # of nested backward calls, as reentrant checkpointing makes them
        self.stages: dict[int, str] = {}
        self.inside_scaler_step = False
        self._signatures: set[tuple] = set()
        self.scaled_nodes: deque = deque(maxlen=64)
        self.pending: dict[str, Any] = {}
        self.regions = 0
        self.quiet = False
        self.examiner = Examiner(self)
        self._averages = Averages()
        for model in self.models:
            self.ledger.track(model.parameters())
        for optimizer in optimizers:
            self.adopt(optimizer)

    # -- what the watch calls ------------------------------------------------------------------------------------

    def adopt(self, optimizer: torch.optim.Optimizer) -> None:
        """Watch an optimizer too."""
        if not any(optimizer is known for known in self.optimizers):
            self.optimizers.append(optimizer)
            self.ledger.track(self.parameters_of(optimizer))

    def forward_begins(self, model: nn.Module, inputs: tuple) -> None:
        """A watched model was called: perhaps a new iteration."""
        if self.quiet:
            return
        if self.stepped:
            self.close_iteration()
        if not self.quiet:
            self.examiner.maybe_begin(self.recent[-1].number, model)
            self.examiner.look_at_inputs(inputs)

    def forward_ends(self, model: nn.Module, inputs: tuple, output: Any) -> None:
        """A watched model has answered."""
        if self.quiet:
            return
        parameter = next(model.parameters(), None)
        device = parameter.device.type if parameter is not None else "cpu"
        enabled = torch.is_autocast_enabled(device)
        tensors = [t for t in (output if isinstance(output, (tuple, list)) else [output]) if isinstance(t, Tensor)]
        self.add(
            "forward",
            model=_index(model, self.models),
            device=device,
            training=model.training,
            autocast=dtype_name(torch.get_autocast_dtype(device)) if enabled else "",
            regions=self.regions,
            output=dtype_name(tensors[0].dtype) if tensors else "",
            parameters=sorted({dtype_name(p.dtype) for p in model.parameters() if p.is_floating_point()}),
            grad=torch.is_grad_enabled(),
        )

    def close_iteration(self) -> None:
        """The iteration is over: judge it if nothing quite like it was judged before."""
        self.examiner.end()
        iteration = self.recent[-1]
        self._averages.look(self, iteration.number)
        self.quiet = True  # reading values and judging must not be observed
        try:
            iteration.resolve()
            signature = iteration.signature
            if signature not in self._signatures or self.skips_in_a_row or iteration.number % EVERY == 0:
                if len(self._signatures) < KNOWN_SIGNATURES:
                    self._signatures.add(signature)
                for finding in self._judge(tuple(self.recent)):
                    self.findings.setdefault(finding.rule, finding)
        except Exception as error:  # noqa: BLE001
            self.trouble(error)
        self.quiet = self._limit is not None and iteration.number + 1 >= self._limit
        self.stepped = False
        self.regions = 0
        if iteration.events:
            self.recent.append(Iteration(iteration.number + 1))

    def trouble(self, error: Exception) -> None:
        """The doctor itself failed: say so once, and let the loop go on."""
        text = f"The doctor could not look at everything: {type(error).__name__}: {error}"
        if text not in self.troubles and len(self.troubles) < 5:
            self.troubles.append(text)

    def add(self, kind: str, **facts: Any) -> Event:
        """Note an event in the current iteration."""
        event = Event(kind, user_line(), facts)
        events = self.recent[-1].events
        if len(events) < 2000:  # an accumulation of thousands of micro-batches must not fill memory
            events.append(event)
        return event

    @property
    def looks_closely(self) -> bool:
        """Whether gradients are measured in this iteration."""
        number = self.recent[-1].number
        return number < CLOSELY or number % EVERY == 0 or self.skips_in_a_row > 0

    # -- what the patches call -----------------------------------------------------------------------------------

    def before(self, name: str, args: tuple, kwargs: dict) -> None:
        """A patched call is about to run."""
        handler = HANDLERS.get(("before", name))
        if handler is not None and not self.quiet:
            handler(self, args, kwargs)

    def after(self, name: str, args: tuple, kwargs: dict, result: Any) -> None:
        """A patched call has run."""
        handler = HANDLERS.get(("after", name))
        if handler is not None and not self.quiet:
            handler(self, args, kwargs, result)

    def failed(self, name: str, args: tuple, kwargs: dict) -> None:
        """A patched call has raised."""
        handler = HANDLERS.get(("failed", name))
        if handler is not None and not self.quiet:
            handler(self, args, kwargs)

    def mine(self, optimizer: Any) -> bool:
        """Whether this optimizer is watched."""
        return self.everything or self.number_of(optimizer) >= 0

    def number_of(self, optimizer: Any) -> int:
        """The place of an optimizer among those watched, -1 for another one."""
        return _index(optimizer, self.optimizers)

    @staticmethod
    def autocast_covers(parameters: Sequence[Tensor]) -> bool:
        """Whether the code runs inside an autocast region for these parameters' device."""
        return bool(parameters) and torch.is_autocast_enabled(parameters[0].device.type)

    @staticmethod
    def parameters_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
        """All parameters of an optimizer."""
        return [p for group in optimizer.param_groups for p in group["params"]]


def _index(item: Any, items: Sequence[Any]) -> int:
    return next((i for i, known in enumerate(items) if known is item), -1)
