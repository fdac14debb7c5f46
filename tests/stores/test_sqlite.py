"""The embedded store where it is most its own: kill -9, foreign files, locks, full disks."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import msgpack
import pytest

from migrator.errors import DamagedBlock, DoesNotFit, Refused, Terminal, Transient
from migrator.model.block import Address, Block, Patch
from migrator.model.canonical import equal
from migrator.model.move import At, Layout
from migrator.model.value import Int64, Set
from migrator.ports import StoreSettings
from migrator.stores.sqlite import codec, open_store
from migrator.stores.sqlite import store as module
from migrator.stores.sqlite.collection import EntriesCollection
from migrator.stores.sqlite.store import EmbeddedStore
from migrator.testing.values import ODD_VALUES
from tests.ending import waited

ROUNDS = ["/Game/*/rounds[*]", "/Game/*"]


def store_of(folder: Path, file: str = "docs.db") -> EmbeddedStore:
    return open_store(StoreSettings("docs", f"embedded:///{file}", root=str(folder)))


def games(store: EmbeddedStore) -> EntriesCollection:
    return store.collection("Game", At("docs", "games", ROUNDS))


def block(key: object, version: int = 0, rounds: int = 12) -> Block:
    entries: dict[str, object] = {f"rounds[{n}]": {"v": version} for n in range(rounds)}
    return Block(key, {"": {"v": version}, **entries})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    store = store_of(tmp_path)
    yield store
    store.close()


WRITER = """
import sys
from pathlib import Path
from tests.stores.test_sqlite import block, games, store_of
collection = games(store_of(Path(sys.argv[1])))
version = int(sys.argv[2])
while True:
    version += 1
    for batch in range(10):
        collection.write([block(batch * 5 + i, version, 3 + version % 10) for i in range(5)])
        print(version, batch, flush=True)
"""


def test_kill_9_leaves_every_committed_batch_whole(tmp_path: Path) -> None:
    with_store = store_of(tmp_path)
    games(with_store).create()
    with_store.close()
    done: dict[int, int] = {}
    for attempt in range(6):
        version = max(done.values(), default=0)
        child = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(version)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        for _ in range(random.Random(attempt).randrange(15, 60)):
            said, batch = map(int, child.stdout.readline().split())
            done[batch] = said
        os.kill(child.pid, signal.SIGKILL)
        for line in child.stdout:
            if line.endswith("\n"):
                said, batch = map(int, line.split())
                done[batch] = said
        assert child.wait() == -signal.SIGKILL
        _assert_whole(tmp_path, done)


def _assert_whole(folder: Path, done: dict[int, int]) -> None:
    store = store_of(folder)
    held = {b.id: b for b in games(store).page([None, None], None, 1000).blocks}
    for batch, acknowledged in done.items():
        versions = {held[batch * 5 + i].entries[""]["v"] for i in range(5)}  # type: ignore[index]
        assert len(versions) == 1, f"batch {batch} is half old, half new"
        assert versions.pop() >= acknowledged, f"batch {batch} lost an acknowledged write"
    for b in held.values():
        version = b.entries[""]["v"]  # type: ignore[index]
        assert equal(b.entries, block(b.id, version, 3 + version % 10).entries)
    with store.reading() as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    store.close()


def test_values_are_readable_with_the_plain_driver(store: EmbeddedStore, tmp_path: Path) -> None:
    games(store).create()
    value = {"name": "ann", "score": 12, "set": Set(["a"]), "wide": Int64(5)}
    games(store).write([Block("k", {"": value}, expires=4_070_908_800_123)])
    plain = sqlite3.connect(tmp_path / "docs.db")
    assert plain.execute("SELECT id, name FROM collections").fetchall() == [(1, "games")]
    (row,) = plain.execute("SELECT block, entry, value, expires FROM entries_1").fetchall()
    plain.close()
    assert row[:2] == ("k", "")
    assert row[3] == 4_070_908_800_123
    held = msgpack.unpackb(row[2])
    assert held["name"] == "ann"
    assert held["score"] == 12
    assert held["set"] == msgpack.ExtType(1, msgpack.packb(["set", ["a"]]))
    assert held["wide"] == msgpack.ExtType(2, (5).to_bytes(8, "big"))


@pytest.mark.parametrize("version", [0, 1, 7])
def test_file_of_somebody_else_is_refused_and_left_alone(tmp_path: Path, version: int) -> None:
    path = tmp_path / "docs.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE collections (a)")
        other.execute(f"PRAGMA user_version = {version}")
    other.close()
    before = path.read_bytes()
    with pytest.raises(Refused, match="somebody else's") as caught:
        store_of(tmp_path).ping()
    assert "sqlite://" in caught.value.hint
    assert path.read_bytes() == before


def test_newer_format_is_refused(store: EmbeddedStore, tmp_path: Path) -> None:
    store.ping()
    with store.writing() as connection:
        connection.execute(f"PRAGMA user_version = {module.FORMAT + 1}")
    with pytest.raises(Refused, match=f"format {module.FORMAT + 1}") as caught:
        store_of(tmp_path).ping()
    assert caught.value.hint


def test_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "docs.db").write_bytes(b"no database at all, " * 100)
    with pytest.raises(Terminal, match="not a database") as caught:
        store_of(tmp_path).ping()
    assert "check the URL" in caught.value.hint
    (tmp_path / "folder.db").mkdir()
    with pytest.raises(Terminal, match="unable to open") as caught:
        store_of(tmp_path, "folder.db").ping()
    assert caught.value.hint


def test_missing_folder_is_made(tmp_path: Path) -> None:
    store = store_of(tmp_path, "new/deep/docs.db")
    assert store.ping().version
    store.close()
    assert (tmp_path / "new/deep/docs.db").exists()


def test_url_and_options_are_checked() -> None:
    with pytest.raises(Refused, match="names no file"):
        open_store(StoreSettings("docs", "embedded://"))
    with pytest.raises(Refused, match="no options"):
        open_store(StoreSettings("docs", "embedded:///a.db", {"journal": "off"}))
    assert open_store(StoreSettings("d", "embedded:////abs/a.db")).path == Path("/abs/a.db")
    assert open_store(StoreSettings("d", "embedded:///a%20b.db")).path == Path("a b.db")
    store = open_store(StoreSettings("docs", "embedded:///a.db"))
    for layout in ("document", Layout("entries", {"x": 1})):
        with pytest.raises(Refused):
            store.collection("Game", At("docs", "games", layout=layout))


def test_collection_that_is_not_there(store: EmbeddedStore) -> None:
    with pytest.raises(Terminal, match="no such collection") as caught:
        games(store).write([block(1)])
    assert caught.value.where == "docs:games"
    with pytest.raises(Terminal, match="no such collection"):
        games(store).page([None, None], None, 10)


@pytest.fixture
def other_user() -> Iterator[None]:
    """Give up root's right to write everywhere, for this thread's files."""
    if os.geteuid() == 0:
        os.seteuid(65534)
        yield
        os.seteuid(0)
    else:
        yield


@pytest.fixture
def read_only_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = store_of(folder)
        games(store).create()
        games(store).write([block(1)])
        store.close()
        (folder / "docs.db").chmod(0o444)
        folder.chmod(0o555)
        yield folder
        folder.chmod(0o755)


@pytest.mark.usefixtures("other_user")
def test_read_only_file(read_only_folder: Path) -> None:
    store = store_of(read_only_folder)
    with pytest.raises(Terminal) as caught:
        games(store).write([block(2)])
    assert "docs.db" in caught.value.hint
    assert "writ" in caught.value.hint
    assert str(caught.value).count("\n") == 1
    store.close()


def test_file_locked_by_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BUSY_SECONDS", 0.1)
    store = store_of(tmp_path)
    collection = games(store)
    collection.create()
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            textwrap.dedent(
                """
                import sqlite3, sys
                connection = sqlite3.connect(sys.argv[1], isolation_level=None)
                connection.execute("BEGIN IMMEDIATE")
                print("locked", flush=True)
                sys.stdin.readline()
                """
            ),
            str(tmp_path / "docs.db"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "locked\n"
    with pytest.raises(Transient, match="locked by another process") as caught:
        collection.write([block(1)])
    assert not caught.value.unknown
    assert collection.count() == 0  # reading goes on
    holder.communicate("\n")
    collection.write([block(1)])
    assert collection.count() == 1
    store.close()


def test_full_disk_is_terminal_and_leaves_nothing_half_done(store: EmbeddedStore) -> None:
    collection = games(store)
    collection.create()
    before = [block(i) for i in range(10)]
    collection.write(before)
    with store.reading() as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 3}")
    big = Block(3, {"": {"text": "x" * 1_000_000}})
    with pytest.raises(Terminal, match="full") as caught:
        collection.write([block(50), big, block(51)])
    assert "free disk space" in caught.value.hint
    assert caught.value.where == "docs:games"
    with pytest.raises(Terminal, match="full"):
        collection.patch([Patch(3, {"rounds[12]": "x" * 1_000_000})])
    held = collection.page([None, None], None, 100).blocks
    assert [b.id for b in held] == list(range(10))
    assert all(equal(a.entries, b.entries) for a, b in zip(held, before, strict=True))
    with store.reading() as connection:
        connection.execute("PRAGMA max_page_count = 1000000")
    collection.write([big])


def test_bytes_that_nobody_can_read_are_named(store: EmbeddedStore) -> None:
    collection = games(store)
    collection.create()
    collection.write([block(i, rounds=2) for i in range(6)])
    with store.writing() as connection:
        set_value = "UPDATE entries_1 SET value = ? WHERE block = ? AND entry = ?"
        connection.execute(set_value, (b"\xc1", 2, "rounds[0]"))
        connection.execute(set_value, (b"\x92\x01", 4, "rounds[1]"))
        connection.execute("UPDATE entries_1 SET block = ? WHERE block = 5", (b"\x92\x01",))
    for reader in (collection, collection.observer()):
        page = reader.page([None, None], None, 10)
        assert [b.id for b in page.blocks] == [0, 1, 3]
        assert [id for id, _ in page.damaged] == [2, 4, b"\x92\x01"]
        assert "rounds[0]" in page.damaged[0][1]
        assert reader.read([1])[0] is not None
        with pytest.raises(DamagedBlock, match="Game:2 can't be read"):
            reader.read([1, 2])
    assert collection.read_entries(2, ["rounds[1]"]) is not None
    with pytest.raises(DamagedBlock, match="Game:2 can't be read"):
        collection.read_entries(2, ["rounds[0]"])
    collection.delete([Address(2), Address(4)])
    assert collection.count() == 4


def test_a_damaged_block_is_told_once_whatever_lies_in_it(store: EmbeddedStore) -> None:
    collection = games(store)
    collection.create()
    collection.write([block(n) for n in range(4)])
    with store.writing() as connection:
        for key, entry, value in (
            (1, "rounds[0]", b"\xc1"),
            (1, "rounds[1]", b"\xc1"),
            (2, "", 5),
            (2, "rounds[3]", 1.5),
        ):
            connection.execute(
                "UPDATE entries_1 SET value = ? WHERE block = ? AND entry = ?", (value, key, entry)
            )
        key = codec.to_column(None)
        connection.executemany(
            "INSERT INTO entries_1 VALUES (?, ?, x'c1', NULL)", [(b"\x92\x01", "a"), (key, "b")]
        )
        connection.execute("INSERT INTO entries_1 VALUES (x'9201', 'b', x'c1', NULL)")
    for reader in (collection, collection.observer()):
        page = reader.page([None, None], None, 10)
        assert [b.id for b in page.blocks] == [0, 3]
        assert [id for id, _ in page.damaged] == [1, 2, b"\x92\x01", None]
    assert collection.keys([None, None], None, 10) == ([0, 1, 2, 3, b"\x92\x01", None], None)


def test_sets_that_nest_too_deep_are_refused(store: EmbeddedStore) -> None:
    collection = games(store)
    collection.create()
    value: object = "x"
    for _ in range(100):
        value = Set([value])
    collection.write([Block("deep", {"": {"v": value}})])
    (found,) = collection.read(["deep"])
    assert found is not None
    assert equal(found.entries[""], {"v": value})
    with pytest.raises(DoesNotFit, match="sets nest deeper than 100") as caught:
        collection.write([Block("deeper", {"": {"v": Set([value])}})])
    assert (caught.value.key, caught.value.path) == ("deeper", "")


def test_dropped_collection_never_lends_its_table(tmp_path: Path) -> None:
    first, second = store_of(tmp_path), store_of(tmp_path)
    games(first).create()
    stale = games(first)
    stale.write([block(1)])
    games(second).drop()
    other = second.collection("Game", At("docs", "others", ROUNDS))
    other.create()
    with pytest.raises(Terminal, match="no such collection"):
        stale.write([block(2)])
    assert other.count() == 0
    first.close()
    second.close()


def test_one_new_file_is_made_by_many_at_once(tmp_path: Path) -> None:
    for i in range(5):
        barrier = threading.Barrier(6)
        stores = [store_of(tmp_path, f"{i}.db") for _ in range(6)]

        def begin(store: EmbeddedStore, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            games(store).create()
            games(store).write([block(id(store))])

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(begin, stores))
        assert games(stores[0]).count() == 6
        for store in stores:
            store.close()


def test_forked_child_opens_a_connection_of_its_own(store: EmbeddedStore) -> None:
    collection = games(store)
    collection.create()
    collection.write([block(1)])
    child = os.fork()
    if child == 0:
        try:
            collection.write([block(2)])
            os._exit(0 if collection.count() == 2 else 1)
        except BaseException:  # noqa: BLE001 - the child must never run on into pytest
            os._exit(2)
    assert os.waitstatus_to_exitcode(waited(child)) == 0
    collection.write([block(3)])
    assert collection.count() == 3


def test_what_is_matched_without_decoding_is_equal(store: EmbeddedStore) -> None:
    values = [value for values in ODD_VALUES.values() for value in values]
    values += [[value] for value in values] + [{"a": value} for value in values]
    # Text is what an encoder that knows more kinds makes of some of them.
    values += ["1", "1.10", str(UUID(int=0)), "2024-02-29", "00:00:00", "1970-01-01T00:00:00"]
    games(store).create()
    games(store).write([Block(i, {"x": value, "": 1}) for i, value in enumerate(values)])
    observer = games(store).observer()
    matched = 0
    for value in values:
        expected = [Block(i, {"x": value, "": 1}) for i in range(len(values))]
        for block, found, other in zip(expected, observer.match(expected), values, strict=True):
            assert found is not None
            assert not (found is block and not equal(value, other)), (value, other)
            assert equal(found.entries["x"], other)
            matched += found is block
    assert matched > 200


def test_what_lies_elsewhere_or_otherwise_is_not_matched(store: EmbeddedStore) -> None:
    games(store).create()
    games(store).write([Block("a", {"x": 1, "\ud800": 2}, 5_000), Block(1, {"x": 1})])
    observer = games(store).observer()
    for expected in (
        Block("a", {"x": 1, "\ud800": 2}, 6_000),
        Block("a", {"x": 1, "\ud800": 2}),
        Block("a", {"x": 1}, 5_000),
        Block("a", {"x": 1, "y": 2}, 5_000),
        Block(1, {"x": 1.0}),
        Block(1, {"x": True}),
        Block(1, {"y": 1}),
        Block(1, {"x": 1, "y": 1}),
    ):
        (found,) = observer.match([expected])
        assert found is not expected
        (read,) = observer.read([expected.id])
        assert found == read
    assert observer.match([Block("b", {"x": 1}), Block("1", {"x": 1})]) == [None, None]
