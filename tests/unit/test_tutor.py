"""Quick checks: every answer has its feedback, by button, by letter and on a page without a kernel."""

import html
import re

import pytest

from amp_lessons.errors import LessonError
from amp_lessons.tutor import progress
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
    assert set(lessons) == set("1234567")
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


def test_correct_answer_is_kept_and_a_wrong_one_is_not(tmp_path, monkeypatch):
    monkeypatch.setenv(progress.VARIABLE, str(tmp_path / "progress.json"))
    question = ask("1-bf16")
    assert question._feedback.value == ask("5-order")._feedback.value
    question.answer("A")
    assert progress.solved() == {}
    question.buttons[1].click()
    assert list(progress.solved()) == ["1-bf16"]
    again = ask("1-bf16")
    assert f"Answered correctly on {progress.solved()['1-bf16']}." in again._feedback.value
    assert repr(again) == repr(question) and "Answered" not in again._repr_mimebundle_()["text/html"]


def test_answer_that_cannot_be_kept_gets_its_feedback_and_a_sentence(tmp_path, monkeypatch):
    (tmp_path / "a file").touch()
    monkeypatch.setenv(progress.VARIABLE, str(tmp_path / "a file" / "progress.json"))
    question = ask("1-bf16")
    said = question.answer("B")
    assert said.startswith("Correct. It has float32's 8 exponent bits") and "Your progress could not be saved" in said
    assert "<br>Your progress could not be saved" in question._feedback.value and 'role="status"' in question._feedback.value
    assert "could not be saved" not in question.answer("A")


def test_question_without_a_name_keeps_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv(progress.VARIABLE, str(tmp_path / "progress.json"))
    Question("?", [Answer("a", "yes", correct=True), Answer("b", "no")]).answer("A")
    assert progress.solved() == {}
