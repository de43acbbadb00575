"""Exercises of lesson 7, the clinic: sick loops to mend."""

from amp_lessons.tutor.exercises.lesson_7 import decay, guard, log, mask, three

EXERCISES = (log.EXERCISE, mask.EXERCISE, decay.EXERCISE, guard.EXERCISE, three.EXERCISE)
