"""A recording: read whole or refused, shared out by keys, and replayed line by line."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from migrator.drill import replay
from migrator.drill.calls import Call, Place
from migrator.drill.history import READS, Act, Entry, Known, Left, Told, Tried
from migrator.drill.making import Shape, maker, shape
from migrator.drill.replay import Recording, keep, read, share_out
from migrator.drill.replayed import MOST_ITEMS, Replayed, read_due
from migrator.errors import Refused
from migrator.model.block import Aggregate
from migrator.model.value import Record, Value

GAME: Record = {
    "id": 1, "player": "mary", "score": 3,
    "rounds": [{"number": 1, "moves": "a"}, {"number": 2, "moves": "b"}],
}  # fmt: skip
LONG: Record = {**GAME, "id": 2, "player": "j" * 500}


def line(at: float, call: str, key: str = "a", cls: str = "Game", **more: object) -> str:
    return json.dumps({"at": at, "call": call, "class": cls, "key": key, **more})


def written(folder: Path, *lines: str, name: str = "calls.jsonl", end: str = "\n") -> Path:
    file = folder / name
    file.write_text("\n".join(lines) + end)
    return file


def games() -> Shape:
    found = [Aggregate(value["id"], value) for value in (GAME, LONG)]
    return shape("Game", found, lambda id: maker(id, "0000002a", 42, "Game"))


# ---------------------------------------------------------------------- reading


def test_files_are_one_recording_in_the_order_of_their_moments(tmp_path: Path) -> None:
    one = written(tmp_path, line(5, "put"), line(9, "get"), name="1.jsonl")
    two = written(tmp_path, line(7, "delete", "b"), line(5, "get", "b"), name="2.jsonl")
    found = read([one, two])
    assert [(each.at, each.key[1]) for each in found.lines] == [
        (5, "a"), (5, "b"), (7, "b"), (9, "a"),
    ]  # fmt: skip
    assert (found.seconds, found.values) == (4.0, "synthetic")
    assert found.acts == {Act.PUT: 1, Act.GET: 2, Act.DELETE: 1}


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([line(0, "put"), "{", line(1, "put")], "line 2: it is no JSON"),
        ([line(0, "put"), "", line(1, "put")], "line 2: it is no JSON"),
        ([line(0, "put"), line(1, "pot")], 'line 2: call is "pot"'),
        ([line(0, "update")], "line 1: an update has set and remove, or else paths"),
        ([], "there is not one call in it"),
    ],
)
def test_what_is_no_recording_is_refused_by_its_line(
    tmp_path: Path, lines: list[str], why: str
) -> None:
    file = written(tmp_path, *lines, end="\n" if lines else "")
    with pytest.raises(Refused, match=r".") as error:
        read([file])
    assert why in error.value.what
    assert str(file) in error.value.where


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="can't be read"):
        read([tmp_path / "none.jsonl"])


def test_a_last_line_that_was_cut_off_is_left_out_and_told(tmp_path: Path) -> None:
    found = read([written(tmp_path, line(0, "put"), '{"at": 1, "ca', end="")])
    assert len(found.lines) == 1
    assert found.left_out == {"its line was cut off at the end of the file": 1}
    whole = read([written(tmp_path, line(0, "put"), line(1, "put"), end="")])
    assert (len(whole.lines), whole.left_out) == (2, {})


def test_a_recording_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, line(0, "put"), line(1, "put"))
    monkeypatch.setattr(replay, "MOST_LINES", 1)
    with pytest.raises(Refused, match="1 lines at most"):
        read([file])
    monkeypatch.setattr(replay, "MOST_BYTES", 1_000_000)
    with pytest.raises(Refused, match="1 MB at most"):
        read([written(tmp_path, "x" * 1_000_001)])


def test_other_classes_are_left_out_and_told(tmp_path: Path) -> None:
    found = read([written(tmp_path, line(0, "put"), line(1, "put", cls="Player"))])
    assert found.of(["Game"]).left_out == {"Player is not of this move": 1}
    with pytest.raises(Refused, match="no write of Round was recorded"):
        found.of(["Round"])
    with pytest.raises(Refused, match="no write"):
        read([written(tmp_path, line(0, "get"))]).of(["Game"])


# ---------------------------------------------------------------------- sharing out


def test_each_key_has_one_writer_and_keeps_its_order_and_pace(tmp_path: Path) -> None:
    lines = [line(n / 2, "put" if n < 7 else "get", f"k{n % 7}") for n in range(70)]
    parts = share_out(read([written(tmp_path, *lines)]), 3, speed=2.0)
    assert [part.keys for part in parts] == [3, 2, 2]
    writer_of: dict[str, int] = {}
    for number, part in enumerate(parts):
        told = [json.loads(due.text) for due in part.lines]
        assert all(writer_of.setdefault(each["key"], number) == number for each in told)
        assert [each["at"] for each in told] == sorted(each["at"] for each in told)
        places = {each["key"]: due.place for each, due in zip(told, part.lines, strict=True)}
        assert sorted(places.values()) == list(range(part.keys))
        whole = told[-1]["at"] - told[0]["at"]
        assert sum(due.after for due in part.lines) == pytest.approx(whole / 2.0)
    assert sum(len(part.lines) for part in parts) == 70


def test_there_are_no_writers_without_work(tmp_path: Path) -> None:
    assert len(share_out(read([written(tmp_path, line(0, "put"))]), 4, 1.0)) == 1


def test_more_keys_than_a_drill_can_name_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = read([written(tmp_path, *(line(0, "put", f"k{n}") for n in range(5)))])
    monkeypatch.setattr(replay, "PLACES", 2)
    with pytest.raises(Refused, match="5 keys were recorded, and each of 2 writers can have 2"):
        share_out(found, 2, 1.0)
    assert len(share_out(found, 3, 1.0)) == 3


def test_what_is_shared_out_is_for_one_pair_of_eyes(tmp_path: Path) -> None:
    (part,) = share_out(read([written(tmp_path, line(0, "put"), line(3, "get"))]), 1, 1.0)
    keep(part, file := tmp_path / "part")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert tuple(map(read_due, file.read_bytes().splitlines())) == part.lines


# ---------------------------------------------------------------------- replaying


@dataclass
class Player:
    """A writer whose calls are all carried out, as far as they fit."""

    traffic: Replayed
    turn: int = 0
    calls: list[Call] = field(default_factory=list)
    notes: list[Entry] = field(default_factory=list)

    def play(self, lines: int) -> Player:
        for _ in range(lines):
            _, place = self.traffic.next()
            for call in self.traffic.calls(place, lambda: self.turn + 1):
                if isinstance(call, Left):
                    self.notes.append(call)
                    continue
                self.carry_out(place, call)
        return self

    def carry_out(self, place: Place, call: Call) -> None:
        self.turn += 1
        self.calls.append(call)
        then = call.finds(place, value := call.after(place))
        tried = Tried(self.turn, 0.0, call.act, "Game", place.name, then, call.line)
        self.notes += [tried, Told(self.turn, 0.0, then if call.act in READS else None)]
        if place.unread:
            value, place.unread = dict(GAME), False
        place.value = value

    @property
    def acts(self) -> list[Act]:
        return [call.act for call in self.calls]

    def known(self) -> Known:
        found = Known()
        found.take(self.notes)
        return found


@pytest.fixture
def played(tmp_path: Path) -> Iterator[_Play]:
    return _Play(tmp_path)


class _Play:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *lines: str, of: Shape | None = None, rounds: int = 1) -> Player:
        return self.writer(lines, of or games(), Known()).play(len(lines) * rounds)

    def writer(self, lines: tuple[str, ...], of: Shape, before: Known) -> Player:
        (part,) = share_out(read([written(self.folder, *lines)]), 1, 1.0)
        keep(part, file := self.folder / "part")
        return Player(Replayed(file, [of], 0, before))


def test_values_that_were_not_recorded_are_made_like_those_that_lie_there(played: _Play) -> None:
    done = played(
        line(0, "put", size=520, lists={"rounds": 4}),
        line(1, "update", paths=["score", "zip"]),
        line(2, "append", path="rounds"),
        line(3, "get_entries", paths=["score"]),
        line(4, "delete"),
        line(5, "get", found=False),
    )
    assert done.acts == [Act.PUT, Act.UPDATE, Act.APPEND, Act.ENTRIES, Act.DELETE, Act.GET]
    put, update, append, *_ = done.calls
    assert put.value is not None
    rounds = put.value["rounds"]
    assert [each["number"] for each in rounds] == [1, 2, 3, 4]  # type: ignore[index,union-attr]
    assert put.value["id"] == games().maker.id("0.0.0")
    assert update.set.keys() == {"score", "player"}
    assert append.path == "rounds"
    assert [note.line for note in done.notes if isinstance(note, Tried)] == [1, 2, 3, 4, 5, 6]
    assert done.known().faults == []


def test_the_sample_that_is_nearest_in_size_is_taken(played: _Play) -> None:
    small, large = played(line(0, "put", size=90), line(1, "put", "b", size=600)).calls
    marks = [call.value["id"] for call in (small, large) if call.value]
    assert len(set(marks)) == 2
    of = shape(
        "Game",
        [Aggregate(n, {"id": n, "a": "x", "z": "y" * size}) for n, size in ((1, 10), (2, 900))],
        lambda id: maker(id, "0000002a", 42, "Game"),
    )
    small, large = played(line(0, "put", size=90), line(1, "put", "b", size=600), of=of).calls
    assert [len(str((call.value or {})["z"])) for call in (small, large)] == [10, 900]


def test_values_that_were_kept_are_written_with_key_and_mark_of_the_drill(played: _Play) -> None:
    value = {"id": 77, "player": "ann", "score": 5, "rounds": [{"number": 9, "moves": "z"}]}
    done = played(
        line(0, "put", value=value),
        line(1, "update", set={"score": 6, "id": 78}, remove=["player", "note"]),
        line(2, "append", path="rounds", item={"number": 3, "moves": "b", "note": "kept"}),
    )
    put, update, append = done.calls
    mine = games().maker.id("0.0.0")
    assert put.value == {**value, "id": mine, "player": "100"}
    assert update.set == {"score": 6, "player": "200"}
    assert update.remove == ("note",)
    assert append.item == {"number": 10, "moves": "300", "note": "kept"}


def test_what_was_there_before_the_recording_is_put_first(played: _Play) -> None:
    done = played(
        line(0, "get", "x"), line(1, "update", "a", paths=["score"]),
        line(2, "append", "b", path="rounds"), line(3, "get_entries", "c", paths=["score"]),
        line(4, "delete", "d"), line(5, "get", "e", found=False),
        line(6, "update", "d", paths=["score"]),
    )  # fmt: skip
    assert done.acts == [
        Act.PUT, Act.GET, Act.PUT, Act.UPDATE, Act.PUT, Act.APPEND, Act.PUT, Act.ENTRIES,
        Act.DELETE, Act.GET, Act.PUT, Act.UPDATE,
    ]  # fmt: skip
    known = done.known()
    assert (known.replayed, known.made, known.left_out) == (7, 5, {})


def test_each_write_can_be_told_from_all_others(played: _Play) -> None:
    done = played(
        line(0, "put"), line(1, "update", paths=["score"]), line(2, "append", path="rounds"),
        line(3, "put"), rounds=3,
    )  # fmt: skip
    states = [note.then for note in done.notes if isinstance(note, Tried)]
    assert len(set(states)) == len(states) == 12


def test_it_goes_on_after_the_last_line_that_was_tried_and_begins_anew_after_the_end(
    played: _Play,
) -> None:
    lines = (line(0, "put"), line(1, "update", paths=["score"]), line(2, "get"), line(3, "delete"))
    before = played.writer(lines, games(), Known()).play(2)
    after = played.writer(lines, games(), before.known())
    after.turn = before.turn
    # What its key holds has to be read first: what the process before knew is gone.
    assert after.play(3).acts == [Act.GET, Act.GET, Act.DELETE, Act.PUT]
    told = [note.line for note in after.notes if isinstance(note, Tried)]
    assert told == [None, 3, 4, 5]


def test_a_line_that_fits_nothing_is_left_out_and_told(played: _Play) -> None:
    without = shape(
        "Game", [Aggregate(1, {"id": 1, "player": "mary"})],
        lambda id: maker(id, "0000002a", 42, "Game"),
    )  # fmt: skip
    done = played(line(0, "put"), line(1, "append", path="rounds"), of=without)
    assert done.known().left_out == {"Game has no list here that elements could be made for": 1}
    full: Value = [{"number": 1, "moves": "a"}] * MOST_ITEMS
    value = {"id": 7, "player": "ann", "rounds": full}
    done = played(line(0, "put", value=value), line(1, "append", path="rounds", item=1))
    assert done.known().left_out == {"its list rounds has 10,000 elements already": 1}


def test_the_first_call_of_a_process_is_due_at_once(played: _Play) -> None:
    without = shape(
        "Game", [Aggregate(1, {"id": 1, "player": "mary"})],
        lambda id: maker(id, "0000002a", 42, "Game"),
    )  # fmt: skip
    lines = (
        line(0, "append", path="rounds"), line(900, "put"), line(930, "get"), line(1000, "get"),
    )  # fmt: skip
    traffic = played.writer(lines, without, Known()).traffic
    dues = []
    for _ in lines:
        after, place = traffic.next()
        dues.append(after)
        for call in traffic.calls(place, lambda: 1):
            if isinstance(call, Call):
                place.value = call.after(place)
    # The first line is put first, and fits nothing: so a call was made.
    assert dues == [0.0, 900.0, 30.0, 70.0]
    before = played.writer(lines, without, Known())
    before.traffic.next()
    assert before.traffic.next()[0] == 0.0


def test_a_recording_tells_whether_values_were_kept(tmp_path: Path) -> None:
    def values(*lines: str) -> str:
        found: Recording = read([written(tmp_path, *lines)])
        return found.values

    assert values(line(0, "put"), line(1, "get")) == "synthetic"
    assert values(line(0, "put", value={}), line(1, "get")) == "kept"
    assert values(line(0, "put", value={}), line(1, "append", path="a")) == "mixed"
