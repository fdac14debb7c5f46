"""The side attribute: what a reader with the plain driver need not know."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from migrator.stores.dynamodb.codec import Av
from migrator.stores.dynamodb.options import SIDE

ITSELF = "."  # no path is written so, and no name in a map may be empty
SUM = "sum"
_KEYS = {"tags", "names", "id", "key", "version", "head", "stamp", "expires", SUM}


@dataclass
class Side:
    """The content of the side attribute; ``more`` is what this module does not read."""

    tags: dict[str, dict[str, str]] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    id: str | None = None
    key: bool | None = None
    expires: int | None = None
    more: dict[str, Av] = field(default_factory=dict)
    ours: bool = False

    def note(self, name: str, tags: Mapping[str, str], escaped: bool) -> None:
        """Replace what is said of an attribute."""
        self.forget(name)
        if tags:
            self.tags[name] = dict(tags)
        if escaped:
            self.names.add(name)

    def forget(self, name: str) -> None:
        self.tags.pop(name, None)
        self.names.discard(name)

    def wire(self) -> Av | None:
        """The attribute value; None where there is nothing to say."""
        held: dict[str, Av] = dict(self.more)
        if self.tags:
            held["tags"] = {"M": {name: _tags(tags) for name, tags in self.tags.items()}}
        if self.names:
            held["names"] = {"SS": sorted(self.names)}
        if self.id is not None:
            held["id"] = {"S": self.id}
        if self.key is not None:
            held["key"] = {"BOOL": self.key}
        if self.expires is not None:
            held["expires"] = {"N": str(self.expires)}
        if not held:
            return None
        if "stamp" in held:
            return {"M": held}  # an entry of several; conditions are on the head
        # A condition can compare text on every server, maps not on all: the sum stands for all.
        data = json.dumps(held, sort_keys=True).encode()
        return {"M": held | {SUM: {"S": blake2b(data, digest_size=9).hexdigest()}}}

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> Side:
        """The side of an item; an empty one where the attribute is somebody's own."""
        held = item.get(SIDE, {}).get("M")
        if not isinstance(held, dict) or not held.keys() <= _KEYS:
            return cls()
        side = cls(ours=True)
        for name, av in held.items():
            match name, av:
                case "tags", {"M": tags}:
                    side.tags = {attribute: _read(x) for attribute, x in tags.items()}
                case "names", {"SS": names}:
                    side.names = set(names)
                case "id", {"S": tag}:
                    side.id = tag
                case "key", {"BOOL": says}:
                    side.key = says
                case "expires", {"N": millis}:
                    side.expires = int(millis)
                case "sum", _:
                    pass  # it is made anew
                case _:
                    side.more[name] = av
        return side


def _tags(tags: Mapping[str, str]) -> Av:
    return {"M": {path or ITSELF: {"S": tag} for path, tag in tags.items()}}


def _read(av: Mapping[str, Any]) -> dict[str, str]:
    held = av.get("M")
    if not isinstance(held, dict):
        return {}
    return {("" if path == ITSELF else path): str(x.get("S", "")) for path, x in held.items()}
