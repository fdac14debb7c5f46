"""The owner: touches, reconciles, pages, positions, unknown outcomes, successors (R1 to R7).

Rows of the primary lie under mirror keys, at most one at a time (`home`); a mirror key's block is
the set of rows homed there. So one model holds plain keys (each row at home in its own key), child
rows that move between two blocks, and mirror keys that are computed from a value and shared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, NamedTuple

from tests.protocol.checker import Action, Machine

GONE = -1
QUEUED, WORK, DONE = range(3)  # a touch; a page is todo, listed or done
TODO, LISTED = QUEUED, WORK
LOOKED = 1 << 30  # a mark in a touch's keys: they were looked up
WAITING, TAKEN, READ, UNKNOWN = range(4)  # a work

Row = tuple[int, int]  # where it is at home, and which version of it
Held = tuple[int, tuple[Row, ...]]  # where the mirror's locator says a row lies, and its copies
Content = tuple[tuple[int, int, int | None], ...]  # row, home, version; None: known by key alone


class Keys(int):
    """A set of mirror keys, as bits."""

    def __str__(self) -> str:
        return "{" + ",".join(str(n) for n in range(self.bit_length()) if self >> n & 1) + "}"


class Touch(NamedTuple):
    row: int  # GONE: an event without keys, as of TRUNCATE
    keys: int
    status: int = QUEUED


class Work(NamedTuple):
    phase: int
    keys: int
    rows: int
    touches: tuple[int, ...] = ()
    page: int = GONE
    content: Content = ()


class Request(NamedTuple):
    """A mirror write that nobody had an answer to and that may still be carried out."""

    keys: int
    content: Content
    mine: bool


class Page(NamedTuple):
    status: int = TODO
    todo: Content = ()
    let_go: int = 0  # mirror keys let go since the listing began
    rows: int = 0  # and source keys


class State(NamedTuple):
    source: tuple[Row, ...]
    mirror: tuple[Held, ...]
    pages: tuple[Page, ...]
    ops: int
    crashes: int
    unknowns: int
    losses: int
    feed: tuple[Touch, ...] = ()
    base: int = 0  # the ordinal of feed[0]
    position: int = 0  # acknowledged: what lies below is not sent again
    works: tuple[Work, ...] = ()
    late: tuple[Request, ...] = ()
    behind: tuple[tuple[int, Row], ...] = ()  # commits in the feed that no read sees yet
    alive: bool = True
    union: bool = False  # the pages list both sides' keys
    dual: tuple[int, ...] = ()  # without R2: what a gateway is about to write to the mirror


def bit(home: int) -> int:
    return 1 << home if home >= 0 else 0


class Bounds(NamedTuple):
    """How large a world is explored."""

    start: tuple[int, ...]  # each row's home at first
    homes: tuple[tuple[int, ...], ...]  # where the application may put it
    pages: tuple[int, ...] = ()  # each page's mirror keys
    ops: int = 2
    crashes: int = 0
    unknowns: int = 0
    losses: int = 0
    workers: int = 2
    images: bool = True  # touches name the old and the new home; else both are looked up
    tables: bool = True  # the mirror holds a row once, by its own key; else each block has a copy
    whole: bool = True  # a listing shows everything of a mirror key
    late: bool = False  # the feed shows commits before they can be read
    truncates: bool = False
    equal: bool = False  # the mirror holds everything at first


class Mirror(Machine[State]):
    """One owner process at a time, with several workers and one lock table."""

    WORDS: ClassVar[dict[str, str]] = {
        "app.write": "the application puts a row under a home, or deletes it; its touch is noted",
        "app.unnoted": "a write whose touch was to follow, and whose writer died between",
        "app.truncate": "all rows go, and the feed shows no key",
        "feed.visible": "a commit that the feed has shown can now be read",
        "feed.lost": "the position is lost, or the feed is another: its touches are gone",
        "owner.look": "the keys that a touch affects are looked up: by the primary, by the locator",
        "owner.take": "all keys that queued touches affect are taken, or none",
        "owner.read": "the primary is read now, and nothing is found that is not taken",
        "owner.again": "the read showed a key or row not taken: all is let go, to take more",
        "owner.retake": "the larger set is taken",
        "owner.write": "the mirror write is answered: durable, touches applied, keys let go",
        "owner.refused": "the mirror held a row for a key not taken: all is let go, to take more",
        "owner.unknown": "the mirror write has no answer; its keys stay taken",
        "owner.settle": "the request is known to be dead: its keys, still taken, are read again",
        "owner.acknowledge": "the feed need not send again what lies below the position",
        "owner.rescan": "an event without keys: every page is listed again, over both sides",
        "owner.skip": "an event without keys is passed over",
        "owner.crash": "the owner dies or loses its lease; what it sent may still be carried out",
        "owner.start": "a successor begins, from the durable position and pages",
        "request.lands": "a request without an answer is carried out",
        "request.dies": "a request without an answer can no longer be carried out",
        "page.list": "a page's keys and values are listed",
        "page.take": "a listed key is taken; its listed value is good if it was not let go since",
        "page.leave": "a listed key is left to a touch that is bound to take it",
        "page.done": "the page's keys are durable in the mirror",
        "gateway.read": "a gateway reads back what it will write to the mirror",
        "gateway.write": "a gateway writes the mirror",
    }
    WORLD = frozenset(
        (
            "app.write",
            "app.unnoted",
            "app.truncate",
            "feed.lost",
            "owner.unknown",
            "owner.crash",
            "gateway.read",
        )
    )
    RULES: ClassVar[dict[str, str]] = {
        "R1": "the touch follows the write, and the writer may die between",
        "R2.gateway": "the gateway writes the mirror, too",
        "R2.lease": "a successor starts while requests of the old owner may be carried out",
        "R3.lock": "workers share no lock table",
        "R3.closed": "what the read shows is not taken",
        "R3.keys": "workers take the touched source keys, and no mirror keys",
        "R3.rows": "workers take mirror keys, and no source keys",
        "R3.refuses": "a write takes rows from keys that are not taken",
        "R3.queued": "a touch for a key in work is dropped",
        "R4.let_go": "a listed value is written though its key was let go since",
        "R4.rows": "what was let go is remembered by mirror keys, not by source keys",
        "R4.bound": "a listed key is left to a touch that is not bound to take it",
        "R4.durable": "a page is done when its keys are taken",
        "R5.lowest": "the position is the highest touch applied",
        "R5.durable": "a touch counts as applied when its key is read",
        "R5.identity": "another feed's position is taken for one's own",
        "R5.union": "a re-scan lists the primary's keys alone",
        "R5.keyless": "an event without keys is passed over",
        "R6.let_go": "the key of an unknown outcome is let go",
        "R6.retry": "a retry's answer counts for the request that had none",
        "R7": "a read is weaker than the touch: it may show what was before",
    }

    def __init__(self, bounds: Bounds, without: Iterable[str] = ()) -> None:
        super().__init__(without)
        self.bounds = bounds
        self.closed, self.refuses = self.holds("R3.closed"), self.holds("R3.refuses")
        self.locks_keys = self.holds("R3.lock") and self.holds("R3.keys")
        self.locks_rows = self.holds("R3.lock") and self.holds("R3.rows")

    def initial(self) -> State:
        b = self.bounds
        source = tuple((home, int(home >= 0)) for home in b.start)
        held = [(home, ((home, v),) if v and b.equal else ()) for home, v in source]
        mirror = tuple((home if copies else GONE, copies) for home, copies in held)
        pages = tuple(Page(DONE if b.equal else TODO) for _ in b.pages)
        return State(source, mirror, pages, b.ops, b.crashes, b.unknowns, b.losses)

    # ---------------------------------------------------------------- the application and its feed

    def app_write(self, s: State, row: int, home: int) -> State | None:
        old, version = s.source[row]
        if not s.ops or home == old == GONE or any(r == row for r, _ in s.behind):
            return None
        keys = bit(old) | bit(home) if self.bounds.images else 0
        feed = (*s.feed, Touch(row, keys))
        if not self.holds("R3.queued") and (keys | bit(row)) & self._busy(s)[0]:
            feed = s.feed
        return s._replace(
            source=_put(s.source, row, (home, version + 1)),
            feed=feed,
            ops=s.ops - 1,
            behind=(*s.behind, (row, s.source[row])) if self.bounds.late else (),
        )

    def app_unnoted(self, s: State, row: int, home: int) -> State | None:
        after = None if self.holds("R1") else self.app_write(s, row, home)
        return after and after._replace(feed=s.feed)

    def app_truncate(self, s: State, _: object) -> State | None:
        if not s.ops or s.behind or not self.bounds.truncates:
            return None
        source = tuple((GONE, version) for _, version in s.source)
        return s._replace(source=source, feed=(*s.feed, Touch(GONE, 0)), ops=s.ops - 1)

    def feed_visible(self, s: State, row: int) -> State | None:
        rest = tuple(hidden for hidden in s.behind if hidden[0] != row)
        return s._replace(behind=rest) if rest != s.behind else None

    def feed_lost(self, s: State, _: object) -> State | None:
        if s.alive or not s.losses:
            return None
        end = s.base + len(s.feed)
        s = s._replace(feed=(), base=end, position=end, losses=s.losses - 1)
        return self._rescan(s) if self.holds("R5.identity") else s

    def _rescan(self, s: State) -> State:
        return s._replace(pages=(Page(),) * len(s.pages), union=self.holds("R5.union"))

    def _seen(self, s: State) -> tuple[Row, ...]:
        """The primary as a read shows it."""
        seen = s.source
        for row, old in s.behind:
            seen = _put(seen, row, old)
        return seen

    # ---------------------------------------------------------------------- take, read and let go

    def _busy(self, s: State) -> tuple[int, int]:
        keys = rows = 0
        for work in s.works:
            if work.phase != WAITING:
                keys |= work.keys
                rows |= work.rows
        return (keys if self.locks_keys else 0), (rows if self.locks_rows else 0)

    def _free(self, s: State, keys: int, rows: int) -> bool:
        busy_keys, busy_rows = self._busy(s)
        return not (keys & busy_keys or rows & busy_rows)

    def _affects(self, s: State, touch: Touch) -> int:
        if self.bounds.images or touch.keys:
            return touch.keys & ~LOOKED
        return bit(self._seen(s)[touch.row][0]) | bit(s.mirror[touch.row][0])

    def owner_look(self, s: State, n: int) -> State | None:
        """What is looked up may be old when it is taken; the read under the take shows that."""
        if self.bounds.images or not s.alive or not 0 <= n - s.base < len(s.feed):
            return None
        touch = s.feed[n - s.base]
        if touch.status != QUEUED or touch.row == GONE or touch.keys:
            return None
        looked = touch._replace(keys=self._affects(s, touch) | LOOKED)
        return s._replace(feed=_put(s.feed, n - s.base, looked))

    def owner_take(self, s: State, keys: int, touches: tuple[int, ...]) -> State | None:
        rows = 0
        for n in touches:
            if not 0 <= n - s.base < len(s.feed):
                return None
            touch = s.feed[n - s.base]
            if touch.status != QUEUED or touch.row == GONE or touch.keys & ~LOOKED & ~keys:
                return None
            rows |= bit(touch.row)
        if not s.alive or len(s.works) >= self.bounds.workers or not self._free(s, keys, rows):
            return None
        s = self._mark(s, touches, WORK)
        return s._replace(works=(*s.works, Work(TAKEN, keys, rows, touches)))

    def _mark(self, s: State, touches: tuple[int, ...], status: int) -> State:
        feed = s.feed
        for n in touches:
            if n >= s.base:
                feed = _put(feed, n - s.base, feed[n - s.base]._replace(status=status))
        return _shortened(s._replace(feed=feed))

    def _larger(self, s: State, work: Work) -> tuple[int, int]:
        """What a reconcile has to take, from what a read shows now."""
        keys, rows = work.keys, work.rows
        if self.closed:
            for row, (home, _) in enumerate(self._seen(s)):
                held = bit(s.mirror[row][0])
                if work.rows >> row & 1:
                    keys |= bit(home) | held
                elif (bit(home) | held) & work.keys:
                    rows |= bit(row) if self.locks_keys else 0
                    keys |= held if bit(home) & work.keys else 0
        return keys, rows

    def owner_read(self, s: State, keys: int) -> State | None:
        work = _work(s, keys, TAKEN)
        if work is None or self._larger(s, work) != (work.keys, work.rows):
            return None
        touched = {s.feed[n - s.base].row for n in work.touches if n >= s.base}
        if self.holds("R7") and any(row in touched for row, _ in s.behind):
            return None
        found = enumerate(self._seen(s))
        content = tuple((row, home, v) for row, (home, v) in found if bit(home) & keys)
        return _swap(s, work, work._replace(phase=READ, content=content))

    def owner_again(self, s: State, keys: int) -> State | None:
        work = _work(s, keys, TAKEN)
        if work is None or self._larger(s, work) == (work.keys, work.rows):
            return None
        more, rows = self._larger(s, work)
        return _swap(s, work, work._replace(phase=WAITING, keys=more, rows=rows))

    def owner_retake(self, s: State, keys: int) -> State | None:
        work = _work(s, keys, WAITING)
        if work is None or not self._free(s, work.keys, work.rows):
            return None
        return _swap(s, work, work._replace(phase=TAKEN))

    # ------------------------------------------------------------------------- write and outcomes

    def _stolen(self, s: State, keys: int, content: Content) -> int:
        """The keys not taken for which the mirror holds what is to be written."""
        stolen = 0
        for row, _, _ in content:
            stolen |= bit(s.mirror[row][0]) & ~keys
        return stolen if self.refuses else 0

    def _carried_out(self, s: State, keys: int, content: Content) -> State:
        if self._stolen(s, keys, content):
            return s
        put = {row: (home, version or 0) for row, home, version in content}
        mirror = []
        for row, (locator, copies) in enumerate(s.mirror):
            if locator >= 0 or row in put:
                rest = tuple(copy for copy in copies if not bit(copy[0]) & keys)
                if row in put:
                    kept = () if self.bounds.tables else rest
                    mirror.append((put[row][0], tuple(sorted((*kept, put[row])))))
                else:
                    mirror.append((GONE if bit(locator) & keys else locator, rest))
            else:
                mirror.append((locator, tuple(c for c in copies if not bit(c[0]) & keys)))
        return s._replace(mirror=tuple(mirror))

    def _finished(self, s: State, work: Work) -> State:
        """Touches applied, listed keys struck off, everything let go."""
        pages = []
        for n, page in enumerate(s.pages):
            todo = page.todo
            if n == work.page:
                todo = tuple(
                    e for e in todo if not (bit(e[1]) & work.keys or work.rows >> e[0] & 1)
                )
            page = page._replace(todo=todo)
            if page.status == LISTED:
                page = page._replace(let_go=page.let_go | work.keys, rows=page.rows | work.rows)
            pages.append(page)
        s = s._replace(pages=tuple(pages), works=_without(s.works, work))
        return self._mark(s, work.touches, DONE)

    def owner_write(self, s: State, keys: int) -> State | None:
        work = _work(s, keys, READ)
        if work is None or self._stolen(s, keys, work.content):
            return None
        return self._finished(self._carried_out(s, keys, work.content), work)

    def owner_refused(self, s: State, keys: int) -> State | None:
        work = _work(s, keys, READ)
        more = self._stolen(s, keys, work.content) if work else 0
        if work is None or not more:
            return None
        again = work._replace(phase=WAITING, keys=Keys(keys | more), content=())
        return _swap(s, work, again)

    def owner_unknown(self, s: State, keys: int) -> State | None:
        work = _work(s, keys, READ)
        if work is None or not s.unknowns:
            return None
        request = Request(keys, work.content, mine=True)
        s = s._replace(late=(*s.late, request), unknowns=s.unknowns - 1)
        if not self.holds("R6.let_go"):
            return self._finished(s, work)
        if not self.holds("R6.retry"):
            return s
        return _swap(s, work, work._replace(phase=UNKNOWN, content=()))

    def owner_settle(self, s: State, keys: int) -> State | None:
        work = _work(s, keys, UNKNOWN)
        if work is None or any(r.mine and r.keys == keys for r in s.late):
            return None
        return _swap(s, work, work._replace(phase=TAKEN))

    def request_lands(self, s: State, keys: int, n: int = 0) -> State | None:
        after = self.request_dies(s, keys, n)
        late = [r for r in s.late if r.keys == keys]
        return after and self._carried_out(after, keys, late[n].content)

    def request_dies(self, s: State, keys: int, n: int = 0) -> State | None:
        late = [r for r in s.late if r.keys == keys]
        return s._replace(late=_without(s.late, late[n])) if n < len(late) else None

    # ------------------------------------------------------------- positions, crash and successor

    def owner_acknowledge(self, s: State, position: int) -> State | None:
        covered = s.feed[: position - s.base]
        if not s.alive or not s.position < position <= s.base + len(s.feed):
            return None
        good = (DONE,) if self.holds("R5.durable") else (DONE, WORK)
        applied = [touch.status in good for touch in covered]
        if not (all(applied) if self.holds("R5.lowest") else applied[-1]):
            return None
        return _shortened(s._replace(position=position))

    def owner_rescan(self, s: State, n: int) -> State | None:
        if not s.alive or s.works or not self._keyless(s, n) or not self.holds("R5.keyless"):
            return None
        return self._rescan(self._mark(s, (n,), WORK))

    def owner_skip(self, s: State, n: int) -> State | None:
        if not s.alive or not self._keyless(s, n) or self.holds("R5.keyless"):
            return None
        return self._mark(s, (n,), DONE)

    def _keyless(self, s: State, n: int) -> bool:
        return 0 <= n - s.base < len(s.feed) and s.feed[n - s.base][::2] == (GONE, QUEUED)

    def owner_crash(self, s: State, _: object) -> State | None:
        if not s.alive or not s.crashes:
            return None
        sent = [Request(w.keys, w.content, mine=False) for w in s.works if w.phase == READ]
        late = (*(r._replace(mine=False) for r in s.late), *sent)
        skipped = s.position - s.base
        return s._replace(
            alive=False,
            crashes=s.crashes - 1,
            works=(),
            late=late,
            feed=tuple(touch._replace(status=QUEUED) for touch in s.feed[skipped:]),
            base=s.position,
            pages=tuple(page if page.status == DONE else Page() for page in s.pages),
        )

    def owner_start(self, s: State, _: object) -> State | None:
        if s.alive or (s.late and self.holds("R2.lease")):
            return None
        return s._replace(alive=True)

    # ------------------------------------------------------------------------------------- pages

    def page_list(self, s: State, page: int) -> State | None:
        if not s.alive or s.pages[page].status != TODO:
            return None
        of = self.bounds.pages[page]
        todo: list[tuple[int, int, int | None]] = []
        for row, (home, version) in enumerate(self._seen(s)):
            held = s.mirror[row][0]
            if bit(home) & of:
                todo.append((row, home, version))
            if s.union and held != home and bit(held) & of:
                todo.append((row, held, None))
        listed = Page(LISTED, tuple(todo))
        return s._replace(pages=_put(s.pages, page, listed))

    def page_take(self, s: State, page: int, key: int) -> State | None:
        listed = s.pages[page]
        content = tuple(entry for entry in listed.todo if entry[1] == key)
        rows = sum({bit(entry[0]) for entry in content})
        if not content or not s.alive or len(s.works) >= self.bounds.workers:
            return None
        if not self._free(s, bit(key), rows):
            return None
        stale = listed.let_go & bit(key) or (listed.rows & rows and self.holds("R4.rows"))
        stale = stale and self.holds("R4.let_go")
        if stale or not self.bounds.whole or any(e[2] is None for e in content):
            work = Work(TAKEN, bit(key), rows, (), page)
        else:
            work = Work(READ, bit(key), rows, (), page, content)
        return s._replace(works=(*s.works, work))

    def page_leave(self, s: State, page: int, key: int) -> State | None:
        rest = tuple(entry for entry in s.pages[page].todo if entry[1] != key)
        waiting = [t for t in s.feed if t.status != DONE and t.row != GONE]
        if rest == s.pages[page].todo or not s.alive:
            return None
        # What a touch affects may change until it is looked up; what was looked up will be taken.
        bound = [t.keys if self.holds("R4.bound") else self._affects(s, t) for t in waiting]
        if not any(keys & bit(key) for keys in bound):
            return None
        if any(work.page == page and work.keys & bit(key) for work in s.works):
            return None
        return s._replace(pages=_put(s.pages, page, s.pages[page]._replace(todo=rest)))

    def page_done(self, s: State, page: int) -> State | None:
        listed = s.pages[page]
        working = 0
        for work in s.works:
            working |= work.keys if work.page == page else 0
        if listed.status != LISTED or not s.alive:
            return None
        if self.holds("R4.durable"):
            if listed.todo or working:
                return None
        elif any(not bit(entry[1]) & working for entry in listed.todo):
            return None
        s = s._replace(pages=_put(s.pages, page, Page(DONE)))
        if any(p.status != DONE for p in s.pages):
            return s
        keyless = [n for n, t in enumerate(s.feed, s.base) if t[::2] == (GONE, WORK)]
        return self._mark(s, tuple(keyless), DONE)._replace(union=False)

    # ------------------------------------------------------------------------- without rule two

    def gateway_read(self, s: State, row: int) -> State | None:
        if self.holds("R2.gateway") or s.dual or s.ops == self.bounds.ops:
            return None
        return s._replace(dual=(row, *s.source[row]))

    def gateway_write(self, s: State, _: object) -> State | None:
        if not s.dual:
            return None
        row, home, version = s.dual
        held = (home, ((home, version),) if home >= 0 else ())
        return s._replace(mirror=_put(s.mirror, row, held), dual=())

    # ------------------------------------------------------------------------------- exploration

    def choices(self, s: State) -> Iterator[Action]:
        yield from self._of_the_world(s)
        yield from self._of_touches(s)
        for work in s.works:
            for name in _NEXT[work.phase]:
                yield Action(name, Keys(work.keys))
        for page, listed in enumerate(s.pages):
            if listed.status == TODO:
                yield Action("page.list", page)
            elif listed.status == LISTED:
                for key in sorted({entry[1] for entry in listed.todo}):
                    yield Action("page.take", page, (key,))
                    yield Action("page.leave", page, (key,))
                yield Action("page.done", page)
        counts: dict[int, int] = {}
        for request in s.late:
            n = counts[request.keys] = counts.get(request.keys, -1) + 1
            yield Action("request.lands", Keys(request.keys), (n,) if n else ())
            yield Action("request.dies", Keys(request.keys), (n,) if n else ())
        if s.crashes and s.alive:
            yield Action("owner.crash")
        if not s.alive:
            yield Action("owner.start")

    def _of_the_world(self, s: State) -> Iterator[Action]:
        if s.ops:
            for row, homes in enumerate(self.bounds.homes):
                for home in homes:
                    yield Action("app.write", row, (home,))
                    if not self.holds("R1"):
                        yield Action("app.unnoted", row, (home,))
            if self.bounds.truncates:
                yield Action("app.truncate")
        for row, _ in s.behind:
            yield Action("feed.visible", row)
        if s.losses and not s.alive:
            yield Action("feed.lost")
        if not self.holds("R2.gateway"):
            for row in range(len(s.source)):
                yield Action("gateway.read", row)
            yield Action("gateway.write")

    def _of_touches(self, s: State) -> Iterator[Action]:
        queued = [(n, t) for n, t in enumerate(s.feed, s.base) if t.status == QUEUED]
        for n, touch in queued:
            if touch.row == GONE:
                yield Action("owner.rescan", n)
                yield Action("owner.skip", n)
                continue
            if not (touch.keys or self.bounds.images):
                yield Action("owner.look", n)
                continue
            keys = touch.keys & ~LOOKED
            yield Action("owner.take", Keys(keys), ((n,),))
            both = tuple(m for m, t in queued if t.row >= 0 and not t.keys & ~LOOKED & ~keys)
            if len(both) > 1 and both[0] == n:
                yield Action("owner.take", Keys(keys), (both,))
        done = [touch.status == DONE for touch in s.feed]
        if not self.holds("R5.lowest") or not self.holds("R5.durable"):
            for n in range(len(s.feed)):
                yield Action("owner.acknowledge", s.base + n + 1)
        elif done and done[0]:
            n = done.index(False) if False in done else len(done)
            yield Action("owner.acknowledge", s.base + n)

    def canonical(self, s: State) -> State:
        n = s.base
        works = s.works
        if not n and len(works) < 2 and len(s.late) < 2:
            return s
        if n:
            works = tuple(w._replace(touches=tuple(t - n for t in w.touches)) for w in works)
        return s._replace(
            base=0,
            position=s.position - n,
            works=tuple(sorted(works)),
            late=tuple(sorted(s.late)),
        )

    def quiet(self, s: State) -> bool:
        if s.feed or s.works or s.late or s.behind or s.dual or not s.alive:
            return False
        return all(page.status == DONE for page in s.pages)

    def unequal(self, s: State) -> str | None:
        for row, (here, there) in enumerate(zip(s.source, s.mirror, strict=True)):
            if there[1] != (() if here[0] == GONE else (here,)):
                held = " and ".join(map(_told, there[1])) or "gone"
                return f"all is quiet and row {row} is {_told(here)}, in the mirror {held}"
        return None


_NEXT = {
    WAITING: ("owner.retake",),
    TAKEN: ("owner.read", "owner.again"),
    READ: ("owner.write", "owner.refused", "owner.unknown"),
    UNKNOWN: ("owner.settle",),
}


def _told(row: Row) -> str:
    return "gone" if row[0] == GONE else f"version {row[1]} under {row[0]}"


def _put(values: tuple[Any, ...], n: int, value: Any) -> tuple[Any, ...]:
    return (*values[:n], value, *values[n + 1 :])


def _without(values: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    n = values.index(value)
    return (*values[:n], *values[n + 1 :])


def _work(s: State, keys: int, phase: int) -> Work | None:
    return next((w for w in s.works if w.keys == keys and w.phase == phase), None)


def _swap(s: State, old: Work, new: Work) -> State:
    return s._replace(works=(*_without(s.works, old), new))


def _shortened(s: State) -> State:
    """What is applied and acknowledged is forgotten."""
    n = 0
    while n < len(s.feed) and s.base + n < s.position and s.feed[n].status == DONE:
        n += 1
    return s._replace(feed=s.feed[n:], base=s.base + n) if n else s
