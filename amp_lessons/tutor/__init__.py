"""The tutor: questions and exercises that answer back."""
