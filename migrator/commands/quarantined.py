"""Blocks that could not be written, and another try at them."""

from __future__ import annotations

from collections.abc import Sequence

from migrator.commands.applying import under_lease
from migrator.commands.project import Project
from migrator.commands.runs import refuse_ended
from migrator.engine.backfill import write_again
from migrator.engine.verify import forget as forget_verification
from migrator.engine.work import Scene, keys_aside
from migrator.errors import Refused
from migrator.model.block import Block
from migrator.model.diff import same_block
from migrator.model.value import Value
from migrator.route import Route, pages
from migrator.state import Quarantined, quarantine_key


def quarantine(project: Project, revision: str) -> list[Quarantined]:
    """The blocks of a run that could not be written, and why."""
    return project.control.quarantined(project.control.run(revision).id)


def _stale(
    scene: Scene, route: Route, blocks: Sequence[Block], aside: frozenset[str]
) -> list[Value]:
    """Those blocks outside quarantine of which the target holds something else."""
    rest = [block for block in blocks if quarantine_key(block.id) not in aside]
    held = scene.retry(route.target.read, [block.id for block in rest])
    return [
        new.id
        for new, old in zip(rest, held, strict=True)
        if old is None or not same_block(new, old)
    ]


def retry_quarantined(project: Project, revision: str) -> tuple[int, int]:
    """Write the blocks in quarantine again: how many went through, how many remain.

    Those that the source no longer has leave quarantine, too.
    """
    revision = project.revision_id(revision)
    if project.control.run(revision).live:
        raise Refused(
            "the mirror of a live move writes alone: it tries again by itself, all of them when it "
            "starts",
            hint=f"mend them, and see what is left:  migrator quarantine list {revision}",
        )
    with under_lease(project, revision) as engine:
        refuse_ended(engine.run)
        if engine.run.primary != "source" and project.control.quarantined(engine.run.id):
            raise Refused(
                "the target is the primary: what the source holds could be older than what was "
                "written there since",
                hint=f"take the cut-over back first:  migrator rollback {revision}",
            )
        scene, mended = engine.scene, 0
        for route in scene.routes:
            forget_verification(scene, route)
            aside = keys_aside(scene, route)
            gone = set(aside)
            # The canonical form can't be read back; the source itself names its keys.
            for range_ in scene.retry(route.source.split, 1) if aside else ():
                for page in pages(route.source, range_, None, 500, scene.retry):
                    gone.difference_update(quarantine_key(id) for id, _ in page.damaged)
                    ids = [b.id for b in page.blocks if quarantine_key(b.id) in aside]
                    gone.difference_update(quarantine_key(id) for id in ids)
                    bad = {quarantine_key(id) for id in write_again(scene, route, ids)}
                    if route.gathers:
                        # A block that belonged nowhere may be part of any other by now.
                        write_again(scene, route, _stale(scene, route, page.blocks, aside))
                    for id in ids:
                        form = quarantine_key(id)
                        if form not in bad:
                            project.control.take_up(scene.run.id, route.number, form)
                    mended += len(ids) - len(bad)
            for form in gone:
                project.control.take_up(scene.run.id, route.number, form)
        return mended, len(project.control.quarantined(scene.run.id))
