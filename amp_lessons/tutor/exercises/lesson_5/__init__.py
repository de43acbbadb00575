"""Exercises of lesson 5, the full AMP step."""

from amp_lessons.tutor.exercises.lesson_5 import step

EXERCISES = (step.EXERCISE,)
