"""The base of every widget that trains while one watches: Run, Stop and Reset around real training runs."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence

import ipywidgets

from amp_lessons.figures.picture import Picture
from amp_lessons.training import TrainingRun
from amp_lessons.widgets.controls import button, row
from amp_lessons.widgets.explorer import Explorer, inputs_of

SHOW_EVERY = 0.12  # seconds: more than eight pictures a second
SAY_EVERY = 1.0  # seconds: nobody reads, or listens to, eight texts a second


class LiveTrainer(Explorer):
    """An explorer whose picture shows training runs as they go, all of them one step at a time.

    A subclass says in ``new_runs`` which runs the controls ask for, and in ``redraw`` how ``self.runs`` look. Where drawing
    all of that takes long, it says in ``preview`` what is drawn anew while training goes on. Training is an asyncio task on
    the kernel's own loop that gives way after each step, so the controls answer while it works. Changed controls count
    from the next Run or Reset on. While another cell runs, training waits.
    """

    def __init__(self, controls: Sequence[ipywidgets.Widget], picture: Picture) -> None:
        self.runs: list[TrainingRun] = []
        self._task: asyncio.Task | None = None
        self._sources = [source for control in controls for source in inputs_of(control)]
        self._used: list | None = None  # the controls' values that the runs were made with
        self.run_button = button("Run", "Train from where it stopped, or from the start")
        self.stop_button = button("Stop", "Pause the training")
        self.reset_button = button("Reset", "Start again with untrained models and the controls' values")
        self.progress = ipywidgets.IntProgress(
            value=0, max=1, description="step 0", style={"description_width": "initial"}, layout={"width": "20em"}
        )
        self._loop = _running_loop()
        self.run_button.on_click(lambda _: self._in_loop(self.run))
        self.stop_button.on_click(lambda _: self._in_loop(self.stop))
        self.reset_button.on_click(lambda _: self._in_loop(self.reset))
        buttons = row(self.run_button, self.stop_button, self.reset_button, self.progress)
        super().__init__(controls, picture)
        # Added now, since the explorer listens to the values of its controls, and the progress bar has one too.
        self.children = [*controls, buttons, *self.children[len(controls) :]]
        self._show_state()

    def new_runs(self) -> list[TrainingRun]:
        """Fresh runs for the controls' values."""
        raise NotImplementedError

    def preview(self) -> bytes:
        """The picture's PNG while training goes on; when it stops, ``redraw`` draws all of it."""
        self.picture.text = self.redraw()
        return self.picture.png()

    @property
    def training(self) -> bool:
        """Whether a training task is at work."""
        return self._task is not None and not self._task.done()

    @property
    def changed(self) -> bool:
        """Whether a control was changed since the runs were made."""
        return self._used is not None and self._values() != self._used

    def show(self, runs: Sequence[TrainingRun]) -> None:
        """Show runs that were made with the controls' present values, trained or not."""
        self.runs, self._used = list(runs), self._values()
        self.refresh()
        self._show_state()

    def run(self) -> None:
        """Start training in the background, or go on with runs that were stopped."""
        if self.training:
            return
        loop = _running_loop()
        if loop is None:
            self._say("Live training needs a notebook; in a script, call train(...).finish().", alert=True)
            return
        if (all(run.over for run in self.runs) or self.changed) and not self._start_anew():
            return
        self._task = loop.create_task(self._train())
        self._show_state()

    def stop(self) -> None:
        """Pause training after the step it is in; Run goes on from there."""
        if self.training:
            task, self._task = self._task, None
            task.cancel()
            self._show_state()  # before the picture, which takes longer
            self.refresh()

    def reset(self) -> None:
        """Go back to untrained models, made with the controls' present values."""
        self.stop()
        self._start_anew()

    def refresh(self, change: object = None) -> None:
        """Redraw the picture and its twin; a control that changed alters no run, so that only the twin speaks of it."""
        if change is None:
            super().refresh()
        else:
            self._in_loop(lambda: self._say(self.text))

    def _in_loop(self, action: Callable[[], None]) -> None:
        """Do it in the thread that trains: JupyterLab may have a click handled in another one, in a subshell of the kernel."""
        if self._loop is None or self._loop.is_closed() or self._loop is _running_loop():
            action()
        else:
            self._loop.call_soon_threadsafe(action)

    def _say(self, text: str, alert: bool = False) -> None:
        if self.changed and not alert:
            text += "\nThe controls have changed: the next Run starts anew with them."
        super()._say(text, alert)

    def _start_anew(self) -> bool:
        """Replace the runs by new ones; False, and the reason in the twin, where that fails."""
        try:
            self.show(self.new_runs())
        except Exception as error:  # noqa: BLE001 - shown in the widget, where the learner looks
            self._say(f"{type(error).__name__}: {error}", alert=True)
            return False
        return True

    def _values(self) -> list:
        return [source.value for source in self._sources]

    async def _train(self) -> None:
        runs = self.runs
        shown = time.perf_counter()
        said = -math.inf  # the first picture's text comes with it, since the one before says that nothing is trained
        problem: Exception | None = None
        try:
            while not all(run.over for run in runs):
                for run in runs:
                    next(run, None)
                    await asyncio.sleep(0)  # lets a click on Stop through between two steps
                now = time.perf_counter()
                if now - shown < SHOW_EVERY:
                    continue
                # From when it was due, so that a late picture does not make all later ones late.
                shown = max(shown + SHOW_EVERY, now - SHOW_EVERY)
                self._image.value = self.preview()
                self._show_state()
                if now - said >= SAY_EVERY:
                    said = now
                    self._say(self.text)
        except (asyncio.CancelledError, KeyboardInterrupt):
            pass  # stopped, or the kernel was interrupted: what was trained stays, Run goes on
        except Exception as error:  # noqa: BLE001 - a task's exception would be lost otherwise
            problem = error
        if self._task is not asyncio.current_task():
            return
        self._task = None
        self.refresh()
        if problem is not None:
            self._say(f"{type(problem).__name__}: {problem}", alert=True)
        self._show_state()

    def _show_state(self) -> None:
        done = max((len(run.history.records) for run in self.runs), default=0)
        total = max((run.steps for run in self.runs), default=1)
        over = all(run.over for run in self.runs)
        state = "training" if self.training else "ready" if not done else "finished" if over else "stopped"
        with self.progress.hold_sync():  # one message
            self.progress.max, self.progress.value = total, done
            self.progress.description = f"{state}, step {done}"


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop of this thread, if one runs."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
