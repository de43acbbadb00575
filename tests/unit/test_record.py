"""Recordings: every part guarded, complete provenance, written whole or not at all, and read back as results."""

import json
import time
from dataclasses import replace

import pytest
import torch

from amp_lessons import record as recorder
from amp_lessons import recordings
from amp_lessons.errors import LessonError
from amp_lessons.experiments import EXPERIMENTS, Experiment, number
from amp_lessons.histograms import ExponentHistogram
from amp_lessons.measure.tf32 import tf32_state
from amp_lessons.provenance import git_state, provenance

SECONDS = {"mlp_speed": 2.0, "memory": 2.0, "matmuls": 1.5}  # half a second for the others


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> recordings.Recording:
    """All real experiments with little time for each."""
    parts = [replace(experiment, seconds=SECONDS.get(experiment.name, 0.5)) for experiment in EXPERIMENTS]
    path = tmp_path_factory.mktemp("recordings") / "cpu-small.json"
    return recordings.load(recorder.write(recorder.record("cpu", parts, seconds=120), path))


def out_of_memory(device, seconds):
    raise torch.OutOfMemoryError("made up: tried to allocate 2 GiB\nsecond line")


def test_a_failing_part_leaves_the_others_and_says_why(tmp_path):
    parts = [
        Experiment("before", 1, lambda device, seconds: {"x": 1}),
        Experiment("fails", 1, out_of_memory),
        Experiment("not_json", 1, lambda device, seconds: {"x": float("nan")}),
        Experiment("after", 1, lambda device, seconds: [2.5]),
    ]
    read = recordings.load(recorder.write(recorder.record("cpu", parts), tmp_path / "r.json"))
    assert read.part("before") == {"x": 1} and read.part("after") == [2.5]
    assert list(read.parts) == ["before", "fails", "not_json", "after"]
    assert read.parts["fails"]["error"] == "OutOfMemoryError: made up: tried to allocate 2 GiB"
    with pytest.raises(LessonError, match="could not be measured: OutOfMemoryError"):
        read.part("fails")
    assert "ValueError" in read.parts["not_json"]["error"]
    with pytest.raises(LessonError, match="no part 'nothing'; it has before"):
        read.part("nothing")


def test_tf32_is_off_in_every_part_and_put_back():
    before, seen = tf32_state(), []
    recorder.record("cpu", [Experiment("look", 1, lambda device, seconds: seen.append(tf32_state()))])
    assert set(seen[0].values()) <= {"ieee", False} and tf32_state() == before


def test_parts_share_the_time_and_what_comes_too_late_is_said():
    given = []
    parts = [
        Experiment("first", 30, lambda device, seconds: (given.append(seconds), time.sleep(0.3))),
        Experiment("second", 10, lambda device, seconds: None),
    ]
    result = recorder.record("cpu", parts, seconds=0.2)
    assert given == [pytest.approx(0.15, abs=0.01)]
    assert result["parts"]["second"]["error"] == "no time was left for it"
    assert result["parts"]["first"]["seconds"] >= 0.3


def test_all_parts_together_take_under_four_minutes():
    assert recorder.SECONDS < 225 and sum(e.seconds for e in EXPERIMENTS) <= recorder.SECONDS


def test_provenance_says_where_when_and_how():
    facts = json.loads(json.dumps(provenance("cpu"), allow_nan=False))
    assert facts["versions"]["torch"] == torch.__version__ and facts["versions"]["python"].count(".") == 2
    assert {"cuda", "cudnn", "amp_lessons"} <= set(facts["versions"])
    assert facts["device"]["type"] == "cpu" and facts["device"]["name"] == facts["cpu"]["model"] != ""
    assert facts["cpu"]["threads_while_measuring"] == 1 and facts["cpu"]["logical_cores"] >= 1
    assert any("fp32_precision" in name or "allow_tf32" in name for name in facts["tf32"])
    assert facts["date"].endswith("+00:00") and facts["command"] and facts["os"]
    assert facts["git"] is None or len(facts["git"]["commit"]) == 40


def test_a_cpu_made_slower_on_purpose_is_told(monkeypatch):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert provenance("cpu")["environment"]["ONEDNN_MAX_CPU_ISA"] == "AVX2"


def test_no_git_is_no_failure(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert git_state() is None


def test_an_unfinished_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "r.json"
    recorder.write({"old": 1}, path)

    def no_space(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(recorder.os, "replace", no_space)
    with pytest.raises(LessonError, match="No space left on device; choose a place with --output"):
        recorder.write({"new": 2}, path)
    assert json.loads(path.read_text()) == {"old": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"]


def test_file_names_say_kind_device_and_day():
    facts = {"device": {"type": "cuda", "name": "NVIDIA A100-SXM4-40GB"}, "date": "2026-12-01T05:00:00+00:00"}
    assert recorder.file_name({"provenance": facts}) == "cuda-nvidia-a100-sxm4-40gb-2026-12-01.json"
    facts["device"] = {"type": "cpu", "name": "Intel(R) Xeon(R) Processor"}
    assert recorder.file_name({"provenance": facts}) == "cpu-intel-r-xeon-r-processor-2026-12-01.json"


def test_every_real_part_comes_out_on_a_cpu(small):
    assert {name: part["error"] for name, part in small.parts.items()} == dict.fromkeys((e.name for e in EXPERIMENTS), None)


def test_results_come_back_as_the_classes_that_figures_draw(small):
    table = small.speed("mlp")
    assert table.settings == ["fp32", "fp16", "amp", "bf16"] and table.at("fp32", 64, 16).time.median_s > 0
    assert {split.setting for split in small.memory()} == {"fp32", "amp", "bf16"}
    assert any(point.n % 8 for point in small.ops("around"))
    assert small.copy().bytes_per_s > 0


def test_results_of_another_version_are_a_sentence(small):
    other = replace(small, parts={**small.parts, "memory": {"result": [{"weights": 3}], "error": None}})
    with pytest.raises(LessonError, match="from another version of the course .*make record"):
        other.memory()
    with pytest.raises(LessonError, match="no ops 'copy'; ask for 'matmul'"):
        small.ops("copy")


def test_portraits_stop_together_and_carry_their_pictures(small):
    import base64

    runs = small.part("portraits")
    assert {run["size"] for run in runs} == {64}
    assert [run["recipe"] for run in runs] == ["fp32", "fp16", "amp", "bf16"]
    assert len({run["steps"] for run in runs}) == 1
    large = small.part("large_portraits")  # 96 x 96: half a second is not enough for 300 steps of it
    assert {run["stopped"] for run in large} == {"the time for it was up"} and 1 <= large[0]["steps"] < 300
    assert all(base64.b64decode(run["picture_png"]).startswith(b"\x89PNG") for run in runs)
    assert ExponentHistogram.from_json(runs[0]["last_histogram"]).total > 0


def test_scale_history_begins_too_high(small):
    history = small.part("scale_history")
    assert history["init_scale"] == 2.0**40
    assert history["skipped"][:10] == list(range(10))  # fp16's largest number is 65504; 2^30 is still far above the window
    first = history["records"][0]
    assert first["next_scale"] == first["scale"] / 2


def test_command_writes_where_it_is_told(tmp_path, capsys):
    assert recorder.main(["--device", "nonsense", "--output", str(tmp_path)]) == 1
    assert "'nonsense' is not a device name" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_command_gives_the_file_its_name(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(recorder.record, "__defaults__", (None, (Experiment("a", 1, lambda d, s: 1),), 1.0, lambda line: None))
    assert recorder.main(["--device", "cpu", "--output", str(tmp_path / "new")]) == 0
    (path,) = (tmp_path / "new").iterdir()
    assert path.name.startswith("cpu-") and path.suffix == ".json"
    assert "1 of 1 parts" in capsys.readouterr().out
    assert str(recordings.load(path)).endswith(path.stem[-10:])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "damaged: it is not complete JSON"),
        ("[]", "not a recording of this course"),
        ('{"format": "amp_lessons history 1"}', "not a recording of this course"),
        ('{"format": "amp_lessons recording 1", "provenance": {}, "parts": {}}', "parts of it are missing"),
        ('{"format": "amp_lessons recording 1", "provenance": 3, "parts": {}}', "parts of it are missing"),
    ],
)
def test_files_that_are_no_recording_are_named_as_such(tmp_path, text, message):
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(LessonError, match=message):
        recordings.load(path)


def test_a_missing_recording_says_how_to_make_one():
    with pytest.raises(LessonError, match="There is no recording cuda-nothing .*make record"):
        recordings.load("cuda-nothing")


def test_names_are_those_of_the_folder(tmp_path, monkeypatch):
    for name in ("cuda-b", "cpu-a"):
        (tmp_path / f"{name}.json").write_text("{}")
    monkeypatch.setattr(recordings, "FOLDER", tmp_path)
    assert recordings.names() == ["cpu-a", "cuda-b"] and recordings.names("cuda") == ["cuda-b"]


def test_what_ships_can_be_loaded_and_was_measured_on_the_device_in_its_name():
    for name in recordings.names():
        read = recordings.load(name)
        assert name.startswith(read.provenance["device"]["type"])


def test_numbers_for_json():
    assert number(1.23456789) == 1.23457 and number(float("inf")) == "inf" and number(float("nan")) == "nan"
