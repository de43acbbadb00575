"""Progress: which exercises and quick checks are solved, kept in one local JSON file.

Nothing in here ends a lesson: what cannot be saved is said in a sentence. The file is written beside the old one and put in
its place in one move, under a lock, so that a killed kernel or a second notebook leaves the old file or the new one.
"""

from __future__ import annotations

import json
import os
import stat
import time
from contextlib import AbstractContextManager, suppress
from datetime import date
from itertools import count
from pathlib import Path

from filelock import FileLock, Timeout
from platformdirs import user_data_path

VARIABLE = "AMP_LESSONS_PROGRESS"
PATIENCE = 2.0  # seconds to wait for another notebook; a write takes milliseconds
_NAME = "progress.json"
_FAMILY = "amp_lessons progress "
_FORMAT = f"{_FAMILY}1"
_TROUBLES = (OSError, NotImplementedError)  # filelock raises the second where a file system has no locks


class _Unusable(Exception):
    """The file holds no progress that this version can read; the text says why."""


def path() -> Path | None:
    """Where progress is kept; None when it is not kept.

    The environment variable AMP_LESSONS_PROGRESS names a file, or a folder for it, or says "off". Without it, progress is
    not kept in CI and in pytest (nbval's kernels inherit its environment), and else in the user's own data folder.
    """
    named = os.environ.get(VARIABLE, "").strip()
    if named.lower() == "off":
        return None
    if named:
        chosen = os.path.abspath(os.path.expanduser(named))
        return Path(chosen, _NAME) if os.path.isdir(chosen) else Path(chosen)
    if "PYTEST_VERSION" in os.environ or os.environ.get("CI", "").lower() not in ("", "0", "false"):
        return None
    return user_data_path("amp_lessons", appauthor=False) / _NAME


def solved() -> dict[str, str]:
    """The names of what is solved, each with the ISO date of the first time; empty where nothing can be read.

    The date is "" where a newer version has put something else in its place.
    """
    try:
        file = path()
        found = {} if file is None else _read(file)["solved"]
    except (*_TROUBLES, _Unusable):
        return {}
    return {name: day if isinstance(day, str) else "" for name, day in found.items()}


def record(name: str) -> str | None:
    """Keep that this exercise or quick check is solved; None, or a sentence for the learner about what went wrong.

    Once it gives None the name is on the disk. It never raises, and waits at most ``PATIENCE`` seconds for other notebooks.
    """
    return None if name in solved() else _save(name)


def trouble() -> str | None:
    """Why progress cannot be kept now, in a sentence; None when it can, or is switched off. Saves once to find out."""
    return _save(None)


def reset(sure: bool = False) -> str:
    """Forget all progress, once ``sure``; says what would be or was done. The old file is renamed, not destroyed."""
    try:
        file = path()
        if file is None:
            return f"Progress is not kept here, so there is nothing to forget ({VARIABLE} says where it is kept)."
        if not solved():
            return "No progress can be read, so there is nothing to forget."
        if not sure:
            return f"This forgets {amount(len(solved()))}. If you are sure: progress.reset(sure=True)"
        file = Path(os.path.realpath(file))
        with _lock(file):
            aside = _set_aside(file)
        return f"Your progress is reset. The old file is kept as {aside}."
    except _TROUBLES as error:
        return f"Your progress could not be reset: {_reason(error)}. Nothing has changed."


def amount(number: int) -> str:
    """A number of solved exercises and quick checks in words."""
    return f"{number} solved exercise{'' if number == 1 else 's'} or quick check{'' if number == 1 else 's'}"


def _save(name: str | None) -> str | None:
    file = note = None
    try:
        file = path()
        if file is None:
            return None
        file = Path(os.path.realpath(file))  # a link stays a link
        file.parent.mkdir(parents=True, exist_ok=True)
        with _lock(file):
            try:
                data = _read(file)
            except _Unusable as why:
                data = _empty()
                note = f"Your progress file could not be used: {why}. It is kept as {_set_aside(file)}, and a new one is begun."
            if name is not None:
                data["solved"].setdefault(name, date.today().isoformat())
            _write(file, data)
    except _TROUBLES as error:
        failed = f"Your progress could not be saved in {file}: {_reason(error)}. {VARIABLE} can name another place."
        return f"{note} {failed}" if note else failed
    return note


def _lock(file: Path) -> AbstractContextManager:
    # Asks often: between two writes of a busy notebook there is not much time.
    return FileLock(f"{file}.lock").acquire(timeout=PATIENCE, poll_interval=0.005)


def _reason(error: BaseException) -> str:
    if isinstance(error, Timeout):
        return f"for {PATIENCE:g} s another notebook has held {error.lock_file}"
    what = getattr(error, "strerror", None) or str(error) or type(error).__name__
    where = getattr(error, "filename", None)
    return f"{what}: {where}" if where else what


def _empty() -> dict:
    return {"format": _FORMAT, "solved": {}}


def _read(file: Path) -> dict:
    """What the file holds, with keys that this version does not know; raises ``_Unusable`` or OSError."""
    try:
        mode = os.stat(file).st_mode
    except FileNotFoundError:
        return _empty()
    if stat.S_ISDIR(mode):
        raise _Unusable("it is a folder")
    if not stat.S_ISREG(mode):  # reading a pipe would hang, and a device must not be renamed
        raise OSError(0, "it is not an ordinary file", str(file))
    try:
        data = json.loads(file.read_bytes().decode("utf-8-sig"))  # Windows editors put a mark in front
    except (ValueError, RecursionError):
        raise _Unusable("it is damaged") from None
    kind = data.get("format") if isinstance(data, dict) else None
    if not isinstance(kind, str) or not kind.startswith(_FAMILY):
        raise _Unusable("it is not a progress file of this course")
    if kind != _FORMAT:
        raise _Unusable("it was written by another version of this course")
    if not isinstance(data.get("solved"), dict):
        raise _Unusable("it is damaged")
    return data


def _write(file: Path, data: dict) -> None:
    """Put a new file in the place of the old one, on the disk, in one move."""
    unfinished = file.with_name(f".{file.name}.new")  # one name, so that killed writers leave one file at most
    try:
        unfinished.unlink(missing_ok=True)
        with open(unfinished, "xb") as stream:
            stream.write(json.dumps(data, indent=1).encode())
            stream.flush()
            os.fsync(stream.fileno())
        _replace(unfinished, file)
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
    with suppress(OSError):  # Windows cannot open a folder
        folder = os.open(file.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _replace(new: Path, old: Path) -> None:
    for pause in (0.05, 0.1, 0.2):
        try:
            return os.replace(new, old)
        except PermissionError:  # Windows, while a virus scanner or a reader has the file open
            time.sleep(pause)
    os.replace(new, old)


def _set_aside(file: Path) -> Path:
    """Rename a file, or a folder in its place, to a free name with the date; gives the new name."""
    for number in count(1):
        aside = file.with_name(f"{file.stem}-set-aside-{date.today()}{f'-{number}' if number > 1 else ''}{file.suffix}")
        if not os.path.lexists(aside):
            os.rename(file, aside)
            return aside
