"""How a target must be made, where only the blocks tell: asked of its store before a survey."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from migrator.model.move import At, Tables
from migrator.ports import Infers
from migrator.referring import referring
from migrator.retry import Retry
from migrator.route import NOT_MADE, Route, pages

PAGE = 1_000


def inferred(route: Route, retry: Retry, progress: Callable[[int, int], None]) -> Route:
    """The route with its target described, where the script leaves that to the data.

    Reads the whole source, whatever its size: what a sample leaves out would have no column.
    Raises Refused where no description can be told.
    """
    if not isinstance(route.target, Infers):
        return route
    watching = retry(route.target.inference)
    if watching is None:
        return route
    total, seen = retry(route.source.statistics).blocks, 0
    for range_ in retry(route.source.split, 1):
        for page in pages(route.source, range_, None, PAGE, retry):
            for block in page.blocks:
                try:
                    for new in route.expected(block):
                        watching.add(new)
                except NOT_MADE:
                    continue  # the survey tells of it
            seen += len(page.blocks)
            progress(seen, total)
    return described(route, watching.result())


def described(route: Route, target: At) -> Route:
    """The route with another description of the same target."""
    collection = route.target_store.collection(route.cls, target)
    return replace(route, move=replace(route.move, target=target), target=referring(collection))


def as_planned(route: Route, tables: Tables | None) -> Route:
    """The route with the tables that a plan froze, where it did."""
    at = route.move.target
    if tables is None:
        return route
    return described(route, At(at.store, tables, at.representation, references=at.references))
