"""What servers keep for the feeds of a live run, as it reads to people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from migrator.engine.guard import NEAR
from migrator.render.text import Line, Style, duration, size

if TYPE_CHECKING:
    from migrator.commands.feeds import FeedStatus


def feed_lines(found: list[FeedStatus], *, running: bool) -> Iterator[Line]:
    """A line for each feed of which there is something to tell."""
    for each in found:
        text = feed_text(each, running=running)
        if text:
            near = each.share >= NEAR or (each.left is not None and each.left <= 0)
            style: Style = "yellow" if near else ""
            yield Line(f"      feed of {each.cls} on the {each.side} {text}", style)


def feed_text(each: FeedStatus, *, running: bool) -> str:
    """What is kept, and when that ends; empty where the server tells neither."""
    if each.window is not None and each.left is not None:
        if each.left <= 0:
            return "has lost what was not read: both sides are compared anew"
        lost = "" if running else f"; what was not read is lost in {duration(each.left)}"
        return f"holds {duration(each.window)}{lost}"
    if not each.size and each.room is None:
        return ""
    bound = f"given up at {size(each.bound)}" if running else "and no mirror is there to give it up"
    server = "" if each.room is None else f"; by the server after {size(each.room)} more"
    return f"keeps {size(each.size)} on its disk, {bound}{server}"
