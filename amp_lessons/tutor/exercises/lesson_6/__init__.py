"""Exercises of lesson 6: when mixed precision pays."""

from amp_lessons.tutor.exercises.lesson_6 import choose, even, limit, median, pad

EXERCISES = (even.EXERCISE, pad.EXERCISE, limit.EXERCISE, choose.EXERCISE, median.EXERCISE)
