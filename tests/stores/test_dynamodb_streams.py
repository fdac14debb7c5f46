"""Streams of DynamoDB: several shards, what they become, what is theirs, what is missing.

By the emulators where they can do it; shard trees, rights and throttles by a script of the service.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from migrator import At, Layout, item, item_collection
from migrator.errors import DoesNotFit, FeedLost, Refused
from migrator.journal import Feed, Journal, Touches
from migrator.model.block import Address, Aggregate, cut
from migrator.model.value import Value
from migrator.ports import Collection, StoreSettings
from migrator.stores import dynamodb
from migrator.stores.dynamodb import feed as feeds
from migrator.stores.dynamodb import markers
from migrator.stores.dynamodb.options import options_of
from migrator.stores.dynamodb.shards import AHEAD, KEPT, Gone, Shard, Spot, move_on
from migrator.stores.dynamodb.streams import VIEW, StreamJournal
from migrator.testing.feeds.harness import fresh, journal_of, through_json, until
from tests.contract import servers
from tests.contract.feeds_dynamodb import client
from tests.stores.streams_fake import Service
from tests.stores.streams_fake import Shard as Leaf


def journal(service: Service) -> StreamJournal:
    return service.collection().journal("run")  # type: ignore[return-value]


def writes(service: Service, count: int) -> set[str]:
    keys = {f"game-{number}" for number in range(count)}
    for key in keys:
        service.write(key)
    return keys


def seen_until(feed: Feed, mark: str) -> dict[str, bool]:
    return until(feed, mark).keys


def quiet(feed: Feed) -> Touches:
    """All that comes until nothing does."""
    found, empty = Touches(), 0
    while empty < 3:
        given = feed.poll(0.2)
        empty = empty + 1 if given is None else 0
        if given is not None:
            found.touches = [*found.touches, *given.touches]
            found.position = given.position or found.position
            found.marks += given.marks
    return found


# ---------------------------------------------------------------------- shards, as data


def listed(*shards: Shard) -> dict[str, Shard]:
    return {shard.id: shard for shard in shards}


def test_a_child_follows_once_the_end_of_its_parent_was_read() -> None:
    tree = listed(Shard("p", closed=True), Shard("a", "p"), Shard("b", "p"))
    assert move_on({"p": Spot("7")}, tree, 5).keys() == {"p"}
    assert move_on({"p": Spot("7", ended=True, time=3)}, tree, 5) == {
        "a": Spot(time=3), "b": Spot(time=3),
    }  # fmt: skip


def test_a_child_that_is_listed_late_is_read_from_its_start() -> None:
    half = listed(Shard("p", closed=True), Shard("a", "p"))
    front = move_on({"p": Spot("7", ended=True)}, half, 5)
    assert front.keys() == {"a"}
    front = move_on(front, half | listed(Shard("b", "p"), Shard("bb", "b")), 6)
    assert front == {"a": Spot(), "b": Spot(time=6)}


def test_an_ended_shard_stays_until_something_follows_it_or_it_is_forgotten() -> None:
    ended = {"p": Spot("7", ended=True, time=1)}
    assert move_on(ended, listed(Shard("p", closed=True)), 9) == {"p": Spot("7", True, 9)}
    assert move_on(ended, listed(Shard("other")), 9) == {"other": Spot(time=9)}
    with pytest.raises(Gone, match="p is no longer there"):
        move_on(ended, listed(Shard("other")), 90_000)


def test_a_parent_that_went_before_its_end_was_read_is_a_loss() -> None:
    with pytest.raises(Gone, match="p is no longer there"):
        move_on({"p": Spot("7")}, listed(Shard("a", "p")), 5)
    with pytest.raises(Gone, match="q went before it was read"):
        move_on({"a": Spot("7")}, listed(Shard("a"), Shard("b", "q")), 5)


# ---------------------------------------------------------------------- several shards


def test_a_marker_waits_for_every_shard() -> None:
    service = Service(shards=6, view=VIEW)
    followed = journal(service)
    feed = followed.open(followed.prepare())
    keys = writes(service, 40)
    slow = service.leaf("game-0")
    slow.stalled = True
    followed.mark("all")
    found = quiet(feed)
    assert found.marks == []
    slow.stalled = False
    early = {str(touch.key) for touch in found.touches}
    assert early < keys
    assert early | seen_until(feed, "all").keys() == keys
    feed.close()


def test_a_marker_is_written_on_until_it_shows_in_every_shard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("migrator.stores.dynamodb.streams.MARKERS", 1)
    service = Service(shards=12, view=VIEW)
    followed = journal(service)
    feed = followed.open(followed.prepare())
    keys = writes(service, 60)
    followed.mark("all")
    seen = until(feed, "all")
    assert seen.keys.keys() == keys
    feed.acknowledge(seen.position)
    assert not [key for key in service.items if key.startswith(markers.HEAD)]
    feed.close()


def test_a_marker_waits_for_a_shard_that_is_not_listed_yet() -> None:
    service = Service(view=VIEW)
    followed = journal(service)
    feed = followed.open(followed.prepare())
    _, late = service.split(service.open[0])
    late.hidden = True
    keys = writes(service, 20)
    followed.mark("all")
    found = quiet(feed)
    assert found.marks == []
    late.hidden = False
    feed._listed_at = float("-inf")  # type: ignore[attr-defined]
    assert {str(t.key) for t in found.touches} | seen_until(feed, "all").keys() == keys
    feed.close()


def lone_marker(followed: StreamJournal, service: Service, shard: Leaf, name: str) -> None:
    """A marker of one item alone, which falls into a shard."""
    while True:
        made = markers.new_set(markers.new_code(), 1)
        key = markers.key_of(made[0], followed.options)["id"]["S"]
        if service.leaf(key) is shard:
            followed.put_markers(made, name)
            return


def key_in(service: Service, shard: Leaf) -> str:
    return next(key for key in map(str, range(999)) if service.leaf(key) is shard)


def test_a_marker_that_is_whole_waits_for_the_other_shards_too() -> None:
    service = Service(shards=2, view=VIEW)
    followed = journal(service)
    feed = followed.open(followed.prepare())
    here, there = service.open
    service.write(key := key_in(service, there))
    there.stalled = True
    lone_marker(followed, service, here, "all")
    assert quiet(feed).marks == []
    there.stalled = False
    assert key in seen_until(feed, "all")
    feed.close()


def test_a_marker_waits_for_what_follows_a_shard_that_ended() -> None:
    service = Service(shards=2, view=VIEW)
    followed = journal(service)
    feed = followed.open(followed.prepare())
    here, there = service.open
    late = service.roll(there)
    late.hidden = True
    service.write(key := key_in(service, late))
    lone_marker(followed, service, here, "all")
    assert quiet(feed).marks == []
    late.hidden = False
    assert key in seen_until(feed, "all")
    feed.close()


def test_a_marker_waits_until_the_shards_were_listed_anew() -> None:
    service = Service(view=VIEW)
    followed = journal(service)
    feed = followed.open(followed.prepare())
    here, late = service.split(service.open[0])
    late.hidden = True
    service.write("game-1")
    quiet(feed)
    late.hidden = False
    service.write(key := key_in(service, late))
    lone_marker(followed, service, here, "all")
    assert key in seen_until(feed, "all")
    feed.close()


def test_a_marker_on_its_way_outlives_the_feed() -> None:
    service = Service(shards=2, view=VIEW)
    followed = journal(service)
    feed = followed.open(followed.prepare())
    here, there = service.open
    there.stalled = True
    service.write(key_in(service, here))
    lone_marker(followed, service, here, "all")
    given = feed.poll(120.0)
    assert given is not None
    assert (len(given.touches), given.marks) == (1, [])
    feed.close()
    there.stalled = False
    service.write(key := key_in(service, there))
    feed = followed.open(through_json(given.position))
    assert key in seen_until(feed, "all")
    feed.close()


def test_very_many_touches_come_in_bounded_batches() -> None:
    service = Service(shards=6, view=VIEW)
    service.page = 1_000
    followed = journal(service)
    feed = followed.open(followed.prepare())
    keys = writes(service, 12_000)
    followed.mark("all")
    seen = until(feed, "all")
    assert seen.keys.keys() == keys
    assert 1_000 <= seen.most <= 5_000
    feed.close()


def test_c14_parents_are_read_to_their_end_before_children() -> None:
    service = Service(view=VIEW)
    followed = journal(service)
    position = followed.prepare()
    parent = service.open[0]
    for number in range(20):
        service.write(f"game-{number}")
    children = service.split(parent)
    for number in range(20):
        service.write(f"game-{number}", removed=True)
    service.log.clear()
    feed = followed.open(position)
    followed.mark("all")
    assert seen_until(feed, "all") == {f"game-{number}": True for number in range(20)}
    asked = [request["ShardId"] for request in service.asked("GetShardIterator")]
    assert asked[0] == parent.id
    assert set(asked[1:]) == {child.id for child in children}
    first = service.log.index(("GetShardIterator", service.asked("GetShardIterator")[1]))
    assert len([1 for name, _ in service.log[:first] if name == "GetRecords"]) >= 3
    feed.close()


@pytest.mark.parametrize("seed", range(8))
def test_no_write_is_missed_whatever_becomes_of_the_shards(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "_AT_ONCE", 5)  # so that some was fetched and not given yet
    chosen = random.Random(seed)
    service = Service(shards=chosen.randrange(1, 4), view=VIEW if seed % 2 else None)
    followed = journal(service)
    position = followed.prepare()
    feed, before, seen, marks = followed.open(position), set[str](), set[str](), {}

    def take() -> None:
        nonlocal position
        given = feed.poll(0.0)
        if given is None:
            return
        seen.update(str(touch.key) for touch in given.touches)
        for mark in given.marks:
            assert marks.get(mark, set()) <= seen, mark
        if chosen.random() < 0.7:
            position = through_json(given.position)
            feed.acknowledge(given.position)

    for step in range(120):
        match chosen.choices(("write", "poll", "mark", "tree", "odd"), (8, 8, 1, 1, 1))[0]:
            case "write":
                for number in range(chosen.randrange(1, 12)):
                    before.add(key := f"game-{step}-{number}")
                    service.write(key)
            case "poll":
                take()
            case "mark":
                marks[name := f"mark-{step}"] = set(before)
                followed.mark(name)
            case "tree":
                shard = chosen.choice(service.open)
                service.split(shard) if chosen.random() < 0.5 else service.roll(shard)
            case "odd":
                odd = chosen.randrange(3)
                service.throttled += odd == 0
                if odd == 1:
                    service.expire()
                if odd == 2:
                    feed.close()
                    feed = followed.open(position)
    followed.mark("last")
    marks["last"] = set(before)
    end = time.monotonic() + 120
    while "last" not in (given.marks if (given := feed.poll(0.1)) is not None else ()):
        if given is not None:
            seen.update(str(touch.key) for touch in given.touches)
        assert time.monotonic() < end
    seen.update(str(touch.key) for touch in given.touches)
    assert seen == before
    feed.close()


# ---------------------------------------------------------------------- what is lost


def test_c53_each_shard_is_read_on_from_its_own_place() -> None:
    service = Service(shards=2, view=VIEW)
    followed = journal(service)
    feed = followed.open(followed.prepare())
    keys = writes(service, 40)
    slow = service.leaf("game-0")
    slow.stalled = True
    followed.mark("all")
    found = quiet(feed)
    feed.acknowledge(found.position)
    feed.close()  # as a mirror that ends, with one of its streams far behind the other
    slow.stalled = False
    again = followed.open(through_json(found.position))
    early = {str(touch.key) for touch in found.touches}
    assert early < keys
    assert seen_until(again, "all").keys() == keys - early
    again.close()


def test_records_that_went_before_they_were_read_are_a_loss() -> None:
    service = Service(view=VIEW)
    followed = journal(service)
    feed = followed.open(position := followed.prepare())
    writes(service, 30)
    service.open[0].trimmed = len(service.open[0].records) - 1
    with pytest.raises(FeedLost, match="gone"):
        quiet(feed)
    feed.close()
    with pytest.raises(FeedLost, match="gone"):
        quiet(followed.open(position))


def test_c14_a_parent_that_is_gone_is_not_waited_for() -> None:
    service = Service(view=VIEW)
    followed = journal(service)
    position = followed.prepare()
    parent = service.open[0]
    service.split(parent)
    service.forget(parent)
    with pytest.raises(FeedLost, match="no longer there"):
        followed.open(position)


@pytest.mark.parametrize(
    ("since", "why"),
    [(KEPT + 60, "23 hours"), (-AHEAD - 60, "a clock that was ahead")],
    ids=["not read for a day", "read by a clock ahead"],
)
def test_a_feed_that_was_not_read_for_a_day_is_lost(since: float, why: str) -> None:
    service = Service(view=VIEW)
    followed = journal(service)
    position: Any = followed.prepare()
    (spot,) = position["shards"].values()
    spot[2] -= since
    with pytest.raises(FeedLost, match=why):
        quiet(followed.open(position))


def test_a_feed_that_is_quiet_tells_that_nothing_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feeds, "_QUIET", 0.0)
    monkeypatch.setattr(feeds, "_TOLD_EVERY", 0.0)
    service = Service(view=VIEW)
    followed = journal(service)
    position: Any = followed.prepare()
    (spot,) = position["shards"].values()
    spot[2] = before = time.time() - KEPT + 600
    feed = followed.open(position)
    end = time.monotonic() + 120
    while spot[2] <= before + 600:
        assert time.monotonic() < end
        if (given := feed.poll(0.1)) is not None:
            told: Any = given.position
            (spot,) = told["shards"].values()
    feed.close()


def test_a_stream_that_was_lost_is_made_anew() -> None:
    service = Service()
    followed = journal(service)
    feed = followed.open(position := followed.prepare())
    service._turn_on(VIEW)  # somebody turned it off and on again
    feed._listed_at = float("-inf")  # type: ignore[attr-defined]
    with pytest.raises(FeedLost, match="another stream"):
        quiet(feed)
    feed.close()
    service.view = None
    with pytest.raises(FeedLost, match="turned off"):
        followed.open(position)
    followed.drop()
    feed = followed.open(followed.prepare())
    service.write("game-1")
    followed.mark("all")
    assert seen_until(feed, "all") == {"game-1": False}
    feed.close()


# ---------------------------------------------------------------------- whose stream it is


def test_a_stream_of_others_is_used_and_never_altered() -> None:
    service = Service(shards=2, view="KEYS_ONLY")
    service.write("old")
    followed = journal(service)
    feed = followed.open(followed.prepare())
    service.write("game-1")
    followed.mark("all")
    assert seen_until(feed, "all") == {"game-1": False}
    feed.close()
    followed.drop()
    assert service.view == "KEYS_ONLY"
    assert not service.asked("UpdateTable")
    assert service.tags == {}


def test_a_stream_of_ours_goes_with_the_last_run_that_follows_it() -> None:
    service = Service()
    collection = service.collection()
    first, second = collection.journal("first"), collection.journal("second")
    first.prepare()
    second.prepare()
    service.tags["team"] = "games"
    first.drop()
    assert service.view == VIEW
    second.drop()
    assert service.view is None
    assert service.tags == {"team": "games"}


# ---------------------------------------------------------------------- rights, endpoints


def test_a_right_that_is_missing_is_named() -> None:
    service = Service()
    followed = journal(service)
    service.denied = {"UpdateTable"}
    with pytest.raises(Refused, match=r"dynamodb:UpdateTable.*turn a stream on yourself"):
        followed.prepare()
    assert service.tags == {}
    service.denied = {"GetShardIterator"}
    with pytest.raises(Refused, match="GetShardIterator"):
        followed.prepare()
    service.denied = {"ListStreams"}
    assert [code for _, code, _ in followed.findings()] == ["streams-right"]
    with pytest.raises(Refused, match="ListStreams"):
        followed.prepare()


def test_an_endpoint_without_streams_says_so() -> None:
    store = dynamodb.open_store(StoreSettings("docs", servers.dynamodb("dynalite")))
    at = At("docs", f"{servers.namespace()}{fresh('nostream')}", ["/Game/*"], item("id"))
    collection = store.collection("Game", at)
    collection.create()
    try:
        followed = journal_of(collection, "run")
        assert [found[:2] for found in followed.findings()] == [("error", "no-streams")]
        with pytest.raises(Refused, match="no DynamoDB Streams"):
            followed.prepare()
    finally:
        collection.drop()
        store.close()


def test_a_stream_that_hides_the_kinds_of_identifiers_is_an_error() -> None:
    service = Service(view="KEYS_ONLY")
    followed = journal(service)
    codes = {code: severity for severity, code, _ in followed.findings()}
    assert codes == {"stream-used": "note", "stream-markers": "note"}
    service.items["5"] = {"id": {"S": "5"}, "_migrator": {"M": {"id": {"S": "int32"}}}}
    codes = {code: severity for severity, code, _ in followed.findings()}
    assert codes["stream-view"] == "error"
    with pytest.raises(Refused, match=VIEW):
        followed.prepare()


# ---------------------------------------------------------------------- on moto


@pytest.mark.parametrize(
    "layout", [item("id"), item("id:N"), item("id:B"), item_collection("{id}")]
)
def test_a_marker_is_known_again_by_its_key(layout: Layout) -> None:
    options = options_of(At("docs", "games", ["/Game/*"], layout), "item")
    (marker,) = markers.new_set(markers.new_code(), 1)
    key = markers.key_of(marker, options)
    assert key.keys() == set(options.key_names)
    assert markers.read(key[options.hash.name]) == marker
    for other in ({"S": "_migrator"}, {"N": "-71828"}, {"B": "AQ=="}, {"S": markers.HEAD[:-1]}):
        assert markers.read(other) is None


# moto gives keys that are bytes otherwise than the service does.
@pytest.fixture(params=[item("id"), item("id:N"), item_collection("GAME#{id}")])
def there(request: pytest.FixtureRequest) -> Iterator[tuple[Collection, Journal]]:
    store = dynamodb.open_store(StoreSettings("docs", servers.dynamodb()))
    layout: Layout = request.param
    name = f"{servers.namespace()}{fresh('streams')}"
    collection = store.collection("Game", At("docs", name, ["/Game/*"], layout))
    collection.create()
    yield collection, journal_of(collection, "run")
    collection.drop()
    store.close()


def test_keys_of_every_type_are_followed_and_markers_are_no_blocks(
    there: tuple[Collection, Journal],
) -> None:
    collection, followed = there
    key = 5
    feed = followed.open(followed.prepare())
    collection.write([cut(Aggregate(key, {"v": 1}), collection.at.rules("Game"))])
    followed.mark("there")
    seen = until(feed, "there", acknowledge=False)
    assert seen.keys == {str(key): False}
    assert len(_raw(collection)) > 10  # the markers, until what they prove is durable
    assert collection.count() == 1
    assert [block.id for block in collection.page(None, None, 100).blocks] == [key]
    assert [block.id for block in collection.observer().page(None, None, 100).blocks] == [key]
    assert collection.keys(None, None, 100) == ([key], None)
    assert [block.id for block in collection.sample(50).blocks] == [key]
    feed.acknowledge(seen.position)
    assert len(_raw(collection)) == 1
    collection.delete([Address(key)])
    followed.mark("gone")
    touches = []
    while "gone" not in (given.marks if (given := feed.poll(1.0)) is not None else ()):
        touches += list(given.touches) if given is not None else []
    touches += list(given.touches)
    assert {type(touch.key) for touch in touches} == {type(key)}
    assert [touch.deleted for touch in touches] == [True]
    feed.close()


def _raw(collection: Collection) -> list[Any]:
    found: list[Any] = client().scan(TableName=collection.at.collection)["Items"]
    return found


def test_no_block_takes_the_key_of_a_marker() -> None:
    store = dynamodb.open_store(StoreSettings("docs", servers.dynamodb()))
    for layout in (item("id"), item_collection("{id}")):
        collection = store.collection("Game", At("docs", "games", ["/Game/*"], layout))
        block = cut(Aggregate(f"{markers.HEAD}1", {"v": 1}), collection.at.rules("Game"))
        with pytest.raises(DoesNotFit, match=r"marker"):
            collection.write([block])
    store.close()


def test_an_entry_leads_to_an_identifier_of_its_own_kind() -> None:
    store = dynamodb.open_store(StoreSettings("docs", servers.dynamodb()))
    name = f"{servers.namespace()}{fresh('kinds')}"
    rules = ["/Game/*/rounds[*]", "/Game/*"]
    at = At("docs", name, rules, item_collection("GAME#{id}"))
    collection = store.collection("Game", at)
    collection.create()
    collection.write(
        [cut(Aggregate(id, {"v": 1, "rounds": [{"n": 1}]}), at.rules("Game")) for id in (5, "6")]
    )
    followed = journal_of(collection, "run")
    feed = followed.open(start := followed.prepare())

    def taken(mark: str) -> dict[Value, bool]:
        touches: dict[Value, bool] = {}
        followed.mark(mark)
        marks: list[str] = []
        while mark not in marks:
            if (given := feed.poll(1.0)) is not None:
                marks += given.marks
                for touch in given.touches:
                    touches[touch.key] = touches.get(touch.key, False) or touch.deleted
        return touches

    for id in ("5", "6"):
        key = {"pk": {"S": f"GAME#{id}"}, "sk": {"S": "rounds[0]"}}
        client().put_item(TableName=name, Item={**key, "n": {"N": "2"}})
        client().delete_item(TableName=name, Key=key)
    assert taken("entries") == {5: False, "6": False}
    collection.delete([Address(5), Address("6")])
    assert taken("blocks") == {5: True, "6": True}
    feed.close()
    feed = followed.open(start)
    again = taken("again")  # whatever they may have been, now that nothing says it
    assert again.keys() <= {5, "5", 6, "6"}
    assert (again[5], again["6"]) == (True, True)
    feed.close()
    collection.drop()
    store.close()
