"""What a gateway has open in one process: settings, scripts, stores, the control database."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import structlog

from migrator import revisions
from migrator.bootstrap import Stores
from migrator.errors import DoesNotFit, MigratorError, Refused, Terminal
from migrator.exchange import Amending, Exchanging, exchanges_alone
from migrator.following import Lack, begun, cut_over
from migrator.gateway.errors import Rekeyed
from migrator.gateway.follower import Follower, Terms
from migrator.gateway.mirrored import MirrorReading
from migrator.gateway.recording import Recorder
from migrator.gateway.shadowing import ShadowReading
from migrator.journal import OTHER, Bracketed, Brackets, journal_name, note_of
from migrator.model.block import Aggregate, Block, cut, join
from migrator.model.canonical import equal
from migrator.model.diff import differences
from migrator.model.epoch import from_text, overtakes
from migrator.model.follows import Follows
from migrator.model.move import Move
from migrator.model.phase import Phase
from migrator.model.rules import Representation
from migrator.model.value import Value
from migrator.planning.file import decode_plan
from migrator.planning.inference import as_planned
from migrator.ports import Collection, LayoutFacts
from migrator.route import NOT_MADE, Route, open_route
from migrator.settings import load_settings
from migrator.state import open_control
from migrator.state.gateways import Gateways, Standing

log = structlog.get_logger("migrator.gateway")


@dataclass
class Sides:
    """The open route of a class, which of its ends decides, and whose shape is spoken."""

    route: Route
    primary_side: str
    mirrored: bool
    run: str = ""
    shape: str | None = None
    revision: str = ""
    _dropped: bool = False

    @cached_property
    def primary(self) -> Collection:
        return self.side(self.primary_side)

    @cached_property
    def mirror(self) -> Collection:
        return self.side(OTHER[self.primary_side])

    def side(self, side: str) -> Collection:
        return self.route.source if side == "source" else self.route.target

    @cached_property
    def _facts(self) -> LayoutFacts:
        route = self.route
        store = route.source_store if self.primary_side == "source" else route.target_store
        layout = self.primary.at.layout
        name = store.capabilities.default_layout if layout is None else layout.name
        return store.capabilities.layouts[name]

    @property
    def apart(self) -> bool:
        """Whether entries of the primary can be written one by one."""
        return self._facts.entries

    @cached_property
    def rules(self) -> Representation:
        """How the primary cuts an aggregate into entries."""
        return self.primary.at.rules(self.route.cls)

    @cached_property
    def by_exchange(self) -> bool:
        """Whether all writes of the primary go by exchange, conditional or not."""
        return exchanges_alone(self.primary)

    @property
    def by_key(self) -> bool:
        """Whether a block of the primary is found by its key alone."""
        return self._facts.by_key

    # To ask an object whether it has what a protocol names takes longer than a whole read.

    @cached_property
    def amending(self) -> Amending | None:
        """The primary, where it changes fields of what the application speaks where they lie."""
        primary = self.primary
        return primary if isinstance(primary, Amending) and not self.translates else None

    @cached_property
    def exchanging(self) -> Exchanging | None:
        """The primary, where it changes blocks on condition."""
        primary = self.primary
        return primary if isinstance(primary, Exchanging) else None

    @cached_property
    def brackets(self) -> Brackets | None:
        """What to leave around a write, where nothing else shows it (R1)."""
        primary = self.primary
        if not self.mirrored or not isinstance(primary, Bracketed):
            return None
        return primary.brackets(journal_name(self.run, self.route.number, self.primary_side))

    # ------------------------------------------------------------------ the other side's shape

    @cached_property
    def translates(self) -> bool:
        """Whether the primary holds another shape than the application speaks."""
        return not self.route.translation.identity and self.shape != self.primary_side

    @cached_property
    def mirror_speaks(self) -> bool:
        """Whether the mirror holds the shape that the application speaks: it can answer alone.

        Not where keys change: it is the primary's that are pinned, and set aside.
        """
        if self.route.changes_key:
            return False
        return self.route.translation.identity or self.shape == OTHER[self.primary_side]

    def seen(self, held: Block) -> Aggregate:
        """An aggregate of the primary in the application's shape. Raises CorruptBlock, DoesNotFit.

        What only the old side holds is read there, which is the mirror then.
        """
        there = join(held)
        if not self.translates:
            return there
        if self.shape == "target":
            return self._forward(there)
        translation = self.route.translation
        key = translation.key_back(held.id) if self.rekeys else held.id
        return translation.backward(there, self._old(key))

    def stored(self, new: Aggregate, held: Block | None) -> Block:
        """The block of the primary for an aggregate in the application's shape.

        Raises DoesNotFit for one that would come back changed, or not go over at all.
        """
        if not self.translates:
            return cut(new, self.rules)
        translation = self.route.translation
        if self.shape == "target":
            made = translation.backward(new, None if held is None else join(held))
            back = self._forward(made)
        else:
            made = self._forward(new)
            back = translation.backward(made, self._old(new.id))
        if not equal(new.id, back.id):
            raise DoesNotFit("its key would come back changed", key=new.id, path="(key)",
                             where=self.route.name(new.id))  # fmt: skip
        for difference in differences(new.value, back.value):
            raise DoesNotFit(
                f"it would come back changed: {difference.text(masked=True)}",
                key=new.id, path=difference.path, where=self.route.name(new.id),
                hint="the move of this class does not keep that; see:  migrator show",
            )  # fmt: skip
        return cut(made, self.rules)

    # ------------------------------------------------------------------ the other side's keys

    @cached_property
    def rekeys(self) -> bool:
        """Whether the primary has other keys than the application calls with."""
        return self.route.changes_key and self.translates

    @cached_property
    def elsewhere(self) -> bool:
        """Whether nothing but the aggregate tells under which key of the primary it lies."""
        return self.rekeys and not self.route.translation.key_alone

    def key(self, id: Value) -> Value:
        """The primary's key of an aggregate. Raises Rekeyed where it is not known, DoesNotFit for
        what can be no key of the application's shape."""
        if not self.rekeys:
            return id
        if self.elsewhere:
            raise Rekeyed(
                f"revision {self.revision} changed its keys, and they are those of its "
                f"{self.primary_side} now; nothing was written",
                where=self.route.name(id),
                hint=f'call by those:  Gateway.open("{self.route.cls}", '
                f'revision="{self.revision}", shape="{self.primary_side}")',
            )
        translation = self.route.translation
        return translation.key_onward(id) if self.shape == "source" else translation.key_back(id)

    def led(self, side: str, held: Block | None) -> list[Value]:
        """The keys of the other side that a block of one leads to; none for one that leads nowhere.

        Nothing but what it holds is needed for that.
        """
        if held is None:
            return []
        try:
            if side == "source":
                return [made.id for made in self.route.expected(held)]
            return self.route.sources(held)
        except NOT_MADE:
            return []

    def _forward(self, old: Aggregate) -> Aggregate:
        (new,) = self.route.translation.forward(old)
        return new

    def _old(self, id: Value) -> Aggregate | None:
        """What the old side holds; nothing once a move has dropped it at its end."""
        if self._dropped:
            return None
        try:
            (held,) = self.route.source.read([id])
        except Terminal:
            if self.route.source.exists():
                raise
            self._dropped = True
            return None
        return None if held is None else join(held)


class Opened:
    """One class of one environment, for the process that opened it."""

    def __init__(
        self,
        cls: str,
        config: str | Path | None,
        env: str | None,
        revision: str | None,
        shape: str | None,
        terms: Terms,
        shadow: float | None = None,
    ) -> None:
        if shadow is not None and not 0 <= shadow <= 1:
            raise Refused(f"a share of reads lies between 0 and 1, not at {shadow:g}", where=cls)
        if shape is not None and revision is None:
            raise Refused(
                "a shape is that of a revision's source or target", where=cls,
                hint='say which revision:  Gateway.open(..., revision="0002", shape="source")',
            )  # fmt: skip
        self.cls = cls
        self.pid = os.getpid()
        self._pinned = revision
        self._shape = shape
        self.settings = load_settings(config, env)
        self.graph = revisions.load(self.settings.migrations)
        self.stores = Stores(self.settings, application=True)
        self.control = open_control(self.settings.control_store(), self.settings.env)
        self._routes: dict[tuple[str, str], Route] = {}
        self._live: set[tuple[str, str]] = set()
        self._follows = Follows(revision or "", shape or "")
        self._sides: tuple[Standing, Sides] | None = None
        try:
            self._at_first()
            share = self.settings.shadow_share if shadow is None else shadow
            self.shadows = ShadowReading(
                self.control, cls, lambda standing: self.sides(standing).route,
                lambda: self.follower.standing, share, self.settings.explained,
            )  # fmt: skip
            self.recorder = Recorder(cls, self.settings.record)
            self.mirrored = MirrorReading(
                self.control, cls, self.sides, self.shadows.suspect, terms.patience
            )
            self.follower = Follower(
                Gateways(self.control), cls, terms, warm=self._warm, renewed=self._renewed,
                agrees=self._agrees, follows=self._follows,
                request_life=self.settings.request_life,
            )  # fmt: skip
        except BaseException:
            self._close()
            raise
        try:
            # A run that began since: who began it may not have seen the lease yet.
            self._make(self.follower.standing, opening=True)
        except BaseException:
            self.close()
            raise

    def _at_first(self) -> None:
        """Open what the first call needs, so that a script that does not fit is told at once."""
        self._make(Gateways(self.control).standing(self.cls), opening=True)

    def _renewed(self, standing: Standing) -> None:
        self.shadows.renewed(standing)
        self.mirrored.renewed(standing)

    def _warm(self, standing: Standing) -> None:
        """Open the side that is about to be the primary, as far as that goes."""
        try:
            mirror = self._make(standing).mirror
            for block in mirror.sample(1).blocks:
                mirror.read([block.id])
        except MigratorError as error:
            log.warning("not opened ahead", run=standing.run, cls=self.cls, error=error.what)

    def _agrees(self, standing: Standing) -> None:
        """Raise Refused where the primary's store tells of a later reign, or of a run that the
        control database does not know (R15)."""
        try:
            primary = self._make(standing).primary
            note = note_of(primary)
            text = None if note is None else note.read()
        except MigratorError as error:
            # What can't be read, or not now, tells nothing; whoever writes there sees it, too.
            log.warning("epoch not read", run=standing.run, cls=self.cls, error=error.what)
            return
        held = None if text is None else from_text(text)
        if held is None:
            return
        run = "" if standing.phase.ended else standing.run
        if why := overtakes(held, run, standing.epoch, standing.primary):
            raise Refused(
                f"{why}; nothing is written", where=str(primary.at),
                hint=f"see both, and mend it:  migrator repair {held.revision}",
            )  # fmt: skip

    def close(self) -> None:
        self.recorder.close()
        self.mirrored.close()
        self.shadows.close()
        self.follower.close()
        self._close()

    def _close(self) -> None:
        self.control.close()
        self.stores.close()

    def sides(self, standing: Standing) -> Sides:
        """Both ends of the class, as the run stands."""
        found = self._sides
        if found is None or found[0] is not standing:
            found = self._sides = standing, self._make(standing)
        return found[1]

    def _make(self, standing: Standing, *, opening: bool = False) -> Sides:
        revision, side = self._where(standing)
        key = (revision, standing.run)
        route = self._routes.get(key)
        if route is None:
            route = self._routes[key] = self._route(*key)
        self._refuse_unable(key, route, begins=opening or side == "target")
        # One that was opened for neither side's speaks what it finds, which the source still is.
        shape = self._shape or (None if route.translation.identity else side)
        return Sides(route, side, bool(standing.carries), standing.run, shape, revision)

    def _refuse_unable(self, key: tuple[str, str], route: Route, *, begins: bool) -> None:
        """Raise Refused where no gateway goes on like this one, once a run has begun or, where it
        ``begins``, once that cuts over: one that was open before goes on until then."""
        revision, _ = key
        found: Lack | None = begun(self._follows, revision, route)
        if found is None and begins:
            # Others that have the same source matter beside a live one alone.
            moves = self._moves(revision) if key in self._live else ()
            found = cut_over(self._follows, revision, route, moves)
        if found is not None:
            raise Refused(found.what, where=self.cls, hint=found.hint)

    def _where(self, standing: Standing) -> tuple[str, str]:
        """The revision whose ends matter, and the side that decides."""
        if standing.run and not standing.phase.ended:
            if self._pinned not in (None, standing.revision):
                raise Refused(
                    f"revision {standing.revision} moves it now, and this gateway was opened for "
                    f"{self._pinned}",
                    where=self.cls, hint="open it without a revision, and it follows each",
                )  # fmt: skip
            return self._known(standing.revision), standing.primary
        done = self._done()
        if not done <= {r.id for r in self.graph.revisions}:
            # A whole revision may have come and gone while this process stood still.
            self.graph = revisions.load(self.settings.migrations)
        moving = [r.id for r in self.graph.revisions if any(m.cls == self.cls for m in r.moves)]
        if self._pinned is not None:
            moving = [name for name in moving if name == self._pinned]
        if not moving:
            which = "no revision" if self._pinned is None else f"revision {self._pinned} does not"
            raise Refused(
                f"{which} moves {self.cls}", hint=f"known: {', '.join(self.graph.classes())}"
            )
        arrived = [name for name in moving if name in done]
        return (arrived[-1], "target") if arrived else (moving[0], "source")

    def _done(self) -> set[str]:
        runs = self.control.runs()
        return {r.revision for r in runs if r.phase is Phase.FINISHED} | self.control.stamps()

    def _known(self, revision: str) -> str:
        """A revision that began after this process did may be in a script that came later."""
        if revision not in {r.id for r in self.graph.revisions}:
            self.graph = revisions.load(self.settings.migrations)
        return self.graph.get(revision).id

    def _route(self, revision: str, run: str) -> Route:
        moves = self._moves(revision)
        number, move = next((i, m) for i, m in enumerate(moves) if m.cls == self.cls)
        assert move.source is not None  # the graph fills it in
        route = open_route(number, move, move.source, self.stores.get)
        runs = [r for r in self.control.runs(revision) if r.phase is not Phase.ABORTED]
        if not runs:
            return route
        if runs[-1].live:
            self._live.add((revision, run))
        made = decode_plan(runs[-1].plan.encode(), f"run {runs[-1].id}")
        return as_planned(route, made.moves[number].tables)

    def _moves(self, revision: str) -> tuple[Move, ...]:
        return self.graph.moves(revision, self.settings.stores.keys())
