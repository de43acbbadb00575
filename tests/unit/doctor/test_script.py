"""The command line form: whole training scripts, unchanged, healthy and with one mistake each."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent / "scripts"


def doctor(script, *arguments, options=(), **env):
    command = [sys.executable, "-m", "amp_lessons.doctor", *options, str(script), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **env}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)


def plain(script, *arguments, **env):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **env}
    return subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True, env=environment, timeout=120)


def report_of(result):
    return result.stdout.split("amp_lessons doctor, ")[1]


@pytest.mark.parametrize("script", ["classifier.py", "gpt.py"])
def test_healthy_script_is_silent_and_prints_what_it_always_prints(script):
    watched, alone = doctor(SCRIPTS / script), plain(SCRIPTS / script)
    assert watched.returncode == alone.returncode == 0, watched.stderr
    assert watched.stdout.split("\namp_lessons doctor")[0] == alone.stdout  # same losses to the last printed digit
    assert " error" not in report_of(watched) and " warning" not in report_of(watched)
    assert "could not look" not in report_of(watched)


@pytest.mark.parametrize(
    ("mistake", "rule", "status"),
    [
        ("clip", "ERROR clip-before-unscale", 1),
        ("scheduler", "WARNING scheduler-on-skipped-step", 0),
        ("checkpoint", "WARNING scaler-not-saved", 0),
    ],
)
def test_classifier_with_a_mistake(mistake, rule, status):
    result = doctor(SCRIPTS / "classifier.py", "--mistake", mistake)
    assert rule in report_of(result), result.stdout
    assert result.returncode == status


@pytest.mark.parametrize(("mistake", "rule"), [("divide", "accumulation-not-divided"), ("past", "optimizer-stepped-past-scaler")])
def test_gpt_with_a_mistake(mistake, rule):
    assert rule in report_of(doctor(SCRIPTS / "gpt.py", MISTAKE=mistake))


def test_script_that_fails_gets_its_report_its_traceback_and_the_cause():
    result = doctor(SCRIPTS / "classifier.py", "--mistake", "crash")
    assert result.returncode == 1
    assert "RuntimeError: unscale_() has already been called" in result.stderr
    first = result.stderr.splitlines()[1]
    assert "classifier.py" in first, "the traceback begins in the script"
    if sys.version_info >= (3, 11):
        assert "amp_lessons doctor: unscale_ ran twice" in result.stderr
    assert "unscale-twice" in report_of(result)


def test_script_with_worker_processes():
    result = doctor(SCRIPTS / "classifier.py", "--workers", "2", "--epochs", "1")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("amp_lessons doctor") == 1


@pytest.mark.parametrize(("ending", "status"), [("sys.exit(3)", 3), ("sys.exit('no data')", 1), ("raise KeyboardInterrupt", 130)])
def test_own_ending_of_a_script_is_kept(tmp_path, ending, status):
    script = tmp_path / "short.py"
    script.write_text(f"import sys\nprint(sys.argv[1:], __name__)\n{ending}\n")
    result = doctor(script, "--lr", "1")
    assert result.returncode == status
    assert result.stdout.startswith("['--lr', '1'] __main__")
    assert "0 iterations watched: no mistake found." in report_of(result)
    assert ("no data" in result.stderr) == ("no data" in ending)


def test_module_form_and_steps(tmp_path):
    (tmp_path / "mytraining.py").write_text((SCRIPTS / "gpt.py").read_text())
    result = doctor("mytraining", options=["--steps", "2", "-m"], PYTHONPATH=str(tmp_path))
    assert result.returncode == 0, result.stderr
    assert "2 iterations watched" in report_of(result)
    assert "iter 7" in result.stdout


@pytest.mark.parametrize(("arguments", "said"), [(["missing.py"], "there is no script missing.py"), (["--steps", "0", __file__], "--steps is 0")])
def test_bad_command_line_is_one_sentence(arguments, said):
    result = subprocess.run([sys.executable, "-m", "amp_lessons.doctor", *arguments], capture_output=True, text=True)
    assert result.returncode == 2 and said in result.stderr
