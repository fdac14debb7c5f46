"""migrator.toml: the environments, their stores, and where scripts and plans lie.

    default_env = "demo"

    [env.demo.stores.docs]
    url = "postgresql://app@db/shop"
    password = "${SHOP_PASSWORD}"        # or { file = "..." } or { command = "..." }
    options = { sslmode = "verify-full" }

Settings keep what is written there; variables, files and commands are looked up when a store
is opened, and a password at every connection. What prints here is masked.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

from migrator.errors import Refused
from migrator.model.explained import Explained, explained
from migrator.model.url import mask, scheme
from migrator.ports import Json, Secret, StoreSettings
from migrator.secret import fill, fill_all, from_command, from_file, open_url

FILE = "migrator.toml"
# What of a store's options says where its data lies. Others (TLS, pools, time-outs) may change
# under a plan that was made before.
LAYOUT_OPTIONS = frozenset({"database", "keyspace", "namespace", "prefix", "schema"})
# What a feed may keep on a server's disk before it is given up.
FEED_GB = 16.0
_NAME = re.compile(r"[A-Za-z0-9_-]+")
T = TypeVar("T", bound=msgspec.Struct)


class PasswordFrom(msgspec.Struct, frozen=True):
    """A password that lies in a file or is printed by a command."""

    file: str | None = None
    command: str | None = None


class StoreTable(msgspec.Struct, frozen=True):
    """What migrator.toml says of one store."""

    url: str
    password: str | PasswordFrom | None = None
    options: dict[str, object] = {}

    def __repr__(self) -> str:
        return f"StoreTable(url={mask(self.url)!r})"


class ExplainedTable(msgspec.Struct, frozen=True):
    """What migrator.toml says of a difference that is known."""

    path: str
    reason: str


class _Shadow(msgspec.Struct, frozen=True):
    share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    explained: list[object] = []


class _Record(msgspec.Struct, frozen=True):
    share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    folder: str = "recordings"
    values: Literal["synthetic", "keep"] = "synthetic"
    megabytes: Annotated[float, msgspec.Meta(gt=0)] = 100.0


class _Top(msgspec.Struct, frozen=True):
    env: dict[str, object] = {}
    migrations: str = "migrations"
    plans: str = "plans"
    default_env: str | None = None


class _Env(msgspec.Struct, frozen=True):
    staging: bool = False
    request_life: Annotated[float, msgspec.Meta(gt=0)] = 61.0
    feed_gb: Annotated[float, msgspec.Meta(gt=0)] = FEED_GB
    control: object = None
    stores: dict[str, object] = {}
    shadow: object = None
    record: object = None


@dataclass(frozen=True)
class Recording:
    """What gateways record of their calls: those of a share of the keys, with their values kept
    or without; no file is begun or goes on where the folder held so many megabytes with it."""

    share: float
    folder: Path
    values: str
    megabytes: float


@dataclass(frozen=True)
class Settings:
    """The settings of one environment."""

    file: Path
    env: str
    envs: tuple[str, ...]
    staging: bool
    request_life: float
    migrations: Path
    plans: Path
    control: StoreTable
    stores: Mapping[str, StoreTable]
    feed_gb: float = FEED_GB
    shadow_share: float = 0.0
    explained: tuple[Explained, ...] = ()
    record: Recording | None = None

    @property
    def root(self) -> Path:
        """The folder of migrator.toml, which relative paths start from."""
        return self.file.parent

    def store(self, name: str) -> StoreSettings:
        """What a store's module gets, its variables filled in.

        Raises Refused for a name that is no store here, Terminal for a variable not set.
        """
        table = self.stores.get(name)
        if table is None:
            known = ", ".join(sorted(self.stores)) or "none yet"
            raise Refused(
                f"{name!r} is no store of [env.{self.env}.stores]{_guess(name, self.stores)}",
                hint=f"known: {known}",
            )
        return self._open(name, table, f"store {name}")

    def control_store(self) -> StoreSettings:
        """The control database: runs, checkpoints and leases. Raises as ``store`` does."""
        return self._open("control", self.control, "control")

    def fingerprint_view(self, names: Iterable[str]) -> Json:
        """What of the settings a plan's fingerprint covers, for the stores that the plan uses.

        No secrets, hosts or throttles are in it. Raises as ``store`` does.
        """
        return {
            "env": self.env,
            "stores": {name: _view(self.store(name)) for name in sorted(names)},
        }

    def _open(self, name: str, table: StoreTable, where: str) -> StoreSettings:
        url, secret = open_url(table.url, where)
        try:
            scheme(url)
        except ValueError as error:
            raise Refused(str(error), where=where) from None
        if table.password is not None:
            if secret is not None:
                raise Refused("a password both in the URL and beside it", where=where)
            secret = self._secret(table.password, where)
        options = {key: fill_all(item, where) for key, item in table.options.items()}
        return StoreSettings(name, url, options, secret, root=str(self.root))

    def _secret(self, password: str | PasswordFrom, where: str) -> Secret:
        if isinstance(password, str):
            return lambda: fill(password, where)
        file, command = password.file, password.command
        if file is not None and command is None:
            return lambda: from_file(self.root / fill(file, where), where)
        if command is not None and file is None:
            return lambda: from_command(command, self.root, where)
        raise Refused("a password is from a file or from a command", where=where)


def find(start: Path | None = None) -> Path:
    """The migrator.toml of a folder or of the nearest one above. Raises Refused without one."""
    here = (start or Path.cwd()).absolute()
    for folder in (here, *here.parents):
        if (folder / FILE).is_file():
            return folder / FILE
    raise Refused(
        f"there is no {FILE} in {here} or above", hint="start a project with:  migrator init"
    )


def load_settings(path: str | Path | None = None, env: str | None = None) -> Settings:
    """The settings of an environment: the one named, else the default, else the only one.

    Raises Refused for what the file should not hold, naming key and known keys, and for an
    environment that is not there or not told.
    """
    file = Path(path).absolute() if path is not None else find()
    top = _read(_Top, _parse(file), "")
    envs = {name: _environment(name, raw) for name, raw in top.env.items()}
    name = _choose(envs, env, top.default_env)
    chosen, stores, control = envs[name]
    share, known = _shadow(chosen.shadow, f"env.{name}.shadow")
    record = _recording(chosen.record, f"env.{name}.record", file.parent)
    return Settings(
        file,
        name,
        tuple(envs),
        chosen.staging,
        chosen.request_life,
        file.parent / top.migrations,
        file.parent / top.plans,
        control,
        stores,
        chosen.feed_gb,
        share,
        known,
        record,
    )


def _parse(file: Path) -> Mapping[str, object]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise Refused(f"it can't be read: {error.strerror}", where=str(file)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        why = "it is no UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)
        raise Refused(f"no valid TOML: {why}", where=str(file)) from None


def _environment(name: str, raw: object) -> tuple[_Env, dict[str, StoreTable], StoreTable]:
    at = f"env.{name}"
    _check_name(name, at)
    env = _read(_Env, raw, at)
    stores = {}
    for store, table in env.stores.items():
        _check_name(store, f"{at}.stores.{store}")
        stores[store] = _store(table, f"{at}.stores.{store}")
    control = f"sqlite:///.migrator/{name}.db" if env.control is None else env.control
    table = {"url": control} if isinstance(control, str) else control
    return env, stores, _store(table, f"{at}.control")


def _shadow(raw: object, at: str) -> tuple[float, tuple[Explained, ...]]:
    """The share of reads that gateways make on both sides, and the differences that are known."""
    if raw is None:
        return 0.0, ()
    table = _read(_Shadow, raw, at)
    known = []
    for number, item in enumerate(table.explained):
        here = f"{at}.explained[{number}]"
        rule = _read(ExplainedTable, item, here)
        try:
            known.append(explained(rule.path, rule.reason))
        except Refused as error:
            raise _refuse(here, error.what, error.hint) from None
    return table.share, tuple(known)


def _recording(raw: object, at: str, root: Path) -> Recording | None:
    """What gateways record of their calls; nothing where the settings do not speak of it."""
    if raw is None:
        return None
    table = _read(_Record, raw, at)
    return Recording(table.share, root / table.folder, table.values, table.megabytes)


def _store(raw: object, at: str) -> StoreTable:
    table = _read(StoreTable, raw, at)
    if isinstance(raw, Mapping) and isinstance(raw.get("password"), Mapping):
        source = _read(PasswordFrom, raw["password"], f"{at}.password")
        if (source.file is None) == (source.command is None):
            raise _refuse(f"{at}.password", 'it is { file = "..." } or { command = "..." }')
    if "${" not in table.url:
        try:
            scheme(table.url)
        except ValueError as error:
            raise _refuse(f"{at}.url", str(error)) from None
    return table


def _read(kind: type[T], raw: object, at: str) -> T:
    known = [field.name for field in msgspec.structs.fields(kind)]
    if isinstance(raw, Mapping):
        for key in raw:
            if key not in known:
                raise _refuse(
                    f"{at}.{key}".lstrip("."),
                    f"there is no key {key!r}{_guess(key, known)}",
                    f"known: {', '.join(known)}",
                )
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        # msgspec names the place in its own way: "... - at `$.url`"
        text, _, place = str(error).partition(" - at `$")
        raise _refuse((at + place.rstrip("`")).lstrip("."), _lower(text)) from None


def _choose(envs: Mapping[str, object], env: str | None, default: str | None) -> str:
    names = ", ".join(envs)
    if not envs:
        raise _refuse("env", "no environment is named", "write a section like [env.dev.stores.x]")
    for given, whose in ((env, ""), (default, "default_env ")):
        if given in envs:
            return str(given)
        if given is not None:
            guess = _guess(given, envs)
            raise _refuse("env", f"{whose}{given!r} is no environment{guess}", f"known: {names}")
    if len(envs) > 1:
        raise _refuse("env", f"there are several environments: {names}", "choose one: --env NAME")
    return next(iter(envs))


def _check_name(name: str, at: str) -> None:
    if not _NAME.fullmatch(name):
        raise _refuse(at, f"the name {name!r} holds more than letters, digits, _ and -")


def _view(store: StoreSettings) -> Json:
    return {
        "scheme": scheme(store.url).partition("+")[0],
        "database": unquote(urlsplit(store.url).path).removeprefix("/"),
        "options": {k: store.options[k] for k in sorted(LAYOUT_OPTIONS & store.options.keys())},
    }


def _guess(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), 1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _refuse(at: str, what: str, hint: str = "") -> Refused:
    return Refused(what, where=f"{FILE}: {at}", hint=hint)
