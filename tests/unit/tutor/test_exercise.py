"""What every check has in common: verdicts, hints, the solution, progress, and how it is shown."""

import ast
import html
import subprocess
import sys

import pytest
import torch

from amp_lessons.errors import LessonError
from amp_lessons.tutor import progress, sources, verdict
from amp_lessons.tutor.exercise import Exercise, Hint, Wrong
from amp_lessons.tutor.exercises import exercise, names
from amp_lessons.tutor.panel import Panel
from amp_lessons.tutor.questions import _QUESTIONS

STUB = '''
def double(x):
    """Twice `x`.

    >>> double(2)
    4
    """
    ...
'''


def examine(double):
    for x in (1, 3):
        given = double(x)
        if given != 2 * x:
            return f"double({x}) is {given}, not {2 * x}. Is `x` < 2?"
    return None


DOUBLE = Exercise(
    name="5-double", title="Twice", target="double", stub=STUB, answer="def double(x):\n    return 2 * x", lines=1, examine=examine,
    praise="2x it is.", hints=(Hint("I get x & no more", "Multiply."), Hint("I get `x` squared", "Do not.")),
    alternatives=("double = lambda x: x + x",), wrong=(Wrong("squares", "def double(x):\n    return x * x", "double(1) is 1"),),
)  # fmt: skip
VALUE = Exercise(
    name="5-value", title="Two", target="two", stub="# >>> two\n# 2\ntwo = ...", answer="two = 2", lines=1,
    examine=lambda two: None if two == 2 else f"{two} is not 2.", praise="Yes.", hints=DOUBLE.hints, alternatives=(), wrong=(),
)  # fmt: skip


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A learner's progress file."""
    path = tmp_path / "progress.json"
    monkeypatch.setenv(progress.VARIABLE, str(path))
    return path


def run(source, of=DOUBLE):
    return of.check(of.answer_of(source))


def test_the_four_verdicts():
    assert run(STUB).status == verdict.NOT_ATTEMPTED
    assert str(run(DOUBLE.answer)) == "Exercise 5-double: correct. 2x it is."
    assert str(run(DOUBLE.wrong[0].source)) == "Exercise 5-double: incorrect. double(1) is 1, not 2. Is `x` < 2?"
    assert str(run("def double(x):\n    return x / 0")) == (
        "Exercise 5-double: could not run. ZeroDivisionError: division by zero, in line 2 of your cell: `return x / 0`."
    )


@pytest.mark.parametrize("body", ["...", "pass", '"""Another docstring."""', "return ...", '"""x"""\n    ...'])
def test_what_still_does_nothing_is_not_attempted(body):
    assert run(f"def double(x):\n    {body}").status == verdict.NOT_ATTEMPTED


@pytest.mark.parametrize("body", ["return None", "x = 2 * x", "return x", "print(end='')"])
def test_what_does_something_is_attempted(body):
    # `return None` is the stub's own code: it cannot be told from it.
    wanted = verdict.NOT_ATTEMPTED if body == "return None" else verdict.INCORRECT
    assert run(f"def double(x):\n    {body}").status == wanted


@pytest.mark.parametrize("value", ["...", "(1, ...)", "[..., 2]", '{"a": ...}'])
def test_a_value_with_an_ellipsis_left_is_not_attempted(value):
    assert run(f"two = {value}", VALUE).status == verdict.NOT_ATTEMPTED
    assert run("two = 3", VALUE).status == verdict.INCORRECT and run("two = 2", VALUE).correct


def test_what_a_function_returns_is_not_the_function():
    assert "Give `check` the function itself, `check(double)`" in str(DOUBLE.check(4))
    assert "asks for a value" in str(VALUE.check(lambda: 2))


def test_an_endless_loop_is_ended_with_a_message():
    result = DOUBLE.check(DOUBLE.answer_of("def double(x):\n    while True:\n        pass"), seconds=0.05)
    assert result.status == verdict.COULD_NOT_RUN and "stopped after 0.05 seconds" in str(result)


def test_an_answer_of_an_unforeseen_kind_is_no_traceback():
    class Odd:
        def __ne__(self, other):
            raise RuntimeError("not comparable")

    result = DOUBLE.check(lambda x: Odd())
    assert result.status == verdict.COULD_NOT_RUN and "RuntimeError: not comparable" in str(result)


def test_an_interrupt_is_passed_on():
    def interrupted(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        DOUBLE.check(interrupted)


def test_a_known_error_gets_its_likely_cause():
    def twice(x):
        scaler, weight = torch.amp.GradScaler("cpu"), torch.nn.Parameter(torch.ones(1))
        optimizer = torch.optim.SGD([weight], lr=1.0)
        scaler.scale(weight.sum()).backward()
        scaler.step(optimizer)
        scaler.step(optimizer)

    assert "Likely cause: scaler.update() was not called" in str(DOUBLE.check(twice))


def test_a_correct_answer_is_kept_and_told_when_the_stub_is_back(kept):
    run(DOUBLE.wrong[0].source)
    assert not kept.exists()
    DOUBLE.check(DOUBLE.answer_of(DOUBLE.answer), keep=False)
    assert not kept.exists()
    assert run(DOUBLE.answer).note == "" and set(progress.solved()) == {"5-double"}
    assert f"You solved it on {progress.solved()['5-double']}." in str(run(STUB))


def test_progress_that_cannot_be_saved_is_a_note_and_no_more(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv(progress.VARIABLE, str(blocked / "progress.json"))
    result = run(DOUBLE.answer)
    assert result.correct and result.note and result.note in str(result)


def test_hints_are_listed_by_symptom_and_opened_by_number():
    assert str(DOUBLE.hint()).splitlines()[1:] == ["1. I get x & no more", "2. I get `x` squared"]
    assert repr(DOUBLE.hint(2)) == "I get `x` squared: Do not."
    for number in (0, 3, "1", True + 2):
        with pytest.raises(LessonError, match="hints 1 to 2"):
            DOUBLE.hint(number)
    assert repr(DOUBLE.solution()) == DOUBLE.answer


def test_an_unknown_name_is_a_sentence():
    with pytest.raises(LessonError, match="There is no exercise '5-nothing'; there are 5-late, "):
        exercise("5-nothing")
    for name in ("nothing", "", "99-step"):
        with pytest.raises(LessonError, match="There is no exercise"):
            exercise(name)


def test_exercises_and_quick_checks_share_no_name():
    """Both are kept in one progress file, under their names."""
    assert not set(names()) & set(_QUESTIONS) and len(set(names())) == len(names())


def test_in_a_notebook_it_is_a_panel_with_text_and_folded_hints():
    data = run(DOUBLE.wrong[0].source)._repr_mimebundle_()
    assert data["text/plain"] == "Exercise 5-double: incorrect. double(1) is 1, not 2. Is `x` < 2?"
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["text/html"].count("<details>") == 2 and "x &amp; no more" in data["text/html"]
    assert "<strong>Exercise 5-double: incorrect.</strong>" in data["text/html"]
    assert ">x</code> &lt; 2?" in data["text/html"] and DOUBLE.answer not in html.unescape(data["text/html"])


def test_its_buttons_open_a_hint_and_the_solution():
    panel = Panel(run(DOUBLE.wrong[0].source))
    assert [button.description for button in panel.hints] == ["Hint: I get x & no more", "Hint: I get `x` squared"]
    panel.hints[0].click()
    assert "Multiply." in panel._opened.value and 'role="status"' in panel._opened.value
    panel.solution.click()
    assert "<pre" in panel._opened.value and "return 2 * x" in panel._opened.value


@pytest.mark.parametrize("text", ["a `b` c", "one ` alone", "`a` and `b` and ` left", "plain", "", "`a`"])
def test_backticks_become_code_and_no_text_is_lost(text):
    shown = verdict.as_html(text)
    left = "".join(part.partition(">")[2] if part.startswith(("code", "/code")) else f"<{part}" for part in shown.split("<"))[1:]
    assert html.unescape(left).replace("`", "") == text.replace("`", "")
    assert shown.count("<code") == text.count("`") // 2


def test_the_spec_is_read_from_the_docstring_or_the_comments():
    assert ">>> double(2)\n" in DOUBLE.spec and VALUE.spec == ">>> two\n2"


def test_cells_are_python_with_the_check_as_their_last_line():
    for name in names():
        for source in (exercise(name).cell(), exercise(name).cell(exercise(name).answer)):
            assert ast.unparse(ast.parse(source).body[-1]).startswith(f"exercise('{name}').check(")


def test_same_code_ignores_names_of_functions_and_docstrings_only():
    def of(source):
        return sources.run(source, "<test>")["f"]

    one = of('def f(x):\n    """One."""\n    return x + 1')
    assert sources.same_code(one, of("def f(x):\n\n    # a comment\n    return x + 1"))
    for other in ("def f(x):\n    return x + 2", "def f(x):\n    return x - 1", "def f(y):\n    return y.z", "def f(x):\n    return lambda: x"):
        assert not sources.same_code(one, of(other))


def test_it_works_in_a_terminal():
    code = (
        "from amp_lessons.tutor.exercises import exercise\n"
        "print(exercise('5-late').check(2.0**-9))\nprint(exercise('5-late').hint())\nprint(exercise('5-late').solution())"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.startswith("Exercise 5-late: correct."), done.stderr
    assert "Which of these is yours?" in done.stdout and "norm_left = 2.0**-9" in done.stdout
