"""Figures, not tests: ``make bench`` prints them; nothing here asserts a time."""
