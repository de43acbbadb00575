"""Figures: matplotlib drawings of results computed elsewhere, each with a text twin."""
