"""Reconcile where keys change on the way."""

from __future__ import annotations

from migrator.engine.reconcile import Reconciler
from migrator.engine.work import Scene
from migrator.route import Route
from migrator.state import LiveState


def reconciler(scene: Scene, route: Route, live: LiveState, request_life: float) -> Reconciler:
    """What makes the mirror of a move equal."""
    return Reconciler(scene, route, live, request_life)


__all__ = ["reconciler"]
