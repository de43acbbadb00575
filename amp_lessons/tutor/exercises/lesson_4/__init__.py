"""Exercises of lesson 4, loss scaling and GradScaler."""

from amp_lessons.tutor.exercises.lesson_4 import hand, largest, scale, skipped, update

EXERCISES = (scale.EXERCISE, skipped.EXERCISE, update.EXERCISE, largest.EXERCISE, hand.EXERCISE)
