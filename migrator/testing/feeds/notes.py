"""What a note promises: it is changed in one step, by one of many, and all who open the store
read the same (R15)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from migrator.journal import Note, note_of
from migrator.testing.feeds.harness import Followable, Harness

_WRITERS = 4
ODD = """it's "süß" %s ? :x"""


class NotePromises(Harness):
    def test_a_note_is_changed_only_from_what_it_says(self, here: Followable) -> None:
        first, other = note(here), note(here)
        assert first.read() is None
        assert not first.change("", "first")
        assert first.change(None, "first")
        assert not first.change(None, "second")
        assert not first.change("First", "second"), "as the note says it, to the letter"
        assert not first.change("first ", "second")
        assert other.read() == "first"
        assert other.change("first", ODD)
        assert not first.change("first", "third")
        assert not first.change("first", None)
        assert first.read() == ODD
        assert first.change(ODD, None)
        assert other.read() is None
        assert not other.change(ODD, "again")
        assert first.change(None, "again")
        assert first.change("again", None)

    def test_of_many_that_change_a_note_one_does(self, here: Followable) -> None:
        shared = note(here)
        with ThreadPoolExecutor(_WRITERS) as pool:
            for step in range(3):
                old = shared.read()
                texts = [f"{step} {n}" for n in range(_WRITERS)]
                done = list(pool.map(lambda text: note(here).change(old, text), texts))  # noqa: B023
                assert done.count(True) == 1
                assert shared.read() == texts[done.index(True)]
        assert shared.change(shared.read(), None)

    def test_another_process_reads_the_same_note(self, here: Followable) -> None:
        assert note(here).change(None, "kept")
        store = here.case.open(here.folder)
        try:
            again = note_of(store.collection("Game", here.collection.at))
            assert again is not None
            assert again.read() == "kept"
            assert again.change("kept", None)
        finally:
            store.close()


def note(here: Followable) -> Note:
    found = note_of(here.collection)
    if found is None:
        pytest.skip("this store keeps no notes")
    return found
