"""Live training as a test drives it: start, stop, how far it is, and what the kernel says about it."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, expect

from tests.browser.lab import Lab

TRAINING = re.compile(r"training, step [1-9]\d*")
STOPPED = re.compile(r"stopped, step [1-9]\d*")


def state_of(trainer: Locator) -> Locator:
    """The label that tells whether it trains, and at which step it is."""
    return trainer.locator(".widget-hprogress .widget-label")


def steps_of(trainer: Locator) -> int:
    return int(state_of(trainer).inner_text().split()[-1])


def start(lab: Lab, trainer: Locator) -> None:
    """Press Run and wait for the first step."""
    lab.click(trainer, "Run")
    expect(state_of(trainer)).to_have_text(TRAINING, timeout=20_000)


def stop(lab: Lab, trainer: Locator) -> None:
    lab.click(trainer, "Stop")
    expect(state_of(trainer)).to_have_text(STOPPED, timeout=5_000)


def wait_for_more_steps(trainer: Locator, than: int) -> None:
    """Wait until it trains and has done more steps than these."""
    later = re.compile(rf"training, step (?!{than}$)[1-9]\d*")
    expect(state_of(trainer)).to_have_text(later, timeout=20_000)


def run_in_kernel(lab: Lab, code: str) -> str:
    """What a cell with this code would print, or the message of its error."""
    return lab.page.evaluate(
        """async code => {
            const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
            const future = kernel.requestExecute({code});
            let printed = '';
            future.onIOPub = message => { printed += message.content.text ?? message.content.evalue ?? ''; };
            await future.done;
            return printed;
        }""",
        code,
    )


def interrupt(lab: Lab) -> None:
    lab.page.evaluate("window.jupyterapp.commands.execute('notebook:interrupt-kernel')")
