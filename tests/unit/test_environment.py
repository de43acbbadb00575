"""pyproject.toml, constraints.txt and environment.yml agree, and the Makefile's promises have what they need."""

import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")


def requirements() -> list[Requirement]:
    text = (ROOT / "pyproject.toml").read_text()
    lists = re.findall(r"^(?:dependencies|test|bench) = \[(.*?)^\]", text, flags=re.M | re.S)
    assert len(lists) == 3
    return [Requirement(found) for part in lists for found in re.findall(r'^\s+"([^"]+)"', part, flags=re.M)]


def constraints() -> list[Requirement]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [Requirement(line) for line in lines if line.strip() and not line.startswith("#")]


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("wanted", requirements(), ids=lambda wanted: wanted.name)
def test_tested_version_is_one_and_inside_the_range(wanted, python):
    pinned = [c for c in constraints() if c.name == wanted.name and (c.marker is None or c.marker.evaluate({"python_version": python}))]
    assert len(pinned) == 1, f"{wanted.name} has {len(pinned)} tested versions on Python {python}"
    (exact,) = pinned[0].specifier
    assert exact.operator == "=="
    assert wanted.specifier.contains(exact.version)


def test_every_dependency_has_its_reason():
    text = (ROOT / "pyproject.toml").read_text()
    for wanted in requirements():
        assert re.search(rf'^\s+"{wanted.name}[^"]*",\s+# \S.+$', text, flags=re.M), f"{wanted.name} has no reason beside it"


def test_torch_may_be_as_old_as_2_6():
    (torch,) = [wanted for wanted in requirements() if wanted.name == "torch"]
    assert torch.specifier.contains("2.6.0") and not torch.specifier.contains("2.5.1")


def test_conda_environment_installs_the_same_versions():
    text = (ROOT / "environment.yml").read_text()
    assert re.search(r"^\s+- -c constraints\.txt$", text, flags=re.M)
    assert re.search(r"^\s+- -e \.\[test\]$", text, flags=re.M)
    python = re.search(r"^\s+- python=([\d.]+)$", text, flags=re.M).group(1)
    assert python in PYTHONS


def test_python_range_is_what_the_makefile_checks():
    low = re.search(r'requires-python = ">=([\d.]+)"', (ROOT / "pyproject.toml").read_text()).group(1)
    assert low == PYTHONS[0]
    assert f"({low.replace('.', ', ')})" in (ROOT / "Makefile").read_text()


def test_this_environment_has_the_tested_versions():
    from importlib.metadata import PackageNotFoundError, version

    for exact in constraints():
        if exact.marker is None or exact.marker.evaluate():
            try:
                installed = version(exact.name).split("+")[0]  # a local build such as 2.13.0+cpu
            except PackageNotFoundError:
                assert exact.name in ("tensorboard", "wandb")  # only `make bench` installs them
                continue
            assert exact.specifier.contains(installed), f"{exact.name} is {installed} on Python {sys.version_info[:2]}"
