"""Quick checks: every answer has its feedback, by button, by letter and on a page without a kernel."""

import html
import re

import pytest

from amp_lessons.errors import LessonError
from amp_lessons.tutor.questions import _QUESTIONS, ask
from amp_lessons.tutor.quiz import Answer, Question


@pytest.mark.parametrize("name", _QUESTIONS)
def test_every_answer_by_letter_and_by_button(name):
    question = ask(name)
    for letter, button in zip(question.answers, question.buttons):
        answer = question.answers[letter]
        said = question.answer(letter.lower())
        assert answer.feedback in said and said.startswith("Correct." if answer.correct else "Not quite.")
        question._feedback.value = ""
        button.click()
        assert html.escape(answer.feedback) in question._feedback.value and 'role="status"' in question._feedback.value


@pytest.mark.parametrize("name", _QUESTIONS)
def test_stored_copy_unfolds_each_feedback_and_text_does_not_give_it_away(name):
    question = ask(name)
    data = question._repr_mimebundle_()
    assert data["text/html"].count("<details>") == len(question.answers)
    for answer in question.answers.values():
        assert html.escape(answer.feedback) in data["text/html"]
        assert answer.text in data["text/plain"] and answer.feedback not in data["text/plain"]


def test_every_lesson_has_one_to_three_questions():
    lessons = [re.match(r"\d", name).group() for name in _QUESTIONS]
    assert set(lessons) == set("123457")
    assert all(1 <= lessons.count(number) <= 3 for number in set(lessons))


def test_unknown_letter_and_name_are_sentences():
    with pytest.raises(LessonError, match="choose one of A, B"):
        ask("5-order").answer("Z")
    with pytest.raises(LessonError, match="There is no question"):
        ask("nothing")


@pytest.mark.parametrize(
    "answers",
    [
        [Answer("a", "no"), Answer("b", "no")],
        [Answer("a", "yes", correct=True), Answer("b", "yes", correct=True)],
        [Answer("a", "yes", correct=True), Answer("b", "")],
    ],
)
def test_question_without_one_right_answer_or_without_feedback_is_refused(answers):
    with pytest.raises(LessonError, match="exactly one correct answer"):
        Question("?", answers)
