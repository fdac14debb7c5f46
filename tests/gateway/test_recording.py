"""What a gateway records of its calls: all that drills need, none of the values, and never felt."""

from __future__ import annotations

import stat
import threading
from collections import Counter
from pathlib import Path

import pytest

from migrator import commands
from migrator.errors import Refused
from migrator.gateway import Conflict, Gateway
from migrator.gateway.recording import WAITING, Recorder
from migrator.model import recorded
from migrator.model.canonical import equal
from migrator.model.recorded import Line, line_bytes, read_line
from migrator.model.value import Record, Ref
from migrator.settings import Recording, load_settings
from tests.engine.games import game, make_project, source
from tests.gateway.kit import opened, until

SECRET = "hunter2"
KEY = "mary@example.org"


def config_of(root: Path, more: str = "share = 1\n") -> Path:
    file = make_project(root)
    with commands.Project(file, "test") as project:
        source(project).create()
    file.write_text(file.read_text() + f"[env.test.record]\n{more}")
    return file


def written(root: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted((root / "recordings").glob("*.jsonl")))


def lines(root: Path) -> list[Line]:
    return [read_line(line) for line in written(root).splitlines()]


def life(games: Gateway, key: str = KEY) -> Record:
    """Each kind of call, with what nobody else should know; what was put."""
    value = {**game(1), "id": key, "note": SECRET, "of": {KEY: 1}}
    games.put(key, value)
    games.update(key, {"score": 3, f"of.{SECRET}": 2}, remove=["note"])
    games.append(key, "rounds", {"moves": [SECRET]})
    games.get(key)
    games.get_entries(key, ["score", "rounds[0].moves"])
    games.delete(key)
    games.get(key)
    return value


def test_calls_are_recorded_without_what_they_hold(tmp_path: Path) -> None:
    with opened(config_of(tmp_path)) as games:
        value = life(games)
    text = written(tmp_path)
    assert SECRET.encode() not in text
    assert KEY.encode() not in text
    put, update, append, get, entries, delete, absent = found = lines(tmp_path)
    assert isinstance(put, recorded.Put)
    assert put.value is None
    assert put.size is not None
    assert put.size > 100
    assert put.lists == {"rounds": 3}
    assert isinstance(update, recorded.Update)
    assert (update.set, update.remove, update.paths) == (None, (), ("score", "of", "note"))
    assert isinstance(append, recorded.Append)
    assert append.path == "rounds"
    assert not recorded.kept(append)
    assert isinstance(get, recorded.Get)
    assert get.found
    assert isinstance(entries, recorded.GetEntries)
    assert entries.paths == ("score", "rounds")
    assert isinstance(delete, recorded.Delete)
    assert isinstance(absent, recorded.Get)
    assert not absent.found
    assert len({line.key for line in found}) == 1
    assert [line.at for line in found] == sorted(line.at for line in found)
    assert value["note"] == SECRET
    (file,) = (tmp_path / "recordings").glob("*.jsonl")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_values_are_kept_where_the_settings_say_so(tmp_path: Path) -> None:
    with opened(config_of(tmp_path, 'share = 1\nvalues = "keep"\nfolder = "kept"\n')) as games:
        value = life(games)
    (file,) = (tmp_path / "kept").glob("*.jsonl")
    put, update, append, _, entries, *_ = map(read_line, file.read_bytes().splitlines())
    assert isinstance(put, recorded.Put)
    assert put.value is not None
    assert equal(put.value, value)
    assert isinstance(put.value["firstPlayer"], Ref)
    assert isinstance(update, recorded.Update)
    assert update.set == {"score": 3, f"of.{SECRET}": 2}
    assert update.remove == ("note",)
    assert isinstance(append, recorded.Append)
    assert append.item == {"moves": [SECRET]}
    assert isinstance(entries, recorded.GetEntries)
    assert entries.paths == ("score", "rounds[0].moves")
    assert put.key != KEY


def test_what_was_not_carried_out_is_not_recorded(tmp_path: Path) -> None:
    with opened(config_of(tmp_path)) as games:
        with pytest.raises(Refused):
            games.update("7", {"score": 3})
        games.put("7", game(7))
        with pytest.raises(Conflict):
            games.put("7", game(7), expected=None)
        games.update("7", {})
    assert [type(line) for line in lines(tmp_path)] == [recorded.Put]


@pytest.mark.parametrize("more", ["", "share = 0\n"])
def test_nothing_is_recorded_unless_it_is_asked_for(tmp_path: Path, more: str) -> None:
    with opened(config_of(tmp_path, more)) as games:
        life(games)
    assert not (tmp_path / "recordings").exists()


def test_a_share_is_of_the_keys_and_the_same_for_all_gateways(tmp_path: Path) -> None:
    config = config_of(tmp_path, "share = 0.3\n")
    for _ in range(2):
        with opened(config) as games:
            for number in range(200):
                games.put(str(number), game(number, rounds=0))
    counts = Counter(line.key for line in lines(tmp_path))
    assert len(list((tmp_path / "recordings").glob("*.jsonl"))) == 2
    assert set(counts.values()) == {2}
    assert 20 < len(counts) < 100


def test_hosts_with_one_salt_choose_and_tell_the_same_keys(tmp_path: Path) -> None:
    def keys(host: str, salt: bytes | None) -> set[str]:
        folder = tmp_path / host
        folder.mkdir()
        if salt is not None:
            (folder / "salt").write_bytes(salt)
        recorder = Recorder("Game", Recording(0.3, folder, "synthetic", 100.0))
        for number in range(200):
            recorder.delete(str(number))
        recorder.close()
        (file,) = folder.glob("*.jsonl")
        return {read_line(line).key for line in file.read_bytes().splitlines()}

    one = keys("one", None)
    salt = (tmp_path / "one" / "salt").read_bytes()
    assert one == keys("two", salt + b"\n")
    assert one.isdisjoint(keys("three", None))


def test_nothing_is_recorded_by_a_salt_that_is_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "salt").write_bytes(b"\n")
    recorder = Recorder("Game", Recording(1.0, tmp_path, "synthetic", 100.0))
    recorder.delete("1")
    recorder.close()
    assert not list(tmp_path.glob("*.jsonl"))
    said = capsys.readouterr()  # where logs go depends on what a test before has set
    assert "keys could be guessed" in said.out + said.err


def test_a_full_file_ends_the_recording_and_nothing_else(tmp_path: Path) -> None:
    with opened(config_of(tmp_path, "share = 1\nmegabytes = 0.002\n")) as games:
        for number in range(100):
            games.put(str(number), game(number, rounds=0))
        assert games.get("99") is not None
    assert 1_800 < len(written(tmp_path)) <= 2_000
    assert 5 < len(there := lines(tmp_path)) < 100
    # Nor does a process that is started anew go on, beyond what is left.
    with opened(tmp_path / "migrator.toml") as games:
        for number in range(100):
            games.put(str(number), game(number, rounds=0))
    assert len(written(tmp_path)) <= 2_000
    assert len(lines(tmp_path)) <= len(there) + 1


def test_a_folder_that_can_not_be_written_is_no_concern_of_calls(tmp_path: Path) -> None:
    (tmp_path / "recordings").write_text("a file")
    with opened(config_of(tmp_path)) as games:
        value = life(games)
        games.put(KEY, value)
        assert games.get(KEY) is not None
        until(lambda: not games._opened.recorder.on)


def test_a_call_waits_for_no_line_and_what_is_too_much_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, busy = threading.Event(), threading.Event()

    def stuck(line: Line) -> bytes:
        busy.set()
        gate.wait()
        return line_bytes(line)

    monkeypatch.setattr("migrator.gateway.recording.line_bytes", stuck)
    recorder = Recorder("Game", Recording(1.0, tmp_path, "synthetic", 100.0))
    recorder.delete("0")
    assert busy.wait(60)
    for number in range(1, WAITING + 101):
        recorder.delete(str(number))
    assert recorder.dropped == 100
    gate.set()
    recorder.close()
    (file,) = tmp_path.glob("*.jsonl")
    assert len(file.read_bytes().splitlines()) == WAITING + 1


def test_a_value_that_can_not_be_told_is_left_out(tmp_path: Path) -> None:
    recorder = Recorder("Game", Recording(1.0, tmp_path, "keep", 100.0))
    recorder.put("1", {"a": object()})  # type: ignore[dict-item]
    recorder.delete("1")
    recorder.close()
    (file,) = tmp_path.glob("*.jsonl")
    (line,) = file.read_bytes().splitlines()
    assert isinstance(read_line(line), recorded.Delete)
    assert recorder.dropped == 1


@pytest.mark.parametrize(
    "more", ["share = 2\n", 'values = "all"\n', "megabytes = 0\n", "shares = 1\n"]
)
def test_settings_that_are_none_are_refused(tmp_path: Path, more: str) -> None:
    with pytest.raises(Refused, match=r".") as error:
        load_settings(config_of(tmp_path, more))
    assert "env.test.record" in error.value.where
