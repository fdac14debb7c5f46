"""Regrouping evolutions and keys made anew: both laws, and the mapping of keys with its inverse."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator import (
    At,
    Bucket,
    Convert,
    Day,
    Drop,
    Id,
    Integer,
    MergeIn,
    Month,
    Move,
    Ref,
    ReKey,
    Rename,
    Shard,
    SplitOut,
    Template,
)
from migrator.errors import DoesNotFit, Refused, Terminal
from migrator.model import value as v
from migrator.model.block import Aggregate
from migrator.model.canonical import encode, equal
from migrator.model.evolution import Evolution, Regrouping
from migrator.model.translate import Translation
from migrator.model.value import Record, Value

AT = At("s", "c")


def translation(cls: str, *evolve: Evolution | Regrouping, of: str | None = None) -> Translation:
    move = Move(cls, AT, evolve=evolve, of=of)
    return Translation(move, AT.rules(move.source_cls), AT.rules(cls))


def same(left: Aggregate | None, right: Aggregate | None) -> bool:
    if left is None or right is None:
        return left is right
    return (
        equal(left.id, right.id)
        and equal(left.value, right.value)
        and left.expires == right.expires
    )


def alike(left: Sequence[Aggregate], right: Sequence[Aggregate]) -> bool:
    """Whether both are the same set of aggregates."""
    by_key = [{encode(each.id): each for each in side} for side in (left, right)]
    return by_key[0].keys() == by_key[1].keys() and all(
        same(each, by_key[1][form]) for form, each in by_key[0].items()
    )


def named(error: DoesNotFit, id: Value) -> None:
    assert equal(error.key, id)
    assert error.path


ATOMS = st.sampled_from([None, 0, 1, 2.0, "x", "", v.Int64(7)])
FIELDS = st.dictionaries(st.sampled_from(["a", "b"]), ATOMS, max_size=2)
NUMBERS = st.integers(-3, 5)
DAYS = st.sampled_from([dt.datetime(2026, 3, day, hour, tzinfo=dt.UTC)
                        for day in (1, 2) for hour in (0, 5, 23)])  # fmt: skip
EXPIRES = st.sampled_from([None, 7])


# ---------------------------------------------------------------------- one whole, many parts


@dataclass
class Split:
    """A split with what elements, wholes and parts of it look like."""

    evolve: list[Evolution | Regrouping]
    element: st.SearchStrategy[Record]
    part: st.SearchStrategy[Record]
    rest: st.SearchStrategy[Record] = field(default_factory=lambda: FIELDS)
    ids: st.SearchStrategy[Value] = field(default_factory=lambda: st.sampled_from(["g", 7]))


def records(**fields: st.SearchStrategy[Value]) -> st.SearchStrategy[Record]:
    known = st.fixed_dictionaries(fields)
    return st.builds(lambda more, given: {**more, **given}, FIELDS, known)


READ = SplitOut("list", by={"s": "s", "day": Day("at")}, order_by="at", keep="id")
SPLITS = [
    Split(
        [SplitOut("list", back="game", place="n", key="{game}-{n}")],
        FIELDS,
        records(n=NUMBERS),
    ),
    Split(
        [SplitOut("list", back="game", order_by="n", key=["game", "n"])],
        records(n=NUMBERS),
        records(n=NUMBERS),
    ),
    Split(
        [Rename("a", "c"), SplitOut("list", back="game", place="n", keep="id", bare=True),
         Convert("b", Integer), Drop("a")],
        records(id=st.sampled_from("xyz")),
        records(n=NUMBERS),
    ),
    Split([SplitOut("c.list", back="game", place="n", key=["game", "n"])], FIELDS,
          records(n=NUMBERS)),
    Split(
        [READ],
        records(id=st.sampled_from("xyz"), at=DAYS),
        records(s=st.just("s"), at=DAYS),
        st.just({"s": "s", "day": dt.date(2026, 3, 1)}),
        st.just(["s", dt.date(2026, 3, 1)]),
    ),
    Split(
        [READ, ReKey("{s}/{}", was=None)],
        records(id=st.sampled_from("xyz"), at=DAYS),
        records(s=st.just("s"), at=DAYS),
        st.just({"s": "s", "day": dt.date(2026, 3, 1)}),
        st.just(["s", dt.date(2026, 3, 1)]),
    ),
]  # fmt: skip


def whole(case: Split, data: st.DataObject) -> Aggregate:
    value: Record = data.draw(case.rest)
    elements = data.draw(
        st.one_of(st.none(), st.lists(case.element, max_size=4), st.just("absent"), ATOMS)
    )
    if elements != "absent":
        nested = case.evolve[0] if len(case.evolve) == 1 else None
        deep = isinstance(nested, SplitOut) and nested.path == "c.list"
        value = {**value, "c": {"list": elements}} if deep else {**value, "list": elements}
    return Aggregate(data.draw(case.ids), value, data.draw(EXPIRES))


@pytest.mark.parametrize("case", SPLITS)
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_what_was_split_out_comes_back(case: Split, data: st.DataObject) -> None:
    split = translation("Round", *case.evolve, of="Game")
    old = whole(case, data)
    before = encode(old.value)
    try:
        parts = split.forward(old)
    except DoesNotFit as error:
        named(error, old.id)
        return
    assert len({encode(part.id) for part in parts}) == len(parts)
    assert equal(split.affects(old.id, old.value), [part.id for part in parts])
    for part in parts:
        assert equal(split.sources(part.id, part.value), [old.id])
        assert part.expires == old.expires
    assert same(split.returned(old.id, data.draw(st.permutations(parts)), old), old)
    assert encode(old.value) == before, "the old value was changed in place"


@pytest.mark.parametrize("case", SPLITS)
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_parts_written_later_survive_a_rollback(case: Split, data: st.DataObject) -> None:
    split = translation("Round", *case.evolve, of="Game")
    id = data.draw(case.ids)
    # Parts as an application writes them: the shape of the case, some of them consistent.
    back: Record = {"game": Ref("Game", id)}
    if "bare=True" in repr(case.evolve):
        back = {"game": id}
    if "by=None" not in repr(case.evolve):
        back = {}
    drawn = data.draw(st.lists(case.part, max_size=4))
    news = []
    for i, value in enumerate(drawn):
        value = {**value, **back}
        if data.draw(st.booleans()) and "n" in value:
            value["n"] = i
        made = data.draw(st.sampled_from(["x", "y", "made"]))
        if made == "made" and "game" in value and "n" in value:
            news.append(Aggregate([id, value["n"]], value))
            if "{game}" in repr(case.evolve):
                news[-1].id = f"{id}-{value['n']}"
        else:
            news.append(Aggregate(f"s/{made}" if "ReKey" in repr(case.evolve) else made, value))
    old = data.draw(st.one_of(st.none(), st.just(None).map(lambda _: whole(case, data))))
    if old is not None:
        old.id, old.expires = id, None
        try:
            split.forward(old)
        except DoesNotFit:
            old = None
    # Parts come back by the whole that they belong to.
    news = [part for part in news if belongs(split, part, id)]
    try:
        found = split.returned(id, news, old)
    except DoesNotFit as error:
        named(error, id)
        return
    if found is None:
        assert not news
        return
    assert equal(found.id, id)
    assert alike(split.forward(found), news)


def belongs(split: Translation, part: Aggregate, id: Value) -> bool:
    try:
        return equal(split.sources(part.id, part.value), [id])
    except DoesNotFit:
        return False


# ---------------------------------------------------------------------- many parts, one whole

READINGS = st.lists(
    st.builds(
        Aggregate,
        st.sampled_from(["r1", "r2", "r3", 4]),
        records(s=st.just("s"), at=DAYS.filter(lambda at: at.day == 1)),
        st.none(),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda part: encode(part.id),
)
BUCKETS = [
    [Bucket("list", by={"s": "s", "day": Day("at")}, order_by="at", keep="id")],
    [Bucket("list", by={"s": "s"}, keep="id")],
    [Bucket("list", by={"s": "s", "m": Month("at")}, id="{s}/{m}", order_by="at", keep="id")],
    [Rename("a", "c"), Bucket("list", by={"s": "s"}, order_by="at", keep="id"), Rename("s", "t")],
]


@pytest.mark.parametrize("evolve", BUCKETS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_what_was_bucketed_comes_back(
    evolve: list[Evolution | Regrouping], data: st.DataObject
) -> None:
    bucket = translation("Day", *evolve, of="Reading")
    parts = data.draw(READINGS)
    (id,) = bucket.affects(parts[0].id, parts[0].value)
    new = bucket.together(id, parts)
    assert same(new, bucket.together(id, data.draw(st.permutations(parts))))
    assert equal(new.id, id)
    for part in parts:
        assert equal(bucket.affects(part.id, part.value), [id])
    assert {encode(x) for x in bucket.sources(id, new.value)} == {encode(p.id) for p in parts}
    main, back = bucket.apart(new, parts)
    assert main is None
    assert alike(back, parts)


@pytest.mark.parametrize("evolve", BUCKETS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_bucket_written_later_survives_a_rollback(
    evolve: list[Evolution | Regrouping], data: st.DataObject
) -> None:
    bucket = translation("Day", *evolve, of="Reading")
    parts = data.draw(READINGS)
    (id,) = bucket.affects(parts[0].id, parts[0].value)
    new = bucket.together(id, parts)
    elements = list(new.value["list"])  # type: ignore[call-overload]
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(elements)))
        extra = {"id": data.draw(st.sampled_from(["n1", "n2"])), "at": data.draw(DAYS)}
        elements.insert(at, data.draw(st.sampled_from([extra, {}, {"id": "n3"}, 5])))
    changed = Aggregate(id, {**new.value, "list": elements, **data.draw(st.just({}) | FIELDS)})
    try:
        _, back = bucket.apart(changed, data.draw(st.sampled_from([(), parts])))
    except DoesNotFit:
        return
    assert same(bucket.together(id, back), changed)


MERGE = MergeIn("list", of="Round", back="game", place="n", key=["game", "n"])
MERGES = [[MERGE], [Rename("a", "c"), MERGE, Rename("list", "rounds")]]


@pytest.mark.parametrize("evolve", MERGES)
@settings(max_examples=60, deadline=None)
@given(FIELDS, st.lists(FIELDS, max_size=4), EXPIRES, st.data())
def test_what_was_merged_in_comes_back(
    evolve: list[Evolution | Regrouping],
    value: Record,
    rounds: list[Record],
    expires: int | None,
    data: st.DataObject,
) -> None:
    merge = translation("Game", *evolve)
    main = Aggregate("g", value, expires)
    parts = [
        Aggregate(["g", i], {**each, "game": Ref("Game", "g"), "n": i}, expires)
        for i, each in enumerate(rounds)
    ]
    new = merge.together("g", data.draw(st.permutations(parts)), main)
    found, back = merge.apart(new, parts, main)
    assert same(found, main)
    assert alike(back, parts)
    assert merge.affects("g", value) == merge.sources("g", new.value) == ["g"]
    assert all(merge.affects(p.id, p.value, of="Round") == ["g"] for p in parts)
    assert equal(merge.sources("g", new.value, of="Round"), [part.id for part in back])
    # Written later, without anything to go back into: it goes forward again as it was.
    found, back = merge.apart(new)
    assert same(merge.together("g", back, found), new)


def test_the_split_and_the_merge_undo_one_another() -> None:
    game = Aggregate("g", {"name": "x", "list": [{"a": 1}, {"b": [2]}]}, 9)
    split = translation(
        "Round", SplitOut("list", back="game", place="n", key=["game", "n"]), of="Game"
    )
    rest = translation("Game", Drop("list"))
    merge = translation("Game", MERGE)
    assert same(merge.together("g", split.forward(game), rest.forward(game)[0]), game)


# ---------------------------------------------------------------------- what does not fit


def reading(key: Value, at: Value, **more: Value) -> Aggregate:
    return Aggregate(key, {"s": "s", "at": at, **more})


NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([reading("r", NOON, id="other")], "id is there already"),
        ([reading("r", None)], "at is of the kind null, which gives no order"),
        ([Aggregate("r", {"s": "s", "at": NOON}, 1), reading("q", NOON)], "different times"),
    ],
)
def test_what_can_not_be_bucketed_is_told(parts: list[Aggregate], why: str) -> None:
    bucket = translation("Day", Bucket("list", by={"s": "s"}, order_by="at", keep="id"), of="R")
    with pytest.raises(DoesNotFit, match=why) as error:
        bucket.together("s", parts)
    assert error.value.path


@pytest.mark.parametrize(("order_by", "hint"), [("at", "sort it so"), (None, "order_by=")])
def test_a_bucket_in_another_order_is_told_what_can_be_done(
    order_by: str | None, hint: str
) -> None:
    bucket = Bucket("list", by={"s": "s"}, order_by=order_by, keep="id")
    whole = {"s": "s", "list": [{"id": "b", "at": 2}, {"id": "a", "at": 1}]}
    with pytest.raises(DoesNotFit, match="is not in the order of") as error:
        translation("Day", bucket, of="R").apart(Aggregate("s", cast("Record", whole)))
    assert hint in str(error.value)
    assert "place" not in str(error.value)  # a bucket has none


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"list": 5}, "list is of the kind int32, not a list"),
        ({"list": [5]}, r"list\[0\] is of the kind int32, not a record"),
        ({"list": [{"game": 1, "i": 1}]}, r"list\[0\].game is there already"),
        ({"list": [{"i": 2}, {"i": 2}]}, r"list\[1\] has the identifier of another element"),
        ({"list": [{}]}, "i is absent, which can't identify"),
    ],
)
def test_what_can_not_be_split_out_is_told(value: Record, why: str) -> None:
    split = translation("Round", SplitOut("list", back="game", place="n", key="i"), of="Game")
    with pytest.raises(DoesNotFit, match=why) as error:
        split.forward(Aggregate("g", value))
    assert error.value.key == "g"
    assert error.value.where == "Game:g"
    assert error.value.path


@pytest.mark.parametrize(
    ("numbers", "why"),
    [
        ([0, 2], "2 is there, but not 1"),
        ([0, 1, 1], "1 stands twice"),
        ([1], "1 is there, but not 0"),
        ([v.Int64(0)], "n is of the kind int64, yet it is a position"),
    ],
)
def test_positions_count_up_from_0(numbers: list[Value], why: str) -> None:
    merge = translation("Game", MergeIn("list", of="Round", back="game", place="n", keep="id"))
    parts = [Aggregate(i, {"game": Ref("Game", "g"), "n": n}) for i, n in enumerate(numbers)]
    with pytest.raises(DoesNotFit, match=why):
        merge.together("g", parts, Aggregate("g", {}))


def test_a_part_without_its_whole_is_told() -> None:
    merge = translation("Game", MERGE)
    part = Aggregate(["g", 0], {"game": Ref("Game", "g"), "n": 0})
    with pytest.raises(DoesNotFit, match="it is not there, yet parts of it are"):
        merge.together("g", [part])
    with pytest.raises(DoesNotFit, match="game is no reference to Game"):
        merge.affects(1, {"game": Ref("Player", "g")}, of="Round")
    with pytest.raises(DoesNotFit, match="list is there already"):
        merge.together("g", [part], Aggregate("g", {"list": []}))


def test_a_template_that_folds_keys_never_mixes_what_it_groups() -> None:
    bucket = translation(
        "Day", Bucket("l", by={"a": "a", "b": "b"}, id="{a}{b}", keep="id"), of="R"
    )
    parts = [Aggregate(1, {"a": "x", "b": "yz"}), Aggregate(2, {"a": "xy", "b": "z"})]
    assert {bucket.affects(p.id, p.value)[0] for p in parts} == {"xyz"}
    with pytest.raises(DoesNotFit, match="differ in what groups them"):
        bucket.together("xyz", parts)


def test_keys_need_the_value() -> None:
    merge = translation("Game", MERGE)
    with pytest.raises(Terminal, match="comes from the value"):
        merge.affects(1, of="Round")
    assert merge.affects(1) == [1]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: SplitOut("l", key="a"), "say either back or by"),
        (lambda: SplitOut("l", back="g", by={"a": "a"}, key="a"), "say either back or by"),
        (lambda: SplitOut("l", back="g"), "say either key or keep"),
        (lambda: SplitOut("l", back="g", key="{}"), "has no identifier yet"),
        (lambda: SplitOut("l", back="g", key="a", place="n", order_by="n"), "not both"),
        (lambda: SplitOut("l[*]", back="g", key="a"), "must name one field"),
        (lambda: Bucket("l", back="g", keep="id"), "needs by"),
        (lambda: Bucket("l", by={}, keep="id"), "names no field"),
        (lambda: MergeIn("l", by={"a": "a"}, keep="id", of="R"), "needs of"),
        (lambda: MergeIn("l", back="g", keep="id"), "needs of"),
        (lambda: ReKey("a"), "must be found again"),
        (lambda: ReKey("a", was="b", keep="c"), "not both"),
        (lambda: ReKey("a", was="{}"), "made of what it is to find"),
        (lambda: ReKey("plain {", keep="c"), "is no key"),
        (lambda: ReKey("{{}}", keep="c"), "same key for all"),
        (lambda: ReKey("{a:x}", keep="c"), "a width such as 05"),
        (lambda: ReKey(["a"], keep="c"), "two or more parts"),
        (lambda: Shard(0), "no number of shards"),
        (lambda: translation("X", MERGE, MERGE), "two evolutions that regroup"),
        (lambda: translation("X", MERGE, ReKey("a", keep="k")), "what the parts are found by"),
        (lambda: translation("X", ReKey("a", keep="k"), SPLITS[0].evolve[0]), "found by"),
        (lambda: translation("X", BUCKETS[0][0], ReKey("a", keep="k")), "found by"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(make: object, why: str) -> None:
    with pytest.raises(Refused, match=why):
        make()  # type: ignore[operator]


# ---------------------------------------------------------------------- keys made anew


@pytest.mark.parametrize(
    ("evolution", "id", "value", "new"),
    [
        (ReKey(["year", "title"], was="id"), 7, {"id": 7, "year": 1999, "title": "x"}, [1999, "x"]),
        (ReKey("id", was=["year", "title"]), [1999, "x"], {"id": 7, "year": 1999, "title": "x"}, 7),
        (ReKey("{title} ({year:06})", keep="k"), 7, {"year": 99, "title": "x"}, "x (000099)"),
        (ReKey([Shard(16), Id()]), "Game:1", {}, [12, "Game:1"]),
        (ReKey(Template("{}.{s:02}", {"s": Shard(16)})), "a.b", {}, "a.b.13"),
        (ReKey(["customer", Month("at"), Id()]), 9, {"customer": Ref("Customer", 5), "at": NOON},
         [5, "2026-03", 9]),
        (ReKey(["customer", Day("at"), Id()]), 9, {"customer": 5, "at": dt.date(2026, 3, 1)},
         [5, dt.date(2026, 3, 1), 9]),
    ],
)  # fmt: skip
def test_a_key_is_made_anew_and_back(
    evolution: ReKey, id: Value, value: Record, new: Value
) -> None:
    move = translation("X", evolution)
    (made,) = move.forward(Aggregate(id, value))
    assert equal(made.id, new)
    assert equal(move.affects(id, value), [new])
    assert equal(move.sources(made.id, made.value), [id])
    assert same(move.backward(made), Aggregate(id, value))
    with pytest.raises(DoesNotFit):
        move.backward(Aggregate("other", made.value))


@settings(max_examples=200, deadline=None)
@given(st.text("a.#0", max_size=6), st.integers(1, 300))
def test_a_shard_leads_back_from_any_text(id: str, count: int) -> None:
    for text in ("{}.{s:02}", "{s:02}.{}", "{}{s}"):
        move = translation("X", ReKey(Template(text, {"s": Shard(count)})))
        try:
            (made,) = move.forward(Aggregate(id, {}))
        except DoesNotFit:
            assert text == "{}{s}"
            continue
        assert move.backward(made).id == id


def test_shards_are_even() -> None:
    shard = Shard(8)
    counts = [0] * 8
    for n in range(8000):
        counts[shard.of(f"Game:{n}", {})] += 1  # type: ignore[index]
    assert min(counts) > 900


def test_a_part_that_was_made_anew_inherits_nothing() -> None:
    split = translation("Round", SplitOut("rounds", back="game", keep="id"), Drop("x"), of="Game")
    rounds: list[Value] = [{"id": "a", "n": 1, "x": 5}, {"id": "b", "n": 1, "x": 6}]
    old = Aggregate("g", {"title": "t", "rounds": rounds})
    news = [Aggregate(id, {"n": 2, "game": Ref("Game", "g")}) for id in ("a", "b")]
    found = split.returned("g", news, old, {encode("a")})
    assert found is not None
    assert found.value == {
        "title": "t", "rounds": [{"id": "a", "n": 2}, {"id": "b", "n": 2, "x": 6}]
    }  # fmt: skip


@pytest.mark.parametrize("fresh", ["", "a", "ab"])
def test_a_whole_inherits_as_long_as_one_of_its_parts_lives(fresh: str) -> None:
    split = translation(
        "Reading", Drop("note"), SplitOut("readings", by={"day": "day"}, keep="id"), of="Day"
    )
    old = Aggregate("d", {"day": "d", "note": "n", "readings": [{"id": "a"}, {"id": "b"}]})
    news = [Aggregate(id, {"day": "d"}) for id in ("a", "b")]
    found = split.returned("d", news, old, set(map(encode, fresh)))
    assert found is not None
    assert ("note" in found.value) == (fresh != "ab")
