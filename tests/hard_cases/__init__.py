"""Failures that people met in other tools, one file for each, named by its id."""
