"""Exercises of lesson 3, autocast picks the precision."""

from amp_lessons.tutor.exercises.lesson_3 import drop, dtypes, master, relative, router

EXERCISES = (dtypes.EXERCISE, router.EXERCISE, relative.EXERCISE, drop.EXERCISE, master.EXERCISE)
