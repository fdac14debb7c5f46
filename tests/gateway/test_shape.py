"""A move that changes the shape: an application goes on in its own, on either side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import pytest

from migrator.errors import DoesNotFit, Refused, Transient
from migrator.gateway import Gateway
from migrator.model.block import Block
from migrator.model.value import Value
from migrator.state import MirrorReads
from tests.engine.games import SETTINGS
from tests.gateway.kit import QUICK, Owner, owned, until

SCRIPT = '''"""Another shape."""

from migrator import At, Convert, Drop, Move, Nest, Text

revision, down_revision = "0001", None

move = Move(
    "Game", source=At("old", "games"), target=At("new", "games", representation=["/Game/*/*"]),
    evolve=[Nest("name", {"first": "firstName", "last": "lastName"}), Drop("secret")],
)
'''
OLD = {"firstName": "Ann", "lastName": "Lee", "secret": 7, "n": 1}
NEW = {"name": {"first": "Ann", "last": "Lee"}, "n": 1}


def make_shaped(root: Path) -> Path:
    """The settings of a project whose move changes the shape."""
    (root / "migrations").mkdir()
    (root / "migrations" / "0001_shape.py").write_text(SCRIPT)
    config = root / "migrator.toml"
    config.write_text(SETTINGS)
    return config


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    with owned(make_shaped(tmp_path)) as owner:
        yield owner


def speaking(owner: Owner, shape: Literal["source", "target"]) -> Gateway:
    return Gateway.open("Game", owner.config, "test", revision="0001", shape=shape, terms=QUICK)


def mirror(owner: Owner) -> None:
    """What a mirror does while the source is the primary."""
    for block in owner.route.source.sample(100).blocks:
        owner.route.target.write(owner.route.expected(block))


def cut_over(owner: Owner, *gateways: Gateway) -> None:
    owner.arm()
    owner.fence()
    mirror(owner)
    owner.flip("target")
    owner.release()
    until(lambda: all(g._here.follower.standing.primary == "target" for g in gateways))


def test_both_shapes_on_both_sides(owner: Owner) -> None:
    with speaking(owner, "source") as old, speaking(owner, "target") as new:
        old.put("1", OLD)
        mirror(owner)
        assert new.get("1").value == NEW
        new.update("1", {"name.first": "Eve"})
        assert old.get("1").value == {**OLD, "firstName": "Eve"}
        cut_over(owner, old, new)
        assert old.get("1").value == {**OLD, "firstName": "Eve"}
        assert old.get_entries("1", ["firstName", "name"]) == {"firstName": "Eve"}
        found = old.update("1", {"n": 2})
        assert new.get("1").value == {"name": {"first": "Eve", "last": "Lee"}, "n": 2}
        assert old.get("1").version == found.version
        new.put("2", NEW)
        assert old.get("2").value == {"firstName": "Ann", "lastName": "Lee", "n": 1}


def test_a_put_keeps_what_its_shape_does_not_show(owner: Owner) -> None:
    with speaking(owner, "source") as old, speaking(owner, "target") as new:
        old.put("1", OLD)
        new.put("1", {**NEW, "n": 2})
        found = old.get("1")
        assert found is not None
        assert found.value == {**OLD, "n": 2}


def test_a_read_waits_for_the_old_side_where_that_does_not_answer_for_now(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    with speaking(owner, "source") as old:
        old.put("1", OLD)
        cut_over(owner, old)
        here = old._here
        source = here.sides(here.follower.standing).route.source
        plain, failed = source.read, list[Transient]()

        def read(ids: Sequence[Value]) -> list[Block | None]:
            if not failed:
                failed.append(Transient("busy"))
                raise failed[0]
            return plain(ids)

        monkeypatch.setattr(source, "read", read)
        assert old.get("1").value == OLD
        assert failed


def test_what_would_come_back_changed_is_refused(owner: Owner) -> None:
    with speaking(owner, "source") as old:
        old.put("1", OLD)
        cut_over(owner, old)
        with pytest.raises(DoesNotFit, match=r"come back changed.*secret"):
            old.update("1", {"secret": 8})
        with pytest.raises(DoesNotFit, match="come back changed"):
            old.put("2", OLD)
        assert old.get("1").value == OLD
        assert old.get("2") is None


def test_the_mirror_answers_who_speaks_its_shape(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrator.gateway.mirrored._LOOK", 3600.0)
    owner.control.record(owner.run.id, "verified", cls="Game", differ=0, missing=0, extra=0)
    with speaking(owner, "source") as old, speaking(owner, "target") as new:
        old.put("1", OLD)
        mirror(owner)
        word = {"by": "it", "epoch": owner.run.epoch, "age": 0.0}
        owner.live.tell(lag=0.0, scanning=False, held=word)
        MirrorReads(owner.control, owner.run.id).keep_share(owner.run, 1.0, 3600.0)
        readings = [games._here.mirrored for games in (old, new)]
        until(lambda: all(reading.share == 1 for reading in readings))
        for _ in range(3):
            owner.live.tell(lag=0.0, scanning=False, held=word)
            for reading in readings:
                reading._look()
        old.put("2", OLD)  # not mirrored
        assert old.get("1").value == OLD
        assert new.get("1").value == NEW
        assert new.get_entries("1", ["name.first", "n"]) == {"name.first": "Ann", "n": 1}
        assert new.get("2").value == NEW
        counts = [reading._tally.counts for reading in readings]
        assert counts == [{"shape": 1}, {"served": 2, "lagging": 1}]


def test_the_shape_must_be_told(owner: Owner) -> None:
    with pytest.raises(Refused, match="changes its shape"):
        Gateway.open("Game", owner.config, "test", revision="0001")
    with pytest.raises(Refused, match="shape is that of"):
        Gateway.open("Game", owner.config, "test", shape="source")
