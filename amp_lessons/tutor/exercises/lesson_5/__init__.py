"""Exercises of lesson 5, the full AMP step."""

from amp_lessons.tutor.exercises.lesson_5 import accumulate, late, schedule, snapshot, step

EXERCISES = (late.EXERCISE, schedule.EXERCISE, snapshot.EXERCISE, step.EXERCISE, accumulate.EXERCISE)
