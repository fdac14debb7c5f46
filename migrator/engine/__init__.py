"""Carries a plan out; start reading at run.py."""
