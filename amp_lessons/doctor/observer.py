"""Turns the calls of a training loop into events, and the events into findings when an iteration is over."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from amp_lessons.doctor.averages import Averages
from amp_lessons.doctor.events import Event, Iteration, dtype_name, user_lines
from amp_lessons.doctor.examiner import Examiner
from amp_lessons.doctor.hearing import HANDLERS
from amp_lessons.doctor.ledger import Ledger
from amp_lessons.doctor.models import WatchedModels
from amp_lessons.doctor.report import SEVERITIES, Finding
from amp_lessons.doctor.scalers import Scalers

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
        self._models = WatchedModels(every=not models)
        # Each with its number; what the user has let go is not kept alive.
        self._optimizers: weakref.WeakKeyDictionary[torch.optim.Optimizer, int] = weakref.WeakKeyDictionary()
        self.scalers = Scalers()
        self._optimizers_seen = 0
        self.findings: dict[str, Finding] = {}
        self.troubles: list[str] = []
        self.recent: deque[Iteration] = deque([Iteration(0)], maxlen=KEPT_ITERATIONS)
        self.ledger = Ledger()
        self._judge = judge
        self._limit = steps
        self.everything = not optimizers
        self.stepped = False  # whether this iteration has had its step: the next forward opens a new one
        self.skips = 0
        self.skips_in_a_row = 0  # of the scaler that skips most
        self.in_a_row: dict[int, int] = {}  # by scaler
        self.outcomes: dict[int, bool] = {}  # whether an optimizer's last scaler.step was skipped
        self.updates = 0
        self.depth = 0  # of nested backward calls, as reentrant checkpointing makes them
        self.stages: dict[int, str] = {}
        self.inside_scaler_step = False
        self._signatures: set[int] = set()
        self.scaled_nodes: list[tuple[Any, Any]] = []  # autograd nodes that multiply by a loss scale, and the scale
        self.penalties: list[tuple] = []
        self.pending: dict[str, Any] = {}
        self.regions = 0  # outermost autocast regions entered since the last step
        self.entered: set[str] = set()  # their dtypes, in this iteration
        self.zeroed_unseen = False
        self.quiet = False
        self._dtypes: weakref.WeakKeyDictionary[Any, list[str]] = weakref.WeakKeyDictionary()
        self.examiner = Examiner(self)
        self._averages = Averages()
        for model in models:
            self.add_model(model)
        for optimizer in optimizers:
            self.adopt(optimizer)

    def adopt(self, optimizer: torch.optim.Optimizer) -> None:
        """Watch an optimizer too."""
        if optimizer not in self._optimizers:
            self._optimizers[optimizer] = self._optimizers_seen
            self._optimizers_seen += 1
            self.ledger.track(self.parameters_of(optimizer))

    def add_model(self, model: nn.Module) -> None:
        """Watch a model too."""
        if self._models.add(model):
            self.ledger.track(model.parameters())

    @property
    def models(self) -> list[nn.Module]:
        """The models that are watched."""
        return list(self._models)

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """The optimizers that are watched."""
        return list(self._optimizers)

    def wants(self, module: nn.Module) -> bool:
        """Whether to be told of a module's call: a watched model's, or its parts' while they are examined."""
        return self.examiner.knows(module) or (self._models.counts(module) and not (self._models.every and self.quiet))

    def call_begins(self, module: nn.Module, grad: bool, inputs: Sequence[Any]) -> None:
        """A module was called: if it is a watched model, perhaps a new iteration."""
        model = self._models.opens(module)
        if model is not None:
            if self._models.every:
                self.add_model(model)
            if self.stepped and self.depth == 0:  # checkpointing calls models in the backward pass
                self.close_iteration()
            if not self.quiet and grad:
                self.examiner.maybe_begin(self.recent[-1].number, model)
                self.examiner.look_at_inputs(inputs)
            elif not grad:
                self.examiner.pause()
        self.examiner.enters(module)

    def call_ends(self, module: nn.Module, grad: bool, output: Any, failed: bool = False) -> None:
        """A module has answered, or failed."""
        self.examiner.leaves(module)
        model = self._models.closes(module)
        if model is not None and grad and not failed and not self.quiet and self.depth == 0:
            self._note_forward(model, output)

    def _note_forward(self, model: nn.Module, output: Any) -> None:
        device = next((p.device.type for p in model.parameters()), "cpu")
        outputs = output.values() if isinstance(output, dict) else output if isinstance(output, (tuple, list)) else [output]
        tensors = [t for t in outputs if isinstance(t, Tensor)]
        self.add(
            "forward",
            model=self._models.number(model),
            device=device,
            training=model.training,
            autocast=dtype_name(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else "",
            regions=self.regions,
            cache=torch.is_autocast_cache_enabled(),
            output=dtype_name(tensors[0].dtype) if tensors else "",
            parameters=self.dtypes_of(model, lambda: (p for p in model.parameters() if p.requires_grad)),
            entered=tuple(sorted(self.entered)),
        )

    def close_iteration(self) -> None:
        """The iteration is over: judge it if nothing quite like it was judged before."""
        iteration = self.recent[-1]
        self.quiet = True  # reading values and judging must not be observed
        try:
            self.examiner.end()
            self._averages.look(self, iteration.number)
            iteration.resolve()
            signature = hash(iteration.signature)
            if signature not in self._signatures or self.looks_closely:
                if len(self._signatures) < KNOWN_SIGNATURES:
                    self._signatures.add(signature)
                for finding in self._judge(tuple(self.recent)):
                    known = self.findings.get(finding.rule)
                    if known is None or SEVERITIES.index(finding.severity) < SEVERITIES.index(known.severity):
                        self.findings[finding.rule] = finding
        except Exception as error:  # noqa: BLE001
            self.trouble(error)
        finally:
            self.quiet = self._limit is not None and iteration.number + 1 >= self._limit
        self.stepped = False
        self.entered.clear()
        self.scaled_nodes.clear()  # they hold whole graphs
        self.penalties.clear()
        if iteration.events:
            self.recent.append(Iteration(iteration.number + 1))

    def trouble(self, error: Exception) -> None:
        """The doctor itself failed: say so once, and let the loop go on."""
        text = f"The doctor could not look at everything: {type(error).__name__}: {error}"
        if text not in self.troubles and len(self.troubles) < 5:
            self.troubles.append(text)

    def add(self, kind: str, **facts: Any) -> Event:
        """Note an event in the current iteration."""
        event = Event(kind, user_lines()[0], facts)
        events = self.recent[-1].events
        if len(events) < 2000:  # an accumulation of thousands of micro-batches must not fill memory
            events.append(event)
        return event

    @property
    def looks_closely(self) -> bool:
        """Whether gradients are measured in this iteration."""
        number = self.recent[-1].number
        return number < CLOSELY or number % EVERY == 0 or self.skips_in_a_row > 0

    def before(self, name: str, args: tuple, kwargs: dict) -> None:
        """A patched call is about to run."""
        if name == "call":
            self.call_begins(args[0], args[1], (*args[2], *args[3].values()))
        handler = HANDLERS.get(("before", name))
        if handler is not None and not self.quiet:
            handler(self, args, kwargs)

    def after(self, name: str, args: tuple, kwargs: dict, result: Any) -> None:
        """A patched call has run."""
        if name == "call":
            self.call_ends(args[0], args[1], result)
        handler = HANDLERS.get(("after", name))
        if handler is not None and not self.quiet:
            handler(self, args, kwargs, result)

    def failed(self, name: str, args: tuple, kwargs: dict) -> None:
        """A patched call has raised."""
        if name == "call":
            self.call_ends(args[0], args[1], None, failed=True)
        handler = HANDLERS.get(("failed", name))
        if handler is not None and not self.quiet:
            handler(self, args, kwargs)

    def mine(self, optimizer: Any) -> bool:
        """Whether this optimizer is watched; one that shares a watched parameter, as a wrapper does, is from then on."""
        if not self.everything and self.number_of(optimizer) < 0 and self.ledger.entries(self.parameters_of(optimizer)):
            self.adopt(optimizer)
        return self.everything or self.number_of(optimizer) >= 0

    def number_of(self, optimizer: Any) -> int:
        """The place of an optimizer among those watched, -1 for another one."""
        return self._optimizers.get(optimizer, -1)

    def dtypes_of(self, owner: Any, parameters: Callable[[], Iterable[Tensor]]) -> list[str]:
        """The dtypes of a model's or optimizer's parameters; asked for anew now and then, since they hardly ever change."""
        if self.looks_closely or owner not in self._dtypes:
            self._dtypes[owner] = sorted({dtype_name(p.dtype) for p in parameters() if p.is_floating_point()})
        return self._dtypes[owner]

    @staticmethod
    def autocast_covers(parameters: Sequence[Tensor]) -> bool:
        """Whether the code runs inside an autocast region for these parameters' device."""
        return bool(parameters) and torch.is_autocast_enabled(parameters[0].device.type)

    @staticmethod
    def parameters_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
        """All parameters of an optimizer."""
        return [p for group in getattr(optimizer, "param_groups", ()) for p in group["params"]]
