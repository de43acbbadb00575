"""Exercises of lesson 2, when small gradients vanish."""

from amp_lessons.tutor.exercises.lesson_2 import average, carried, factor, flushed, stalled

EXERCISES = (average.EXERCISE, flushed.EXERCISE, stalled.EXERCISE, factor.EXERCISE, carried.EXERCISE)
