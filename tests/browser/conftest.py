"""One JupyterLab and one Chromium for all browser tests; each test gets a fresh page and leaves no kernel behind."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from amp_lessons.lab import NOTEBOOKS, environment
from amp_lessons.tutor import progress
from tests.browser.lab import Lab

# Without the networking flags Chromium looks for servers that a closed network does not have.
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where Chromium is; without one the tests are skipped, but in CI that is a failure."""
    named = os.environ.get("CHROMIUM")
    found = named or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("CI needs Chromium for the browser tests; install Debian's package chromium.")
        pytest.skip("no Chromium found: install it, or name one in the environment variable CHROMIUM")
    return found


@pytest.fixture(scope="session")
def progress_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the learner of these tests keeps progress."""
    return tmp_path_factory.mktemp("progress") / "progress.json"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, progress_file: Path) -> Iterator[str]:
    """The address of a JupyterLab on a copy of the notebooks, with the course's settings."""
    root = tmp_path_factory.mktemp("lab")
    shutil.copytree(NOTEBOOKS, root / "notebooks", ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    settings = root / "settings" / "labconfig"
    settings.mkdir(parents=True)
    # All cells in the page at once, so that the tests can look at any of them.
    override = {"@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"}}
    (settings / "default_setting_overrides.json").write_text(json.dumps(override))
    env = environment()
    env["JUPYTER_CONFIG_PATH"] += os.pathsep + str(settings.parent)
    # Nothing of the tests may land in the user's own Jupyter folders, nor theirs in the tests.
    env |= {"JUPYTERLAB_SETTINGS_DIR": str(root / "user"), "JUPYTERLAB_WORKSPACES_DIR": str(root / "workspaces")}
    env[progress.VARIABLE] = str(progress_file)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}"]
    command += ["--ServerApp.port_retries=0", "--IdentityProvider.token=", f"--ServerApp.root_dir={root / 'notebooks'}"]
    command += ["--LabApp.expose_app_in_browser=True", "--ServerApp.disable_check_xsrf=True", "--allow-root"]
    log = (root / "server.log").open("w")
    process = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT)
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_for(f"{url}/api/status", process, root / "server.log")
        yield url
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
        log.close()


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator:
    """A headless Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def lab(browser, server: str, progress_file: Path) -> Iterator[Lab]:
    """A fresh page and a learner without progress; the kernels are shut down afterwards, since each holds a PyTorch."""
    yield from _fresh_lab(browser, server, progress_file)


@pytest.fixture(scope="module")
def module_lab(browser, server: str, progress_file: Path) -> Iterator[Lab]:
    """The same, for tests of one module that only look at what one of them has run."""
    yield from _fresh_lab(browser, server, progress_file)


def _fresh_lab(browser, server: str, progress_file: Path) -> Iterator[Lab]:
    progress_file.unlink(missing_ok=True)
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    try:
        yield Lab(page, server)
    finally:
        page.close()
        for kernel in json.load(urllib.request.urlopen(f"{server}/api/sessions")):
            request = urllib.request.Request(f"{server}/api/sessions/{kernel['id']}", method="DELETE")
            urllib.request.urlopen(request)


def _wait_for(address: str, process: subprocess.Popen, log: Path, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            urllib.request.urlopen(address, timeout=2)
            return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()[-2000:]}")
