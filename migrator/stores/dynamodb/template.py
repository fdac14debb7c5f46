"""Key templates: ``ORDER#{date}#{id}``, rendered so that what went in can be told again.

A slot is ``{id}``, a part of a composite key ``{id[0]}``, or an access path; ``{x:05}`` pads a
whole number with zeros, so that text sorts as numbers do. The characters that stand between the
slots are escaped inside them (``%23`` for ``#``), so no two blocks give one key; a template
where two could is refused when it is loaded. ``{{`` and ``}}`` are braces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from migrator.errors import DoesNotFit, Refused
from migrator.model import percent
from migrator.model.block import Block
from migrator.model.path import lookup, parse_path
from migrator.model.rules import CorruptBlock, assemble
from migrator.model.tags import to_carrier
from migrator.model.value import Record, Value, show
from migrator.stores.dynamodb import codec
from migrator.stores.dynamodb.codec import Av, Item
from migrator.stores.dynamodb.options import Options
from migrator.stores.dynamodb.sizes import HASH_BYTES

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|[^{}]+")
_SLOT = re.compile(r"(?P<name>.*?)(?::0(?P<width>[1-9]\d?))?", re.DOTALL)
_ID = re.compile(r"id(?:\[(\d+)\])?")
ALWAYS = "%~\ud800-\udfff"
_NOTHING = re.compile("(?!)")


class Missing(Exception):
    """A slot has no value in this block."""


@dataclass(frozen=True)
class Slot:
    """A place in a template: what stands there, and how wide a number is at least."""

    name: str
    width: int = 0

    @property
    def part(self) -> int | None:
        """Which part of the block key it is: -1 for the whole key, None for something else."""
        found = _ID.fullmatch(self.name)
        if found is None:
            return None
        return -1 if found[1] is None else int(found[1])

    def render(self, value: Value, odd: re.Pattern[str]) -> str:
        """The text of a value. Raises ValueError for what can't stand here."""
        if self.width:
            if type(value) is bool or not isinstance(value, int) or value < 0:
                raise ValueError(f"{show(value)!r} is no whole number that zeros can pad")
            return f"{int(value):0{self.width}}"
        if type(value) is not str:
            value = str(int(value)) if isinstance(value, int) and type(value) is not bool else value
        if type(value) is not str:
            try:
                _, value = to_carrier(value)
            except TypeError:
                value = None
        if type(value) is not str:
            raise ValueError("a list, a record or a set can't stand in a key")
        return percent.escape(value, odd)


class Template:
    """A parsed template. Raises Refused where two blocks could give one key.

    ``odd`` is what is escaped in the slots. A lone slot may be ``raw``: it is the key itself.
    """

    def __init__(
        self, text: str, where: str, odd: re.Pattern[str] | None = None, raw: bool = False
    ) -> None:
        self.text = text
        self._where = where
        self.tokens = list(_tokens(text, where))
        self.slots = [token for token in self.tokens if isinstance(token, Slot)]
        self._raw = raw and len(self.tokens) == len(self.slots) == 1 and not self.slots[0].width
        self._odd = odd or escaped_in([text])
        self._check()
        self.regex = "".join(map(self._regex, self.tokens))
        self._pattern = re.compile(self.regex, re.DOTALL)

    @property
    def first_literal(self) -> str:
        """What every key made of it begins with."""
        head = self.tokens[0] if self.tokens else ""
        return head if isinstance(head, str) else ""

    def _check(self) -> None:
        names = [slot.name for slot in self.slots]
        if len(set(names)) < len(names):
            raise Refused(f"{self._where}: {self.text!r} has a slot twice")
        for left, middle in zip(self.tokens, self.tokens[1:], strict=False):
            if isinstance(left, Slot) and isinstance(middle, Slot):
                raise self._ambiguous("nothing stands between two slots")
        for i, token in enumerate(self.tokens[1:-1], 1):
            between = isinstance(token, str) and isinstance(self.tokens[i - 1], Slot)
            if between and self._odd.search(str(token)) is None:
                raise self._ambiguous(f"{token!r} may stand in what is before it, too")

    def _ambiguous(self, why: str) -> Refused:
        return Refused(
            f"{self._where}: with {self.text!r} two blocks could give one key: {why}",
            hint="put a character such as # between them",
        )

    def _regex(self, token: str | Slot) -> str:
        if isinstance(token, str):
            return re.escape(token)
        if token.width:
            return rf"([0-9]{{{token.width},}})"
        return "(.+)" if self._raw else f"({_inside(self._odd)}+)"

    def render(self, value: Callable[[Slot], Value]) -> str:
        """The key. Raises ValueError, and what ``value`` raises."""
        odd = _NOTHING if self._raw else self._odd
        return "".join(
            token if isinstance(token, str) else token.render(value(token), odd)
            for token in self.tokens
        )

    def parse(self, text: str) -> dict[str, str] | None:
        """The texts in the slots; None for a text that this template never gives."""
        found = self._pattern.fullmatch(text)
        if found is None:
            return None
        values = {}
        for slot, held in zip(self.slots, found.groups(), strict=True):
            if slot.width:
                if held[0] == "0" and len(held) > slot.width:
                    return None
                values[slot.name] = str(int(held))
                continue
            plain = held if self._raw else percent.unescape(held)
            if not self._raw and percent.escape(plain, self._odd) != held:
                return None
            values[slot.name] = plain
        return values


def _inside(odd: re.Pattern[str]) -> str:
    """What an escaped text is made of."""
    return f"(?:%[0-9A-F]{{2}}|%U[0-9A-F]{{4}}|%|[^{odd.pattern[1:-1]}])"


def _tokens(text: str, where: str) -> Iterable[str | Slot]:
    literal = ""
    for found in _TOKEN.finditer(text):
        if found[1] is None:
            if found[0] in ("{", "}"):
                raise Refused(f"{where}: {text!r} has a lone brace", hint="{{ and }} are braces")
            literal += {"{{": "{", "}}": "}"}.get(found[0], found[0])
            continue
        slot = _SLOT.fullmatch(found[1])
        if slot is None or not slot["name"]:
            raise Refused(f"{where}: {{{found[1]}}} in {text!r} is no slot")
        if literal:
            yield literal
        literal = ""
        yield Slot(slot["name"], int(slot["width"] or 0))
    if literal:
        yield literal


def escaped_in(templates: Iterable[str]) -> re.Pattern[str]:
    """The characters that are escaped inside the slots of templates that belong together."""
    literals = "".join(
        token for text in templates for token in _tokens(text, "") if isinstance(token, str)
    )
    special = {char for char in literals if not char.isalnum()}
    if literals:
        special.add("#")
    return re.compile(f"[{ALWAYS}{''.join(re.escape(char) for char in sorted(special))}]")


class Fields:
    """The values that slots take from one block."""

    def __init__(self, block: Block) -> None:
        self._block = block
        self._record: Record | None = None

    def __call__(self, slot: Slot) -> Value:
        """The value of a slot. Raises Missing where the block has none."""
        part = slot.part
        id = self._block.id
        if part is not None and part >= 0:
            if type(id) is not list or part >= len(id):
                raise Missing(f"the key has no part {part}")
            return id[part]
        if part is not None:
            return id
        if self._record is None:
            try:
                self._record = assemble(self._block.entries)
            except CorruptBlock as error:
                raise Missing(str(error)) from None
        try:
            return lookup(self._record, parse_path(slot.name))
        except KeyError:
            raise Missing(f"there is no {slot.name}") from None


class Computed:
    """Attributes made of others, for indexes: written, and passed by when a block is read."""

    def __init__(self, options: Options, where: str) -> None:
        self._where = where
        self._types = options.index_keys
        self._templates = {
            name: Template(text, f"{where}, attribute {name}")
            for name, text in options.attributes.items()
        }
        for template in self._templates.values():
            for slot in template.slots:
                if slot.part is None:
                    try:
                        parse_path(slot.name)
                    except ValueError as error:
                        raise Refused(f"{where}: {error}") from None

    @property
    def any(self) -> bool:
        return bool(self._templates)

    def of(self, block: Block) -> Item:
        """The attributes of a block; one whose source is absent or null is absent, too: an index
        is sparse."""
        found: Item = {}
        fields = Fields(block) if self._templates else None
        for name, template in self._templates.items():
            assert fields is not None
            try:
                found[name] = self._value(name, template, fields)
            except Missing:
                continue
            except ValueError as error:
                raise self._unfit(block.id, f"attribute {name}: {error}") from None
        return found

    def _value(self, name: str, template: Template, fields: Fields) -> Av:
        def value(slot: Slot) -> Value:
            held = fields(slot)
            if held is None:
                raise Missing("null is in no index")
            return held

        type_ = self._types.get(name, "S")
        if type_ == "S":
            return {"S": template.render(value)}
        if len(template.tokens) != 1:
            raise ValueError(f"only a single slot can give the type {type_}")
        return codec.hold(value(template.slots[0]), {})

    def check(self, id: Value, item: Mapping[str, Any]) -> None:
        """Raises DoesNotFit where an index could not take the item."""
        for name, type_ in self._types.items():
            av = item.get(name)
            if av is None:
                continue
            held = av.get(type_)
            if not held or (type_ != "N" and len(held) > HASH_BYTES):
                raise self._unfit(
                    id,
                    f"attribute {name} is {next(iter(av))}, or empty, or too long, and the index "
                    f"on it takes {type_} alone",
                    name,
                )

    def _unfit(self, id: Value, why: str, path: str = "") -> DoesNotFit:
        return DoesNotFit(f"{show(id)[:200]}: {why}", key=id, path=path, where=self._where)
