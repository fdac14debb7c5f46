"""Alembic's environment for the control database: revisions of our own tables."""
