"""What every lesson keeps to, as functions from a notebook to a list of complaints."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator

import nbformat
from nbformat import NotebookNode


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]


def markdown_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "markdown"]


def tags(cell: NotebookNode) -> list[str]:
    return cell.metadata.get("tags", [])


def to_read(cells: list[NotebookNode]) -> list[NotebookNode]:
    """The cells that a lesson is read by; its exercises are for doing, and have a length of their own."""
    return [cell for cell in cells if "exercise" not in tags(cell)]


def compared_texts(cell: NotebookNode) -> Iterator[str]:
    """Every text of a cell's outputs that strict nbval compares."""
    for output in cell.get("outputs", []):
        if output.output_type == "stream":
            yield output.text
        yield from (text for kind, text in output.get("data", {}).items() if kind.startswith("text/"))


def prose(cell: NotebookNode) -> str:
    """A markdown cell's words: without code blocks, link targets and marks."""
    text = re.sub(r"```.*?```", " ", cell.source, flags=re.S)
    return re.sub(r"\]\([^)]*\)", "] ", text)


def words(text: str) -> int:
    return len(re.findall(r"[^\W_][\w'’.^-]*", text))


def code_lines(cell: NotebookNode) -> int:
    return sum(bool(line.strip()) for line in cell.source.splitlines())


# -- how it is stored -----------------------------------------------------------------------------------------------


def is_valid(notebook: NotebookNode) -> list[str]:
    try:
        nbformat.validate(notebook)
    except nbformat.ValidationError as error:
        return [f"not a valid notebook: {error.message}"]
    return []


def counts_run_from_one(notebook: NotebookNode) -> list[str]:
    """nbval compares nothing in a cell that has no execution count."""
    counts = [cell.execution_count for cell in code_cells(notebook)]
    return [] if counts == list(range(1, len(counts) + 1)) else [f"execution counts are {counts}, not 1 to {len(counts)}"]


def names_its_kernel(notebook: NotebookNode) -> list[str]:
    metadata = notebook.metadata
    good = metadata.get("kernelspec", {}).get("name") == "python3" and metadata.get("language_info", {}).get("name") == "python"
    return [] if good else ["kernelspec and language_info must name python3 and python"]


def stores_no_widgets(notebook: NotebookNode) -> list[str]:
    found = ["the notebook's metadata hold widget state"] if "widgets" in notebook.metadata else []
    return found + _stored_kinds(notebook, lambda kind: "widget" in kind, "a live widget is stored")


def stores_no_svg(notebook: NotebookNode) -> list[str]:
    return _stored_kinds(notebook, lambda kind: "svg" in kind, "SVG is stored, which nbval compares and which differs each time")


def _stored_kinds(notebook, is_bad, complaint) -> list[str]:
    return [
        f"cell {cell.execution_count}: {complaint}"
        for cell in code_cells(notebook)
        for output in cell.outputs
        if any(is_bad(kind) for kind in output.get("data", {}))
    ]


def stores_no_stderr(notebook: NotebookNode) -> list[str]:
    return [f"cell {c.execution_count}: stderr is stored" for c in code_cells(notebook) for o in c.outputs if o.get("name") == "stderr"]


def stores_no_unexpected_error(notebook: NotebookNode) -> list[str]:
    return [
        f"cell {cell.execution_count}: an error is stored"
        for cell in code_cells(notebook)
        if "raises-exception" not in tags(cell) and any(output.output_type == "error" for output in cell.outputs)
    ]


_VOLATILE = {
    "a memory address": r"\b0x[0-9a-fA-F]{6,}",
    "a path": r"(?<![\w.])/(?:home|usr|tmp|root|work|opt|Users)/|[A-Z]:\\\\?\w",
    "a duration": r"\b\d+(?:\.\d+)?\s?(?:ms|µs|us|ns|seconds|secs?|s)\b(?!\w)",
}


def prints_nothing_volatile(notebook: NotebookNode) -> list[str]:
    return [
        f"cell {cell.execution_count}: {name} in a compared output"
        for cell in code_cells(notebook)
        if "nbval-ignore-output" not in tags(cell)
        for text in compared_texts(cell)
        for name, pattern in _VOLATILE.items()
        if re.search(pattern, text)
    ]


def ignores_few_outputs(notebook: NotebookNode) -> list[str]:
    ignoring = [cell for cell in code_cells(notebook) if "nbval-ignore-output" in tags(cell)]
    found = [f"{len(ignoring)} cells ignore their output; three at most"] if len(ignoring) > 3 else []
    return found + [f"cell {c.execution_count}: no reason for ignoring its output" for c in ignoring if not c.metadata.get("reason")]


def skips_nothing(notebook: NotebookNode) -> list[str]:
    return [f"cell {c.execution_count}: is skipped" for c in code_cells(notebook) if {"nbval-skip", "skip-execution"} & set(tags(c))]


def pictures_have_words(notebook: NotebookNode) -> list[str]:
    """Each picture comes with a text that says what it shows, and with the same or more as its alternative text."""
    found = []
    for cell in code_cells(notebook):
        for output in cell.outputs:
            if "image/png" in output.get("data", {}):
                twin = output.data.get("text/plain", "")
                if len(twin) < 40 or twin.startswith("<"):
                    found.append(f"cell {cell.execution_count}: its picture has no text twin")
                if len(output.metadata.get("image/png", {}).get("alt", "")) < 40:
                    found.append(f"cell {cell.execution_count}: its picture has no alternative text")
    return found


# -- how it is written ----------------------------------------------------------------------------------------------

_FORBIDDEN = {
    "a trailing ';' (nbval shows the value that it hides)": r";\s*$",
    "interact (it swallows errors, and nbval fails)": r"\binteract(?:ive\w*)?\(",
    "an Output widget (nbval fails)": r"\bOutput\(",
    "clear_output (nbval fails)": r"\bclear_output\b",
    "pip or a shell command": r"^\s*[!%]",
    "pyplot (figures are Pictures)": r"\bpyplot\b",
}


def code_avoids_traps(notebook: NotebookNode) -> list[str]:
    return [
        f"cell {cell.execution_count}: {name}"
        for cell in code_cells(notebook)
        for name, pattern in _FORBIDDEN.items()
        if re.search(pattern, cell.source, flags=re.M)
    ]


def code_is_modern(notebook: NotebookNode) -> list[str]:
    return [
        f"cell {cell.execution_count}: torch.cuda.amp is deprecated; tag it shows-deprecated if that is the point"
        for cell in code_cells(notebook)
        if re.search(r"torch\.(cuda|cpu)\.amp", cell.source) and "shows-deprecated" not in tags(cell)
    ]


def code_is_short(notebook: NotebookNode) -> list[str]:
    lengths = [code_lines(cell) for cell in to_read(code_cells(notebook))]
    found = [f"cell {c.execution_count}: {code_lines(c)} code lines; 15 at most" for c in code_cells(notebook) if code_lines(c) > 15]
    if not 2 <= statistics.median(lengths or [0]) <= 6:
        found.append(f"the median code cell has {statistics.median(lengths or [0])} lines; 2 to 6")
    return found


def has_the_right_length(notebook: NotebookNode) -> list[str]:
    cells, total = len(to_read(notebook.cells)), sum(words(prose(cell)) for cell in to_read(markdown_cells(notebook)))
    found = [f"{cells} cells; 40 to 70"] if not 40 <= cells <= 70 else []
    return found + ([f"{total} words of prose; 800 to 1,400"] if not 800 <= total <= 1400 else [])


def prose_comes_in_short_pieces(notebook: NotebookNode) -> list[str]:
    return [
        f"{words(prose(cell))} words in one piece, 150 at most: {cell.source[:40]!r}"
        for cell in markdown_cells(notebook)
        if words(prose(cell)) > 150
    ]


def headings(notebook: NotebookNode) -> list[tuple[int, str]]:
    found = []
    for cell in markdown_cells(notebook):
        text = re.sub(r"```.*?```", "", cell.source, flags=re.S)
        found += [(len(marks), title) for marks, title in re.findall(r"^(#+)\s+(.+)$", text, flags=re.M)]
    return found


def headings_do_not_jump(notebook: NotebookNode) -> list[str]:
    levels = [level for level, _ in headings(notebook)]
    found = [] if levels[:1] == [1] and levels.count(1) == 1 else ["the lesson needs one h1, and first"]
    return found + [f"a heading of level {b} after one of {a}" for a, b in zip(levels, levels[1:]) if b > a + 1]


def ends_with_check_and_recap(notebook: NotebookNode) -> list[str]:
    titles = [title.lower() for _, title in headings(notebook)]
    wanted = ("quick check", "what you can do now", "recap", "in practice", "further reading")
    places = [next((i for i, title in enumerate(titles) if title.startswith(name)), -1) for name in wanted]
    found = [f"no section called {name!r}" for name, place in zip(wanted, places) if place < 0]
    return found or ([] if places == sorted(places) else [f"the last sections are not in the order {', '.join(wanted)}"])


def markdown_pictures_have_alternatives(notebook: NotebookNode) -> list[str]:
    return [f"a picture without alternative text: {cell.source[:40]!r}" for cell in markdown_cells(notebook) if "![](" in cell.source]


RULES = (
    is_valid,
    counts_run_from_one,
    names_its_kernel,
    stores_no_widgets,
    stores_no_svg,
    stores_no_stderr,
    stores_no_unexpected_error,
    prints_nothing_volatile,
    ignores_few_outputs,
    skips_nothing,
    pictures_have_words,
    code_avoids_traps,
    code_is_modern,
    code_is_short,
    has_the_right_length,
    prose_comes_in_short_pieces,
    headings_do_not_jump,
    ends_with_check_and_recap,
    markdown_pictures_have_alternatives,
)

# The start page is no lesson: it is short, its cells are one call each, and it has nothing to check or to recap.
OF_LESSONS_ONLY = {code_is_short, has_the_right_length, ends_with_check_and_recap}


def rules_for(name: str) -> list:
    """The rules that the notebook with this file name keeps; the start page is number 0."""
    return [rule for rule in RULES if not (name.startswith("00_") and rule in OF_LESSONS_ONLY)]
