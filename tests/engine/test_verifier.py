"""The verifier is tried: what the plain driver changes, and a broken encoder, is reported."""

from __future__ import annotations

import datetime as dt
import math
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import msgpack
import pytest

from migrator import commands
from migrator.commands.applying import under_lease
from migrator.engine import pairs, points, verify
from migrator.engine.verification import Pass
from migrator.errors import Mismatch
from migrator.model import value as v
from migrator.model.block import Address, Block
from migrator.model.phase import Phase
from migrator.model.value import Kind, Value
from migrator.retry import Retry
from migrator.route import accounted
from migrator.state import Quarantined, quarantine_key
from migrator.stores.sqlite import codec
from tests.engine.games import fill, game, make_project, read_through, source

MOMENT = dt.datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=dt.UTC)

# For each kind: a value, another value of the kind, and a look-alike of another kind.
KINDS: dict[Kind, tuple[Value, Value, Value]] = {
    Kind.NULL: (None, "", False),
    Kind.BOOLEAN: (True, False, 1),
    Kind.INT32: (1, 2, v.Int64(1)),
    Kind.INT64: (2**53 + 1, 2**53 + 2, float(2**53 + 1)),
    Kind.INTEGER: (2**64, 2**64 + 1, float(2**64)),
    Kind.DOUBLE: (1.0, math.nextafter(1.0, 2), 1),
    Kind.DECIMAL: (Decimal("1.10"), Decimal("1.1"), "1.10"),
    Kind.TEXT: ("e\u0301", "\u00e9", b"e\xcc\x81"),
    Kind.BYTES: (b"a\0", b"a", "a\0"),
    Kind.BINARY: (v.Binary(5, b"a"), v.Binary(6, b"a"), b"a"),
    Kind.DATE: (dt.date(2024, 2, 29), dt.date(2024, 2, 28), "2024-02-29"),
    Kind.TIME: (dt.time(1, 2, 3), dt.time(1, 2, 3, 1), "01:02:03"),
    Kind.TIMESTAMP: (MOMENT, MOMENT + dt.timedelta(microseconds=1), MOMENT.replace(tzinfo=None)),
    Kind.LOCAL_TIMESTAMP: (MOMENT.replace(tzinfo=None), MOMENT.replace(tzinfo=None, day=28),
                           MOMENT),
    Kind.INTERVAL: (v.Interval(1, 0, 0), v.Interval(0, 30, 0), "P1M"),
    Kind.UUID: (UUID(int=1), UUID(int=2), str(UUID(int=1))),
    Kind.OBJECT_ID: (v.ObjectId(bytes(12)), v.ObjectId(bytes(11) + b"\1"), "0" * 24),
    Kind.BSON_TIMESTAMP: (v.BsonTimestamp(1, 1), v.BsonTimestamp(1, 2), v.Int64(1)),
    Kind.REGEX: (v.Regex("a", "i"), v.Regex("a", ""), "a"),
    Kind.OPAQUE: (v.Opaque("bson", "minkey"), v.Opaque("bson", "maxkey"), "minkey"),
    Kind.REFERENCE: (v.Ref("Player", 1), v.Ref("Player", 2), v.Ref("Player", "1")),
    Kind.SET: (v.Set([1, 2]), v.Set([1, 3]), [1, 2]),
    Kind.LIST: ([1, [2]], [1, [2], None], v.Set([1])),
    Kind.RECORD: ({"a": {}}, {"a": None}, [["a", {}]]),
}  # fmt: skip


@pytest.fixture
def arrived(tmp_path: Path) -> Iterator[commands.Project]:
    """A verified move of one game for each kind, with the value deep inside a round."""
    config = make_project(tmp_path)
    with commands.Project(config, "test") as project:
        games = []
        for kind, (value, _, _) in KINDS.items():
            record = game(1)
            record["rounds"][1]["spell"] = {"cast": [value]}  # type: ignore[index]
            games.append((kind.value, record))
        fill(source(project), games)
        commands.apply(project, commands.plan(project, "0001"), until=Phase.SHADOW_READ)
        yield project


def plain(project: commands.Project) -> sqlite3.Connection:
    return sqlite3.connect(project.settings.root / "new.db", isolation_level=None)


def overwrite(project: commands.Project, key: str, value: Value) -> None:
    """Change one stored entry behind Migrator's back."""
    round_ = game(1)["rounds"][1]  # type: ignore[index]
    round_["spell"] = {"cast": [value]}
    with plain(project) as connection:
        changed = connection.execute(
            "UPDATE entries_1 SET value = ? WHERE block = ? AND entry = 'rounds[1]'",
            (codec.encode(round_), key),
        ).rowcount
    assert changed == 1


def test_there_is_a_trial_for_each_kind() -> None:
    assert set(KINDS) == set(Kind)
    for kind, (value, other, _) in KINDS.items():
        assert v.kind_of(value) is kind
        assert v.kind_of(other) is kind or kind is Kind.NULL


@pytest.mark.parametrize("which", [1, 2], ids=["another value", "another kind"])
@pytest.mark.parametrize("kind", list(Kind))
def test_one_changed_value_is_found(arrived: commands.Project, kind: Kind, which: int) -> None:
    overwrite(arrived, kind.value, KINDS[kind][which])
    (found,) = commands.verify_run(arrived, "0001")
    assert (found.differ, found.missing, found.extra) == (1, 0, 0)
    assert found.equal == len(KINDS) - 1
    assert found.told[0].key == f"Game:{kind.value}"
    assert found.told[0].paths[0].startswith("rounds[1].spell.cast[0]")


def test_a_missing_block_is_found(arrived: commands.Project) -> None:
    with plain(arrived) as connection:
        connection.execute("DELETE FROM entries_1 WHERE block = 'double'")
    (found,) = commands.verify_run(arrived, "0001")
    assert (found.differ, found.missing, found.extra) == (0, 1, 0)
    assert found.told[0].key == "Game:double"


def test_an_extra_block_is_found(arrived: commands.Project) -> None:
    with plain(arrived) as connection:
        connection.execute(
            "INSERT INTO entries_1 VALUES ('stranger', '', ?, NULL)", (codec.encode({}),)
        )
    (found,) = commands.verify_run(arrived, "0001")
    assert (found.differ, found.missing, found.extra) == (0, 0, 1)
    assert found.told[0].key == "Game:stranger"


def test_one_missing_and_one_extra_do_not_cancel_out(arrived: commands.Project) -> None:
    with plain(arrived) as connection:
        connection.execute("UPDATE entries_1 SET block = 'stranger' WHERE block = 'double'")
    (found,) = commands.verify_run(arrived, "0001")
    assert (found.missing, found.extra) == (1, 1)


def test_a_stale_entry_is_found(arrived: commands.Project) -> None:
    with plain(arrived) as connection:
        connection.execute(
            "INSERT INTO entries_1 VALUES ('set', 'rounds[3]', ?, NULL)", (codec.encode({}),)
        )
    (found,) = commands.verify_run(arrived, "0001")
    assert found.differ == 1
    assert found.told[0].paths == ["rounds[3]: nothing / {} (record)"]


def test_an_unreadable_entry_is_found(arrived: commands.Project) -> None:
    with plain(arrived) as connection:
        connection.execute(
            "UPDATE entries_1 SET entry = 'rounds[7]' WHERE block = 'set' AND entry = 'rounds[1]'"
        )
    (found,) = commands.verify_run(arrived, "0001")
    assert found.differ == 1
    assert "rounds[1] is missing" in found.told[0].paths[0]


def compared_live(
    project: commands.Project, settle: Callable[[], None] = lambda: None
) -> verify.Verification:
    """What a comparison finds beside a mirror: ``settle`` is what happens while it waits for it."""
    with under_lease(project, "0001") as engine:
        scene = replace(engine.scene, run=replace(engine.run, live=True), settle=settle)
        return verify.verify(scene, *scene.routes)


def test_what_goes_while_it_is_looked_at_again_is_looked_for_in_the_mirror(
    arrived: commands.Project,
) -> None:
    def deletes() -> None:
        collection = source(arrived)
        collection.delete([Address("double")])

    overwrite(arrived, "double", 2.0)

    found = compared_live(arrived, deletes)

    assert (found.differ, found.missing, found.extra) == (0, 0, 1)
    assert found.told[0].key == "Game:double"


class Busy:
    """A game that is written whenever either side was read; its mirror follows, or lags by one
    write, or by none that it ever catches up with."""

    def __init__(self, project: commands.Project, monkeypatch: pytest.MonkeyPatch) -> None:
        self._project, self._number = project, 1.0
        self.follows: Callable[[float], float] = lambda number: number
        read_mirror = pairs.read_mirror

        def read(walk: Pass, blocks: list[Block]) -> list[Block | None]:
            self.write()
            return read_mirror(walk, blocks)

        monkeypatch.setattr(pairs, "read_mirror", read)

    def write(self) -> None:
        self._number += 1
        record = game(1)
        record["rounds"][1]["spell"] = {"cast": [self._number]}  # type: ignore[index]
        fill(source(self._project), [("double", record)])
        overwrite(self._project, "double", self.follows(self._number))


@pytest.mark.parametrize("lag", [0, 2], ids=["ahead of the look", "behind it"])
def test_a_key_that_is_written_between_every_two_reads_is_equal(
    arrived: commands.Project, monkeypatch: pytest.MonkeyPatch, lag: int
) -> None:
    busy = Busy(arrived, monkeypatch)
    busy.follows = lambda number: number - lag
    monkeypatch.setattr(pairs, "RECHECKS", 3)

    found = compared_live(arrived)

    assert (found.equal, found.differ, found.missing, found.extra) == (len(KINDS), 0, 0, 0)
    assert found.rechecked


def test_a_key_that_is_written_all_the_while_and_not_mirrored_differs(
    arrived: commands.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = Busy(arrived, monkeypatch)
    # What it lags by are writes from before both sides were settled.
    busy.follows = lambda number: number - pairs.LOOKS - 1
    monkeypatch.setattr(pairs, "RECHECKS", 3)

    found = compared_live(arrived)

    assert (found.equal, found.differ) == (len(KINDS) - 1, 1)
    assert found.told[0].key == "Game:double"


@pytest.mark.parametrize("held", [1.0, 2.0], ids=["equal", "another value"])
def test_what_leaves_quarantine_meanwhile_is_compared(
    arrived: commands.Project, held: float
) -> None:
    control, run = arrived.control, arrived.control.run("0001")
    key = quarantine_key("double")
    control.set_aside(run.id, Quarantined(0, key, "Game:double", "", "for a test", 0.0))
    overwrite(arrived, "double", held)

    def hook(point: str) -> None:
        if point == "verify.listed":
            control.take_up(run.id, 0, key)

    points.hook = hook
    try:
        found = compared_live(arrived)
    finally:
        points.hook = None

    assert (found.differ, found.missing, found.extra) == (int(held == 2.0), 0, 0)
    assert (found.quarantined, found.equal + found.differ) == (0, len(KINDS))


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Both sides are added up first; grows where blocks had to be looked at one by one."""
    read_through(monkeypatch)
    found: list[object] = []
    look = verify._look_at_all
    monkeypatch.setattr(verify, "_look_at_all", lambda walk: (found.append(walk), look(walk)))
    return found


def test_sums_alone_show_that_all_is_equal(arrived: commands.Project, looks: list[object]) -> None:
    (found,) = commands.verify_run(arrived, "0001")
    assert found.clean
    assert (found.read, found.equal, found.quarantined) == (len(KINDS), len(KINDS), 0)
    assert looks == []


def test_sums_tell_one_changed_value_of_each_kind(
    arrived: commands.Project, looks: list[object]
) -> None:
    for kind, (value, *others) in KINDS.items():
        for other in others:
            overwrite(arrived, kind.value, other)
            (found,) = commands.verify_run(arrived, "0001")
            assert (found.equal, found.differ) == (len(KINDS) - 1, 1), (kind, other)
            assert found.told[0].key == f"Game:{kind.value}"
        overwrite(arrived, kind.value, value)
    assert len(looks) == 2 * len(KINDS)
    (found,) = commands.verify_run(arrived, "0001")
    assert found.clean


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        ("DELETE FROM entries_1 WHERE block = 'double'", (0, 1, 0)),
        ("INSERT INTO entries_1 VALUES ('stranger', '', x'80', NULL)", (0, 0, 1)),
        ("UPDATE entries_1 SET block = 'stranger' WHERE block = 'double'", (0, 1, 1)),
        ("UPDATE entries_1 SET expires = 4e12 WHERE block = 'double'", (1, 0, 0)),
        ("UPDATE entries_1 SET entry = 'rounds[7]' WHERE block = 'set' AND entry = 'rounds[1]'",
         (1, 0, 0)),
        ("INSERT INTO entries_1 VALUES ('broken', 'rounds[7]', x'c1', NULL)", (0, 0, 1)),
    ],
    ids=["missing", "extra", "another key", "a deadline", "a gap", "an unreadable one more"],
)  # fmt: skip
def test_sums_tell(
    arrived: commands.Project, looks: list[object], change: str, counts: tuple[int, int, int]
) -> None:
    with plain(arrived) as connection:
        assert connection.execute(change).rowcount > 0
    (found,) = commands.verify_run(arrived, "0001")
    assert (found.differ, found.missing, found.extra) == counts
    assert looks


def broken_extension(value: Value) -> msgpack.ExtType:
    """An encoder that forgets the width of numbers and the scale of decimals."""
    if type(value) is v.Int64:
        return msgpack.ExtType(codec.TAGGED, codec.encode(["integer", str(int(value))]))
    if type(value) is Decimal:
        return msgpack.ExtType(codec.TAGGED, codec.encode(["decimal", str(value.normalize())]))
    return _sound(value)


_sound = codec._extend


def test_a_broken_encoder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = make_project(tmp_path)
    with commands.Project(config, "test") as project:
        record = {"price": Decimal("1.10"), "wide": v.Int64(7), "id": "1"}
        fill(source(project), [("1", record)])
        monkeypatch.setattr(codec, "_extend", broken_extension)
        with pytest.raises(Mismatch) as error:
            commands.apply(project, commands.plan(project, "0001"))
        assert "Game:1 differs at price: 1.10 (decimal) / 1.1 (decimal)" in error.value.what
        (found,) = commands.verify_run(project, "0001")
        assert found.told[0].paths == [
            "price: 1.10 (decimal) / 1.1 (decimal)",
            "wide: 7 (int64) / 7 (int32)",
        ]
        assert project.control.run("0001").phase is Phase.BACKFILLED


def test_sensitive_values_are_not_told(arrived: commands.Project, tmp_path: Path) -> None:
    script = tmp_path / "migrations" / "0001_rounds.py"
    text = script.read_text().replace("oversize=", 'sensitive=["rounds[*].spell"], oversize=')
    commands.abort(arrived, "0001", drop_target=False)
    script.write_text(text)
    with commands.Project(tmp_path / "migrator.toml", "test") as project:
        commands.apply(project, commands.plan(project, "0001"), until=Phase.SHADOW_READ)
        overwrite(project, "text", "another secret")
        (found,) = commands.verify_run(project, "0001")
    assert found.told[0].paths == ["rounds[1].spell.cast[0]: *** (text) / *** (text)"]


def test_a_block_that_no_rule_cuts_accounts_for_what_its_key_leads_back_from(
    tmp_path: Path,
) -> None:
    config = make_project(tmp_path)
    (tmp_path / "migrations" / "0001_rounds.py").write_text(BY_PLACE)
    with commands.Project(config, "test") as project:
        fill(source(project), [("1", {"id": "1", "place": "a", "tags": v.Set(["x"])})])
        (route,) = project.routes("0001")
        block = Block("a", {"tags[0]": "x", "": {"id": "1", "place": "a"}})
        # What may be needed is not taken for one too many, and nothing else is hidden by it.
        assert accounted(route, [block, Block("b", {"": {}})], route.source, Retry()) == ["1", None]


BY_PLACE = '''"""Games by their places, each tag an entry of its own."""

from migrator import At, ChangeId, Move

revision, down_revision = "0001", None

move = Move(
    "Game", source=At("old", "games"), evolve=[ChangeId("place", stays="id")],
    target=At("new", "games", representation=["/Game/*/tags[*]", "/Game/*"]),
)
'''
