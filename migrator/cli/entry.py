"""``main``: parses the words, runs a command, and turns what it raises into line and code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import click

from migrator.cli import output, signals
from migrator.cli.options import Options, global_options
from migrator.errors import Failed, Interrupted, MigratorError, Usage

# Which module holds a command. In the order of the help.
COMMANDS = {
    "init": "scripts",
    "new": "scripts",
    "check": "scripts",
    "history": "scripts",
    "heads": "scripts",
    "current": "scripts",
    "stamp": "scripts",
    "stores": "look",
    "plan": "plans",
    "show": "plans",
    "apply": "plans",
    "mirror": "runs",
    "verify": "runs",
    "status": "look",
    "shadow": "shadowing",
    "reads": "reading",
    "throttle": "steering",
    "pause": "steering",
    "resume": "steering",
    "cutover": "runs",
    "rollback": "runs",
    "abort": "runs",
    "finish": "runs",
    "repair": "repairing",
    "drill": "drills",
    "serve": "serving",
    "log": "look",
    "quarantine": "runs",
}


_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Commands(click.Group):
    """The group of all commands, in the order in which they are used."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args:
            raise Usage("no command was given", hint=self.get_help(ctx))
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"migrator.cli.{COMMANDS[cmd_name]}")
        found = getattr(module, f"{cmd_name}_command")
        return found if isinstance(found, click.Command) else None


def _version(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        from importlib.metadata import version

        output.tell(f"migrator {version('migrator')}")
        context.exit()


@click.command(cls=Commands, context_settings=_CONTEXT)
@global_options
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_version,
    help="Show the version and exit.",
)  # fmt: skip
def cli() -> None:
    """Move data between representations of aggregates and between stores, and back.

    plan says what would change; apply carries it out and can be repeated after any crash;
    rollback takes it back until you finish it.

    The options below may stand after the command as well.
    """


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    words = list(sys.argv[1:] if args is None else args)
    output.prepare()
    signals.install(whole=args is None)
    options = Options()
    try:
        try:
            code = cli.main(words, prog_name="migrator", standalone_mode=False, obj=options)
        finally:
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BrokenPipeError:
        output.silence(sys.stdout)
        return 0
    except BaseException as error:  # noqa: BLE001  (the last line of defence)
        return _tell(error, options, options.json or _wants_json(words))


def _wants_json(words: Sequence[str]) -> bool:
    """Whether JSON was asked for by words that could not be parsed as a whole."""
    return "--format=json" in words or ("--format", "json") in pairwise(words)


def _tell(error: BaseException, options: Options, as_json: bool) -> int:
    told = _ours(error)
    told.hint = options.complete(told.hint)
    if os.environ.get("MIGRATOR_DEBUG"):
        traceback.print_exception(error)
    try:
        output.tell_error(told, as_json=as_json)
    except OSError:
        # Standard output goes to a full disk; the other one may still reach somebody.
        output.silence(sys.stdout)
        with suppress(OSError):
            output.tell_error(told, as_json=False)
    return told.exit_code


def _ours(error: BaseException) -> MigratorError:
    """Any error as one of ours."""
    match error:
        case MigratorError():
            return error
        case click.UsageError():
            path = error.ctx.command_path if error.ctx else "migrator"
            return Usage(error.format_message(), hint=f"see:  {path} --help")
        case click.ClickException():
            return Failed(error.format_message())
        case KeyboardInterrupt() | click.Abort() | EOFError():
            return Interrupted("stopped before the end", hint="run the same command again")
        case OSError(strerror=str(why)):
            return Failed(why[:1].lower() + why[1:], where=str(error.filename or ""))
    # Not its text: a driver's may hold anything, a password included.
    return Failed(
        f"internal error: {type(error).__name__} at {_place(error)} "
        "(run with MIGRATOR_DEBUG=1 for the traceback)"
    )


def _place(error: BaseException) -> str:
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if f"{os.sep}migrator{os.sep}" in frame.filename
    ]
    if not frames:
        return "an unknown place"
    last = frames[-1]
    parts = Path(last.filename).parts
    return f"{'/'.join(parts[len(parts) - parts[::-1].index('migrator') - 1 :])}:{last.lineno}"
