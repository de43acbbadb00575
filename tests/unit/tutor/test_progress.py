"""Progress is kept through kills, crowds, full disks and foreign files, and what goes wrong is one sentence."""

import json
import os
import re
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest
from filelock import FileLock

from amp_lessons.tutor import progress

TODAY = date.today().isoformat()
KILLS = Path(__file__).with_name("progress_kills.py")


@pytest.fixture
def file(tmp_path, monkeypatch):
    """The progress file of this test; it is not there yet."""
    place = tmp_path / "kept" / "progress.json"
    monkeypatch.setenv(progress.VARIABLE, str(place))
    return place


def others(file):
    """The names beside the file, but for the lock."""
    return sorted(path.name for path in file.parent.iterdir() if path not in (file, Path(f"{file}.lock")))


# -- where ----------------------------------------------------------------------------------------------------------


def test_variable_names_a_file_a_folder_or_off(tmp_path, monkeypatch):
    monkeypatch.setenv(progress.VARIABLE, str(tmp_path / "mine.json"))
    assert progress.path() == tmp_path / "mine.json"
    monkeypatch.setenv(progress.VARIABLE, str(tmp_path))
    assert progress.path() == tmp_path / "progress.json"
    monkeypatch.setenv(progress.VARIABLE, "~/mine.json")
    assert progress.path() == Path.home() / "mine.json"
    for off in ("off", " OFF "):
        monkeypatch.setenv(progress.VARIABLE, off)
        assert progress.path() is None


def test_in_pytest_and_in_ci_nothing_is_kept_and_else_the_user_s_data_folder(monkeypatch):
    monkeypatch.delenv(progress.VARIABLE, raising=False)
    assert progress.path() is None  # pytest's own PYTEST_VERSION
    monkeypatch.delenv("PYTEST_VERSION")
    monkeypatch.setenv("CI", "true")
    assert progress.path() is None
    assert progress.record("1-bf16") is None and progress.trouble() is None and progress.solved() == {}
    assert "nothing to forget" in progress.reset(sure=True)
    for no in ("", "false", "0"):
        monkeypatch.setenv("CI", no)
        assert progress.path().parts[-2:] == ("amp_lessons", "progress.json")
    monkeypatch.delenv("CI")
    assert progress.path().is_absolute()


def test_nbval_s_kernels_keep_nothing(tmp_path):
    """The kernel inherits PYTEST_VERSION; without the variable it would write into the user's own file."""
    import nbformat
    from nbformat.v4 import new_code_cell, new_notebook, new_output

    source = "from amp_lessons.tutor import progress\nprint(progress.path())"
    cell = new_code_cell(source, execution_count=1, outputs=[new_output("stream", name="stdout", text="None\n")])
    nbformat.write(new_notebook(cells=[cell]), tmp_path / "a.ipynb")
    command = [sys.executable, "-m", "pytest", "-q", "--nbval", "--nbval-current-env", "-p", "no:cacheprovider", str(tmp_path)]
    env = {name: value for name, value in os.environ.items() if name not in (progress.VARIABLE, "CI", "PYTEST_VERSION")}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout


def test_import_is_light():
    program = "import sys; from amp_lessons.tutor import progress; print({'torch', 'matplotlib', 'ipywidgets'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "set()\n", done


# -- what is kept ---------------------------------------------------------------------------------------------------


def test_solved_names_are_kept_with_the_first_date(file, monkeypatch):
    assert progress.solved() == {}
    assert progress.record("5-step") is None
    assert progress.solved() == {"5-step": TODAY}
    data = json.loads(file.read_text())
    data["solved"]["5-step"] = "2020-02-02"
    file.write_text(json.dumps(data))
    assert progress.record("5-step") is None and progress.record("1-bf16") is None
    assert progress.solved() == {"5-step": "2020-02-02", "1-bf16": TODAY}
    assert others(file) == []


def test_what_a_later_version_adds_survives(file):
    file.parent.mkdir()
    file.write_text('\ufeff{"format": "amp_lessons progress 1", "theme": [1], "solved": {"5-step": {"tries": 3}}}', encoding="utf-8")
    assert progress.solved() == {"5-step": ""}
    assert progress.record("1-bf16") is None
    data = json.loads(file.read_text())
    assert data["theme"] == [1] and data["solved"] == {"5-step": {"tries": 3}, "1-bf16": TODAY}


def test_a_link_stays_a_link(file, tmp_path):
    file.parent.mkdir()
    file.symlink_to(tmp_path / "elsewhere.json")
    assert progress.record("1-bf16") is None
    assert file.is_symlink() and json.loads((tmp_path / "elsewhere.json").read_text())["solved"] == {"1-bf16": TODAY}


# -- files that are no progress -------------------------------------------------------------------------------------

BAD = {
    "empty": (b"", "damaged"),
    "truncated": (b'{"format": "amp_lessons progress 1", "solved": {"1-bf', "damaged"),
    "not UTF-8": (b'{"format": "\xff\xfe"}', "damaged"),
    "zeros": (bytes(4096), "damaged"),
    "too deep": (b"[" * 200_000, "damaged"),
    "no names": (b'{"format": "amp_lessons progress 1", "solved": [1]}', "damaged"),
    "another program's": (b'{"name": "x", "version": 3}', "not a progress file of this course"),
    "a list": (b"[1, 2]", "not a progress file of this course"),
    "of a newer version": (b'{"format": "amp_lessons progress 2", "done": []}', "another version"),
}


@pytest.mark.parametrize("kind", BAD)
def test_unusable_file_is_set_aside_whole_with_one_message(file, kind):
    content, why = BAD[kind]
    file.parent.mkdir()
    file.write_bytes(content)
    assert progress.solved() == {} and file.read_bytes() == content  # reading moves nothing
    said = progress.record("1-bf16")
    assert why in said and f"progress-set-aside-{TODAY}.json" in said
    assert others(file) == [f"progress-set-aside-{TODAY}.json"]
    assert file.with_name(others(file)[0]).read_bytes() == content
    assert progress.solved() == {"1-bf16": TODAY}
    assert progress.record("2-floor") is None and progress.trouble() is None


def test_a_second_one_does_not_overwrite_the_first(file):
    file.parent.mkdir()
    for content in ("first", "second", "third"):
        file.write_text(content)
        progress.trouble()
    kept = [f"progress-set-aside-{TODAY}{number}.json" for number in ("", "-2", "-3")]
    assert [file.with_name(name).read_text() for name in kept] == ["first", "second", "third"]


def test_folder_in_the_place_of_the_file_is_set_aside_and_one_named_in_the_variable_is_used(file, monkeypatch):
    (file / "inside").mkdir(parents=True)
    assert progress.record("1-bf16") is None  # the variable names a folder: nobody's folder is renamed
    assert (file / "progress.json").is_file() and (file / "inside").is_dir()
    monkeypatch.setattr(progress, "path", lambda: file)
    assert "it is a folder" in progress.record("2-floor")
    assert file.is_file() and (file.parent / others(file)[0] / "inside").is_dir()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_pipes_and_devices_are_neither_read_nor_renamed(file, monkeypatch):
    file.parent.mkdir()
    os.mkfifo(file)
    assert "not an ordinary file" in progress.record("1-bf16")
    assert progress.solved() == {} and others(file) == []


# -- what cannot be saved -------------------------------------------------------------------------------------------


def is_one_sentence(said, file):
    assert said.startswith(f"Your progress could not be saved in {file}: ") and "\n" not in said and "Errno" not in said
    return said


def test_place_that_cannot_be_written(file, tmp_path):
    file.parent.write_text("a file where a folder is needed")
    is_one_sentence(progress.record("1-bf16"), file)
    assert progress.trouble() is not None and progress.solved() == {}


def test_read_only_folder_keeps_what_it_has(file):
    assert progress.record("1-bf16") is None
    file.parent.chmod(0o555)
    try:
        if os.access(file.parent, os.W_OK):
            pytest.skip("the superuser, and Windows, may write into a read-only folder")
        assert "Permission denied" in is_one_sentence(progress.record("2-floor"), file)
        assert progress.solved() == {"1-bf16": TODAY} and progress.record("1-bf16") is None
    finally:
        file.parent.chmod(0o755)


@pytest.mark.skipif(not os.path.isdir("/sys/kernel"), reason="needs a folder that not even the superuser can write to")
def test_folder_that_nobody_can_write_to(monkeypatch):
    monkeypatch.setenv(progress.VARIABLE, "/sys/kernel/progress.json")
    assert "/sys/kernel/progress.json.lock" in is_one_sentence(progress.record("1-bf16"), "/sys/kernel/progress.json")


@pytest.mark.skipif(os.name != "posix", reason="limits on the size of files are Unix's")
def test_full_disk_keeps_what_is_there(file):
    """A limit on the size of files stops the write half way, as a full disk does."""
    assert progress.record("1-bf16") is None
    before = file.read_bytes()
    program = (
        "import resource, signal; from amp_lessons.tutor import progress; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({len(before)}, {len(before)})); print(progress.record('2-floor'))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "File too large" in is_one_sentence(done.stdout.strip(), file), done.stderr
    assert file.read_bytes() == before and others(file) == []
    assert progress.record("2-floor") is None


@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_failing_disk_keeps_what_is_there(file, monkeypatch, name):
    assert progress.record("1-bf16") is None
    before = file.read_bytes()

    def fail(*_):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(progress.os, name, fail)
        assert "Input/output error" in is_one_sentence(progress.record("2-floor"), file)
    assert file.read_bytes() == before and others(file) == []


def test_file_that_another_program_has_open_is_tried_again(file, monkeypatch):
    """Windows refuses to replace an open file."""
    replace, refused = os.replace, []

    def refuse_twice(new, old):
        if len(refused) < 2:
            refused.append(new)
            raise PermissionError(13, "Access is denied")
        replace(new, old)

    monkeypatch.setattr(progress.os, "replace", refuse_twice)
    assert progress.record("1-bf16") is None and progress.solved() == {"1-bf16": TODAY}


def test_lock_that_is_held_is_a_sentence(file, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.1)
    assert progress.record("1-bf16") is None
    with FileLock(f"{file}.lock", is_singleton=False):
        said = is_one_sentence(progress.record("2-floor"), file)
        assert "another notebook" in said
        assert "could not be reset" in progress.reset(sure=True)
    assert progress.solved() == {"1-bf16": TODAY}
    assert progress.record("2-floor") is None


# -- reset ----------------------------------------------------------------------------------------------------------


def test_reset_asks_first_and_keeps_the_old_file(file):
    assert "nothing to forget" in progress.reset(sure=True)
    progress.record("1-bf16")
    progress.record("5-step")
    said = progress.reset()
    assert "2 solved" in said and "progress.reset(sure=True)" in said
    assert len(progress.solved()) == 2
    before = file.read_bytes()
    said = progress.reset(sure=True)
    assert progress.solved() == {} and not file.exists()
    aside = Path(re.search(r"kept as (.+)\.$", said).group(1))
    assert aside.read_bytes() == before
    assert progress.record("1-bf16") is None and progress.solved() == {"1-bf16": TODAY}


# -- crowds and kills -----------------------------------------------------------------------------------------------

WRITER = """
import sys
from amp_lessons.tutor import progress
progress.PATIENCE = 60  # two writers without a pause may keep each other out for longer than two people ever do
print("ready", flush=True)
sys.stdin.readline()
for count in range(200):
    said = progress.record(f"{sys.argv[1]}-{count}")
    assert said is None, said
"""


def test_two_notebooks_that_write_at_once_lose_nothing(file):
    start = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, name], **start) for name in ("one", "two")]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        _, errors = writer.communicate(timeout=60)
        assert writer.returncode == 0, errors
    assert set(progress.solved()) == {f"{name}-{count}" for name in ("one", "two") for count in range(200)}


def killed(file, kills, *options):
    file.parent.mkdir()
    done = subprocess.run([sys.executable, KILLS, file, str(kills), *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_a_thousand_kills_lose_nothing_that_was_acknowledged(file):
    found = killed(file, 1000)
    assert found["torn"] == found["lost"] == 0, found
    assert set(found["others"]) <= {file.name, f"{file.name}.lock", f".{file.name}.new"}  # nothing had to be set aside
    # The test has met what it is about: many were killed between opening the new file and putting it in place.
    assert found["while writing"] > 100 and found["acknowledged"] > 500, found


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_the_kills_would_show_a_write_in_place(file):
    found = killed(file, 100, "--in-place")
    assert found["torn"] > 0 and found["lost"] > 0, found
