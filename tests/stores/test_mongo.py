"""MongoDB against a real server: what lies there, pages over keys of all types, patches, errors."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import bson
import pymongo
import pytest
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient, WriteConcern
from pymongo.database import Database
from pymongo.errors import OperationFailure, WriteConcernError
from structlog.testing import capture_logs

from migrator.errors import DoesNotFit, MigratorError, Refused, Terminal, Transient
from migrator.model import value as v
from migrator.model.block import Address, Aggregate, Block, Patch, cut
from migrator.model.canonical import encode, equal
from migrator.model.move import At, Layout
from migrator.model.rules import representation
from migrator.model.value import Kind, Value
from migrator.ports import Json, StoreSettings
from migrator.stores.mongo import facts, open_store, renewing, wire, writing
from migrator.stores.mongo.collection import MongoCollection
from migrator.stores.mongo.edge import by_code, translated
from migrator.stores.mongo.paging import Pager
from migrator.stores.mongo.renewing import renew
from migrator.stores.mongo.store import MongoStore
from migrator.stores.mongo.writing import Writer
from tests.conftest import tidy

DATABASE = f"migrator_test_mongo_{os.getpid()}"
EXAMPLES = Path(__file__).parents[3] / "shared" / "data" / "noam-examples.json"
ROUNDS = ["/Game/*/rounds[*]", "/Game/*"]
ETF = representation("Game", ["/Game/*/*"])


@pytest.fixture(scope="module")
def plain(mongodb_url: str) -> Iterator[Database[dict[str, Any]]]:
    """The plain driver, as an application has it."""
    client: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(
        mongodb_url, uuidRepresentation="standard"
    )
    client.drop_database(DATABASE)
    yield client[DATABASE]
    tidy("mongodb", partial(client.drop_database, DATABASE))
    client.close()


@pytest.fixture(scope="module")
def store(mongodb_url: str, plain: Database[dict[str, Any]]) -> Iterator[MongoStore]:
    store = open_store(StoreSettings("docs", mongodb_url, {"database": DATABASE}))
    assert isinstance(store, MongoStore)
    yield store
    store.close()


def at(
    store: MongoStore,
    name: str,
    rules: Sequence[str] = ("/Game/*",),
    layout: str | Layout = "document",
    cls: str = "Game",
) -> MongoCollection:
    collection = store.collection(cls, At("docs", name, rules, layout))
    collection.drop()
    collection.create()
    return collection


def whole(key: Value, **fields: Value) -> Block:
    return Block(key, {"": fields})


def one(collection: MongoCollection, key: Value) -> Block:
    (found,) = collection.read([key])
    assert found is not None
    (observed,) = collection.observer().read([key])
    assert observed is not None
    assert equal(observed.entries, found.entries)
    return found


# ---------------------------------------------------------------- what lies there


@pytest.mark.parametrize("layout", ["document", "flat"])
def test_the_literatures_layouts(store: MongoStore, plain: Any, layout: str) -> None:
    if not EXAMPLES.exists():
        pytest.skip("no noam-examples.json beside the checkout")
    examples = json.loads(EXAMPLES.read_text())["layouts"]
    expected = next(
        x for name, x in examples.items() if name.startswith("MongoDB") and layout in name
    )
    mary = next(
        x for name, x in examples.items() if name.startswith("MongoDB") and "document" in name
    )
    value = {name: x for name, x in mary.items() if name != "_id"}
    rules = ["/Player/*/games[*]", "/Player/*/*"]
    players = at(store, "Player", rules, layout, "Player")
    players.write([cut(Aggregate("mary", value), representation("Player", rules))])
    assert plain["Player"].find_one({}) == expected
    # With references the same lies there, and beside it what tells that they are references.
    value["games"] = [
        {"game": v.Ref("Game", x["game"][5:]), "opponent": v.Ref("Player", x["opponent"][7:])}
        for x in mary["games"]
    ]
    block = cut(Aggregate("mary", value), representation("Player", rules))
    players.write([block])
    lies = plain["Player"].find_one({})
    assert lies.pop("_migrator").keys() == {"tags"}
    assert lies == expected
    assert equal(one(players, "mary").entries, block.entries)


def test_the_remainder_of_rounds_is_one_field(store: MongoStore, plain: Any) -> None:
    games = at(store, "rounds", ROUNDS, "flat")
    value: dict[str, Value] = {"a": 1, "b": [2], "rounds": [{"n": 0}, {"n": 1}]}
    games.write([cut(Aggregate("g", value), representation("Game", ROUNDS))])
    expected = {"_id": "g", "_": {"a": 1, "b": [2]}, "rounds[0]": {"n": 0}, "rounds[1]": {"n": 1}}
    assert plain["rounds"].find_one({}) == expected


NATIVE: Sequence[Value] = [
    None, True, 5, v.Int64(5), 2**40, 1.0, Decimal("1.10"), "text", b"bytes", v.Binary(128, b"x"),
    dt.datetime(2024, 1, 1, tzinfo=dt.UTC), UUID(int=7), v.ObjectId(b"1" * 12),
    v.BsonTimestamp(1, 2),
    v.Regex("a", "im"), [1], {"a": 1},
]  # fmt: skip


@pytest.mark.parametrize("value", NATIVE, ids=lambda x: v.kind_of(x).value)
def test_every_native_kind_is_native_by_the_servers_word(
    store: MongoStore, plain: Any, value: Value
) -> None:
    held = facts.KINDS[v.kind_of(value)]
    assert held.how == "native"
    games = at(store, "kinds")
    games.write([whole(1, v=value), whole(value if type(value) is not list else 2, v=value)]
                if v.kind_of(value) is not Kind.REGEX else [whole(1, v=value)])  # fmt: skip
    for found in plain["kinds"].aggregate([{"$project": {"type": {"$type": "$v"}}}]):
        assert found["type"] == held.type
    assert "_migrator" not in plain["kinds"].find_one({"_id": 1})


def test_every_kind_has_a_row_and_a_native_value_above() -> None:
    natives = {kind for kind, held in facts.KINDS.items() if held.how == "native"}
    assert natives - {v.kind_of(value) for value in NATIVE} == {Kind.OPAQUE}


@pytest.mark.parametrize(
    ("kind", "data"), [("minKey", b""), ("maxKey", b""), ("javascript", b"\2\0\0\0x\0")]
)
def test_bson_only_kinds_are_what_the_server_calls_them(
    store: MongoStore, plain: Any, kind: str, data: bytes
) -> None:
    games = at(store, "only")
    games.write([whole(1, v=v.Opaque("bson", kind, data))])
    (found,) = plain["only"].aggregate([{"$project": {"type": {"$type": "$v"}}}])
    assert found["type"] == kind
    assert one(games, 1).entries == {"": {"v": v.Opaque("bson", kind, data)}}


def test_c01_int32_int64_and_double_stay_three_things(store: MongoStore, plain: Any) -> None:
    games = at(store, "c01")
    plain["c01"].insert_many(
        [
            {"_id": 1, "ages": [1, bson.Int64(2), 3.0, bson.Int64(2**53 + 1)]},
            {"_id": 2, "ages": 1.0},
        ]
    )
    first, second = games.read([1, 2])
    assert first is not None
    assert second is not None
    assert equal(first.entries[""], {"ages": [1, v.Int64(2), 3.0, 2**53 + 1]})
    assert not equal(second.entries[""], {"ages": 1})
    copy = at(store, "c01_copy", ["/Game/*/**"], "flat")
    rules = representation("Game", ["/Game/*/**"])
    blocks = [cut(Aggregate(b.id, b.entries[""]), rules) for b in (first, second)]  # type: ignore[arg-type]
    copy.write(blocks)
    for block in blocks:
        assert equal(one(copy, block.id).entries, block.entries)


def test_c02_dates_beyond_python_are_dates_or_refused_by_name(store: MongoStore) -> None:
    games = at(store, "c02")
    for i, millis in enumerate((253_402_300_800_000, -(2**63), -1)):
        value = v.instant(millis * 1_000_000)
        try:
            games.write([whole(i, t=value)])
        except DoesNotFit as error:  # SecantusDB; MongoDB takes them
            assert (error.key, "out of range" in str(error)) == (i, True)  # noqa: PT017
        else:
            assert equal(one(games, i).entries[""], {"t": value})


def test_c02_what_replaces_another_is_sent_whatever_its_dates(store: MongoStore) -> None:
    games = at(store, "c02_again")
    before = [whole(i, t=1) for i in range(2)]
    for _ in range(2):
        games.write(before)  # and so the next time what lies there is replaced
    far = [whole(i, t=v.instant(253_402_300_800_000 * 1_000_000)) for i in range(2)]
    for replace in (
        lambda: games.write(far),
        lambda: games.exchange(0, before[0], far[0]),
        lambda: games.patch([Patch(0, {"": far[0].entries[""]})]),
    ):
        try:
            replace()
        except MigratorError as error:  # it came from SecantusDB; MongoDB takes them
            assert isinstance(error.__cause__, OperationFailure)  # noqa: PT017
        else:
            assert equal(one(games, 0).entries, far[0].entries)
            games.write(before)


@pytest.mark.parametrize("layout", ["document", "flat"])
def test_a_patch_leaves_no_tag_of_what_it_removes(
    store: MongoStore, plain: Any, layout: str
) -> None:
    """It would be taken for that of what an application puts there."""
    name = f"untagged_{layout}"
    games = at(store, name, ["/Game/*/*"], layout)
    games.write([cut(Aggregate("k", {"day": dt.date(2024, 2, 29), "n": 1}), ETF)])
    games.patch([Patch("k", {}, ("day",))])
    plain[name].update_one({"_id": "k"}, {"$set": {"day": "2024-02-29"}})
    assert one(games, "k").entries == {"day": "2024-02-29", "n": 1}


def test_c10_odd_names_are_kept_apart_and_come_back(store: MongoStore, plain: Any) -> None:
    odd: dict[str, Value] = {
        "na!e": "Max", "na%e": "X", "userId": 1, "userid": 2, "a.b": 3, "a": {"b": 4}, "$x": 5,
        "": 6, "__dot__": 7, "_id": 8, "_": 9, "%24x": 10,
    }  # fmt: skip
    for layout, rule in (("document", "/Game/*"), ("flat", "/Game/*/*"), ("flat", "/Game/*/**")):
        games = at(store, "c10", [rule], layout)
        block = cut(Aggregate("k", odd), representation("Game", [rule]))
        games.write([block])
        games.write([block])
        assert equal(one(games, "k").entries, block.entries)
        lies = plain["c10"].find_one({})
        assert lies["na%e"] == "X"
        assert lies["_id"] == "k"
        if layout == "flat":
            assert not [name for name in lies if "." in name or not name or name[0] == "$"]


# ---------------------------------------------------------------- pages


def all_keys() -> list[Any]:
    keys: list[Any] = [f"s{i:03}" for i in range(40)]
    keys += [bson.ObjectId(bytes(11) + bytes([i])) for i in range(30)]
    keys += [1, 2, 2.5, bson.Int64(2**40), bson.Decimal128("7.5"), -3, None, True, False]
    # SecantusDB sorts records in one order and bounds an index by another; these agree in both.
    keys += [{"a": 1}, {"a": 2}, b"bytes", bson.Binary(b"x", 5), UUID(int=9)]
    keys += [dt.datetime(2024, 1, 1), bson.Timestamp(1, 2), bson.MinKey(), bson.MaxKey(), ""]
    return keys


def walk(collection: MongoCollection, ranges: Sequence[Json], limit: int) -> list[Block]:
    found: list[Block] = []
    for range_ in ranges:
        position: Json = None
        while True:
            page = collection.page(json.loads(json.dumps(range_)), position, limit)
            assert not page.damaged
            found += page.blocks
            if page.next is None:
                break
            position = json.loads(json.dumps(page.next))
    return found


@pytest.mark.parametrize("cheap", [False, True], ids=["scan", "index"])
@pytest.mark.parametrize("limit", [1, 7, 50, 1000])
def test_c11_pages_walk_over_keys_of_all_types(
    store: MongoStore, plain: Any, cheap: bool, limit: int
) -> None:
    games = at(store, "c11")
    games._pager._cheap = cheap  # both ways to list keys, whatever the server is
    keys = all_keys()
    random.Random(7).shuffle(keys)
    plain["c11"].insert_many([{"_id": key, "n": i} for i, key in enumerate(keys)])
    assert games.count() == len(keys)
    for parts in (1, 5):
        found = walk(games, games.split(parts), limit)
        assert len({encode(b.id) for b in found}) == len(found) == len(keys)
        assert sorted(b.entries[""]["n"] for b in found) == list(range(len(keys)))  # type: ignore[index]


def test_c11_resumes_in_another_process(store: MongoStore, plain: Any, mongodb_url: str) -> None:
    games = at(store, "c11b")
    plain["c11b"].insert_many([{"_id": key} for key in all_keys()])
    (range_,) = games.split(1)
    first = games.page(range_, None, 50)
    settings = StoreSettings("docs", mongodb_url, {"database": DATABASE})
    other = open_store(settings)
    try:
        later = other.collection("Game", games.at)
        position = json.loads(json.dumps(first.next))
        rest = []
        while position is not None:
            page = later.page(range_, position, 50)
            rest += page.blocks
            position = page.next
        ids = {encode(block.id) for block in [*first.blocks, *rest]}
        assert len(ids) == len(first.blocks) + len(rest) == len(all_keys())
    finally:
        other.close()


def test_c65_one_damaged_document_leaves_the_others_alone(
    store: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    games = at(store, "c65")
    games.write([whole(i, name="a?A", nested={"deep": ["x", "a?A"]}) for i in range(20)])
    batch = Pager.batch

    sample = Pager.sample

    def damaged(found: list[bytes]) -> list[bytes]:
        # SecantusDB refuses such bytes; MongoDB keeps what a lax driver sent.
        return [
            raw.replace(b"a?A", b"a\xdcA") if wire.id_of(raw)[1] == b"\7\0\0\0" else raw
            for raw in found
        ]

    def page_of(self: Pager, *args: Any) -> tuple[list[bytes], Json]:
        found, next_ = batch(self, *args)
        return damaged(found), next_

    monkeypatch.setattr(Pager, "batch", page_of)
    monkeypatch.setattr(Pager, "sample", lambda self, *args: damaged(sample(self, *args)))
    assert [key for key, _ in games.sample(20).damaged] == [7]
    for reader in (games, games.observer()):
        page = reader.page(games.split(1)[0], None, 100)
        assert len(page.blocks) == 19
        ((key, reason),) = page.damaged
        assert key == 7
        assert reason.startswith("name: text that is not UTF-8")


class Cursors(pymongo.monitoring.CommandListener):
    """Which cursors the server keeps open, and whether one was asked to live for ever."""

    def __init__(self) -> None:
        self.open: set[int] = set()
        self.endless = False

    def started(self, event: pymongo.monitoring.CommandStartedEvent) -> None:
        self.endless |= bool(event.command.get("noCursorTimeout"))

    def succeeded(self, event: pymongo.monitoring.CommandSucceededEvent) -> None:
        if event.command_name in ("find", "getMore"):
            self.open.add(event.reply["cursor"]["id"])

    def failed(self, event: pymongo.monitoring.CommandFailedEvent) -> None:
        pass


@pytest.mark.parametrize("limit", [1, 40])
def test_c72_pages_go_on_where_the_server_has_dropped_its_cursors(
    store: MongoStore, plain: Any, mongodb_url: str, limit: int
) -> None:
    cursors = Cursors()
    pymongo.monitoring.register(cursors)
    try:
        other = open_store(StoreSettings("docs", mongodb_url, {"database": DATABASE}))
    finally:
        pymongo.monitoring._LISTENERS.command_listeners.remove(cursors)
    games = at(store, "c72")
    games.write([whole(i, text="x" * 1000) for i in range(300)])
    reader = other.collection("Game", games.at)
    position: Json = None
    seen: list[Any] = []
    killed = 0
    while True:
        page = reader.page(games.split(1)[0], position, limit)
        seen += [block.id for block in page.blocks]
        position = page.next
        if position is None:
            break
        open_ = [id_ for id_ in cursors.open if id_]
        cursors.open.clear()
        answer = plain.command("killCursors", games.at.collection, cursors=open_)
        killed += len(answer["cursorsKilled"])
    assert seen == list(range(300))
    assert killed >= 300 // limit - 1
    assert not cursors.endless
    other.close()


@pytest.mark.parametrize("cheap", [False, True], ids=["scan", "index"])
def test_blocks_that_stay_are_seen_once_while_others_come_and_go(
    store: MongoStore, plain: Any, cheap: bool
) -> None:
    games = at(store, "moving")
    games._pager._cheap = cheap
    games.write([whole(i * 10, n=i) for i in range(60)])
    seen: list[Value] = []
    position: Json = None
    step = 0
    while True:
        page = games.page(games.split(1)[0], position, 7)
        seen += [block.id for block in page.blocks]
        plain["moving"].insert_many(
            [{"_id": step * 70 + 1}, {"_id": 5_000 + step}, {"_id": f"{step}"}]
        )
        plain["moving"].delete_one({"_id": 590 - step * 10})
        step += 1
        if page.next is None:
            break
        position = page.next
    stayed = {block.id for block in walk(games, games.split(1), 1000)} & {i * 10 for i in range(60)}
    assert stayed <= set(seen)
    assert len(seen) == len(set(map(encode, seen)))


# ---------------------------------------------------------------- writing


def test_a_batch_that_is_partly_there_is_written_whole(store: MongoStore) -> None:
    games = at(store, "upsert")
    for version in range(4):
        games.write([whole(i, version=version) for i in range(version * 5, 20 + version * 5)])
        games.write([whole(7, version=version)])
    found = {b.id: b.entries[""]["version"] for b in walk(games, games.split(1), 100)}  # type: ignore[index]
    assert len(found) == 35
    assert all(found[i] == 3 for i in range(15, 35))
    assert found[7] == 3


def test_new_documents_are_inserted_also_after_others_were_replaced(
    store: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upsert costs a server several times what an insert does."""
    games = at(store, "mostly_new")
    for n in range(2):
        games.write([whole("k", n=n)])
    replaced: list[int] = []
    replace = Writer._replace

    def counted(self: Writer, batch: list[Any]) -> int:
        replaced.append(len(batch))
        return replace(self, batch)

    monkeypatch.setattr(Writer, "_replace", counted)
    monkeypatch.setattr(writing, "_AT_ONCE", 10)
    games.write([whole(n, n=n) for n in range(35)])
    assert replaced == [10]
    assert games.count() == 36


def test_the_last_of_one_key_in_a_batch_stands(store: MongoStore) -> None:
    games = at(store, "twice")
    games.write([whole("k", n=1), whole("j", n=1), whole("k", n=2)])
    assert one(games, "k").entries == {"": {"n": 2}}


def test_another_unique_index_names_both_keys(store: MongoStore, plain: Any) -> None:
    """C15: a block is written by its own key alone, and never over another one."""
    games = at(store, "unique")
    plain["unique"].create_index("email", unique=True)
    games.write([whole(1, email="bob@x.test"), whole(2, email="al@x.test")])
    for _ in range(2):
        with pytest.raises(DoesNotFit, match=r"3 and 1 have the same email") as caught:
            games.write([whole(3, email="bob@x.test")])
        assert caught.value.key == 3
    assert one(games, 1).entries == {"": {"email": "bob@x.test"}}
    assert [code for _, code, _ in games.findings()] == ["mongodb-unique"]


def test_a_validator_refuses_by_name(store: MongoStore, plain: Any) -> None:
    games = at(store, "strict")
    plain.command("collMod", "strict", validator={"n": {"$type": "int"}})
    games.write([whole(1, n=1)])
    with pytest.raises(DoesNotFit) as caught:
        games.write([whole(2, n="text")])
    assert caught.value.key == 2
    assert "mongodb-validator" in [code for _, code, _ in games.findings()]


def test_expiry_is_a_date_under_a_ttl_index(store: MongoStore, plain: Any) -> None:
    for layout in ("document", "flat"):
        games = at(store, "ttl", ROUNDS, Layout(layout, {"expires": "until"}))
        games.create()
        deadline = 4_070_908_800_123
        games.write([Block("a", {"": {"n": 1}}, deadline), Block("b", {"": {"n": 1}})])
        lies = plain["ttl"].find_one({"_id": "a"})
        assert lies["until"] == dt.datetime(2099, 1, 1, 0, 0, 0, 123_000)
        assert "until" not in plain["ttl"].find_one({"_id": "b"})
        assert one(games, "a").expires == deadline
        assert one(games, "b").expires is None
        (index,) = [x for x in plain["ttl"].list_indexes() if x["name"] != "_id_"]
        assert index["expireAfterSeconds"] == 0
        assert not list(games.findings())
    undeclared = store.collection("Game", At("docs", "ttl", ROUNDS))
    assert [code for _, code, _ in undeclared.findings()] == ["mongodb-ttl"]


def test_flat_patch_sends_the_entry_and_its_tags(store: MongoStore, plain: Any) -> None:
    games = at(store, "patch", ROUNDS, "flat")
    start = Block(
        "g", {"": {"who": v.Ref("Player", "ann")}, "rounds[0]": {"day": dt.date(2024, 1, 1)}}
    )
    games.write([start])
    games.patch(
        [Patch("g", {"rounds[1]": {"day": dt.date(2024, 1, 2)}, "rounds[0]": {"day": "x"}})]
    )
    lies = plain["patch"].find_one({})
    assert lies["_migrator"]["tags"].keys() == {"_", "rounds[1]"}
    expected = {
        **start.entries,
        "rounds[0]": {"day": "x"},
        "rounds[1]": {"day": dt.date(2024, 1, 2)},
    }
    assert equal(one(games, "g").entries, expected)
    games.patch([Patch("g", {}, ("rounds[1]",))])
    del expected["rounds[1]"]
    assert equal(one(games, "g").entries, expected)


@pytest.mark.parametrize("value", [1, dt.date(2024, 1, 1), {"$x": 1}, {"a.b": [v.Ref("P", "x")]}])
def test_document_patches_change_one_place(store: MongoStore, value: Value) -> None:
    rules = ["/Game/*/rounds[*]", "/Game/*/deep.*", "/Game/*/*"]
    games = at(store, "patchd", rules)
    start: dict[str, Value] = {
        "a": 1,
        "rounds": [{"n": 0}, {"n": 1}],
        "deep": {"x": 1, "y": 2},
        "z": value,
    }
    block = cut(Aggregate("g", start), representation("Game", rules))
    games.write([block])
    for patch in (
        Patch("g", {"a": value}),
        Patch("g", {"rounds[2]": {"n": value}}),
        Patch("g", {"rounds[0]": {"n": value}, "a": 2}),
        Patch("g", {"deep.x": value}, ("z",)),
        Patch("g", {"odd\\.name": value, "$y": value, "\\e": value}),
        Patch("g", {}, ("rounds[2]", "$y")),
        Patch("g", {}, ("odd\\.name", "\\e")),
    ):
        games.patch([patch])
        for path in patch.unset:
            block.entries.pop(path)
        block.entries.update(patch.set)
        assert equal(one(games, "g").entries, block.entries), patch


def test_patches_of_disjoint_entries_do_not_undo_each_other(store: MongoStore) -> None:
    rules = ["/Game/*/deep.*", "/Game/*"]
    games = at(store, "both", rules)
    games.write([Block("g", {"": {"a": 1}, "deep.x": 0, "deep.y": 0})])

    def change(name: str) -> None:
        for n in range(1, 16):
            games.patch([Patch("g", {f"deep.{name}": n})])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(change, "xy"))
    assert one(games, "g").entries == {"": {"a": 1}, "deep.x": 15, "deep.y": 15}


# ---------------------------------------------------------------- settings and errors


def test_unreachable_server_is_transient_and_says_so() -> None:
    options = {"database": "x", "serverSelectionTimeoutMS": 200}
    store = open_store(StoreSettings("docs", "mongodb://127.0.0.1:1/", options))
    with pytest.raises(Transient, match="can't reach MongoDB") as caught:
        store.ping()
    assert caught.value.hint
    assert not caught.value.unknown
    store.close()


@pytest.mark.parametrize(
    ("url", "options", "text"),
    [
        ("mongodb://h/", {}, "no database"),
        ("mongodb://h/x", {"colour": "red"}, "no option 'colour'"),
        ("mongodb://h/x", {"tls": "yes"}, "wants bool"),
        ("mongodb://h/x", {"maxPoolSize": True}, "wants int"),
        ("mongodb://h/x", {"tlsCAFile": "absent.pem"}, "there is no file"),
    ],
)
def test_bad_settings_are_refused(url: str, options: dict[str, object], text: str) -> None:
    with pytest.raises(Refused, match=text):
        open_store(StoreSettings("docs", url, options))


def test_bad_url_is_terminal() -> None:
    with pytest.raises(Terminal):
        open_store(StoreSettings("docs", "mongodb://h:port/x"))


@pytest.mark.parametrize(
    "layout",
    [
        Layout("item"), Layout("document", {"ttl": "x"}), Layout("flat", {"expires": "_"}),
        Layout("document", {"expires": 5}), Layout("document", {"expires": "a.b"}),
    ],
)  # fmt: skip
def test_unknown_layouts_and_options_are_refused(store: MongoStore, layout: Layout) -> None:
    with pytest.raises(Refused):
        store.collection("Game", At("docs", "x", (), layout))


def test_the_password_is_fetched_and_never_shown() -> None:
    fetched = []

    def secret() -> str:
        fetched.append(1)
        return "hunter2"

    options = {"serverSelectionTimeoutMS": 200}
    store = open_store(StoreSettings("docs", "mongodb://me@127.0.0.1:1/x", options, secret))
    assert fetched
    with pytest.raises(Transient) as caught:
        store.ping()
    assert "hunter2" not in str(caught.value) + repr(caught.value)
    store.close()


def made(mechanism: str = "DEFAULT", **more: str) -> MongoClient[RawBSONDocument]:
    return MongoClient(
        "127.0.0.1", 1, connect=False, username="me", password="first", authMechanism=mechanism,
        **more,
    )  # fmt: skip


@pytest.mark.parametrize("mechanism", ["DEFAULT", "SCRAM-SHA-1", "SCRAM-SHA-256", "PLAIN"])
def test_this_driver_fetches_the_password_for_each_login(mechanism: str) -> None:
    """Where this fails for a new version of the driver, see renewing.py: it keeps its credentials
    elsewhere, or asks them no more."""
    passwords = ["second"]
    with made(mechanism) as client:
        plain = client.options.pool_options._credentials
        assert renew(client, lambda: passwords[-1], "docs")
        held = client.options.pool_options._credentials
        assert held.password == "second"
        passwords.append("third")
        assert held.password == "third"
        assert (held.mechanism, held.source, held.username) == (mechanism, plain.source, "me")


def test_nobody_who_logs_in_needs_no_password() -> None:
    with MongoClient[RawBSONDocument]("127.0.0.1", 1, connect=False) as client:
        assert renew(client, lambda: pytest.fail("fetched"), "docs")


@pytest.mark.parametrize("name", ["_READ", "_HELD"])
def test_a_driver_that_keeps_its_credentials_elsewhere_is_told(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewing, name, "_elsewhere")
    with made() as client, capture_logs() as told:
        assert not renew(client, lambda: "second", "docs")
        assert client.options.pool_options._credentials.password == "first"
    ((event, where),) = [(entry["event"], entry["store"]) for entry in told]
    assert event.startswith("a changed password is seen by the next start only")
    assert where == "docs"


@pytest.mark.parametrize(
    ("code", "kind", "unknown"),
    [
        (18, Terminal, None), (13, Terminal, None), (10107, Transient, True), (91, Transient, True),
        (50, Transient, True), (64, Transient, True), (112, Transient, False),
        (43, Transient, False), (9001, Transient, True),
        (10334, DoesNotFit, None),
        (121, DoesNotFit, None), (26, Terminal, None),
    ],
)  # fmt: skip
def test_codes_of_the_server(code: int, kind: type[Exception], unknown: bool | None) -> None:
    error = by_code(code, "text", "docs:x", key=1, writing=True)
    assert type(error) is kind
    if unknown is not None:
        assert isinstance(error, Transient)
        assert error.unknown is unknown


def test_without_the_driver_the_hint_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['pymongo'] = None\n"
        "from migrator.stores.mongo import open_store\n"
        "from migrator.ports import StoreSettings\n"
        "try: open_store(StoreSettings('docs', 'mongodb://h/x'))\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Terminal")
    assert "pip install migrator[mongo]" in done.stdout


def test_nothing_is_retried_behind_our_back(store: MongoStore) -> None:
    """R6, R7: no driver-internal retries; majority, journalled, from the primary."""
    collection = at(store, "strength")._collection
    client = collection.database.client
    assert client.options.retry_writes is False
    assert client.options.retry_reads is False
    assert collection.write_concern.document == {"w": "majority", "j": True}
    assert collection.read_concern.level == "majority"
    assert collection.read_preference == pymongo.ReadPreference.PRIMARY


def test_too_large_is_refused_before_anything_is_sent(store: MongoStore, plain: Any) -> None:
    games = at(store, "large", ROUNDS)
    large = Block("l", {"": {"a": 1}, "rounds[0]": "x" * 17_000_000})
    with pytest.raises(DoesNotFit, match=r"17,0\d\d,\d\d\d bytes") as caught:
        games.write([whole("a", n=1), large])
    assert (caught.value.key, caught.value.path) == ("l", "rounds[0]")
    assert plain["large"].count_documents({}) == 0


def test_views_capped_collections_and_collations_are_findings(
    store: MongoStore, plain: Any
) -> None:
    at(store, "base")
    for name in ("view", "capped", "folding"):
        plain.drop_collection(name)
    plain.create_collection("folding", collation={"locale": "en", "strength": 2})
    assert [c for _, c, _ in store.collection("Game", At("docs", "folding")).findings()] == [
        "mongodb-collation"
    ]
    plain.create_collection("view", viewOn="base", pipeline=[])
    assert [c for _, c, _ in store.collection("Game", At("docs", "view")).findings()] == [
        "mongodb-type"
    ]
    try:
        plain.create_collection("capped", capped=True, size=10_000)
    except OperationFailure:
        return
    codes = [c for _, c, _ in store.collection("Game", At("docs", "capped")).findings()]
    assert codes == ["mongodb-capped"]


# ---------------------------------------------------------------- single writes


def test_one_block_is_put_and_deleted_under_a_key_of_any_kind(store: MongoStore) -> None:
    games = at(store, "single")
    games._writer._insert_first = False
    keys: list[Value] = [
        "a", 7, v.Int64(7_000), 2.5, Decimal("7.50"), True, b"x", UUID(int=9), {"a": [1]},
        v.ObjectId(bytes(12)), v.BsonTimestamp(1, 2), dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
    ]  # fmt: skip
    for n in (1, 2):  # put, and put again
        for key in keys:
            games.write([whole(key, n=n)])
            assert one(games, key).entries == {"": {"n": n}}
    assert games.count() == len(keys)
    for left, key in enumerate(keys):
        assert games.count() == len(keys) - left
        games.delete([Address(key)])
        games.delete([Address(key)])
    assert games.count() == 0


def test_what_no_majority_has_may_be_written_or_not(store: MongoStore) -> None:
    games = at(store, "undurable")
    games.write([whole("1", n=1, rounds=[]), whole("2")])
    durable = store._database.with_options(write_concern=WriteConcern(50))
    undurable = MongoCollection("docs", durable, "Game", games.at)
    undurable._writer._insert_first = False
    writes: list[Callable[[], object]] = [
        lambda: undurable.write([whole("1", n=2, rounds=[])]),
        lambda: undurable.amend("1", {"n": 3}, {}),
        lambda: undurable.amend("1", {}, {"rounds": 4}),
        lambda: undurable.exchange("1", one(games, "1"), whole("1", n=5)),
        lambda: undurable.patch([Patch("1", {"": {"n": 6}})]),
        lambda: undurable.exchange("1", one(games, "1"), None),
        lambda: undurable.delete([Address("2")]),
    ]
    for write in writes:
        with pytest.raises(Transient, match="not yet durable") as raised:
            write()
        assert raised.value.unknown
    assert games.read(["1", "2"]) == [None, None]
    # Whatever the server's reason is: here that somebody killed the operation.
    assert translated(WriteConcernError("interrupted", 11601), "docs", writing=True).unknown  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "name", ["a[b", "l*", "a\\b", "a.b", "$a", "a%41", "a\ud800", "_id", "_migrator"]
)
def test_a_field_is_changed_where_it_lies_whatever_its_name(store: MongoStore, name: str) -> None:
    rules = ["/Game/*/*"]
    games = at(store, "odd_names", rules)

    def held(value: Value) -> Block:
        return cut(Aggregate("1", {"n": 1, name: value}), representation("Game", rules))

    for set_, append in (({name: 2}, {}), ({}, {name: 2})):
        before: Value = [1]
        games.write([held(before)])
        after = games.amend("1", set_, append)
        # What lies under another name is left to an exchange.
        wanted = held(before if after is None else 2 if set_ else [1, 2])
        assert one(games, "1").entries == wanted.entries
        assert after is None or after.entries == wanted.entries
    (path,) = held(1).entries.keys() - {"n"}
    games.patch([Patch("1", {path: 3})])
    assert one(games, "1").entries == held(3).entries
    games.patch([Patch("1", {}, (path,))])
    assert one(games, "1").entries == {"n": 1}


def test_a_change_of_what_turns_out_unreadable_is_not_told_as_refused(
    store: MongoStore, plain: Database[dict[str, Any]]
) -> None:
    games = at(store, "unreadable")
    # Two fields stand for one.
    names = {"names": {"a%41": True}}
    odd = {"_id": "1", "n": 1, "rounds": [], "a%41": 1, "aA": 2, "_migrator": names}
    plain["unreadable"].insert_one(odd)
    changes: list[tuple[dict[str, Value], dict[str, Value]]] = [({"n": 2}, {}), ({}, {"rounds": 1})]
    for set_, append in changes:
        with pytest.raises(Transient, match=r"it was changed.* can't be read") as raised:
            games.amend("1", set_, append)
        assert raised.value.unknown
        assert raised.value.given_up
    assert plain["unreadable"].find_one() == {**odd, "n": 2, "rounds": [1]}
