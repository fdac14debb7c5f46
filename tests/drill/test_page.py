"""The page of a report: whole, alone, and with nothing of the data taken for markup."""

from __future__ import annotations

from html.parser import HTMLParser

import msgspec
import pytest

from migrator.drill.history import Fault
from migrator.drill.page import page
from migrator.drill.report import Asked, Count, Kill, Replay, Report, Stage
from migrator.engine.verify import Mismatched, Verification

HOSTILE = "<script>alert('x')</script>\"&\x1b[2J\u202e"
VOID = {"meta"}

PASSED = Report(
    run="0001-run", revision="0001", env="staging", classes=["Game"], ending="aborted", began=0.0,
    seconds=12.5, passed=True, reasons=[], keys=4, left=0, longest=0.12, bucket=1.0,
    asked=Asked(writers=2, rate=50, keys=2, mix={"put": 1}, skew=1, seconds=5, seed=7),
    stages=[
        Stage(name="copy", began=0.0, ended=5.0),
        Stage(name="cut over", began=5.0, ended=5.5, pause=0.12, stopped=0.02, tries=2),
    ],
    kills=[Kill(at=3.0, process="mirror", again=3.5), Kill(at=3.2, process="writer 0", again=4.0)],
    done={"put": Count(acknowledged=1234, refused=1, unknown=2, wanted=20)},
    throughput=[0, 3, 5, 0], lag=[(1.0, 0.1), (2.0, 0.0)], refused={}, faults=[], more_faults=0,
    verified=[Verification(cls="Game", source="a:b", target="c:d", equal=9)],
)  # fmt: skip


REPLAYED = msgspec.structs.replace(
    PASSED, asked=msgspec.structs.replace(PASSED.asked, skew=None, mix={"put": 9}),
    replay=Replay(
        files=["Game-1.jsonl", "Game-2.jsonl"], lines=1200, keys=34, seconds=60.0, speed=2.0,
        values="synthetic", replayed=1500, made=12, left_out={"Player is not of this move": 3},
    ),
)  # fmt: skip


def failed() -> Report:
    """Hostile text wherever text may come from the data."""
    report = msgspec.convert(msgspec.to_builtins(PASSED), Report)
    report.passed, report.reasons, report.classes = False, [HOSTILE], [HOSTILE]
    report.run = report.revision = report.env = report.ending = HOSTILE
    report.refused = {HOSTILE: 3}
    report.stages[0].name = HOSTILE
    report.replay = Replay(
        files=[HOSTILE], lines=1, keys=1, seconds=1.0, speed=1.0, values=HOSTILE, replayed=1,
        made=0, left_out={HOSTILE: 1},
    )  # fmt: skip
    report.kills.append(Kill(at=1.0, process=HOSTILE, again=2.0))
    report.faults = [Fault(cls=HOSTILE, key=HOSTILE, side="mirror", what="missing", text=HOSTILE)]
    told = Mismatched(key=HOSTILE, what="differs", paths=[HOSTILE])
    report.verified[0].told.append(told)
    return report


class Reader(HTMLParser):
    """Reads a page, and sees that each element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.names: set[str] = set()
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.names |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.names |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.mark.parametrize(
    "report", [PASSED, REPLAYED, failed()], ids=["passed", "replayed", "failed"]
)
def test_a_page_needs_nothing_else(report: Report) -> None:
    read = Reader(page(report))
    assert {"svg", "rect", "polyline", "table", "style"} <= read.tags
    assert not read.tags & {"script", "link", "img", "iframe", "image", "use", "a", "object"}
    assert not read.names & {"src", "href", "xlink:href", "onload", "style"}
    assert "url(" not in page(report)


def test_what_the_data_holds_is_text() -> None:
    read = Reader(page(failed()))
    whole = "".join(read.texts)
    assert whole.count("<script>alert('x')</script>\"&\\x1b[2J\\u202e") >= 13
    assert not {"\x1b", "\u202e"} & set(whole)


def test_a_page_tells_verdict_and_figures() -> None:
    good = "".join(Reader(page(PASSED)).texts)
    assert "Passed: 1,234 acknowledged calls" in good
    for told in ("Drill of 0001 in staging", "mirror †", "120 ms", "seed 7", "2 cut over"):
        assert told in good
    assert "Failed" in "".join(Reader(page(failed())).texts)


def test_a_page_tells_what_was_replayed() -> None:
    text = "".join(Reader(page(REPLAYED)).texts)
    for told in (
        "Game-1.jsonl, Game-2.jsonl: 1,200 lines of 34 keys in 60.0 s, replayed at 2 times",
        "what was written is made up", "1,500 lines were replayed; 12 aggregates were put first",
        "Player is not of this move", "calls and keys as they were recorded",
    ):  # fmt: skip
        assert told in text
    assert "Replayed" not in "".join(Reader(page(PASSED)).texts)


def test_a_drill_that_came_to_nothing_has_a_page() -> None:
    report = msgspec.structs.replace(
        PASSED, seconds=0.0, stages=[], kills=[], throughput=[0], lag=[], verified=[], done={},
        passed=False, reasons=["the mirror did not come to work"],
    )  # fmt: skip
    assert "the mirror did not come to work" in "".join(Reader(page(report)).texts)
