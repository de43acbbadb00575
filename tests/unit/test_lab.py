"""What happens around opening the course: options, busy ports, missing Pythons, settings that Jupyter accepts."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from amp_lessons import lab

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("options", "port"),
    [
        ([], 8888),
        (["--no-browser", "--port", "9000"], 9000),
        (["--port=9001"], 9001),
        (["--ServerApp.port=9002", "--no-browser"], 9002),
    ],
)
def test_port_of_options(options, port):
    assert lab.port_of(options) == port


def test_busy_port_is_one_sentence(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert lab.main(["--port", str(port)]) == 1
    said = capsys.readouterr().err
    assert f"Port {port} is in use" in said and "LAB_ARGS" in said
    assert said.count("\n") == 1


def test_port_that_is_no_number_is_one_sentence(capsys):
    assert lab.main(["--port", "many"]) == 1
    assert "is not a number" in capsys.readouterr().err


def test_starts_on_the_start_page_and_stays_on_its_port(monkeypatch):
    called = {}
    monkeypatch.setattr(lab.subprocess, "call", lambda command, env: called.update(command=command, env=env) or 0)
    assert lab.main(["--port", "0", "--no-browser"]) == 0
    assert "--LabApp.default_url=/lab/tree/00_start_here.ipynb" in called["command"]
    assert "--ServerApp.port_retries=0" in called["command"] and "--no-browser" in called["command"]
    assert called["env"]["JUPYTER_CONFIG_PATH"].split(os.pathsep)[0] == str(lab.SETTINGS)


def test_another_page_can_be_asked_for(monkeypatch):
    called = []
    monkeypatch.setattr(lab.subprocess, "call", lambda command, env: called.extend(command) or 0)
    assert lab.main(["--port", "0", "--LabApp.default_url=/lab/tree/other.ipynb"]) == 0
    assert [part for part in called if "default_url" in part] == ["--LabApp.default_url=/lab/tree/other.ipynb"]


def test_settings_are_ones_that_jupyterlab_has():
    """A misspelt setting is ignored in silence, so each is looked up in JupyterLab's own schemas."""
    import jupyterlab

    schemas = Path(sys.prefix) / "share" / "jupyter" / "lab" / "schemas"
    assert schemas.is_dir(), jupyterlab.__version__
    overrides = json.loads((lab.SETTINGS / "labconfig" / "default_setting_overrides.json").read_text())
    for plugin, settings in overrides.items():
        package, name = plugin.split(":")
        schema = json.loads((schemas / package / f"{name}.json").read_text())
        for setting in settings:
            assert setting in schema["properties"], f"{plugin} has no setting {setting}"


def make(*arguments, **env):
    return subprocess.run(["make", *arguments], cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True, timeout=60)


@pytest.fixture
def script(tmp_path):
    """Make an executable that stands for a Python."""

    def write(text):
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    return write


def sentence(result):
    """What make printed, but for its own line that names the failed target."""
    lines = [line for line in (result.stdout + result.stderr).splitlines() if not re.match(r"make(\[\d+\])?:", line)]
    assert result.returncode != 0 and len(lines) == 1, lines
    return lines[0]


@pytest.mark.skipif(os.name != "posix", reason="make is for Unix; on Windows environment.yml is the way")
class TestMake:
    def test_missing_python(self, tmp_path):
        assert "There is no no-such-python here" in sentence(make("lab", "PYTHON=no-such-python", f"VENV={tmp_path}/v"))

    def test_old_python(self, tmp_path, script):
        old = script('case "$2" in *version_info*) exit 1;; esac')
        assert "is too old" in sentence(make("lab", f"PYTHON={old}", f"VENV={tmp_path}/v"))

    def test_python_without_venv(self, tmp_path, script):
        bare = script('case "$2" in *ensurepip*) exit 1;; esac')
        assert "python3-venv" in sentence(make("lab", f"PYTHON={bare}", f"VENV={tmp_path}/v"))

    def test_help_is_the_default(self):
        result = make()
        assert result.returncode == 0
        for target in ("make lab", "make test", "make lessons", "LAB_ARGS"):
            assert target in result.stdout
