"""What a plan counts and tells: of samples, deadlines, references, and values not to be shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from migrator import commands
from migrator.errors import DoesNotFit, Waiting
from migrator.model.block import Aggregate, Block, cut
from migrator.model.masked import masked
from migrator.model.move import At
from migrator.model.value import Record, Ref, Set, Value
from migrator.planning import keys, survey
from migrator.planning.file import encode_plan
from migrator.planning.keys import Dangling
from migrator.planning.tally import Issues
from migrator.ports import Collection
from migrator.retry import Retry
from migrator.stores.sqlite.store import CAPABILITIES, EmbeddedStore
from tests.engine.games import fill, game, make_project, source, target
from tests.engine.test_review import spoil

DAY = 86_400_000
ENDS = 4_000_000_000_000


@pytest.fixture
def project(tmp_path: Path) -> Iterator[commands.Project]:
    with commands.Project(make_project(tmp_path, oversize="quarantine"), "test") as opened:
        yield opened


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more than ten blocks ten are read."""
    monkeypatch.setattr(survey, "ALL_UP_TO", 10)
    monkeypatch.setattr(survey, "SAMPLE_SIZE", 10)


def unreadable(project: commands.Project, like: str) -> None:
    """Bytes in the source that are no value, behind the store's back."""
    with project.stores.get("old").writing() as connection:  # type: ignore[attr-defined]
        connection.execute("UPDATE entries_1 SET value = x'c1' WHERE block LIKE ?", (like,))


@pytest.mark.usefixtures("sampled")
def test_a_sample_stands_for_entries_that_go_as_well(project: commands.Project) -> None:
    fill(source(project), [(f"{n:02}", game(n)) for n in range(50)])
    fill(target(project), [(f"{n:02}", game(n, rounds=5)) for n in range(50)])
    (move,) = commands.plan(project, "0001").moves
    assert (move.change, move.entries_removed) == (50, 100)


@pytest.mark.usefixtures("sampled")
def test_a_sample_creates_no_block_that_is_set_aside(project: commands.Project) -> None:
    fill(source(project), [(f"{n:02}", game(n)) for n in range(40) if n % 8])
    for n in range(0, 40, 8):
        spoil(project, f"{n:02}")
    plan = commands.plan(project, "0001")
    assert [(f.code, f.count) for f in plan.to_accept] == [("E102", 5)]  # of ten
    assert plan.moves[0].create == 20


@pytest.mark.usefixtures("sampled")
def test_what_can_not_be_read_of_a_sample_is_told_and_counts(project: commands.Project) -> None:
    fill(source(project), [(f"{n:02}", game(n)) for n in range(40)])
    unreadable(project, "%4")
    plan = commands.plan(project, "0001")
    (told,) = plan.to_accept
    assert (told.code, told.count) == ("E101", 2)  # of ten
    assert plan.moves[0].create == 32


@pytest.mark.usefixtures("sampled")
def test_where_no_block_of_a_sample_can_be_read_all_are_looked_at(
    project: commands.Project,
) -> None:
    fill(source(project), [(f"{n:02}", game(n)) for n in range(20)])
    unreadable(project, "%")
    plan = commands.plan(project, "0001")
    assert [(f.code, f.count) for f in plan.to_accept] == [("E101", 20)]
    assert (plan.moves[0].create, plan.moves[0].read) == (0, 20)


@pytest.mark.usefixtures("sampled")
def test_a_sample_says_of_no_block_that_none_will_go(project: commands.Project) -> None:
    fill(source(project), [(f"{n:02}", game(n)) for n in range(20)])
    fill(target(project), [("stranger", game(1))])
    (told,) = [f for f in commands.plan(project, "0001", live=True).findings if f.code == "A133"]
    assert "and perhaps some that old:games lacks" in told.text


@pytest.mark.usefixtures("sampled")
def test_the_highest_number_of_a_sample_is_told_as_such(project: commands.Project) -> None:
    fill(source(project), [(n, game(n)) for n in range(20)])
    (told,) = [f for f in commands.plan(project, "0001").findings if f.code == "N125"]
    assert " in the sample)" in told.text


def test_a_block_that_is_to_end_at_another_time_says_so(project: commands.Project) -> None:
    fill(source(project), [("1", game(1))])
    fill(target(project), [("1", game(1))])
    for side, ends in ((source(project), ENDS), (target(project), ENDS + DAY)):
        side.write([cut(Aggregate("1", game(1), ends), side.at.rules("Game"))])
    (move,) = commands.plan(project, "0001").moves
    (sample,) = move.samples
    assert (move.change, move.entries_changed) == (1, 0)
    (line,) = sample.entries
    assert (line.sign, line.path) == ("~", "(expires)")
    assert str(ENDS + DAY) in line.detail[0]


def test_blocks_of_the_target_that_nobody_can_read_are_told_all(
    project: commands.Project,
) -> None:
    fill(source(project), [("1", game(1)), ("2", game(2))])
    fill(target(project), [(n, game(9)) for n in ("1", "2", "stranger")])
    with project.stores.get("new").writing() as connection:  # type: ignore[attr-defined]
        connection.execute("UPDATE entries_1 SET value = x'c1' WHERE entry = '' AND block <> '1'")
    plan = commands.plan(project, "0001")
    (told,) = plan.errors
    assert (told.code, told.count, told.keys) == ("E101", 2, ["Game:2", "Game:stranger"])
    assert (plan.moves[0].change, plan.moves[0].delete) == (1, 0)


def test_what_is_over_a_limit_is_no_part_of_what_is_copied(
    project: commands.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = replace(CAPABILITIES.limits, block_bytes=5_000)
    monkeypatch.setattr(EmbeddedStore, "capabilities", replace(CAPABILITIES, limits=limits))
    fill(source(project), [("1", game(1)), ("2", game(2, rounds=1_000))])
    plan = commands.plan(project, "0001")
    (move,) = plan.moves
    assert [(f.code, f.keys) for f in plan.to_accept] == [("E106", ["Game:2"])]
    assert (move.create, move.entries, move.sizes.block_key) == (1, 4, "Game:2")
    assert move.bytes < 5_000 < move.sizes.block


class Counting:
    """A collection that notes how many blocks were read at once."""

    def __init__(self, inner: Collection) -> None:
        self._inner = inner
        self.asked: list[int] = []

    def read(self, ids: Sequence[Value]) -> list[Block | None]:
        self.asked.append(len(ids))
        return self._inner.read(ids)


def refers(count: int) -> list[Block]:
    players: Record = {"players": [Ref("Player", f"p{n}") for n in range(count)]}
    return [cut(Aggregate("1", players), At("old", "games").rules("Game"))]


def test_references_are_looked_up_by_no_more_than_a_page(
    project: commands.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "AT_ONCE", 10)
    fill(source(project), [("p3", game(3))])
    there = Counting(source(project))
    found = list(Dangling({"Player": there}, Retry()).of(refers(25)))  # type: ignore[dict-item]
    assert found == [f"Player:p{n}" for n in range(25) if n != 3]
    assert max(there.asked) == 10


def test_a_damaged_block_that_is_referred_to_hides_no_reference_that_dangles(
    project: commands.Project,
) -> None:
    fill(source(project), [("p0", game(0)), ("p1", game(1))])
    unreadable(project, "p1")
    assert list(Dangling({"Player": source(project)}, Retry()).of(refers(3))) == ["Player:p2"]


def test_a_reference_is_counted_once_however_many_were_looked_up_since(
    project: commands.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "_REMEMBERED", 2)
    fill(source(project), [("p0", game(0))])
    there = Counting(source(project))
    dangling = Dangling({"Player": there}, Retry())  # type: ignore[dict-item]
    assert list(dangling.of(refers(3))) == ["Player:p1", "Player:p2"]
    assert list(dangling.of(refers(4))) == ["Player:p3"]
    assert there.asked == [3, 4]  # forgotten meanwhile


def test_what_is_referred_to_where_nothing_may_be_shown_is_not_named(
    project: commands.Project,
) -> None:
    there: dict[str, Collection] = {"Player": source(project)}
    fill(there["Player"], [])
    blocks = [Block("1", {"": {"at": {"by": Ref("Player", "ann")}, "of": Ref("Player", "bob")}})]
    found = Dangling(there, Retry(), lambda path: path == "at.by").of(blocks)
    assert sorted(found) == ["Player:***", "Player:bob"]


# ---------------------------------------------------------------------- what may not be shown

STAFF = '''"""Text into a column that would make a number of it."""
from migrator import At, Move, tables
revision, down_revision = "0001", None
move = Move(
    "Staff", source=At("old", "staff"),
    target=At("shop", tables("staff", key="id", columns={"id": "text", "wage": "numeric"})),
    sensitive=["wage"], oversize="OVERSIZE",
)
'''
WAGE = "0071234"


def staff(root: Path, oversize: str) -> Path:
    config = make_project(root)
    config.write_text(config.read_text() + '[env.test.stores.shop]\nurl = "sqlite:///shop.db"\n')
    script = STAFF.replace("OVERSIZE", oversize)
    (root / "migrations" / "0001_rounds.py").write_text(script)
    with commands.Project(config, "test") as project:
        there = project.stores.get("old").collection("Staff", At("old", "staff"))
        there.create()
        rules = there.at.rules("Staff")
        there.write([cut(Aggregate("ann", {"id": "ann", "wage": WAGE}), rules)])
    return config


def test_why_a_value_that_is_sensitive_does_not_fit_is_told_without_it(tmp_path: Path) -> None:
    config = staff(tmp_path, "quarantine")
    with commands.Project(config, "test") as project:
        plan = commands.plan(project, "0001")
        (told,) = plan.to_accept
        assert told.text.startswith("numeric would turn the text *** into a number")
        assert WAGE.encode() not in encode_plan(plan)
        commands.apply(
            project, plan, terms=commands.Terms(accept=["E103"], accept_keys=["Staff:ann"])
        )
        (aside,) = commands.quarantine(project, "0001")
        assert aside.reason.startswith("numeric would turn the text ***")
    for file in tmp_path.rglob("*state*"):
        if file.is_file():
            assert WAGE.encode() not in file.read_bytes()


def test_the_error_of_a_run_that_stops_there_does_not_show_it_either(tmp_path: Path) -> None:
    config = staff(tmp_path, "refuse")
    with commands.Project(config, "test") as project:
        there = project.stores.get("old").collection("Staff", At("old", "staff"))
        fine = cut(Aggregate("ann", {"id": "ann", "wage": "none"}), there.at.rules("Staff"))
        there.write([fine])
        plan = commands.plan(project, "0001")
        fine.entries[""]["wage"] = WAGE  # type: ignore[index, call-overload]
        there.write([fine])
        with pytest.raises(DoesNotFit) as raised:
            commands.apply(project, plan)
    assert "into a number" in str(raised.value)
    assert WAGE not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a column can't hold 'two words'", "a column can't hold ***"),
        ("numeric(6,2) can't hold Decimal('1.5') digit by digit",
         "numeric(***) can't hold Decimal(***) digit by digit"),
        ("-12.50 is outside the range", "*** is outside the range"),
        ("b'\\x00ab' is no text", "*** is no text"),
        ('invalid input: "a"b c"', "invalid input: ***"),
        ('invalid input: "the first line', "invalid input: ***"),
        ("0xdeadbeef, 2024-01-01T00:00:00+00:00", "*** ***"),
        ("the text holds an unpaired surrogate", "the text holds an unpaired surrogate"),
    ],
)  # fmt: skip
def test_all_that_may_be_a_value_is_masked(text: str, shown: str) -> None:
    assert masked(text) == shown


def test_an_apostrophe_makes_no_two_reasons_one() -> None:
    issues = Issues()
    for kind in ("decimal", "uuid"):
        text = f"the archive can't hold it: {kind} can't be held"
        issues.add("error", "E118", text, key="Thing:1", path="t")
    assert len(issues.findings("Thing")) == 2


def test_a_block_that_can_t_be_cut_keeps_no_other_in_quarantine(project: commands.Project) -> None:
    fill(source(project), [("1", game(1)), ("uncut", {"id": "uncut", "rounds": Set([1, 2])})])
    spoil(project, "deep")
    plan = commands.plan(project, "0001")
    terms = commands.Terms(accept={f.code for f in plan.to_accept})
    with pytest.raises(Waiting, match="2 blocks are in quarantine"):
        commands.apply(project, plan, terms=terms)
    fill(source(project), [("deep", game(3))])
    assert commands.retry_quarantined(project, "0001") == (1, 1)
    (left,) = commands.quarantine(project, "0001")
    assert left.shown == "Game:uncut"
