"""Trials: a learner's function is run under a time limit, and its errors are told apart from the tutor's own."""

from __future__ import annotations

import ctypes
import linecache
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from amp_lessons.doctor.messages import cause_of

SECONDS = 10.0
_AGAIN = 0.2  # a bare `except:` in the learner's loop swallows the first stop


class TimeIsUp(BaseException):
    """Raised inside code that ran past its time limit; no Exception, so that `except Exception` does not stop it."""


class AnswerFailed(Exception):
    """The learner's own code raised; the text says what and, where it is known, in which line."""

    def explained(self) -> str:
        """The text, with the likely cause where the error is one that mixed precision is known for."""
        cause = cause_of(self.__cause__) if self.__cause__ else None
        return f"{self} Likely cause: {cause}" if cause else str(self)


class Unfinished(Exception):
    """The learner's function gave back a ``...``."""


class Trial:
    """A learner's function, to be called by a check.

    Whatever it raises comes out as ``AnswerFailed``, so that a check sees the difference between a wrong answer and one
    that does not run.
    """

    def __init__(self, function: Callable) -> None:
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            result = self.function(*args, **kwargs)
        except (KeyboardInterrupt, TimeIsUp):
            raise
        except BaseException as error:  # SystemExit too: exit() in an answer must not end the kernel
            raise AnswerFailed(told(error, self.function)) from error
        if result is ...:
            raise Unfinished
        return result


def told(error: BaseException, function: Callable) -> str:
    """An error in one sentence: its type, its text, and the last line of the learner's own code that it passed."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    text = text.rstrip(".")
    place = _own_line(error.__traceback__, function)
    if place is None:
        return f"{text}."
    number, source = place
    return f"{text}, in line {number} of your cell: `{source}`." if source else f"{text}, in line {number} of your cell."


def _own_line(trace: TracebackType | None, function: Callable) -> tuple[int, str] | None:
    own = getattr(function, "__globals__", None)
    found = None
    while trace is not None:
        # All cells of a notebook share their globals, so a helper from another cell counts as the learner's too.
        if own is not None and trace.tb_frame.f_globals is own:
            found = trace.tb_lineno, linecache.getline(trace.tb_frame.f_code.co_filename, trace.tb_lineno).strip()
        trace = trace.tb_next
    return found


@contextmanager
def time_limit(seconds: float = SECONDS) -> Iterator[None]:
    """Raise ``TimeIsUp`` in the block once it has run this long; a loop is ended, a single long call only when it returns.

    Works on the main thread by a timer signal, which also ends a sleep, and elsewhere (and on Windows) by an exception that
    another thread asks for.
    """
    on_main = threading.current_thread() is threading.main_thread()
    limit = _by_signal if on_main and hasattr(signal, "setitimer") else _by_thread
    with limit(seconds):
        yield


@contextmanager
def _by_signal(seconds: float) -> Iterator[None]:
    active = True

    def stop(*_: object) -> None:
        if active:  # not while this context is being left
            raise TimeIsUp

    earlier_handler = signal.signal(signal.SIGALRM, stop)
    earlier_timer = signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
    started = time.monotonic()
    try:
        yield
    finally:
        active = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier_handler)
        if earlier_timer[0]:  # somebody else's alarm goes off when it would have, or at once if that is past
            left = max(earlier_timer[0] - (time.monotonic() - started), 1e-3)
            signal.setitimer(signal.ITIMER_REAL, left, earlier_timer[1])


@contextmanager
def _by_thread(seconds: float) -> Iterator[None]:
    target = ctypes.c_ulong(threading.get_ident())
    over = threading.Event()
    asking = threading.Lock()

    def stop() -> None:
        pause = seconds
        while not over.wait(pause):
            with asking:
                if not over.is_set():
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(target, ctypes.py_object(TimeIsUp))
            pause = _AGAIN

    watcher = threading.Thread(target=stop, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        with asking:
            over.set()
            ctypes.pythonapi.PyThreadState_SetAsyncExc(target, None)  # one that is asked for but has not arrived yet
        watcher.join()
