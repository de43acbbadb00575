"""Exercises of lesson 1, number formats and what is mixed."""

from amp_lessons.tutor.exercises.lesson_1 import fields, rms, spacing, step_bytes, token

EXERCISES = (token.EXERCISE, fields.EXERCISE, spacing.EXERCISE, step_bytes.EXERCISE, rms.EXERCISE)
