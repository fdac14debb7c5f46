"""Block keys as key attributes: text, a number or bytes, as the table has it.

In a table whose key is text every kind that has a carrier can be a key; which kind it was
stands in the side attribute. Keys of two kinds that are carried by one text are one key here.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from decimal import Decimal

from migrator.errors import DoesNotFit
from migrator.model import value as v
from migrator.model.tags import from_carrier, to_carrier
from migrator.model.value import Kind, Value, has_utf8, kind_of, show
from migrator.stores.dynamodb import codec
from migrator.stores.dynamodb.codec import Av
from migrator.stores.dynamodb.sizes import HASH_BYTES

RESERVED = "_migrator-mark-5f1c9-"  # as many bytes as three divides, for their base64
"""What the keys of markers begin with: ``markers.py``."""
KINDS = frozenset(Kind) - {Kind.NULL, Kind.SET, Kind.RECORD}
_CLASS = "K"  # a key is carried as the identifier of a reference is


def hold(id: Value, type_: str) -> tuple[Av, str | None]:
    """The key attribute and the tag of the key. Raises DoesNotFit for what can't be one."""
    if type_ == "N":
        tags: dict[str, str] = {}
        held = codec.hold(id, tags) if type(id) in (int, float, Decimal, v.Int64) else {}
        if "N" not in held:
            raise unfit(id, "is no number that DynamoDB holds, and the key of the table is one")
        return held, tags.get("")
    if type_ == "B":
        if type(id) is not bytes:
            raise unfit(id, "is no bytes, and the key of the table is")
        _check(id, len(id))
        return {"B": b64encode(id).decode()}, None
    text_, tag = text(id)
    _check(id, len(text_.encode()))
    if text_.startswith(RESERVED):
        raise unfit(id, f"begins with {RESERVED}, as markers of Migrator's do")
    return {"S": text_}, tag


def text(id: Value) -> tuple[str, str | None]:
    """A key as text, with the tag that says what it was. Raises DoesNotFit."""
    if type(id) is str:
        held, tag = id, None
    else:
        if kind_of(id) not in KINDS:
            raise unfit(id, f"{kind_of(id)} can't be a key")
        try:
            full, carrier = to_carrier(v.Ref(_CLASS, id))
        except TypeError as error:
            raise unfit(id, str(error)) from None
        held, tag = str(carrier)[len(_CLASS) + 1 :], full.removeprefix("reference:")
    if not held or not has_utf8(held):
        raise unfit(id, "is empty" if not held else "has an unpaired surrogate")
    return held, tag


def text_in(id: Value, type_: str) -> tuple[str, str | None]:
    """As ``text``: one text for all that is one key in a table whose key is of this type."""
    if type_ == "S":
        return text(id)
    av, tag = hold(id, type_)
    return str(codec.read_number(av["N"]) if type_ == "N" else av["B"]), tag


def from_text_in(held: str, tag: str | None, type_: str) -> Value:
    """The block key behind a text of ``text_in``. Raises Unreadable, ValueError."""
    return from_text(held, tag) if type_ == "S" else read({type_: held}, tag)


def is_text_in(held: str, type_: str) -> bool:
    """Whether ``text_in`` gives this text for some key."""
    try:
        if type_ == "S":
            return True
        if type_ == "N" and not codec.fits_number(Decimal(held)):
            return False  # maybe of a million digits, which take minutes
        return text_in(from_text_in(held, None, type_), type_)[0] == held
    except (codec.Unreadable, ValueError, ArithmeticError, DoesNotFit):
        return False


def _check(id: Value, size: int) -> None:
    if not 0 < size <= HASH_BYTES:
        raise unfit(id, "is empty" if not size else f"is over the {HASH_BYTES} bytes of a key")


def unfit(id: Value, why: str) -> DoesNotFit:
    return DoesNotFit(f"key {show(id)[:100]} {why}", key=id)


def read(av: Av, tag: str | None) -> Value:
    """The block key behind a key attribute; a tag that does not fit is passed by."""
    if "B" in av:
        return b64decode(av["B"])
    if "N" in av:
        return codec.release(codec.read(av), {"": tag} if tag else {})
    return from_text(av["S"], tag)


def from_text(held: str, tag: str | None) -> Value:
    """The block key behind a text."""
    if tag is None:
        return held
    try:
        found = from_carrier(f"reference:{tag}", f"{_CLASS}:{held}")
    except ValueError:
        return held
    return found.id if type(found) is v.Ref else held


def same(id: Value, type_: str) -> Value:
    """The key as the table compares it; the key itself where nothing is folded."""
    try:
        av, _ = hold(id, type_)
    except DoesNotFit:
        return id
    if "S" in av:
        return id if type(id) is str else av["S"]
    return codec.read(av)
