"""DynamoDB on its emulators: what lies there by the plain driver, and what is stopped half way."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import boto3
import msgspec
import pytest

from migrator import At, Layout, index, item, item_collection
from migrator.errors import DoesNotFit, Refused, Terminal, Transient
from migrator.exchange import TooMuch
from migrator.model.block import Address, Aggregate, Block, Patch, cut
from migrator.model.canonical import equal
from migrator.model.value import Record, Value
from migrator.ports import AsTarget, Collection, Metered, Rates, Store, StoreSettings
from migrator.stores import dynamodb
from migrator.stores.dynamodb import settings, wire
from migrator.stores.dynamodb.facts import COMPUTED, LOCATED
from tests.conftest import server_url
from tests.contract import meters, servers

EXAMPLES = Path(__file__).parents[3] / "shared" / "data" / "noam-examples.json"
ROUNDS = ["/Game/*/rounds[*]", "/Game/*"]
_numbers = itertools.count(1)


def opened(server: str, **options: object) -> Store:
    return dynamodb.open_store(StoreSettings("dynamo", servers.dynamodb(server), options))


def fresh() -> str:
    """A table that no other test has, be it of another run."""
    return f"{servers.namespace()}store_{next(_numbers)}"


@pytest.fixture(scope="module", params=["dynamodb", "dynalite"])
def server(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def store(server: str) -> Iterator[Store]:
    store = opened(server)
    yield store
    store.close()


@pytest.fixture(scope="module")
def plain(server: str) -> Any:
    url = server_url(server).split("?")[0].replace("dynamodb:", "http:")
    return boto3.client(
        "dynamodb", endpoint_url=url, region_name="eu-west-1",
        aws_access_key_id="local", aws_secret_access_key="local",
    )  # fmt: skip


Make = Callable[..., Collection]


@pytest.fixture
def make(store: Store) -> Iterator[Make]:
    made: list[Collection] = []

    def make(cls: str, rules: list[str], layout: Layout, name: str = "") -> Collection:
        at = At("dynamo", name or fresh(), rules, layout)
        collection = store.collection(cls, at)
        if not name:
            collection.drop()
        collection.create()
        made.append(collection)
        return collection

    yield make
    for collection in made:
        collection.drop()


def cut_for(collection: Collection, id: Value, value: Record, expires: int | None = None) -> Block:
    return cut(Aggregate(id, value, expires), collection.at.rules(collection.cls))


def game(collection: Collection, id: Value, rounds: int, **more: Value) -> Block:
    value = {"id": id, "first": "ann", "rounds": [{"n": n} for n in range(rounds)], **more}
    return cut_for(collection, id, value)


def items(plain: Any, collection: Collection) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = plain.scan(TableName=collection.at.collection)["Items"]
    return found


def held(collection: Collection, id: Value) -> Block | None:
    """A block as copier and observer see it, by key and by scan."""
    (block,) = collection.read([id])
    (other,) = collection.observer().read([id])
    paged = [b for b in collection.page(None, None, 100).blocks if equal(b.id, id)]
    assert (block is None) is (other is None) is (not paged)
    if block is not None:
        assert other is not None
        assert equal(block.entries, other.entries)
        assert equal([b.entries for b in paged], [block.entries])
    return block


# ---------------------------------------------------------------- what lies there


@pytest.mark.skipif(not EXAMPLES.exists(), reason="../shared/data is absent")
@pytest.mark.parametrize("cls", ["Player", "Game"])
def test_the_layout_of_the_literature(make: Make, plain: Any, cls: str) -> None:
    examples = json.loads(EXAMPLES.read_text())
    names = {"Player": "games + ETF", "Game": "ROUNDS + ETF"}
    expected = examples["layouts"][f"DynamoDB, table {cls}, {names[cls]}"]
    ((key, id),) = expected["key"].items()
    rules = [f"/{cls}/*/{'games' if cls == 'Player' else 'rounds'}[*]", f"/{cls}/*/*"]
    collection = make(cls, rules, item(key))
    collection.write([cut_for(collection, id, examples["aggregates"][cls][id])])
    (found,) = items(plain, collection)
    assert found[key] == {"S": id}
    assert set(found) == set(expected["attributes"])
    if cls == "Player":
        assert found["games[1]"] == {
            "M": {"game": {"S": "Game:2611"}, "opponent": {"S": "Player:ann"}}
        }
    assert held(collection, id) is not None


def test_an_item_collection_as_its_templates_say(make: Make, plain: Any) -> None:
    layout = item_collection(
        "GAME#{id}", entries={"rounds[*]": "ROUND#{index:05}", "": "GAME"},
        attributes={"by": "BY#{first}"}, indexes=[index("by-first", "by", "id")], expires="ends",
        class_attribute="type",
    )  # fmt: skip
    collection = make("Game", ROUNDS, layout)
    block = game(collection, "a#1", 2, type="chess")
    block.expires = 4_070_908_800_001
    collection.write([block])
    found = {x["sk"]["S"]: x for x in items(plain, collection)}
    assert sorted(found) == ["GAME", "ROUND#00000", "ROUND#00001"]
    head = found["GAME"]
    assert head["pk"] == {"S": "GAME#a%231"}
    assert (head["type"], head["%74ype"]) == ({"S": "Game"}, {"S": "chess"})
    assert (head["by"], head["id"]) == ({"S": "BY#ann"}, {"S": "a#1"})
    assert found["ROUND#00001"]["n"] == {"N": "1"}
    assert {x["ends"]["N"] for x in found.values()} == {"4070908801"}
    read = held(collection, "a#1")
    assert read is not None
    assert equal(read.entries, block.entries)
    assert read.expires == block.expires
    answer = plain.query(
        TableName=collection.at.collection, IndexName="by-first", KeyConditionExpression="#b = :b",
        ExpressionAttributeNames={"#b": "by"}, ExpressionAttributeValues={":b": {"S": "BY#ann"}},
    )  # fmt: skip
    assert [x["sk"]["S"] for x in answer["Items"]] == ["GAME"]
    collection.patch([Patch("a#1", {"": {"id": "a#1", "first": "bob"}})])
    assert {x["by"]["S"] for x in items(plain, collection) if "by" in x} == {"BY#bob"}
    collection.patch([Patch("a#1", {"": {"id": "a#1", "first": None}})])
    assert not any("by" in x for x in items(plain, collection))


def test_items_of_others_are_blocks_with_all_their_fields(make: Make, plain: Any) -> None:
    table = make("Song", ["/Song/*"], item("title"))
    plain.put_item(
        TableName=table.at.collection,
        Item={"title": {"S": "x"}, "a.b[": {"N": "1.50"}, "tags": {"SS": ["b", "a"]}},
    )
    block = held(table, "x")
    assert block is not None
    assert block.entries.keys() == {""}
    record = block.entries[""]
    assert isinstance(record, dict)
    assert record.keys() == {"title", "a.b[", "tags"}
    rounds = make("Game", ROUNDS, item_collection("{id}", entries={"rounds[*]": "R#{index:02}"}))
    for n in (0, 1):
        key = {"pk": {"S": "GAME#7"}, "sk": {"S": f"R#{n:02}"}}
        plain.put_item(TableName=rounds.at.collection, Item=key | {"n": {"N": str(n)}})
    assert held(rounds, "GAME#7") is not None
    rounds.patch([Patch("GAME#7", {"rounds[2]": {"n": 2}})])
    plain.put_item(
        TableName=rounds.at.collection,
        Item={"pk": {"S": "GAME#7"}, "sk": {"S": "R#03"}, "n": {"N": "3"}},
    )
    block = held(rounds, "GAME#7")
    assert block is not None
    assert block.entries == {f"rounds[{n}]": {"n": n} for n in range(4)}
    rounds.write([game(rounds, "GAME#7", 1)])
    assert {x["sk"]["S"] for x in items(plain, rounds)} == {".", "R#00"}


def test_a_block_far_larger_than_an_item(make: Make, server: str) -> None:
    collection = make("Game", ROUNDS, item_collection("GAME#{id}"))
    value = {"id": "big", "rounds": [{"n": n, "text": "x" * 90_000} for n in range(14)]}
    block = cut_for(collection, "big", value)
    assert collection.size(block) > 3 * 409_600
    collection.write([block, game(collection, "small", 2)])
    for limit in (1, 10):
        seen, position = [], None
        while True:
            page = collection.page(None, position, limit)
            seen += page.blocks
            if (position := page.next) is None:
                break
        assert sorted(str(b.id) for b in seen) == ["big", "small"]
        assert all(b.id != "big" or equal(b.entries, block.entries) for b in seen)
    with pytest.raises(DoesNotFit) as caught:
        collection.write([cut_for(collection, "no", {"rounds": [{"text": "ü" * 205_000}]})])
    assert caught.value.key == "no"


def test_numbers_are_keys_in_whatever_form_the_server_gives_them(make: Make) -> None:
    collection = make("Game", ["/Game/*/*"], item("id:N"))
    blocks = [Block(key, {"a": 1}) for key in (7, Decimal(100), Decimal("2.50"), 1e30, 1e-10)]
    collection.write(blocks)
    for block in blocks:
        found = held(collection, block.id)
        assert found is not None
        assert equal(found.id, block.id)
    collection.write([Block(Decimal(100), {"a": 1}), Block(100, {"a": 2})])  # one key here
    assert held(collection, 100) == Block(100, {"a": 2})


# ---------------------------------------------------------------- several classes, one table


def test_a_patch_is_one_update_or_refused(make: Make, server: str) -> None:
    collection = make("Game", ["/Game/*/*"], item("id"))
    block = cut_for(collection, "a", {"id": "a"} | {f"f{i}": i for i in range(200)})
    collection.write([block])
    with pytest.raises(TooMuch, match="attributes to compare; a condition has at most 150"):
        collection.patch([Patch("a", {f"g{i}": i for i in range(251)})])
    many = {f"f{i}": 1.5 for i in range(250)} if server == "dynalite" else {"f1": 1.5}  # moto's
    collection.patch([Patch("a", many)])  # recursion has its bounds
    found = held(collection, "a")
    assert found is not None
    assert equal(found.entries, block.entries | many)


def test_classes_share_a_table_and_part_again(make: Make, plain: Any) -> None:
    name = fresh()
    users = make("User", ["/User/*"], item_collection("USER#{id}", "PROFILE"), name)
    orders = make("Order", ["/Order/*"], item_collection("USER#{user}", "ORDER#{date}#{id}"), name)
    for id in ("ann", "bob"):
        users.write([cut_for(users, id, {"id": id, "n": 1})])
    made = [
        cut_for(orders, n, {"user": "ann" if n % 2 else "bob", "date": f"2024-0{n}-01"})
        for n in range(1, 7)
    ]
    orders.write(made)
    assert users.count() == 2
    assert orders.count() == 6
    assert len(items(plain, users)) == 8
    (found,) = orders.read([3])
    assert found is not None
    assert found.place == ["USER#ann", "ORDER#2024-03-01#3"]
    users.drop()
    assert orders.count() == 6
    assert users.count() == 0


def test_a_block_moves_with_an_attribute_of_its_key(make: Make, plain: Any) -> None:
    rules = ["/Order/*/lines[*]", "/Order/*"]
    orders = make("Order", rules, item_collection("DAY#{date}", "ORDER#{id}#{entry}"))

    def order(id: int, date: str, lines: int) -> Block:
        return cut_for(orders, id, {"date": date, "lines": [{"n": n} for n in range(lines)]})

    orders.write([order(n, "2024-01-01", 3) for n in (1, 10, 100)])
    orders.write([order(10, "2024-02-02", 2)])
    orders.patch([Patch(100, {"": {"date": "2024-03-03"}})])
    days = {(x["pk"]["S"], x["sk"]["S"].rpartition("#")[0]) for x in items(plain, orders)}
    assert days == {
        ("DAY#2024-01-01", "ORDER#1"), ("DAY#2024-02-02", "ORDER#10"),
        ("DAY#2024-03-03", "ORDER#100"),
    }  # fmt: skip
    assert orders.count() == 3
    for id in (1, 10, 100):
        assert held(orders, id) is not None
    (moved,) = orders.read([10])
    assert moved is not None
    orders.delete([Address(10, moved.place), Address(1)])
    assert held(orders, 10) is None
    assert {x["pk"]["S"] for x in items(plain, orders)} == {"DAY#2024-03-03"}


# ---------------------------------------------------------------- stopped half way


class Stopped(Exception):
    pass


def stopping(patch: pytest.MonkeyPatch, after: int) -> Callable[[], int]:
    """Let this many writes through, then fail; gives how many were asked for."""
    call, seen = wire.Wire.call, 0

    def counted(self: wire.Wire, operation: str, *args: Any, **more: Any) -> wire.Answer:
        nonlocal seen
        if more.get("writing"):
            seen += 1
            if seen > after:
                raise Stopped
        return call(self, operation, *args, **more)

    patch.setattr(wire.Wire, "call", counted)
    return lambda: seen


@pytest.mark.parametrize(("old", "new"), [(0, 3), (3, 0), (3, 5), (5, 2), (None, 3), (3, None)])
def test_stopped_anywhere_a_block_is_old_or_new(
    make: Make, plain: Any, monkeypatch: pytest.MonkeyPatch, old: int | None, new: int | None
) -> None:
    collection = make("Game", ROUNDS, item_collection("GAME#{id}"))
    states = [None if n is None else game(collection, "a", n, v=n) for n in (old, new)]

    def turn(block: Block | None) -> None:
        if block is None:
            collection.delete([Address("a")])
        else:
            collection.write([block])

    for after in itertools.count():
        turn(states[0])
        with monkeypatch.context() as patch:
            asked = stopping(patch, after)
            with suppress(Stopped):
                turn(states[1])
            done = asked() <= after
        found = held(collection, "a")
        fits = [
            s is found if s is None or found is None else equal(s.entries, found.entries)
            for s in states
        ]
        assert any(fits), found
        if done:
            assert fits[1]
            break
    assert after > 0
    turn(states[1])
    expected = 0 if states[1] is None else max(1, len(states[1].entries))
    assert len(items(plain, collection)) == expected


def test_a_moving_block_that_was_stopped_leaves_no_copy(
    make: Make, plain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = make("Order", ["/Order/*"], item_collection("DAY#{date}", "ORDER#{id}"))
    blocks = [cut_for(orders, 1, {"date": f"2024-01-0{n}"}) for n in (1, 2, 3)]
    for after in itertools.count():
        orders.write([blocks[0]])
        with monkeypatch.context() as patch:
            asked = stopping(patch, after)
            with suppress(Stopped):
                orders.write([blocks[1]])
            done = asked() <= after
        assert held(orders, 1) is not None
        orders.write([blocks[2]])
        assert [x["pk"]["S"] for x in items(plain, orders)] == ["DAY#2024-01-03"]
        if done:
            break
    assert after > 1


# ---------------------------------------------------------------- settings and errors


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        (Layout("item", {"kye": "id"}), "no option kye"),
        (Layout("row"), "no layout"),
        (item("id", billing="provisioned"), "read_units"),
        (item("_migrator"), "key attribute"),
        (item(expires="_"), "can't be an attribute"),
        (item_collection("A#{x}"), "collide"),
    ],
)
def test_what_a_layout_does_not_know_is_refused(store: Store, layout: Layout, text: str) -> None:
    with pytest.raises(Refused, match=text):
        store.collection("Game", At("dynamo", "games", ["/Game/*"], layout))


def test_options_of_the_store_are_checked_and_secrets_never_shown() -> None:
    for options in ({"regoin": "x"}, {"tls": "yes"}, {"write_units": 0}):
        with pytest.raises(Refused) as caught:
            opened("dynamodb", **options)
        assert "yes" not in str(caught.value)
    secret = StoreSettings("dynamo", "dynamodb://127.0.0.1:1?region=x", {}, lambda: "hunter2")
    with pytest.raises(Refused) as caught:
        dynamodb.open_store(secret)
    assert "hunter2" not in str(caught.value)


def test_a_store_that_is_opened_again_looks_in_no_more_folders() -> None:
    for _ in range(2):
        session = settings._session(None)
        folders = session._session.get_component("data_loader").search_paths
        assert len(folders) == len(set(folders))


def test_a_server_that_is_not_there_is_transient() -> None:
    store = dynamodb.open_store(StoreSettings("dynamo", "dynamodb://127.0.0.1:1?region=eu-west-1"))
    with pytest.raises(Transient, match="can't reach") as caught:
        store.ping()
    assert not caught.value.unknown


def test_a_table_that_is_not_there(store: Store) -> None:
    gone = store.collection("Game", At("dynamo", "test_no_such", ["/Game/*"]))
    assert not gone.exists()
    assert gone.schema() is None
    assert list(gone.findings()) == []
    with pytest.raises(Terminal, match="no such table"):
        gone.read(["a"])


def test_findings_tell_of_keys_capacity_and_expiry(make: Make, store: Store, server: str) -> None:
    layout = item(
        "id", expires="ends", billing="provisioned", read_units=5, write_units=7,
        indexes=[index("by-first", "first"), index("old", "id", "n:N", project="keys")],
    )  # fmt: skip
    collection = make("Game", ["/Game/*/*"], layout)
    codes = {code for _, code, _ in collection.findings()}
    assert {"dynamodb-provisioned", "dynamodb-index-cost", "dynamodb-stream"} <= codes
    assert ("dynamodb-ttl-seconds" if server == "dynamodb" else "dynamodb-ttl-off") in codes
    other = store.collection("Game", At("dynamo", collection.at.collection, [], item("name")))
    found = {code: severity for severity, code, _ in other.findings()}
    assert found["dynamodb-keys"] == "error"
    with pytest.raises(DoesNotFit):
        collection.write([cut_for(collection, "a", {"id": "a", "first": None})])


def test_items_that_no_template_matches_are_told(make: Make, store: Store) -> None:
    collection = make("Game", ["/Game/*"], item_collection("GAME#{id}"))
    collection.write([cut_for(collection, "a", {"id": "a"})])
    assert "dynamodb-others" not in {code for _, code, _ in collection.findings()}
    at = At("dynamo", collection.at.collection, ["/Game/*"], item_collection("PLAY#{id}"))
    told = {code: text for _, code, text in store.collection("Game", at).findings()}
    assert "GAME#a" in told["dynamodb-others"]


def test_a_budget_of_units_slows_down() -> None:
    began = wire.time.monotonic()
    bucket = wire.Bucket(100.0)
    bucket.spend(20.0)
    assert bucket.spent == 20.0
    bucket.wait()
    assert wire.time.monotonic() - began > 0.1


def unprocessing(patch: pytest.MonkeyPatch, keep: Callable[[int, list[Any]], list[Any]]) -> None:
    """Let batch writes leave undone what ``keep`` says of the round and the requests."""
    call, rounds = wire.Wire.call, itertools.count()

    def partial(
        self: wire.Wire, operation: str, request: Mapping[str, Any], *args: Any, **more: Any
    ) -> wire.Answer:
        if operation != "BatchWriteItem":
            return call(self, operation, request, *args, **more)
        request = msgspec.json.decode(msgspec.json.encode(request))
        ((name, asked),) = request["RequestItems"].items()
        left = keep(next(rounds), asked)
        done = [x for x in asked if x not in left]
        answer: wire.Answer = {"bytes": 2}
        if done:
            answer = call(self, operation, {"RequestItems": {name: done}}, *args, **more)
        return answer | ({"UnprocessedItems": {name: left}} if left else {})

    patch.setattr(wire.Wire, "call", partial)
    patch.setattr(wire, "_FIRST_WAIT", 0.001)


def test_what_was_left_unprocessed_is_finished(
    make: Make, plain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection = make("Game", ["/Game/*/*"], item())
    blocks = [game(collection, f"g{n}", 1) for n in range(30)]
    with monkeypatch.context() as patch:
        unprocessing(patch, lambda _, asked: asked[:3] if len(asked) > 3 else [])
        collection.write(blocks)
    assert collection.count() == 30
    with monkeypatch.context() as patch:
        unprocessing(patch, lambda _, asked: asked[-1:])
        with pytest.raises(Transient, match="g19"):
            collection.write(blocks[:20])


def test_units_follow_the_indexes_that_a_change_shows_in(store: Store) -> None:
    indexes = [
        index("by-first", "first"),
        index("by-score", "first", "score:N", project="keys"),
        index("by-year", "year:N", project=["note"]),
    ]
    layout = item("id", indexes=indexes, billing="provisioned", read_units=5, write_units=7)
    games = store.collection("Game", At("dynamo", "test_units", ["/Game/*/*"], layout))
    assert isinstance(games, Metered)

    def write(new: Record | None, old: Record | None) -> int:
        blocks = [x and cut_for(games, "a", {"id": "a", **x}) for x in (new, old)]
        return games.units(*blocks).write  # type: ignore[arg-type]

    large = "x" * 2500
    known: list[tuple[Record | None, Record | None, int]] = [
        ({"text": large}, None, 3),  # in no index
        ({"text": large, "first": "mary"}, None, 3 + 3),
        ({"text": large, "first": "mary", "score": 5}, None, 3 + 3 + 1),
        ({"text": large, "year": 1999}, None, 3 + 1),
        ({"text": "x", "year": 1999, "note": large}, None, 3 + 3),
        ({"text": "x", "first": "mary"}, {"text": large, "first": "mary"}, 3 + 3),  # the larger
        ({"text": "x", "first": "rick"}, {"text": "x", "first": "mary"}, 1 + 2),  # gone, and new
        ({"text": "x", "first": "m", "score": 1}, {"text": "y", "first": "m", "score": 1}, 1 + 1),
        ({"text": "x", "year": 1}, {"text": "y", "year": 1}, 1),  # it shows in no index
        (None, {"text": large, "first": "mary"}, 3 + 3),
    ]
    assert [write(new, old) for new, old, _ in known] == [units for *_, units in known]
    assert games.units(cut_for(games, "a", {"id": "a", "text": large * 4}), None).read == 3
    assert games.rates() == Rates(read=5, write=7)


def test_units_of_a_table_are_those_of_its_own_indexes(make: Make, store: Store) -> None:
    by_first = [index("by-first", "first")]
    layout = item("id", indexes=by_first, billing="provisioned", read_units=5, write_units=7)
    made = make("Game", ["/Game/*/*"], layout)
    # The layout says less than what is there.
    games = store.collection("Game", At("dynamo", made.at.collection, ["/Game/*/*"]))
    assert isinstance(games, Metered)
    assert games.units(cut_for(games, "a", {"id": "a", "first": "mary"}), None).write == 2
    assert games.rates() == Rates(read=5, write=7)


HOT = ["dynamodb-hot-partition", "dynamodb-order"]
BY_DAY = ("DAY#{day}", "GAME#{id}#{entry}")


def game_of(day: str, number: int) -> Record:
    return {"id": f"{number}", "day": day, "text": "x" * 20_000}


def test_what_a_locator_and_computed_attributes_cost_is_what_is_said(
    make: Make, store: Store, server: str
) -> None:
    if server == "dynamodb":
        return  # the requests are the same, and take their time there
    costs = dynamodb.facts.LAYOUTS["item-collection"].costs
    layout = item_collection("DAY#{date}", "ORDER#{id}#{entry}")
    orders = make("Order", ["/Order/*/lines[*]", "/Order/*"], layout)
    orders.write([cut_for(orders, 0, {"date": "01", "lines": [1, 2]})])

    def order(date: str, *lines: int) -> Block:
        return cut_for(orders, 1, {"date": date, "lines": list(lines)})

    old, new = order("01", 1, 2, 3), order("02", 4, 5, 6)
    seen: dict[str, int] = {}

    def count(operation: str, act: Callable[[], object]) -> None:
        with meters.DYNAMODB(store) as traffic:
            act()
        seen[operation] = max(seen.get(operation, 0), traffic.requests)

    def said(has: str, *operations: str) -> dict[str, int]:
        return {each: costs[each].at_most(1, {has}, 1) for each in operations}

    for block in (old, new):
        count("put", lambda block=block: orders.write([block]))
    count("update", lambda: orders.patch([Patch(1, old.entries)]))
    count("append", lambda: orders.patch([Patch(1, {"lines[3]": 4})]))
    count("get", lambda: orders.read([1]))
    count("get_entries", lambda: orders.read_entries(1, [""]))
    count("delete", lambda: orders.delete([Address(1)]))
    operations = ("put", "update", "append", "get", "get_entries", "delete")
    assert seen == said(LOCATED, *operations)

    layout = item_collection(
        "G#{id}", attributes={"by": "BY#{first}"}, indexes=[index("by-first", "by", "id")]
    )
    games = make("Game", ROUNDS, layout)
    games.write([game(games, "a", 2)])
    seen.clear()
    count("append", lambda: games.patch([Patch("a", {"rounds[2]": {"n": 2}})]))
    count("update", lambda: games.patch([Patch("a", {f"rounds[{n}]": {} for n in range(3)})]))
    assert seen == said(COMPUTED, "update", "append")


@pytest.mark.parametrize(
    ("keys", "local", "codes"),
    [
        (BY_DAY, ["n:N"], ["dynamodb-collection-size", *HOT]),
        (BY_DAY, [], HOT),
        (("GAME#{id}", "{entry}"), ["n:N"], []),  # one block alone has this key
    ],
)
def test_partition_keys_that_would_hold_too_much_are_told(
    store: Store, keys: tuple[str, str], local: list[str], codes: list[str]
) -> None:
    indexes = [index(f"by-{name[0]}", sort=name, local=True) for name in local]
    layout = item_collection(*keys, indexes=indexes)
    games = store.collection("Game", At("dynamo", "test_partitions", ["/Game/*"], layout))
    assert isinstance(games, AsTarget)
    size = 0
    for number in range(100):
        day = "today" if number % 3 else f"{number}"
        size += games.size(cut_for(games, f"{number}", game_of(day, number)))

    def told(times: int) -> dict[str, tuple[str, str]]:
        found = games.target_findings(100 * times, size * times)
        return {code: (severity, text) for severity, code, text in found}

    # 66 blocks of 20 KB; of 10 GB a local index takes half.
    assert told(1) == {}
    assert sorted(told(30)) == [code for code in codes if code == "dynamodb-order"]
    found = told(5_000)
    assert sorted(found) == codes
    if "dynamodb-collection-size" in codes:
        severity, text = found["dynamodb-collection-size"]
        assert severity == "error"
        assert "1 partition keys would get over 10 GB" in text
        assert "dynamodb-collection-size" not in told(3_000)
    if codes:
        severity, text = found["dynamodb-hot-partition"]
        assert severity == "warning"
        assert "gets 330,000 of 500,000 blocks" in text
        assert "takes 108 minutes" in text


def test_sort_keys_that_sort_otherwise_than_their_elements_are_told(store: Store) -> None:
    def told(template: str, rounds: int) -> dict[str, tuple[str, str]]:
        layout = item_collection("GAME#{id}", entries={"rounds[*]": template})
        games = store.collection("Game", At("dynamo", "test_padding", ROUNDS, layout))
        games.size(cut_for(games, "a", {"rounds": [{"n": n} for n in range(rounds)]}))
        return {code: (severity, text) for severity, code, text in games.findings()}

    assert told("ROUND#{index:02}", 100) == {}
    severity, text = told("ROUND#{index:02}", 101)["dynamodb-padding"]
    assert severity == "warning"
    assert "rounds[*] up to index 100" in text
    severity, text = told("ROUND#{index}", 3)["dynamodb-unpadded"]
    assert severity == "note"
    assert "element 10 sorts before element 2" in text
