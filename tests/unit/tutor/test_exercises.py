"""Every exercise: its stub, its solution, other right answers, and the wrong ones that people really give."""

import doctest
import time

import pytest
import torch

from amp_lessons.tutor import settings, verdict
from amp_lessons.tutor.exercises import exercise, lessons, names, of_lesson

ALL = [exercise(name) for name in names()]
NAMED = {"ids": lambda found: found.name if hasattr(found, "name") else str(found)}


def cases(kind):
    return [pytest.param(found, case, id=f"{found.name}-{number}") for found in ALL for number, case in enumerate(getattr(found, kind))]


def verdict_on(found, source):
    return found.check(found.answer_of(source))


@pytest.mark.parametrize("found", ALL, **NAMED)
def test_an_untouched_stub_is_not_attempted_and_tells_the_size(found):
    result = verdict_on(found, found.stub)
    assert result.status == verdict.NOT_ATTEMPTED and f"about {found.lines} line" in str(result)


@pytest.mark.parametrize("found", ALL, **NAMED)
def test_the_solution_is_correct(found):
    assert verdict_on(found, found.answer).status == verdict.CORRECT, verdict_on(found, found.answer)


@pytest.mark.parametrize("found, source", cases("alternatives"))
def test_a_right_answer_written_another_way_is_correct(found, source):
    assert verdict_on(found, source).status == verdict.CORRECT, verdict_on(found, source)


@pytest.mark.parametrize("found, wrong", cases("wrong"))
def test_a_wrong_answer_is_told_its_mistake(found, wrong):
    result = verdict_on(found, wrong.source)
    assert result.status in (verdict.INCORRECT, verdict.COULD_NOT_RUN) and wrong.message in str(result), result


def run_spec(found, source):
    namespace = {}
    exec(found.setup, namespace)
    namespace[found.target] = found.answer_of(source)
    test = doctest.DocTestParser().get_doctest(found.spec, namespace, found.name, None, None)
    assert test.examples, "no doctest lines"
    with settings.kept():
        return doctest.DocTestRunner(verbose=False).run(test, out=lambda _: None)


@pytest.mark.parametrize("found", ALL, **NAMED)
def test_the_spec_holds_for_the_solution_and_not_for_the_stub(found):
    assert run_spec(found, found.answer).failed == 0
    assert run_spec(found, found.stub).failed > 0


@pytest.mark.parametrize("found", ALL, **NAMED)
def test_it_has_what_an_exercise_needs(found):
    assert len(found.hints) >= 2 and len(found.wrong) >= 3 and found.alternatives
    assert len({hint.symptom for hint in found.hints}) == len(found.hints)
    assert found.praise and found.title and found.lesson in lessons()
    body = [line for line in found.answer.strip().splitlines() if line.strip() and not line.startswith(("def ", "#"))]
    # The size hint counts the lines that the learner writes: those of the body.
    assert abs(len(body) - found.lines) <= max(1, found.lines // 4)


@pytest.mark.parametrize("found", [found for found in ALL if not found.wants_value], **NAMED)
def test_a_function_is_tried_on_more_than_one_input(found):
    calls = []
    answer = found.answer_of(found.answer)

    def counted(*args, **kwargs):
        calls.append(args)
        return answer(*args, **kwargs)

    assert found.check(counted).correct and len(calls) > 1


@pytest.mark.parametrize("found", [found for found in ALL if not found.wants_value], **NAMED)
def test_a_function_that_raises_could_not_run_and_its_own_line_is_shown(found):
    def broken(*args, **kwargs):
        return undefined_name  # noqa: F821

    result = found.check(broken)
    assert result.status == verdict.COULD_NOT_RUN and "NameError: name 'undefined_name' is not defined" in str(result)
    assert "`return undefined_name" in str(result)


@pytest.mark.parametrize("found", ALL, **NAMED)
def test_a_check_takes_less_than_a_second(found):
    answer = found.answer_of(found.answer)
    found.check(answer)  # what torch imports at first use is not the exercise's
    before = time.process_time()
    found.check(answer)
    assert time.process_time() - before < 1.0


@pytest.mark.parametrize("found", ALL, **NAMED)
def test_a_check_leaves_torch_as_it_was(found):
    def state():
        return (
            torch.random.get_rng_state().tolist(), torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads(),
            torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled(),
        )  # fmt: skip

    before = state()
    for source in (found.answer, found.wrong[0].source):
        verdict_on(found, source)
    assert state() == before


@pytest.mark.parametrize("lesson", lessons())
def test_a_lesson_has_four_to_six(lesson):
    assert 4 <= len(of_lesson(lesson)) <= 6
    assert all(found.lesson == lesson for found in of_lesson(lesson))
