"""Each lesson opens in JupyterLab, and Run All ends without an error in a cell, in a widget or in the browser's console."""

import pytest

from amp_lessons.lab import NOTEBOOKS

LESSONS = sorted(path.name for path in NOTEBOOKS.glob("[0-9]*.ipynb"))


@pytest.mark.parametrize("lesson", LESSONS)
def test_run_all_ends_without_errors(lab, lesson):
    lab.open(lesson)
    # A newcomer meets no question: neither about the kernel nor about news.
    assert lab.page.locator(".jp-Dialog").count() == 0
    assert lab.page.locator(".Toastify__toast", has_text="news").count() == 0
    lab.run_all()
    assert lab.errors() == []
    assert lab.page.get_by_text("Error displaying widget").count() == 0
    widget_errors = [text for text in lab.console_errors if "widget" in text.lower() or "model not found" in text.lower()]
    assert widget_errors == []
    for theme in ("light", "dark"):
        lab.set_theme(theme)
        lab.screenshot(f"{lesson.removesuffix('.ipynb')}_{theme}")
