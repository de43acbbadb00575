"""Mixed precision in PyTorch, to be seen: the package under the course's notebooks.

Everything is imported from its own module.
"""

__version__ = "0.1.0"
