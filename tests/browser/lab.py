"""A JupyterLab in a headless Chromium, driven as a learner would: open a lesson, run it, press keys, read what it says."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import nbformat
from playwright.sync_api import Locator, Page, expect

SCREENSHOTS = Path(__file__).parent / "screenshots"
LOAD = 60_000  # milliseconds; a cold JupyterLab on two busy cores is slow to open
RUN = 180_000


class Lab:
    """One page of a running JupyterLab.

    >>> lab.open("04_gradscaler_keeps_gradients_alive.ipynb"); lab.run_all()
    >>> explorer = lab.explorer("init scale"); before = lab.picture(explorer)
    >>> lab.press(explorer, "init scale", "ArrowRight")
    >>> lab.wait_for_new_picture(explorer, before)
    """

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.console_errors: list[str] = []
        page.on("console", lambda message: message.type == "error" and self.console_errors.append(message.text))
        page.on("pageerror", lambda error: self.console_errors.append(str(error)))

    def open(self, notebook: str) -> None:
        """Open a notebook and wait until its kernel is ready."""
        self.page.goto(f"{self.url}/lab/workspaces/test/tree/{notebook}?reset", timeout=LOAD)
        self.page.locator(".jp-Notebook .jp-Cell").first.wait_for(timeout=LOAD)
        self.wait_until_idle(LOAD)

    def write(self, notebook: str, cells: Sequence[str]) -> None:
        """Put a notebook of these code cells beside the lessons."""
        content = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        content.metadata.kernelspec = {"name": "python3", "display_name": "Python 3 (ipykernel)"}
        body = json.dumps({"type": "notebook", "format": "json", "content": content}).encode()
        address = f"{self.url}/api/contents/{notebook}"
        urllib.request.urlopen(urllib.request.Request(address, body, {"Content-Type": "application/json"}, method="PUT"))

    def run_all(self) -> None:
        """Run all cells and wait until they have finished; raises AssertionError where a cell fails or the kernel dies."""
        # The stored notebook shows execution counts before anything has run, so the command's own promise is asked.
        # What it resolves to does not help: it is false after an error on purpose too.
        self.page.evaluate(
            """() => {
                window.ranAll = false;
                window.jupyterapp.commands.execute('notebook:run-all-cells').finally(() => { window.ranAll = true; });
            }"""
        )
        self.page.wait_for_function("window.ranAll", timeout=RUN)
        if errors := self.errors():
            raise AssertionError(f"Run All stopped: {'; '.join(errors)}")
        if unrun := self._count_unrun():
            raise AssertionError(f"{unrun} cells have not run and none shows an error: perhaps the kernel died")
        self.wait_until_idle(RUN)

    def cell(self, text: str) -> Locator:
        """The code cell with this text in its source."""
        found = self.page.locator(".jp-Notebook .jp-CodeCell", has=self.page.locator(f".cm-content:has-text({json.dumps(text)})"))
        found.first.scroll_into_view_if_needed(timeout=LOAD)
        return found.first

    def run(self, cell: Locator) -> None:
        """Run one cell by Shift+Enter and wait until it has finished."""
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Shift+Enter")
        self.wait_until_idle(RUN)

    def type(self, cell: Locator, source: str) -> None:
        """Type a new source into a cell, over the old one."""
        cell.locator(".cm-content").click()
        self.page.keyboard.press("ControlOrMeta+a")
        first, *others = source.split("\n")
        self.page.keyboard.type(first)
        # The editor would indent and close brackets by itself: what follows comes in as from the clipboard.
        self.page.keyboard.insert_text("\n".join(["", *others]))

    def menu(self, *labels: str) -> None:
        """Choose from the menu bar."""
        self.page.locator(f'.lm-MenuBar-itemLabel:text-is("{labels[0]}")').click()
        for label in labels[1:]:
            self.page.locator(f'.lm-Menu-itemLabel:text-is("{label}")').click()

    def restart_and_clear(self) -> None:
        """Restart the kernel through the menu and accept the question."""
        self.menu("Kernel", "Restart Kernel…")
        self.page.locator('.jp-Dialog button:has-text("Restart")').click()
        self.wait_until_idle(LOAD)

    def errors(self) -> list[str]:
        """Name and message of every error output, but for cells that raise one on purpose."""
        # Asked of the notebook's model: on the page an error looks the same as text on stderr.
        return self.page.evaluate(
            """() => [...window.jupyterapp.shell.currentWidget.content.model.cells]
                .filter(cell => cell.type === 'code' && !(cell.getMetadata('tags') ?? []).includes('raises-exception'))
                .flatMap(cell => cell.outputs.toJSON())
                .filter(output => output.output_type === 'error')
                .map(output => `${output.ename}: ${output.evalue}`)"""
        )

    def alerts(self) -> list[str]:
        """What the text twins tell as errors."""
        return self.page.locator('.jp-OutputArea-output [role="alert"]').all_inner_texts()

    def set_theme(self, name: str) -> None:
        """Switch to the "light" or the "dark" theme."""
        wanted = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}[name]
        self.page.evaluate(
            "name => window.jupyterapp.commands.execute('apputils:change-theme', {theme: name})", wanted
        )
        expect(self.page.locator("body")).to_have_attribute("data-jp-theme-name", wanted, timeout=LOAD)

    def explorer(self, label: str) -> Locator:
        """The live widget that has a control with this label; a part of the label is enough."""
        box = self.page.locator(".jp-OutputArea-output .widget-vbox", has=self.page.locator(f'.widget-label:has-text("{label}")'))
        box.first.scroll_into_view_if_needed(timeout=LOAD)
        return box.first

    def trainer(self) -> Locator:
        """The live widget that has a Run button."""
        box = self.page.locator(".jp-OutputArea-output .widget-vbox", has=self.page.get_by_role("button", name="Reset"))
        box.first.scroll_into_view_if_needed(timeout=LOAD)
        return box.first

    def press(self, explorer: Locator, label: str, *keys: str) -> None:
        """Focus the slider with this label and press keys on it."""
        slider = explorer.locator(".widget-hslider", has=self.page.locator(f'.widget-label:has-text("{label}")'))
        handle = slider.locator(".noUi-handle").first
        handle.focus()
        for key in keys:
            handle.press(key)

    def click(self, explorer: Locator, label: str) -> None:
        """Push the button with this label."""
        explorer.get_by_role("button", name=label, exact=True).click()

    def picture(self, explorer: Locator) -> str:
        """What identifies the picture that is shown now."""
        return explorer.locator("img.widget-image").first.get_attribute("src")

    def twin(self, explorer: Locator) -> str:
        """The text twin as it reads now."""
        return explorer.locator('[role="status"], [role="alert"]').last.inner_text()

    def wait_for_new_picture(self, explorer: Locator, before: str, timeout: int = 10_000) -> None:
        """Wait until the picture is another one than before."""
        expect(explorer.locator("img.widget-image").first).not_to_have_attribute("src", before, timeout=timeout)

    def wait_for_new_twin(self, explorer: Locator, before: str, timeout: int = 10_000) -> None:
        """Wait until the text twin reads differently."""
        expect(explorer.locator('[role="status"], [role="alert"]').last).not_to_have_text(before, timeout=timeout)

    def screenshot(self, name: str, part: Locator | None = None) -> Path:
        """Save a picture of a widget, or of the whole notebook, under ``screenshots``."""
        SCREENSHOTS.mkdir(exist_ok=True)
        path = SCREENSHOTS / f"{name}.png"
        if part is not None:
            part.scroll_into_view_if_needed()
            part.screenshot(path=path)
            return path
        size = self.page.viewport_size
        # The notebook scrolls inside the page: a page as tall as the notebook shows all of it.
        height = self.page.evaluate(
            "Math.max(...[...document.querySelectorAll('.jp-NotebookPanel *')].slice(0, 200).map(e => e.scrollHeight))"
        )
        self.page.set_viewport_size({"width": size["width"], "height": min(int(height) + 200, 16_000)})
        self.page.evaluate("document.querySelectorAll('.jp-NotebookPanel *').forEach(e => { e.scrollTop = 0 })")
        self.page.wait_for_timeout(500)
        self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)").first.screenshot(path=path)
        self.page.set_viewport_size(size)
        return path

    def _count_unrun(self) -> int:
        return self.page.evaluate(
            """() => [...window.jupyterapp.shell.currentWidget.content.model.cells]
                .filter(cell => cell.type === 'code' && cell.sharedModel.source.trim() && !cell.executionCount).length"""
        )

    def wait_until_idle(self, timeout: int = RUN) -> None:
        """Wait until the kernel has nothing left to do."""
        self.page.wait_for_function(
            """() => {
                const panel = window.jupyterapp?.shell?.currentWidget;
                return panel?.sessionContext?.session?.kernel?.status === 'idle';
            }""",
            timeout=timeout,
        )
