"""A target in MongoDB is verified by the bytes that lie there: what that shows, and what it leaves
to a decoder."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import bson
import pymongo
import pytest
from pymongo.collection import Collection

from migrator import commands
from migrator.engine import verify
from migrator.errors import Mismatch
from migrator.model.phase import Phase
from migrator.model.value import Record, Value
from migrator.stores.mongo import codec
from tests.conftest import tidy
from tests.engine.games import fill, make_project, source

Plain = Collection[dict[str, Any]]
COUNT = 30
VALUES: list[Value] = [
    None, True, 0, -1, 2**31, 2**63 - 1, -0.0, float("inf"), "\u00e9", "", b"\0", [], {},
]  # fmt: skip


def game(number: int) -> Record:
    odd = VALUES[number % len(VALUES)]
    return {"id": str(number), "odd": odd, "rounds": [{"n": number, "deep": {"a b": [odd]}}, {}]}


@pytest.fixture
def project(tmp_path: Path, mongodb_url: str, layout: str) -> Iterator[commands.Project]:
    config = make_project(tmp_path)
    database = f"migrator_summing_{uuid.uuid4().hex}"
    base, _, query = mongodb_url.partition("?")
    text = config.read_text().replace(
        "embedded:///new.db", f"{base.rstrip('/')}/{database}?{query}"
    )
    config.write_text(text)
    script = tmp_path / "migrations" / "0001_rounds.py"
    end = '["/Game/*/rounds[*]", "/Game/*"]'
    script.write_text(script.read_text().replace(end, f'{end}, layout="{layout}"'))
    with commands.Project(config, "test") as project:
        fill(source(project), ((str(n), game(n)) for n in range(COUNT)))
        yield project
    with pymongo.MongoClient[dict[str, Any]](mongodb_url) as client:
        tidy("mongodb", partial(client.drop_database, database))


@pytest.fixture
def plain(project: commands.Project, mongodb_url: str) -> Iterator[Plain]:
    """The target by the driver alone."""
    name = project.settings.stores["new"].url.rpartition("/")[2].partition("?")[0]
    with pymongo.MongoClient[dict[str, Any]](mongodb_url) as client:
        yield client[name]["games_by_round"]


@pytest.fixture(params=["flat", "document"])
def layout(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The passes that were made, by name."""
    passes: list[str] = []
    walk = verify._walk

    def noted(on: Any, *works: str) -> list[int]:
        passes.extend(works)
        return walk(on, *works)

    monkeypatch.setattr(verify, "_walk", noted)
    return passes


BY_BYTES = ["verify form", "verify form back"]
BY_SUMS = ["verify sum", "verify sum back"]


def apply(project: commands.Project) -> None:
    commands.apply(project, commands.plan(project, "0001"), until=Phase.SHADOW_READ)


def test_bytes_alone_show_that_all_is_equal(project: commands.Project, done: list[str]) -> None:
    apply(project)
    assert done == BY_BYTES
    (found,) = commands.verify_run(project, "0001")
    assert (found.read, found.equal, found.clean) == (COUNT, COUNT, True)
    assert done == BY_BYTES * 2


def test_what_the_driver_changes_is_found(
    project: commands.Project, plain: Plain, done: list[str]
) -> None:
    apply(project)
    before = {document["_id"]: document for document in plain.find()}
    one = before["2"]

    def look(equal: int) -> tuple[int, int, int]:
        done.clear()
        (found,) = commands.verify_run(project, "0001")
        assert found.equal == equal
        assert done[:2] == BY_BYTES
        assert "verify" in done
        return found.differ, found.missing, found.extra

    for value in (1, bson.Int64(0), 0.0, False, None, "0"):
        plain.update_one({"_id": "2"}, {"$set": {"odd": value}})
        assert look(COUNT - 1) == (1, 0, 0), value
    plain.replace_one({"_id": "2"}, one)
    plain.delete_one({"_id": "3"})
    assert look(COUNT - 1) == (0, 1, 0)
    plain.insert_one({**before["3"], "_id": 3})
    assert look(COUNT - 1) == (0, 1, 1)
    plain.delete_one({"_id": 3})
    plain.insert_one(before["3"])
    done.clear()
    (found,) = commands.verify_run(project, "0001")
    assert found.clean
    assert done == BY_BYTES


def test_fields_in_another_order_are_looked_at_and_are_equal(
    project: commands.Project, plain: Plain
) -> None:
    apply(project)
    one = plain.find_one({"_id": "2"})
    assert one is not None
    plain.replace_one({"_id": "2"}, dict([("_id", "2"), *reversed([*one.items()][1:])]))
    (found,) = commands.verify_run(project, "0001")
    assert (found.equal, found.clean) == (COUNT, True)


def test_what_needs_a_decoder_goes_by_decoded_sums(
    project: commands.Project, done: list[str]
) -> None:
    fill(source(project), [("decimal", {**game(1), "price": Decimal("1.10")})])
    apply(project)
    assert done == BY_BYTES + BY_SUMS
    assert commands.verify_run(project, "0001")[0].equal == COUNT + 1


def test_a_broken_encoder_is_found(
    project: commands.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = codec.encode
    monkeypatch.setattr(
        codec, "encode", lambda record: sound(record).replace(b"\x08odd\0\1", b"\x08odd\0\0")
    )
    with pytest.raises(Mismatch, match=r"differs at odd: True \(boolean\) / False"):
        apply(project)
