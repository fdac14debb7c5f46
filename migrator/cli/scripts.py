"""init, new, check, history, heads, current, stamp: the project and its scripts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from migrator.cli.options import Options, global_options, pass_options
from migrator.cli.output import tell, tell_all, tell_json

if TYPE_CHECKING:
    from migrator.commands import Project
    from migrator.revisions import HistoryEntry


@click.command("init")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=".")
@global_options
@pass_options
def init_command(options: Options, folder: Path) -> None:
    """Start a project: migrator.toml with an example environment, and migrations/."""
    from migrator.cli.plans import nearest
    from migrator.cli.results import Initialised
    from migrator.commands import init

    written = [f"{nearest(path)}{'/' * path.is_dir()}" for path in init(folder)]
    if options.json:
        tell_json(Initialised(written=written))
        return
    tell(*(f"wrote {path}" for path in written))
    tell(
        "name your stores in migrator.toml, see that they answer:  migrator stores",
        'then write a first script:  migrator new "..." --from-sql STORE TABLE',
    )


@click.command("new")
@click.argument("message")
@click.option("--from-sql", nargs=2, metavar="STORE TABLE",
              help="Draft it from a table and what points to it.")  # fmt: skip
@click.option("--repartition", metavar="CLASS",
              help="Draft it from where a class (or collection) now lies.")  # fmt: skip
@global_options
@pass_options
def new_command(
    options: Options, message: str, from_sql: tuple[str, str] | None, repartition: str | None
) -> None:
    """Write the next migration script; MESSAGE says what it is for."""
    from migrator import commands
    from migrator.cli.plans import nearest
    from migrator.cli.results import Drafted

    with options.project() as project:
        made = commands.new(project, message, from_sql=from_sql, repartition=repartition)
    if options.json:
        tell_json(Drafted(id=made.id, down=list(made.down), file=str(made.file)))
    else:
        tell(f"wrote {nearest(made.file)}", f"see what it would do:  migrator plan {made.id}")


@click.command("check")
@global_options
@pass_options
def check_command(options: Options) -> None:
    """Check every script, without touching a store."""
    from migrator import commands
    from migrator.render.scripts import checked_lines

    with options.project() as project:
        checked = commands.check(project)
    if options.json:
        tell_json(checked)
    else:
        tell_all(checked_lines(checked))


@click.command("history")
@global_options
@pass_options
def history_command(options: Options) -> None:
    """List the revisions with their moves, the first one first."""
    from migrator import commands

    with options.project() as project:
        _tell_entries(options, project, commands.history(project))


@click.command("heads")
@global_options
@pass_options
def heads_command(options: Options) -> None:
    """List the revisions that none follows."""
    from migrator import commands

    with options.project() as project:
        _tell_entries(options, project, commands.heads(project))


def _tell_entries(options: Options, project: Project, entries: tuple[HistoryEntry, ...]) -> None:
    from migrator.cli.results import entry
    from migrator.render.scripts import history_lines

    done = project.done()
    if options.json:
        tell_json([entry(found, done) for found in entries])
    else:
        tell_all(history_lines(entries, done))


@click.command("current")
@global_options
@pass_options
def current_command(options: Options) -> None:
    """Tell where each class is now."""
    from migrator import commands
    from migrator.render.scripts import current_lines

    with options.project() as project:
        found = commands.current(project)
    if options.json:
        tell_json(found)
    else:
        tell_all(current_lines(found))


@click.command("stamp")
@click.argument("revision")
@global_options
@pass_options
def stamp_command(options: Options, revision: str) -> None:
    """Note that the data of REVISION was moved by hand."""
    from migrator import commands
    from migrator.cli.results import Stamped

    with options.project() as project:
        stamped = commands.stamp(project, revision)
    if options.json:
        tell_json(Stamped(revision=stamped))
    else:
        tell(f"{stamped} is noted as done; nothing was moved")
