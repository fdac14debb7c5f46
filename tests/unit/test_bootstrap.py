"""Opening what settings name: by URL scheme, once each, in one process, siblings in reach."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator import bootstrap
from migrator.bootstrap import Stores, factory, open_store, schemes
from migrator.errors import MigratorError, Refused, Terminal
from migrator.model.block import Block
from migrator.model.move import At
from migrator.settings import Settings, load_settings
from tests.ending import waited

# A store module of another package, registered as any is.
PLUGIN = """
class Thing:
    capabilities = None

    def __init__(self, settings):
        self.name, self.settings, self.closed = settings.name, settings, 0
        like = settings.options.get("like")
        self.other = settings.sibling(like) if like else None

    def ping(self):
        raise NotImplementedError

    def collection(self, cls, at):
        raise NotImplementedError

    def close(self):
        self.closed += 1
        if self.settings.options.get("stuck"):
            raise OSError(f"{self.name} is stuck")


def open_store(settings):
    return Thing(settings)
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    site = tmp_path / "site"
    info = site / "thing_store-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "thing_store.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: thing-store\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[migrator.stores]\n"
        "thing = thing_store:open_store\n"
        "broken = no_such_module:open_store\n"
        "empty = thing_store:missing\n"
    )
    monkeypatch.syspath_prepend(str(site))
    bootstrap._offered.cache_clear()
    yield
    bootstrap._offered.cache_clear()
    sys.modules.pop("thing_store", None)


def settings(folder: Path, **stores: str) -> Settings:
    file = folder / "migrator.toml"
    file.write_text("".join(f"[env.dev.stores.{k}]\n{v}\n" for k, v in stores.items()))
    return load_settings(file)


def test_a_store_is_opened_by_its_scheme_beside_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with Stores(settings(tmp_path, docs='url = "embedded:///docs.db"')) as stores:
        store = stores.get("docs")
        assert store.name == "docs"
        games = store.collection("Game", At("docs", "games"))
        games.create()
        games.write([Block(1, {"": {"a": 1}})])
        assert games.count() == 1
    assert (tmp_path / "docs.db").exists()


def test_the_schemes_of_the_package_are_registered() -> None:
    assert {"embedded", "sqlite", "postgresql", "mysql", "mariadb", "mongodb"} <= {*schemes()}


def test_an_unknown_scheme_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(Refused) as caught:
        open_store(settings(tmp_path, s='url = "oracle://u:hunter2@h/d"'), "s")
    first, known = str(caught.value).splitlines()
    assert first == "store s: no store takes URLs that begin with oracle://"
    assert known.startswith("known: ")
    assert "embedded, " in known


def test_an_unknown_store_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="'b' is no store of"):
        Stores(settings(tmp_path, a='url = "embedded:///a.db"')).get("b")
    assert not (tmp_path / "a.db").exists()


@pytest.mark.usefixtures("plugin")
class TestPlugin:
    def test_another_package_brings_its_own_store(self, tmp_path: Path) -> None:
        store = open_store(settings(tmp_path, s='url = "thing://x"'), "s")
        assert store.name == "s"
        assert "thing" in schemes()

    def test_a_driver_after_a_plus_falls_back_to_the_system(self) -> None:
        assert factory("thing+other") is factory("thing")

    @pytest.mark.parametrize(
        ("scheme", "why"), [("broken", "No module named 'no_such_module'"), ("empty", "missing")]
    )
    def test_a_module_that_does_not_load_is_one_error(
        self, tmp_path: Path, scheme: str, why: str
    ) -> None:
        with pytest.raises(Terminal) as caught:
            open_store(settings(tmp_path, s=f'url = "{scheme}://x"'), "s")
        assert str(caught.value).startswith("store s: the store module ")
        assert why in str(caught.value)

    def test_each_store_is_opened_once(self, tmp_path: Path) -> None:
        stores = Stores(settings(tmp_path, a='url = "thing://a"', b='url = "thing://b"'))
        assert stores.get("a") is stores.get("a")
        assert stores.get("a") is not stores.get("b")

    def test_a_sibling_is_the_store_that_others_get(self, tmp_path: Path) -> None:
        like = 'url = "thing://b"\noptions = { like = "a" }'
        stores = Stores(settings(tmp_path, a='url = "thing://a"', b=like))
        assert stores.get("b").other is stores.get("a")

    def test_siblings_that_need_one_another_are_refused(self, tmp_path: Path) -> None:
        def like(name: str) -> str:
            return f'url = "thing://x"\noptions = {{ like = "{name}" }}'

        stores = Stores(settings(tmp_path, a=like("b"), b=like("a")))
        with pytest.raises(Refused, match="store a needs itself to be opened"):
            stores.get("a")

    def test_all_are_closed_although_one_is_stuck(self, tmp_path: Path) -> None:
        stuck = 'url = "thing://x"\noptions = { stuck = true }'
        stores = Stores(settings(tmp_path, a='url = "thing://a"', b=stuck, c=stuck))
        opened = [stores.get(name) for name in "abc"]
        with pytest.raises(OSError, match="c is stuck"):
            stores.close()
        assert [store.closed for store in opened] == [1, 1, 1]
        stores.close()
        assert [store.closed for store in opened] == [1, 1, 1]

    def test_a_forked_child_opens_its_own(self, tmp_path: Path) -> None:
        stores = Stores(settings(tmp_path, a='url = "thing://a"'))
        mine = stores.get("a")
        child = os.fork()
        if child == 0:
            theirs = stores.get("a")
            stores.close()
            os._exit(0 if theirs is not mine and mine.closed == 0 and theirs.closed == 1 else 1)
        assert waited(child) == 0
        assert stores.get("a") is mine


def test_what_is_missing_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(MigratorError, match="NOT_SET"):
        open_store(settings(tmp_path, a='url = "mongodb://${NOT_SET}/d"'), "a")


def test_importing_it_loads_no_driver_and_no_alembic() -> None:
    code = (
        "import sys, migrator.bootstrap, migrator.revisions\n"
        "heavy = {'alembic', 'sqlalchemy', 'pymongo', 'psycopg', 'importlib.metadata'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
