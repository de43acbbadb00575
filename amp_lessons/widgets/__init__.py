"""Widgets: controls, a kept figure and its text twin, wired to the package's pure functions."""
