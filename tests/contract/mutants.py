"""Ways to break the embedded store, each of which one promise must notice.

A pytest plugin (``-p tests.contract.mutants``): the environment variable MUTANT names the one
to apply. The originals stay as they are in every other process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from migrator.errors import Terminal
from migrator.model.block import Block, Patch
from migrator.model.value import Value
from migrator.stores.sqlite import codec, collection
from migrator.stores.sqlite.collection import EntriesCollection, EntriesReader

MUTANTS: dict[str, Callable[[], None]] = {}
# The promise that notices, by the mutant's name.
NOTICED_BY: dict[str, str] = {}


def mutant(promise: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def register(apply: Callable[[], None]) -> Callable[[], None]:
        MUTANTS[apply.__name__] = apply
        NOTICED_BY[apply.__name__] = promise
        return apply

    return register


def _replace(cls: type, name: str, change: Callable[..., Any]) -> None:
    old = getattr(cls, name)
    setattr(cls, name, lambda self, *args: change(lambda *given: old(self, *given), self, *args))


@mutant("write_removes_what_the_block_no_longer_has")
def entries_that_are_gone_stay() -> None:
    def write(_: object, self: EntriesCollection, blocks: Sequence[Block]) -> int:
        rows = [row for block in blocks for row in codec.rows(block)]
        with self.store.writing(self.where) as connection:
            table = self._must(connection)
            connection.executemany(f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?, ?)", rows)
        return sum(len(row[2]) for row in rows)

    _replace(EntriesCollection, "write", write)


@mutant("unfit_block_is_named_before_anything_is_written")
def blocks_before_an_unfit_one_are_written() -> None:
    def write(old: Callable[..., int], _: object, blocks: Sequence[Block]) -> int:
        return sum(old([block]) for block in blocks)

    _replace(EntriesCollection, "write", write)


@mutant("a_block_is_seen_whole")
def a_block_is_written_in_two_transactions() -> None:
    def write(old: Callable[..., int], self: EntriesCollection, blocks: Sequence[Block]) -> int:
        with self.store.writing(self.where) as connection:
            keys = [(codec.key_column(block.id),) for block in blocks]
            connection.executemany(f"DELETE FROM {self._must(connection)} WHERE block = ?", keys)
        return old(blocks)

    _replace(EntriesCollection, "write", write)


@mutant("expiry_is_kept_or_refused")
def expiry_is_dropped() -> None:
    def write(old: Callable[..., int], _: object, blocks: Sequence[Block]) -> int:
        return old([Block(block.id, block.entries) for block in blocks])

    _replace(EntriesCollection, "write", write)


@mutant("every_value_of_a_kind")
def decimals_lose_their_zeros() -> None:
    rows = codec.rows

    def normal(value: Value) -> Value:
        if type(value) is Decimal and value.is_finite():
            return value.normalize()
        if type(value) is dict:
            return {name: normal(item) for name, item in value.items()}
        return [normal(item) for item in value] if type(value) is list else value

    def changed(block: Block) -> list[codec.Row]:
        return rows(Block(block.id, normal(block.entries), block.expires))  # type: ignore[arg-type]

    codec.rows = changed


@mutant("odd_keys_stay_apart")
def keys_lose_their_case() -> None:
    to_column = codec.to_column
    codec.to_column = lambda key: to_column(key.lower() if isinstance(key, str) else key)


@mutant("operations_cost_what_is_said")
def a_patch_writes_the_whole_block() -> None:
    def patch(old: Callable[..., None], self: EntriesCollection, patches: Sequence[Patch]) -> None:
        for each, held in zip(patches, self.read([p.id for p in patches]), strict=True):
            assert held is not None
            whole = {path: x for path, x in held.entries.items() if path not in each.unset}
            old([Patch(each.id, {**whole, **each.set}, each.unset)])

    _replace(EntriesCollection, "patch", patch)


@mutant("patch_of_an_absent_block_is_terminal")
def patches_of_absent_blocks_pass() -> None:
    def patch(old: Callable[..., None], *args: Any) -> None:
        try:
            old(*args)
        except Terminal as error:
            if "there is no block" not in error.what:
                raise

    _replace(EntriesCollection, "_patch", lambda old, _, *args: patch(old, *args))


@mutant("page_gives_each_block_once")
def a_page_leaves_its_first_block_out() -> None:
    def page(old: Callable[..., Any], _: object, range_: Any, position: Any, limit: int) -> Any:
        found = old(range_, position, limit)
        if position is not None:
            del found.blocks[:1]
        return found

    _replace(EntriesReader, "page", page)


@mutant("resume_in_a_newly_opened_store")
def positions_point_behind_the_next_block() -> None:
    old: Callable[[Any], Any] = collection._position

    def position(column: Any) -> Any:
        kind, held = old(column)
        return [kind, held[:-1] + "~" if kind == "text" else held]

    collection._position = position


@mutant("split_covers_keys_added_later")
def the_last_range_ends() -> None:
    def split(old: Callable[..., Any], self: EntriesCollection, parts: int) -> Any:
        ranges = old(parts)
        keys, _ = self.keys([None, None], None, 1_000_000)
        if keys:
            ranges[-1][1] = collection._position(codec.to_column(keys[-1]))
        return ranges

    _replace(EntriesCollection, "split", split)


@mutant("read_keeps_the_order_asked_for")
def reads_come_in_the_order_of_keys() -> None:
    _replace(EntriesReader, "read", lambda old, _, ids: old(sorted(ids, key=repr)))


@mutant("observer_shows_what_a_broken_copier_hides")
def the_observer_is_the_copier() -> None:
    EntriesCollection.observer = lambda self: self  # type: ignore[method-assign]


@mutant("count_is_exact")
def counts_are_rounded() -> None:
    _replace(EntriesCollection, "count", lambda old, _: old() // 10 * 10)


if "MUTANT" in os.environ:
    MUTANTS[os.environ["MUTANT"]]()
