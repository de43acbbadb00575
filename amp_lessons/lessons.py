"""Runs the lessons and stores their outputs: ``python -m amp_lessons.lessons [notebooks]``, all of them by default.

What is stored is what reads well without a kernel and can be compared: pictures, text and HTML. Live widgets are left out
(GitHub and PDF show "model not found" for them), and so is everything that differs from run to run.
"""

from __future__ import annotations

import base64
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat
import numpy
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from PIL import Image

from amp_lessons.errors import LessonError
from amp_lessons.lab import NOTEBOOKS
from amp_lessons.tutor import progress

KEPT = ("text/plain", "text/html", "text/markdown", "image/png")
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
LANGUAGE = {"name": "python", "file_extension": ".py", "mimetype": "text/x-python", "pygments_lexer": "ipython3"}
BLOCK = 8  # pixels: pictures are compared in squares of this side, about one letter
SAME_PICTURE = 10.0  # of 255, mean over a square; one other letter makes 40, a curve that moves by a thousandth makes 5


def store(path: Path, timeout: int = 300) -> None:
    """Execute a notebook in its own folder and write its outputs into it.

    The file is replaced only once all cells have run. Raises LessonError naming the first cell that fails.
    """
    try:
        notebook = nbformat.read(path, as_version=4)
    except (OSError, ValueError) as error:
        raise LessonError(f"{path} could not be read as a notebook: {error}") from None
    before = {cell.id: cell.get("outputs", []) for cell in notebook.cells}
    client = NotebookClient(
        notebook, timeout=timeout, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}
    )
    try:
        # What is stored must not show the progress of whoever stores it.
        client.execute(env={**os.environ, progress.VARIABLE: "off"})
    except CellExecutionError as error:
        where = failed_cell(notebook)
        raise LessonError(f"{path.name}, {where}: {error.ename}: {error.evalue}. Nothing was stored.") from None
    except (DeadKernelError, TimeoutError) as error:
        raise LessonError(f"{path.name} could not be run: {type(error).__name__}: {error}. Nothing was stored.") from None
    clean(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = keep_pictures(before.get(cell.id, []), cell.outputs)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        nbformat.write(notebook, unfinished)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def failed_cell(notebook: nbformat.NotebookNode) -> str:
    """The first code cell with an error that is not there on purpose: its number from 1, and its first line."""
    for number, cell in enumerate((cell for cell in notebook.cells if cell.cell_type == "code"), start=1):
        if "raises-exception" not in cell.metadata.get("tags", []) and any(o.output_type == "error" for o in cell.outputs):
            return f"code cell {number} ({cell.source.strip().splitlines()[0]})"
    return "a code cell"


def clean(notebook: nbformat.NotebookNode) -> None:
    """Number the cells that ran from 1 and drop what differs from run to run or needs a kernel to be seen."""
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": LANGUAGE})
    count = 0
    for cell in notebook.cells:
        cell.metadata = {name: value for name, value in cell.metadata.items() if name in ("tags", "reason")}
        if cell.cell_type != "code":
            continue
        ran = bool(cell.source.strip())
        count += ran
        cell.execution_count = count if ran else None
        cell.outputs = join_streams(cell.outputs)
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = cell.execution_count
            if "data" in output:
                output.data = {kind: value for kind, value in output.data.items() if kind in KEPT}


def join_streams(outputs: Sequence[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """The outputs with neighbouring texts of one stream made one; where the kernel cuts a text is a matter of timing."""
    joined: list[nbformat.NotebookNode] = []
    for output in outputs:
        if joined and output.output_type == "stream" and joined[-1].get("name") == output.name:
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def keep_pictures(old: Sequence[nbformat.NotebookNode], new: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """The new outputs, with the old picture where the two look the same.

    Encoders differ in bytes, and trained curves in the last digit: neither is a change worth a diff.
    """
    if len(old) != len(new):
        return new
    for was, now in zip(old, new):
        pictures = [output.get("data", {}).get("image/png") for output in (was, now)]
        if all(pictures) and look_the_same(*pictures):
            now.data["image/png"] = was.data["image/png"]
    return new


def look_the_same(first: str, second: str) -> bool:
    """Whether two base64 PNGs have the same size and hardly differ in any place.

    A mean over the whole picture would not do: one changed word on a white figure moves it by less than noise does.
    """
    if first == second:
        return True
    one, two = (numpy.asarray(Image.open(io.BytesIO(base64.b64decode(p))).convert("RGB"), dtype=float) for p in (first, second))
    return one.shape == two.shape and float(block_means(abs(one - two)).max()) < SAME_PICTURE


def block_means(pixels: numpy.ndarray) -> numpy.ndarray:
    """Means over blocks of (height, width, channels); a last block that is cut off counts as if filled with zeros."""
    height, width, channels = pixels.shape
    padded = numpy.pad(pixels, ((0, -height % BLOCK), (0, -width % BLOCK), (0, 0)))
    return padded.reshape(padded.shape[0] // BLOCK, BLOCK, padded.shape[1] // BLOCK, BLOCK, channels).mean(axis=(1, 3))


def main(paths: Sequence[str]) -> int:
    """Store the notebooks named, or all lessons; gives 1 if one of them fails, after trying the others."""
    failed = 0
    for path in map(Path, paths or sorted(map(str, NOTEBOOKS.glob("[0-9]*.ipynb")))):
        try:
            store(path)
            print(f"{path.name}: stored")
        except LessonError as error:
            print(error, file=sys.stderr)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
