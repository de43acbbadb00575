"""A JupyterLab in a headless Chromium, driven as a learner would: open a lesson, run it, press keys, read what it says."""

from __future__ import annotations

import re
from pathlib import Path

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
        self._wait_until_idle(LOAD)

    def run_all(self) -> None:
        """Run all cells and wait until the last one has finished."""
        self.menu("Run", "Run All Cells")
        last = self.page.locator(".jp-Notebook .jp-CodeCell .jp-InputArea-prompt").last
        # A running cell shows [*]; the last code cell gets its number when all are done.
        expect(last).to_have_text(re.compile(r"\[\d+\]:"), timeout=RUN)
        self._wait_until_idle(RUN)

    def menu(self, *labels: str) -> None:
        """Choose from the menu bar."""
        self.page.locator(f'.lm-MenuBar-itemLabel:text-is("{labels[0]}")').click()
        for label in labels[1:]:
            self.page.locator(f'.lm-Menu-itemLabel:text-is("{label}")').click()

    def restart_and_clear(self) -> None:
        """Restart the kernel through the menu and accept the question."""
        self.menu("Kernel", "Restart Kernel…")
        self.page.locator('.jp-Dialog button:has-text("Restart")').click()
        self._wait_until_idle(LOAD)

    def errors(self) -> list[str]:
        """The texts of all error outputs on the page."""
        return self.page.locator('.jp-OutputArea-output[data-mime-type="application/vnd.jupyter.error"]').all_inner_texts()

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

    def _wait_until_idle(self, timeout: int) -> None:
        self.page.wait_for_function(
            """() => {
                const panel = window.jupyterapp?.shell?.currentWidget;
                return panel?.sessionContext?.session?.kernel?.status === 'idle';
            }""",
            timeout=timeout,
        )
