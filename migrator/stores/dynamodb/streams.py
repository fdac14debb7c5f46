"""The journal of DynamoDB: the stream of one table.

A stream that is there is used as it is; else one is turned on, and off again by who made it. Which
runs follow a table, and which of them made its stream, stands in the table's tags: nothing of it
lies among the application's items. Read ``feed.py`` for how it is read, ``markers.py`` for what a
marker is, ``docs/adr/0025-streams.md`` for why it proves what it has to.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from migrator.errors import MigratorError, Refused, Terminal, Transient
from migrator.ports import Json
from migrator.stores.dynamodb import markers
from migrator.stores.dynamodb.codec import Item
from migrator.stores.dynamodb.edge import (
    NOT_FOUND,
    TRIMMED,
    Unsupported,
    code_of,
    is_no_right,
)
from migrator.stores.dynamodb.feed import StreamFeed, lost
from migrator.stores.dynamodb.gathered import encode_json
from migrator.stores.dynamodb.live import Keys
from migrator.stores.dynamodb.shards import Shard, Spot, at_end, at_start
from migrator.stores.dynamodb.table import Table, put, remove
from migrator.stores.dynamodb.wire import Answer

VIEW = "NEW_AND_OLD_IMAGES"
MARKERS = 16
"""Items of one marker, at first: the reader writes more where they do not show in every shard."""

_TAG = "migrator:"
_JOINED = "joined"
_PATIENCE = 120.0
_LOOKED_AT = 200
_RIGHTS = (
    "allow dynamodb:ListStreams, DescribeStream, GetShardIterator and GetRecords on its streams, "
    "and dynamodb:PutItem, DeleteItem, ListTagsOfResource, TagResource and UntagResource on it"
)
_TURN_ON = (
    "allow dynamodb:UpdateTable and dynamodb:TagResource, or turn a stream on yourself "
    f"(StreamViewType {VIEW}); it is then used, and left as it is"
)
_NO_STREAMS = "this endpoint has no DynamoDB Streams, so writes to it can't be followed"


@dataclass(frozen=True)
class Followed:
    """A table, and how a touched item leads to block keys: from its key and the images of it that
    the stream shows; also whether the block goes with that item."""

    table: Table
    keys: Keys
    left: dict[str, dict[markers.Marker, None]] = field(default_factory=dict)
    """The markers of each run that this process wrote and has not removed yet."""


class StreamJournal:
    """The stream of a table, read for one run."""

    def __init__(self, followed: Followed, run: str) -> None:
        self.followed = followed
        self.table = followed.table
        self.where = followed.table.where
        self.run = run
        self.options = followed.table.options

    def describe(self) -> str:
        return f"stream of table {self.table.name}"

    # ------------------------------------------------------------ what stands in the way

    def findings(self) -> Iterable[tuple[str, str, str]]:
        try:
            self.ask("ListStreams", TableName=self.table.name, Limit=1)
        except Unsupported:
            yield "error", "no-streams", _NO_STREAMS
            return
        except MigratorError as error:
            if not is_no_right(error):
                raise
            yield "error", "streams-right", f"its streams may not be read: {error.what}"
            return
        found = self.table.describe()
        if found is None:
            return
        yield from self._of_stream(found)
        if found.get("Replicas"):
            yield (
                "warning", "global-table",
                "it is a global table: writes in other regions come late, and no marker is behind "
                "them; stop those before a swap",
            )  # fmt: skip

    def _of_stream(self, found: Answer) -> Iterator[tuple[str, str, str]]:
        if (stream := _enabled(found)) is None:
            yield (
                "note", "stream-made",
                f"a stream ({VIEW}) is turned on for as long as the move lasts; it keeps 24 hours",
            )  # fmt: skip
        else:
            view = str(found["StreamSpecification"].get("StreamViewType"))
            yield "note", "stream-used", f"its stream {_label(stream)} ({view}) is used as it is"
            if view != VIEW and self._is_tagged():
                yield (
                    "error", "stream-view",
                    f"identifiers there are of other kinds than the table's keys, and its stream "
                    f"({view}) does not show them: it wants {VIEW}",
                )  # fmt: skip
        yield (
            "note", "stream-markers",
            f"items whose key begins with {markers.HEAD} come and go in it: scans of others and "
            "readers of its stream see them",
        )  # fmt: skip

    def _is_tagged(self) -> bool:
        """Whether block keys there are of another kind than their attribute, by a first look."""
        items, _, _ = self.table.scan(None, None, _LOOKED_AT)
        return any("id" in item.get("_migrator", {}).get("M", {}) for item in items)

    # ------------------------------------------------------------ made and removed

    def prepare(self) -> Json:
        """Have a stream, and find a place in each of its shards behind which all writes come that
        are acknowledged after this: a marker's, in all of them."""
        for severity, _, text in self.findings():
            if severity == "error":
                raise Refused(text, where=self.where, hint=_RIGHTS)
        with self._rights(_RIGHTS):
            arn, made = self._stream()
            listed = self._listed(arn)
            begin = at_start if made else at_end
            feed = StreamFeed(self, arn, begin(listed, time.time()), latest=not made)
            try:
                mark = f"begin {markers.new_code()}"
                self.mark(mark)
                until = time.monotonic() + _PATIENCE
                while True:
                    given = feed.poll(1.0)
                    if given is not None and mark in given.marks:
                        feed.acknowledge(given.position)
                        return given.position
                    if time.monotonic() > until:
                        raise Transient("its stream does not show a marker", where=self.where)
            finally:
                feed.close()

    @contextmanager
    def _rights(self, hint: str) -> Iterator[None]:
        """Tell which rights are wanted where one is not there."""
        try:
            yield
        except Unsupported:
            raise Refused(_NO_STREAMS, where=self.where) from None
        except Terminal as error:
            if is_no_right(error):
                raise Refused(error.what, where=self.where, hint=hint) from error
            raise

    def _stream(self) -> tuple[str, bool]:
        """The stream of the table, and whether it was made by this: it is turned on where there
        is none."""
        found = self._described()
        tags = self._tags(found)
        stream = _enabled(found)
        if stream is not None:
            if self.run not in tags:
                self._tag(found, {self.run: _JOINED})
            return stream, False
        with self._rights(_TURN_ON):
            # Said before it is made: where that is not allowed no stream is left behind.
            self._tag(found, {self.run: _JOINED})
            try:
                self.change({"StreamEnabled": True, "StreamViewType": VIEW})
            except Terminal:
                self._untag(found)
                raise
        stream = self._active()
        self._tag(found, {self.run: _label(stream)})
        return stream, True

    def change(self, specification: Mapping[str, Any]) -> None:
        """Turn the stream on or off."""
        request = {"TableName": self.table.name, "StreamSpecification": specification}
        self.table.wire.call("UpdateTable", request, self.where, writing=True)

    def _active(self) -> str:
        """The stream that was turned on, once it records and has shards."""
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            found = self._described()
            stream = _enabled(found)
            if stream is not None and found.get("TableStatus") == "ACTIVE":
                told = self.ask("DescribeStream", StreamArn=stream)["StreamDescription"]
                if told.get("StreamStatus") == "ENABLED" and told.get("Shards"):
                    return stream
            time.sleep(0.2)
        raise Transient("its stream is not turned on yet", where=self.where)

    def drop(self) -> None:
        """Remove what is left of markers, and turn the stream off where it was made for this run
        and no other run of ours follows it."""
        found = self.table.describe()
        if found is None:
            return
        self.remove(self.followed.left.pop(self.run, {}))
        tags = self._tags(found)
        mine = tags.pop(self.run, None)
        if mine is None:
            return
        stream = _enabled(found)
        if stream is not None and mine == _label(stream):
            if tags:
                self._tag(found, {next(iter(tags)): mine})  # it is now theirs to turn off
            else:
                self.change({"StreamEnabled": False})
        self._untag(found)

    def _described(self) -> Answer:
        found = self.table.describe()
        if found is None:
            raise Terminal("there is no such table", where=self.where)
        return found

    def _tags(self, found: Answer) -> dict[str, str]:
        """What each run of ours that follows the table says: which stream it made, or none."""
        tags: dict[str, str] = {}
        request: dict[str, Any] = {"ResourceArn": found["TableArn"]}
        while True:
            answer = self.table.wire.call("ListTagsOfResource", request, self.where)
            for tag in answer.get("Tags", ()):
                if tag["Key"].startswith(_TAG):
                    tags[tag["Key"][len(_TAG) :]] = tag["Value"]
            if not answer.get("NextToken"):
                return tags
            request["NextToken"] = answer["NextToken"]

    def _tag(self, found: Answer, tags: Mapping[str, str]) -> None:
        told = [{"Key": _TAG + run, "Value": value} for run, value in tags.items()]
        request = {"ResourceArn": found["TableArn"], "Tags": told}
        self.table.wire.call("TagResource", request, self.where, writing=True)

    def _untag(self, found: Answer) -> None:
        request = {"ResourceArn": found["TableArn"], "TagKeys": [_TAG + self.run]}
        self.table.wire.call("UntagResource", request, self.where, writing=True)

    # ------------------------------------------------------------ markers

    def mark(self, name: str) -> None:
        self.put_markers(markers.new_set(markers.new_code(), MARKERS), name)

    def put_markers(self, made: list[markers.Marker], name: str) -> None:
        """Write markers, durably."""
        items = [markers.item_of(marker, self.options, self.run, name) for marker in made]
        self.followed.left.setdefault(self.run, {}).update(dict.fromkeys(made))
        writes = [put(self.table.key_of(item), encode_json(item), "a marker") for item in items]
        self.table.write_many(writes)

    def marked(self, key: Item) -> tuple[str, str] | None:
        """The run and the name of a marker that a stream shows; None where it has gone."""
        item = self.table.get(key)
        return None if item is None else markers.said_by(item)

    def remove(self, made: Iterable[markers.Marker]) -> None:
        """Remove markers."""
        gone = list(dict.fromkeys(made))
        keys = [markers.key_of(marker, self.options) for marker in gone]
        self.table.write_many([remove(self.table.key_of(key), key, "a marker") for key in keys])
        for marker in gone:
            self.followed.left.get(self.run, {}).pop(marker, None)

    # ------------------------------------------------------------ reading

    def open(self, position: Json) -> StreamFeed:
        if not isinstance(position, dict):
            raise Refused(f"{position!r} is no position in a stream", where=self.where)
        told: Any = position
        self.check(told["stream"])
        front = {id: Spot.of(spot) for id, spot in told["shards"].items()}
        return StreamFeed(self, told["stream"], front, marks=dict(told["marks"]))

    def check(self, arn: str) -> None:
        """Raise FeedLost where the table has another stream now, or none."""
        found = self.table.describe()
        if found is None:
            raise lost("its table is gone", self.where)
        if (now := _enabled(found)) is None:
            raise lost("its stream was turned off", self.where)
        if now != arn:
            raise lost("it has another stream now", self.where)

    def listed(self, arn: str) -> dict[str, Shard]:
        """All shards of the stream. Raises FeedLost where it has ended."""
        self.check(arn)
        return self._listed(arn)

    def _listed(self, arn: str) -> dict[str, Shard]:
        found: dict[str, Shard] = {}
        request: dict[str, Any] = {"StreamArn": arn}
        while True:
            with self.gone():
                told = self.ask("DescribeStream", **request)["StreamDescription"]
            if told.get("StreamStatus") in ("DISABLING", "DISABLED"):
                raise lost("its stream was turned off", self.where)
            found |= {shard.id: shard for shard in map(Shard.of, told.get("Shards", ()))}
            if not told.get("LastEvaluatedShardId"):
                return found
            request["ExclusiveStartShardId"] = told["LastEvaluatedShardId"]

    def ask(self, operation: str, **request: Any) -> Answer:
        """A request to the streams."""
        return self.table.wire.streams.call(operation, request, self.where)

    @contextmanager
    def gone(self) -> Iterator[None]:
        """Tell where the service no longer has what is asked for."""
        try:
            yield
        except MigratorError as error:
            if code_of(error.__cause__) == TRIMMED:
                raise lost("records that were not read are gone", self.where) from error
            if code_of(error.__cause__) == NOT_FOUND:
                raise lost("its stream or a shard of it is gone", self.where) from error
            raise


def _enabled(found: Answer) -> str | None:
    """The stream that a described table writes to; None for none."""
    if not found.get("StreamSpecification", {}).get("StreamEnabled"):
        return None
    return str(found["LatestStreamArn"])


def _label(arn: str) -> str:
    """What tells the streams of one table apart."""
    return arn.rpartition("/stream/")[2]
