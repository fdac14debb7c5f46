"""What the owner remembers of its own writes: by itself, without a server."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from migrator.engine import written
from migrator.engine.written import Written
from migrator.journal import Touch
from migrator.model.block import Block
from migrator.route import Unread

NEVER = Block("a", {"": {"n": "by somebody else"}})


def version(n: int, **more: int) -> Block:
    return Block("a", {"": {"n": n, **more}})


def wrote(n: int, memory: Written | None = None) -> Written:
    """Of an owner that wrote a version, and had the answer."""
    memory = memory or Written()
    memory.answered(memory.sends([version(n)]))
    return memory


def counting() -> Written:
    """Of a feed that counts writes."""
    memory = Written()
    memory.expects(Touch("a", writes=1))
    return memory


def test_what_was_refused_is_not_there_and_what_is_in_doubt_may_be() -> None:
    memory = wrote(0)
    memory.refused(memory.sends([version(1)]))
    assert [memory.holds("a", version(n)) for n in range(2)] == [True, False]

    memory.sends([version(1)])
    memory.refused(memory.sends([version(2)]))
    assert [memory.holds("a", version(n)) for n in range(3)] == [True, True, False]


def test_of_more_doubts_than_are_kept_nothing_is_known_though_the_last_was_refused() -> None:
    memory = wrote(0)
    for n in range(1, written._DOUBTS + 2):
        forms = memory.sends([version(n)])
    memory.refused(forms)
    assert memory.holds("a", version(1)) is None


def test_what_is_found_there_ends_all_doubts_but_for_what_can_not_be_read() -> None:
    memory = wrote(0)
    memory.sends([version(1)])
    memory.found("a", version(2))
    assert [memory.holds("a", version(n)) for n in range(3)] == [False, False, True]

    memory = Written()
    memory.found("a", Unread("a", {}, reason="damaged"))
    assert not memory.knows("a")


def test_what_can_not_be_read_is_somebody_elses_where_all_is_known() -> None:
    damaged = Unread("a", {}, reason="damaged")
    assert Written().holds("a", damaged) is None
    memory = wrote(0)
    assert memory.holds("a", damaged) is False
    memory.lost()
    assert memory.holds("a", damaged) is None


def test_what_was_told_is_news_once_it_was_written_over() -> None:
    memory = wrote(0)
    memory.told("a", NEVER)
    assert not memory.is_news("a", NEVER)
    wrote(1, memory)
    assert memory.is_news("a", NEVER)


def test_a_feed_that_counts_shows_as_many_writes_as_were_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(written, "time", SimpleNamespace(monotonic=lambda: now[0]))
    memory = counting()
    for n in range(4):
        wrote(n, memory)
    assert memory.expects(Touch("a", writes=2))
    assert memory.expects(Touch("a", writes=1))
    now[0] += written._PATIENCE
    assert not memory.expects(Touch("a", writes=1))


@pytest.mark.parametrize("forgets", [Written.forget_touches, Written.lost, Written.forget])
def test_no_write_is_expected_of_another_feed(forgets: object) -> None:
    memory = wrote(0, counting())
    forgets(memory)  # type: ignore[operator]
    assert not memory.expects(Touch("a", writes=1))


def test_what_comes_again_is_usual_but_for_what_else_differs() -> None:
    memory = Written()
    assert memory.leaves("b", frozenset({"stamp"}))
    memory.sends([version(0, stamp=1)])
    assert not memory.leaves("b", frozenset({"stamp"}))

    assert memory.is_usual("a", version(0, stamp=2))
    assert not memory.is_usual("a", version(1, stamp=2))
    assert not memory.is_usual("a", Block("a", {"": {"n": 0, "stamp": 2}}, expires=1))
    assert not memory.is_usual("c", version(0, stamp=1))


def test_what_comes_again_as_a_whole_is_no_field_of_other_keys() -> None:
    memory = Written()
    memory.leaves("b", frozenset({"", "n"}))
    memory.sends([version(0)])
    assert not memory.is_usual("a", version(1))


def test_of_a_side_that_applications_write_all_is_forgotten() -> None:
    memory = wrote(0)
    memory.sends([version(1)])
    memory.told("a", NEVER)
    memory.leaves("b", frozenset({"stamp"}))
    memory.forget()

    assert memory.holds("a", version(0)) is memory.holds("a", version(1)) is None
    assert memory.is_news("a", NEVER)
    memory.sends([version(1, stamp=1)])
    assert not memory.is_usual("a", version(1, stamp=2))
    assert memory.leaves("b", frozenset())


def test_what_is_replaced_again_and_again_takes_the_room_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(written, "_REPLACED", written._ROOM)
    memory = wrote(1)
    for _ in range(2 * written._ROOM):
        memory.replaces("a", version(0))
    memory.lost()
    assert memory.holds("a", version(0)) is True
    assert memory.holds("a", NEVER) is False


def test_what_was_replaced_is_not_remembered_where_others_write() -> None:
    memory = Written()
    memory.forgets = True
    memory.replaces("a", version(0))
    memory.lost()
    assert memory.holds("a", version(0)) is None
