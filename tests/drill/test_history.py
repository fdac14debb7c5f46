"""What follows from a history: what was lost, what is there twice, what nobody can know."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.drill.history import (
    READS,
    Act,
    Denied,
    Entry,
    Key,
    Known,
    State,
    Told,
    Tried,
    Unsure,
    read_lines,
)


@dataclass
class Life:
    """A writer and the store behind it: what it noted, and what each key holds."""

    entries: list[Entry] = field(default_factory=list)
    held: dict[Key, State | None] = field(default_factory=dict)
    left: set[Key] = field(default_factory=set)

    def call(self, act: Act, name: str, outcome: str, done: bool) -> None:
        """A call with an outcome; ``done`` is whether one that is unknown was carried out."""
        key = "Game", name
        if key in self.left:
            return
        number = len(self.entries)
        old = self.held.get(key)
        then = after(act, old, number)
        self.entries.append(Tried(number, float(number), act, *key, then))
        if outcome == "ok":
            self.held[key] = then
            self.entries.append(Told(number, number + 0.5, then if act in READS else None))
            return
        if outcome == "no":
            self.entries.append(Denied(number, number + 0.5, "no"))
            return
        if act not in READS:
            self.left.add(key)
            self.held[key] = then if done else old
        if outcome == "unknown":
            self.entries.append(Unsure(number, number + 0.5, "lost"))

    @property
    def known(self) -> Known:
        found = Known()
        lines = b"".join(msgspec.json.encode(entry) + b"\n" for entry in self.entries)
        found.take(read_lines(lines + b'{"type":"ok","num'))  # the last line was cut off
        return found


def after(act: Act, old: State | None, number: int) -> State | None:
    mark = f"m{number}"
    if act is Act.DELETE or (old is None and act is not Act.PUT):
        return None
    if act in READS:
        return old
    if act is Act.APPEND and old is not None:
        return State(f"v{number}", old.mark, (*old.items, mark))
    if act is Act.UPDATE and old is not None:
        return State(f"v{number}", mark, old.items)
    return State(f"v{number}", mark, ("first",))


CALLS = st.tuples(
    st.sampled_from(Act),
    st.sampled_from("abc"),
    st.sampled_from(["ok", "ok", "ok", "no", "unknown", "killed"]),
    st.booleans(),
)
LIVES = st.lists(CALLS, min_size=1, max_size=40)


def lived(calls: list[tuple[Act, str, str, bool]]) -> Life:
    life = Life()
    for call in calls:
        life.call(*call)
    return life


def there(life: Life) -> dict[Key, State | None]:
    return {key: state for key, state in life.held.items() if state is not None}


@given(LIVES)
def test_nothing_is_wrong_whichever_way_the_unknown_ended(
    calls: list[tuple[Act, str, str, bool]],
) -> None:
    life = lived(calls)
    known = life.known
    assert known.faults == []
    assert known.check("primary", there(life)) == []
    ended = sum(t.acknowledged + t.refused + t.unknown for t in known.done.values())
    assert ended == sum(isinstance(entry, Tried) for entry in life.entries)


@given(LIVES, st.data())
def test_a_lost_write_is_found(
    calls: list[tuple[Act, str, str, bool]], data: st.DataObject
) -> None:
    calls = [("put", "d", "ok", True), *calls]  # type: ignore[list-item]
    life = lived([(Act(act), name, outcome, done) for act, name, outcome, done in calls])
    held = there(life)
    key = data.draw(st.sampled_from(sorted(key for key in held if key not in life.left)))
    states = [
        entry.then for entry in life.entries
        if isinstance(entry, Tried) and (entry.cls, entry.key) == key
    ]  # fmt: skip
    # Any state that it held before, as if the last write had not been: also none at all.
    old = data.draw(st.sampled_from([None, *(s for s in states if s != held[key])]))
    (fault,) = life.known.check("mirror", {**held, key: old})
    assert (fault.cls, fault.key, fault.side) == (*key, "mirror")
    assert fault.what in ("missing", "invented")


@given(LIVES)
def test_a_write_that_is_there_twice_is_found(calls: list[tuple[Act, str, str, bool]]) -> None:
    life = lived([(Act.PUT, "d", "ok", True), (Act.APPEND, "d", "ok", True), *calls])
    held = there(life)
    for key, state in held.items():
        if key in life.left or state is None:
            continue
        twice = State("other", state.mark, (*state.items, state.items[-1]))
        (fault,) = life.known.check("primary", {**held, key: twice})
        assert fault.what == "twice"


@pytest.mark.parametrize(
    ("held", "what"),
    [
        (None, "missing"),
        (State("1", "old", ("a", "b")), "missing"),
        (State("1", "new", ("a",)), "missing"),
        (State("1", "new", ("a", "b", "b")), "twice"),
        (State("1", "new", ("a", "b", "c")), "invented"),
        (State("1", "new", ("b", "a")), "differs"),
    ],
)
def test_what_is_wrong_has_a_name(held: State | None, what: str) -> None:
    known = Known()
    state = State("9", "new", ("a", "b"))
    known.take([Tried(1, 1.0, Act.PUT, "Game", "1", state), Told(1, 2.0)])
    (fault,) = known.check("primary", {} if held is None else {("Game", "1"): held})
    assert fault.what == what


def test_a_deleted_key_that_is_there_again_is_found() -> None:
    known = Known()
    state = State("9", "new")
    known.take([
        Tried(1, 1.0, Act.PUT, "Game", "1", state), Told(1, 2.0),
        Tried(2, 3.0, Act.DELETE, "Game", "1", None), Told(2, 4.0),
    ])  # fmt: skip
    (fault,) = known.check("mirror", {("Game", "1"): state})
    assert fault.what == "invented"


def test_a_read_that_does_not_show_the_last_write_is_found() -> None:
    known = Known()
    one, two = State("1", "one"), State("2", "two")
    known.take([
        Tried(1, 1.0, Act.PUT, "Game", "1", one), Told(1, 2.0),
        Tried(2, 3.0, Act.PUT, "Game", "1", two), Told(2, 4.0),
        Tried(3, 5.0, Act.GET, "Game", "1", two), Told(3, 6.0, one),
    ])  # fmt: skip
    (fault,) = known.faults
    assert fault.what == "misread"
    assert known.check("primary", {("Game", "1"): two}) == []


def test_the_pause_is_that_of_one_writer() -> None:
    known = Known()
    state = State("1")
    for moments in ([0.0, 1.0, 5.0, 5.1], [2.0, 2.5]):
        known.take(
            entry for number, at in enumerate(moments)
            for entry in (Tried(number, at, Act.PUT, "Game", "1", state), Told(number, at))
        )  # fmt: skip
    assert known.longest(2.0, 3.0) == (4.0, 1.0)
    assert known.longest(0.0, 0.5) == (1.0, 0.0)
    assert known.longest(9.0, 9.5) == (0.0, 9.0)
