"""Kills a writer of progress at random moments, many times, and reports what was lost: ``python progress_kills.py FILE KILLS [--in-place]``.

A process of its own, small and without PyTorch, so that a fork takes a millisecond. Each child records names, one after the
other, and writes a line into a pipe once ``record`` has come back; the parent reads the file all the while, kills the child,
and compares the file with what was acknowledged. ``--in-place`` spoils the write, to show that the comparison would notice.
"""

import contextlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from amp_lessons.tutor import progress


def in_place(file, data):
    """What people write first: open the file, write into it."""
    with open(file, "w") as stream:
        stream.write(json.dumps(data, indent=1))
        stream.flush()
        os.fsync(stream.fileno())


def write_until_killed(number, acknowledge):
    for count in range(1_000_000):
        name = f"{number}-{count}"
        if progress.record(name) is None:
            os.write(acknowledge, f"{name}\n".encode())


def names_in(file):
    """The names in the file; None where it is torn."""
    try:
        return set(json.loads(file.read_bytes())["solved"])
    except FileNotFoundError:
        return set()
    except ValueError:
        return None


def kill_once(number, file, wanted, delay):
    """Kill a child ``delay`` seconds after its ``wanted``-th acknowledgement: what it acknowledged, and how many readings were torn."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        write_until_killed(number, writing)
    os.close(writing)
    os.set_blocking(reading, False)
    said, torn, heard, deadline = b"", 0, False, time.monotonic() + 60
    while time.monotonic() < deadline:
        torn += names_in(file) is None
        time.sleep(0.0003)  # leaves the writer some of the machine
        with contextlib.suppress(BlockingIOError):
            said += os.read(reading, 4096)
        if not heard and said.count(b"\n") >= wanted:
            heard, deadline = True, time.monotonic() + delay
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the child ended before it was killed"
    os.set_blocking(reading, True)
    with os.fdopen(reading, "rb") as rest:
        said += rest.read()
    assert heard, "the child could not write"
    return set(said.decode().splitlines()), torn


def main(file, kills, spoil):
    os.environ[progress.VARIABLE] = str(file)
    if spoil:
        progress._write = in_place
    start = time.monotonic()
    for count in range(20):  # what is imported at the first use is so imported once, not in each child
        progress.record(str(count))
    write_time = (time.monotonic() - start) / 20
    rng = random.Random(0)
    found = {"kills": kills, "acknowledged": 0, "while writing": 0, "torn": 0, "lost": 0}
    acknowledged = set()
    for number in range(kills):
        if number % 50 == 0:  # a long file would make the writes slow, and the kills few
            with contextlib.suppress(FileNotFoundError):
                file.unlink()
            acknowledged.clear()
        names, torn = kill_once(number, file, rng.randrange(2), rng.uniform(0, 2 * write_time))
        acknowledged |= names
        kept = names_in(file)
        found["acknowledged"] += len(names)
        found["torn"] += torn + (kept is None)
        found["lost"] += len(acknowledged - (kept or set()))
        found["while writing"] += file.with_name(f".{file.name}.new").exists()
    found["others"] = sorted(path.name for path in file.parent.iterdir())
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), "--in-place" in sys.argv)
