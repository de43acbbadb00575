"""The start page's two widgets: the slider to practise on, and the reset that asks first."""

import json

import pytest

from amp_lessons.tutor import progress
from amp_lessons.tutor.practice import PracticeSlider
from amp_lessons.tutor.reset import ResetPanel


def test_practice_slider_says_the_power():
    practice = PracticeSlider()
    assert practice.text == "2^10 = 1,024" and practice.text in practice._said.value
    practice.k.slider.value = -24
    assert practice._said.value.endswith(">2^-24 = 1/16,777,216</div>") and 'role="status"' in practice._said.value
    practice.k.box.value = 0
    assert practice.text == "2^0 = 1"
    assert PracticeSlider()._repr_mimebundle_()["text/plain"] == "A slider for k. 2^10 = 1,024"


@pytest.fixture
def file(tmp_path, monkeypatch):
    place = tmp_path / "progress.json"
    monkeypatch.setenv(progress.VARIABLE, str(place))
    return place


def is_asking(panel):
    return panel._answers.layout.display != "none"


def test_reset_asks_and_no_keeps(file):
    progress.record("1-bf16")
    panel = ResetPanel()
    assert not is_asking(panel)
    panel.reset.click()
    assert is_asking(panel) and "Forget 1 solved exercise or quick check?" in panel._said.value
    panel.no.click()
    assert not is_asking(panel) and "Nothing has changed." in panel._said.value
    assert list(progress.solved()) == ["1-bf16"]


def test_yes_forgets_and_says_where_the_old_file_is(file):
    for name in ("1-bf16", "5-step"):
        progress.record(name)
    panel = ResetPanel()
    panel.reset.click()
    assert "Forget 2 solved exercises or quick checks?" in panel._said.value
    panel.yes.click()
    assert not is_asking(panel) and progress.solved() == {}
    (aside,) = file.parent.glob("progress-set-aside-*.json")
    assert str(aside) in panel._said.value and set(json.loads(aside.read_text())["solved"]) == {"1-bf16", "5-step"}
    assert 'role="status"' in panel._said.value


def test_nothing_to_forget_asks_nothing(file, monkeypatch):
    panel = ResetPanel()
    panel.reset.click()
    assert not is_asking(panel) and "nothing to forget" in panel._said.value
    monkeypatch.setenv(progress.VARIABLE, "off")
    panel.reset.click()
    assert not is_asking(panel) and "not kept here" in panel._said.value


def test_pages_without_a_kernel_show_a_sentence():
    assert "progress.reset(sure=True)" in ResetPanel()._repr_mimebundle_()["text/plain"]
