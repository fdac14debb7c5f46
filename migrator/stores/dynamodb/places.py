"""Where the items of a block lie: partition key, sort key, and back.

A *place* is the partition key of a block and what its sort keys begin with, which is empty where
a block has a partition for itself. What follows names the entry: its access path (``.`` for the
empty one), or what the template for its pattern says, as ``ROUND#00007``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from migrator.errors import DoesNotFit, Refused
from migrator.model import percent
from migrator.model.block import Block
from migrator.model.path import format_path, parse_path
from migrator.model.rules import Any_, Representation, parse_pattern, pattern_matches
from migrator.model.value import Value, show
from migrator.stores.dynamodb import keys
from migrator.stores.dynamodb.codec import Item
from migrator.stores.dynamodb.options import Options
from migrator.stores.dynamodb.sizes import HASH_BYTES, RANGE_BYTES
from migrator.stores.dynamodb.template import Fields, Missing, Slot, Template, escaped_in

ENTRY = "{entry}"
REMAINDER = "."  # no access path is written so
STAGED = "~"
_STAGE_BYTES = 14
_NUMBERED = re.compile(r"(index|name)([2-9]?)")


class Place(NamedTuple):
    """The partition key, and what the sort keys of the block begin with."""

    pk: str
    prefix: str


class Found(NamedTuple):
    """What the keys of an item say."""

    place: Place
    id: str
    path: str
    stage: str | None = None


class EntryTemplate:
    """How the entries of one pattern are named: ``rounds[*]`` as ``ROUND#{index:05}``."""

    def __init__(self, pattern: str, text: str, where: str, odd: re.Pattern[str]) -> None:
        try:
            self.steps = parse_pattern(pattern) if pattern else ()
        except ValueError as error:
            raise Refused(f"{where}: {error}") from None
        self.template = Template(text, where, odd)
        self.pattern = pattern
        self.widest = 0
        wild = [step for step in self.steps if isinstance(step, Any_)]
        if any(step not in (Any_.ELEMENT, Any_.FIELD) for step in wild):
            raise Refused(f"{where}: ** has no key of its own in {pattern!r}")
        kinds = {Any_.ELEMENT: "index", Any_.FIELD: "name"}
        self._names: list[str | None] = []
        seen: dict[str, int] = {}
        for step in self.steps:
            kind = kinds.get(step) if isinstance(step, Any_) else None
            if kind is None:
                self._names.append(None)
                continue
            seen[kind] = seen.get(kind, 0) + 1
            self._names.append(kind if seen[kind] == 1 else f"{kind}{seen[kind]}")
        wanted = {name for name in self._names if name is not None}
        if {slot.name for slot in self.template.slots} != wanted:
            needed = ", ".join(f"{{{name}}}" for name in sorted(wanted)) or "no slot"
            raise Refused(
                f"{where}: with {text!r} two entries of {pattern!r} could give one key",
                hint=f"it wants {needed}",
            )

    def matches(self, steps: Sequence[str | int]) -> bool:
        return pattern_matches(self.steps, steps)

    def render(self, steps: Sequence[str | int]) -> str:
        values = dict(zip(self._names, steps, strict=True))
        for slot in self.template.slots:
            if slot.width and len(str(values[slot.name])) > slot.width:
                self.widest = max(self.widest, int(values[slot.name]))
        return self.template.render(lambda slot: values[slot.name])

    def parse(self, text: str) -> str | None:
        found = self.template.parse(text)
        if found is None:
            return None
        steps: list[str | int] = []
        for step, name in zip(self.steps, self._names, strict=True):
            if name is None:
                steps.append(step)  # type: ignore[arg-type]
            elif name.startswith("index"):
                if not found[name].isascii() or not found[name].isdigit():
                    return None
                steps.append(int(found[name]))
            else:
                steps.append(found[name])
        path = format_path(steps)
        return path if self.render(steps) == text else None


class Places:
    """The key templates of one location. Raises Refused where they are ambiguous."""

    def __init__(
        self, options: Options, cls: str, representation: Representation, where: str
    ) -> None:
        self._options = options
        self._told_by = options.told_by
        self._cls = cls
        self._where = where
        self._pk_name, self._sk_name = options.key_names
        sk = options.sk
        self.single = ENTRY not in sk
        if not self.single and not sk.endswith(ENTRY):
            raise Refused(f"{where}: {ENTRY} stands at the end of the sort key, not in {sk!r}")
        block = sk if self.single else sk[: -len(ENTRY)]
        odd = escaped_in([block, *options.entries.values()])
        self._odd = odd
        self.pk = Template(options.pk, where, raw=True)
        self.block = Template(block, where, odd, raw=self.single)
        self._check(representation)
        self.entries = [
            EntryTemplate(p, t, f"{where}, entries {p!r}", odd) for p, t in options.entries.items()
        ]
        tail = "" if self.single else "(.+)"
        self._sk = re.compile(self.block.regex + tail, re.DOTALL)
        self._texts: dict[str, str] = {}
        self._paths: dict[str, str | None] = {}
        self.head = self.entry("")
        names = {t.parse(self.head) for t in self.entries} - {None, ""}
        if names:
            raise Refused(f"{where}: the remainder and {names} could give one sort key")

    def _check(self, representation: Representation) -> None:
        slots = [*self.pk.slots, *self.block.slots]
        parts = sorted(slot.part for slot in slots if slot.part is not None)
        if parts not in ([-1], list(range(len(parts)))) or not parts:
            raise Refused(
                f"{self._where}: two blocks could collide: the keys {self.pk.text!r} and "
                f"{self._options.sk!r} do not hold the whole identifier",
                hint="put {id} (or every part of a composite one: {id[0]}, {id[1]}) into them",
            )
        self.parts = 0 if parts == [-1] else len(parts)
        last = self.block.tokens[-1] if self.block.tokens else None
        runs_on = isinstance(last, Slot) or (last is not None and not self._odd.search(last))
        if not self.single and runs_on:
            raise Refused(
                f"{self._where}: with {self._options.sk!r} two blocks could give one key",
                hint=f"put a character such as # before {ENTRY}",
            )
        if self.single and any(rule.steps for rule in representation.rules):
            raise Refused(
                f"{self._where}: a sort key without {ENTRY} holds a block of one entry alone",
                hint=f"use a representation such as /{self._cls}/*, or put {ENTRY} at its end",
            )
        self.fields = [slot.name for slot in slots if slot.part is None]
        """The access paths that keys use beside the block key: they move the block."""

    # ------------------------------------------------------------ to keys

    def of(self, block: Block) -> Place:
        """Where a block lies. Raises DoesNotFit."""
        fields = Fields(block)

        def value(slot: Slot) -> Value:
            held = fields(slot)
            if slot.part is None or (slot.width and isinstance(held, int)):
                return held
            return keys.text_in(held, self._told_by)[0]

        try:
            place = Place(self.pk.render(value), self.block.render(value))
        except (Missing, ValueError) as error:
            raise self._unfit(block.id, f"its key can't be made: {error}") from None
        if self.parts and (type(block.id) is not list or len(block.id) != self.parts):
            raise self._unfit(block.id, f"the keys want a block key of {self.parts} parts")
        if place.pk.startswith(keys.RESERVED):
            raise self._unfit(block.id, "its partition key is as those of markers of Migrator's")
        if not 0 < len(place.pk.encode()) <= HASH_BYTES:
            raise self._unfit(block.id, f"its partition key is over {HASH_BYTES} bytes, or empty")
        return place

    def tagged(self, id: Value) -> tuple[str, str | None]:
        """The text of a block key and the tag that says what it was; no tag for what is
        read so anyway. Raises DoesNotFit."""
        text, tag = keys.text_in(id, self._told_by)
        plain = ",".join(["list", *[""] * self.parts]) if self.parts else None
        return text, None if tag == plain else tag

    def of_id(self, id: Value) -> Place:
        """Where the block of a key lies, in layouts whose keys hold nothing else."""
        return self.of(Block(id, {}))

    def _unfit(self, id: Value, why: str, path: str = "") -> DoesNotFit:
        return DoesNotFit(f"{show(id)[:200]}: {why}", key=id, path=path, where=self._where)

    def entry(self, path: str) -> str:
        """What names an entry in the sort key."""
        text = self._texts.get(path)
        if text is None:
            text = self._entry(path)
            if len(self._texts) < 50_000:
                self._texts[path] = text
        return text

    def _entry(self, path: str) -> str:
        if self.single:
            return ""
        steps = parse_path(path)
        for template in self.entries:
            if template.matches(steps):
                return template.render(steps)
        if not path:
            return REMAINDER
        text = percent.escape(path, self._odd)
        if any(template.parse(text) is not None for template in self.entries):
            return percent.escape_first(text)
        return text

    def sk(self, id: Value, place: Place, path: str) -> str:
        """The sort key of an entry. Raises DoesNotFit where it is too long."""
        text = place.prefix + self.entry(path)
        if not 0 < len(text.encode()) <= RANGE_BYTES - _STAGE_BYTES:
            raise self._unfit(
                id, f"its sort key is over {RANGE_BYTES - _STAGE_BYTES} bytes, or empty", path[:100]
            )
        return text

    def staged(self, place: Place, sk: str, stage: str) -> str:
        """The sort key under which an entry waits for the block to change."""
        return f"{place.prefix}{STAGED}{stage}{STAGED}{sk[len(place.prefix) :]}"

    def key(self, place: Place, sk: str) -> Item:
        return {self._pk_name: {"S": place.pk}, self._sk_name: {"S": sk}}

    def condition(self, place: Place) -> dict[str, Any]:
        """The request of a query for the items of a place."""
        names, values = {"#p": self._pk_name}, {":p": {"S": place.pk}}
        text = "#p = :p"
        if place.prefix:
            names["#q"], values[":q"] = self._sk_name, {"S": place.prefix}
            text += " AND #q = :q" if self.single else " AND begins_with(#q, :q)"
        return {
            "KeyConditionExpression": text,
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": values,
        }

    # ------------------------------------------------------------ from keys

    def find(self, item: Item) -> Found | None:
        """What the keys of an item say; None for one of another class."""
        attribute = self._options.class_attribute
        if attribute is not None and item.get(attribute) != {"S": self._cls}:
            return None
        pk, sk = item[self._pk_name].get("S"), item[self._sk_name].get("S")
        if pk is None or sk is None:
            return None
        values = self.pk.parse(pk)
        found = self._sk.fullmatch(sk)
        if values is None or found is None:
            return None
        tail = "" if self.single else found.groups()[-1]
        prefix = sk[: len(sk) - len(tail)]
        more = self.block.parse(prefix)
        if more is None:
            return None
        stage = None
        if tail.startswith(STAGED):
            _, stage, tail = [*tail.split(STAGED, 2), "", ""][:3]
        path = self._path(tail)
        if path is None:
            return None
        id = self._id(values | more)
        if not keys.is_text_in(id, self._told_by):
            return None
        return Found(Place(pk, prefix), id, path, stage)

    def _path(self, text: str) -> str | None:
        if text not in self._paths:
            if len(self._paths) > 50_000:
                self._paths.clear()
            self._paths[text] = self._parsed(text)
        return self._paths[text]

    def _parsed(self, text: str) -> str | None:
        if self.single or text == self.head:
            return ""
        for template in self.entries:
            if (path := template.parse(text)) is not None:
                return path
        path = percent.unescape(text)
        try:
            known = bool(parse_path(path)) and self.entry(path) == text
        except ValueError:
            return None
        return path if known else None

    def _id(self, values: dict[str, str]) -> str:
        if not self.parts:
            return values["id"]
        texts = (values[f"id[{i}]"] for i in range(self.parts))
        return ",".join(text.replace("\\", "\\\\").replace(",", "\\,") for text in texts)

    def read_id(self, text: str, tag: str | None) -> Value:
        """The block key behind what stands in the keys."""
        if tag is None and self.parts:
            tag = ",".join(["list", *[""] * self.parts])
        return keys.from_text_in(text, tag, self._told_by)
