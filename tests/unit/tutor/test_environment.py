"""The start page's checks: OK in the same words everywhere, and for each failure what to do."""

import re
import warnings
from pathlib import Path

import torch

from amp_lessons.tutor import environment, progress


def by_word(word):
    (check,) = [check for check in environment.checks() if word in check.what]
    return check


def test_all_is_well_here_and_says_so_in_words_without_this_machine():
    assert [check.advice for check in environment.checks()] == [None] * len(environment.checks())
    report = environment.report()
    assert all(line.startswith("OK    ") for line in report.splitlines())
    assert torch.__version__ not in report and "cpu" not in report.lower()


def test_facts_name_versions_device_and_place(tmp_path, monkeypatch):
    monkeypatch.setenv(progress.VARIABLE, str(tmp_path / "mine.json"))
    facts = environment.facts()
    assert torch.__version__ in facts and "jupyterlab" in facts and str(tmp_path / "mine.json") in facts
    monkeypatch.setenv(progress.VARIABLE, "off")
    assert "progress: not kept here" in environment.facts()


def test_versions_are_those_of_the_package():
    project = Path(__file__).parents[3].joinpath("pyproject.toml").read_text()
    for name, numbers in (("requires-python = ", environment.PYTHON), ('"torch', environment.PYTORCH)):
        assert re.search(rf'{name}"?>=([\d.]+)', project).group(1) == ".".join(map(str, numbers))


def test_old_versions(monkeypatch):
    monkeypatch.setattr(environment.sys, "version_info", (3, 9, 18))
    monkeypatch.setattr(torch, "__version__", "2.5.1+cu121")
    assert "PYTHON=python3.12" in by_word("Python is").advice
    assert "This is PyTorch 2.5.1+cu121." in by_word("PyTorch is").advice
    monkeypatch.setattr(torch, "__version__", "2.10.0a0+git1")
    assert by_word("PyTorch is").advice is None


def test_autocast_that_gives_another_dtype(monkeypatch):
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: warnings.catch_warnings())  # does nothing
    assert "came out as torch.float32" in by_word("autocast").advice


def test_scaler_that_does_not_skip(monkeypatch):
    monkeypatch.setattr(torch.amp.GradScaler, "step", lambda self, optimizer: optimizer.step())
    assert by_word("GradScaler").advice is not None


def test_gpu_that_cannot_be_used(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)

    def fail(*_, **__):
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device\nmore lines")

    monkeypatch.setattr(environment.torch, "ones", fail)
    advice = by_word("GPU").advice
    assert "no kernel image is available" in advice and "\n" not in advice and 'CUDA_VISIBLE_DEVICES=""' in advice


def test_driver_that_is_too_old_is_told_and_the_cpu_does(monkeypatch):
    def warn():
        warnings.warn("CUDA initialization: The NVIDIA driver on your system is too old", stacklevel=1)
        return False

    monkeypatch.setattr(torch.cuda, "is_available", warn)
    assert by_word("GPU").advice.endswith("is too old. The lessons run on the CPU instead.")


def test_missing_widgets(monkeypatch):
    import jupyter_core.paths

    monkeypatch.setattr(jupyter_core.paths, "jupyter_path", lambda *_: ["/nowhere"])
    assert "jupyterlab_widgets, is missing" in by_word("sliders").advice

    def gone(name):
        raise environment.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(environment.metadata, "version", gone)
    assert "PackageNotFoundError" in by_word("sliders").advice and "make lab" in by_word("sliders").advice


def test_missing_photograph(monkeypatch):
    from matplotlib import cbook

    def gone(name):
        raise FileNotFoundError(2, "No such file", name)

    monkeypatch.setattr(cbook, "get_sample_data", gone)
    assert "grace_hopper.jpg" in by_word("pictures").advice


def test_progress_that_cannot_be_saved_and_a_file_that_is_set_aside_once(tmp_path, monkeypatch):
    (tmp_path / "a file").write_text("not progress")
    monkeypatch.setenv(progress.VARIABLE, str(tmp_path / "a file" / "progress.json"))
    assert "could not be saved" in by_word("progress").advice
    monkeypatch.setenv(progress.VARIABLE, str(tmp_path / "a file"))
    failed = by_word("progress")
    assert str(failed).startswith("FAIL  progress") and "It is kept as" in failed.advice
    assert by_word("progress").advice is None


def test_fail_puts_its_advice_on_a_second_line():
    assert str(environment.Check("this works", "Do that.")) == "FAIL  this works\n      Do that."
