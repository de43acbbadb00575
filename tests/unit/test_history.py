import json
import math
import os
import subprocess
import sys

import pytest
import torch

from amp_lessons.errors import LessonError
from amp_lessons.histograms import ExponentHistogram
from amp_lessons.history import StepRecord, TrainingHistory


def history() -> TrainingHistory:
    counted = ExponentHistogram.of(torch.tensor([0.0, 1e-9, 1.5, math.inf, math.nan]))
    records = [
        StepRecord(0, 0.1, 65536.0, 32768.0, True, math.inf, counted, None),
        StepRecord(1, math.nan, 32768.0, 32768.0, False, math.nan),
        StepRecord(2, -math.inf, 32768.0, 65536.0, False, 1 / 3, ExponentHistogram(), counted),
        StepRecord(3, 0.5, 65536.0, 65536.0, False),
    ]
    return TrainingHistory("portrait", "amp", 3, "CPU, « quoted »", records, "It stopped.")


def same(one: TrainingHistory, other: TrainingHistory) -> bool:
    """Equal by text too, since NaN is not equal to NaN."""
    return repr(one) == repr(other) and all(
        r.histogram == s.histogram and r.activations == s.activations for r, s in zip(one.records, other.records, strict=True)
    )


def test_what_it_says_about_the_steps():
    told = history()
    assert told.scales == [65536.0, 32768.0, 32768.0, 65536.0]
    assert told.losses[0] == 0.1 and math.isnan(told.losses[1])
    assert told.skipped == [0]
    assert told.grown == [2]
    assert str(told) == "portrait by amp: 4 steps, 1 skipped; It stopped."
    assert str(TrainingHistory("portrait", "fp32", 0, "CPU")) == "portrait by fp32: 0 steps, 0 skipped; ran to its end."


def test_round_trip(tmp_path):
    path = tmp_path / "run.json"
    assert history().save(path) == path
    assert same(TrainingHistory.load(path), history())
    assert same(TrainingHistory.load(str(path)), history())
    assert os.listdir(tmp_path) == ["run.json"]
    assert not same(TrainingHistory.load(path), TrainingHistory("portrait", "amp", 4, "CPU, « quoted »", [], "It stopped."))


def test_the_file_is_json_that_any_reader_takes(tmp_path):
    def refuse(constant):
        pytest.fail(f"{constant} is not JSON")

    text = history().save(tmp_path / "run.json").read_text(encoding="utf-8")
    data = json.loads(text, parse_constant=refuse)
    assert data["records"][1]["loss"] == "nan"


@pytest.mark.parametrize("step", ["json.dumps", "os.replace"])
def test_a_crash_while_writing_leaves_the_old_file(tmp_path, monkeypatch, step):
    path = TrainingHistory("portrait", "fp32", 0, "CPU").save(tmp_path / "run.json")
    before = path.read_bytes()

    def crash(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr({"json.dumps": json, "os.replace": os}[step], step.split(".")[1], crash)
    with pytest.raises(KeyboardInterrupt):
        history().save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["run.json"]


def test_a_killed_process_leaves_the_old_file(tmp_path):
    path = TrainingHistory("portrait", "fp32", 0, "CPU").save(tmp_path / "run.json")
    before = path.read_bytes()
    program = (
        "import os, sys, pathlib\n"
        "from amp_lessons.history import TrainingHistory\n"
        "write = pathlib.Path.write_text\n"
        "def half(self, text, **kwargs):\n"
        "    write(self, text[: len(text) // 2], **kwargs)\n"
        "    os._exit(9)\n"
        "pathlib.Path.write_text = half\n"
        "TrainingHistory('millimetres', 'amp', 1, 'CPU').save(sys.argv[1])\n"
    )
    assert subprocess.run([sys.executable, "-c", program, str(path)]).returncode == 9
    assert path.read_bytes() == before


def test_places_that_cannot_be_written(tmp_path, monkeypatch):
    file = tmp_path / "a file"
    file.write_text("x")
    for path in (tmp_path / "no" / "such" / "folder.json", file / "run.json", tmp_path, tmp_path / ("x" * 300)):
        with pytest.raises(LessonError, match="^The history could not be written to .*: [A-Z].*[.]$"):
            history().save(path)
    with pytest.raises(LessonError, match="could not be written"):
        history().save("")

    def refused(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "replace", refused)
    with pytest.raises(LessonError, match="could not be written to .*run.json: Permission denied.$"):
        history().save(tmp_path / "run.json")
    assert os.listdir(tmp_path) == ["a file"]


def test_missing_or_unreadable(tmp_path):
    with pytest.raises(LessonError, match="none.json could not be read: No such file or directory.$"):
        TrainingHistory.load(tmp_path / "none.json")
    with pytest.raises(LessonError, match="could not be read: Is a directory.$"):
        TrainingHistory.load(tmp_path)


def test_cut_short_or_not_text(tmp_path):
    path = history().save(tmp_path / "run.json")
    whole = path.read_bytes()
    for content in (whole[:-20], b"", b"\xff\xfe\x00", b"not json"):
        path.write_bytes(content)
        with pytest.raises(LessonError, match="run.json is damaged: it is not complete JSON. Save it again.$"):
            TrainingHistory.load(path)


@pytest.mark.parametrize("content", ["[]", "{}", "3", '"text"', "null", '{"format": "other 1"}', '{"records": []}'])
def test_foreign(tmp_path, content):
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(LessonError, match="other.json is not a training history; give a file that TrainingHistory.save wrote"):
        TrainingHistory.load(path)


def break_records(value):
    return lambda data: data.update(records=value)


def break_first(**changes):
    return lambda data: data["records"][0].update(changes)


@pytest.mark.parametrize(
    "damage",
    [
        break_records(5),
        break_records([5]),
        break_records({"a": 1}),
        break_records([{}]),
        break_first(loss="much"),
        break_first(loss=None),
        break_first(extra=1),
        break_first(histogram=[1, 2]),
        break_first(histogram="x"),
        break_first(histogram={"768": 1}),
        break_first(histogram={"x": 1}),
        break_first(histogram={"3": "x"}),
        break_first(histogram={"3": 1e30}),
        lambda data: data.pop("records"),
        lambda data: data.pop("seed"),
        lambda data: data.update(extra=1),
        lambda data: data["records"][0].pop("loss"),
        lambda data: data["records"][0].pop("histogram"),
    ],
)
def test_damaged(tmp_path, damage):
    path = history().save(tmp_path / "run.json")
    data = json.loads(path.read_text(encoding="utf-8"))
    damage(data)
    path.write_text(json.dumps(data))
    with pytest.raises(LessonError, match=r"run.json is damaged \(.*\). Save it again.$"):
        TrainingHistory.load(path)
