"""migrator.toml: what it may hold, how it is refused, and that no secret ever shows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from migrator.errors import MigratorError, Refused, Terminal
from migrator.model.url import mask
from migrator.settings import find, load_settings

SECRET = "hunter2"


def write(folder: Path, text: str) -> Path:
    file = folder / "migrator.toml"
    file.write_text(text, "utf-8")
    return file


def store(folder: Path, body: str, name: str = "shop"):
    file = write(folder, f"[env.dev.stores.{name}]\n{body}\n")
    return load_settings(file).store(name)


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        """
        migrations = "moves"
        default_env = "dev"

        [env.dev]
        control = "postgresql://m@db/control"
        [env.dev.stores.docs]
        url = "embedded:///docs.db"

        [env.staging]
        staging = true
        [env.staging.stores.docs]
        url = "mongodb://db/games"
        options = { authSource = "admin", pool = 4 }
        """,
    )
    dev, staging = load_settings(file), load_settings(file, "staging")
    assert (dev.env, dev.staging, dev.envs) == ("dev", False, ("dev", "staging"))
    assert (dev.migrations, dev.plans) == (tmp_path / "moves", tmp_path / "plans")
    assert dev.control_store().url == "postgresql://m@db/control"
    assert (staging.env, staging.staging) == ("staging", True)
    assert staging.control_store().url == "sqlite:///.migrator/staging.db"
    opened = staging.store("docs")
    assert (opened.name, opened.url, opened.root) == ("docs", "mongodb://db/games", str(tmp_path))
    assert opened.options == {"authSource": "admin", "pool": 4}
    assert opened.secret is None


def test_the_file_is_found_from_a_folder_below(tmp_path: Path) -> None:
    file = write(tmp_path, "")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert find(below) == file


def test_no_file_anywhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"there is no migrator.toml in .*\n.*migrator init"):
        find(tmp_path)


def test_the_only_environment_needs_no_name(tmp_path: Path) -> None:
    assert load_settings(write(tmp_path, "[env.prod]")).env == "prod"


@pytest.mark.parametrize(
    ("text", "env", "message"),
    [
        ("", None, "env: no environment is named"),
        ("[env.a]\n[env.b]", None, "there are several environments: a, b\nchoose one: --env NAME"),
        ("[env.prod]", "prd", "'prd' is no environment (did you mean 'prod'?)\nknown: prod"),
        ('default_env = "x"\n[env.a]', None, "default_env 'x' is no environment\nknown: a"),
        ("[env.a\n", None, "no valid TOML: "),
        ("migration = 'm'\n[env.a]", None, "migration: there is no key 'migration' (did you mean"),
        ("[env.a]\nstage = true", None, "env.a.stage: there is no key 'stage'"),
        ("[env.a]\nstaging = 1", None, "env.a.staging: expected `bool`, got `int`"),
        ("[env.a.stores.s]\nurl = 1", None, "env.a.stores.s.url: expected `str`, got `int`"),
        ("[env.a.stores.s]\nurl = 'shop.db'", None, "env.a.stores.s.url: the URL has no scheme"),
        ("[env.a.stores.s]", None, "env.a.stores.s: object missing required field `url`"),
        ("[env.a.stores]\ns = 'sqlite:///x'", None, "env.a.stores.s: expected `object`, got `str`"),
        (
            "[env.a.stores.s]\nurl = 'sqlite:///x'\nurls = 1",
            None,
            "there is no key 'urls' (did you mean 'url'?)\nknown: url, password, options",
        ),
        (
            "[env.a.stores.s]\nurl = 'sqlite:///x'\npassword = { fil = 'x' }",
            None,
            "env.a.stores.s.password.fil: there is no key 'fil' (did you mean 'file'?)",
        ),
        (
            "[env.a.stores.s]\nurl = 'sqlite:///x'\npassword = {}",
            None,
            'env.a.stores.s.password: it is { file = "..." } or { command = "..." }',
        ),
        ("[env.'a/b']", None, "env.a/b: the name 'a/b' holds more than"),
        ("[env.a.stores.'s:t']\nurl='sqlite:///x'", None, "the name 's:t' holds more than"),
        ("[env.a]\ncontrol = 7", None, "env.a.control: expected `object`, got `int`"),
    ],
)
def test_bad_input_is_refused_by_place(
    tmp_path: Path, text: str, env: str | None, message: str
) -> None:
    with pytest.raises(Refused) as caught:
        load_settings(write(tmp_path, text), env)
    assert message in str(caught.value)
    assert "migrator.toml" in str(caught.value)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "migrator.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(Refused, match="it is no UTF-8 text"):
        load_settings(tmp_path / "migrator.toml")
    with pytest.raises(Refused, match="it can't be read: No such file"):
        load_settings(tmp_path / "other.toml")


def test_an_unknown_store_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path, "[env.dev.stores.docs]\nurl = 'embedded:///d.db'"))
    with pytest.raises(Refused) as caught:
        settings.store("dcos")
    assert str(caught.value) == (
        "'dcos' is no store of [env.dev.stores] (did you mean 'docs'?)\nknown: docs"
    )


class TestSecrets:
    @pytest.mark.parametrize(
        "body",
        [
            'url = "postgresql://app@db/shop"\npassword = "${PW}"',
            'url = "postgresql://app:${PW}@db/shop"',
            'url = "${WHOLE}"',
            'url = "postgresql://app@db/shop"\npassword = { command = "printenv PW" }',
        ],
    )
    def test_a_password_is_fetched_anew_at_every_call(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
    ) -> None:
        def put(password: str) -> None:
            monkeypatch.setenv("PW", password)
            monkeypatch.setenv("WHOLE", f"postgresql://app:{password}@db/shop")

        put("first")
        opened = store(tmp_path, body)
        assert opened.url == "postgresql://app@db/shop"
        assert opened.secret is not None
        assert opened.secret() == "first"
        put("second")
        assert opened.secret() == "second"
        assert "first" not in repr(opened)

    def test_a_password_in_a_file_is_read_anew_and_loses_its_line_end(self, tmp_path: Path) -> None:
        (tmp_path / "pw").write_text(" one \r\n")
        opened = store(tmp_path, 'url = "mongodb://a@h/d"\npassword = { file = "pw" }')
        assert opened.secret is not None
        assert opened.secret() == " one "
        (tmp_path / "pw").write_text("two")
        assert opened.secret() == "two"

    def test_a_variable_in_a_url_needs_no_percent_encoding(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PW", "a@b/%41:")
        opened = store(tmp_path, 'url = "mongodb://app:x%40${PW}@db/shop"')
        assert opened.secret is not None
        assert opened.secret() == "x@a@b/%41:"
        assert opened.url == "mongodb://app@db/shop"

    def test_variables_are_filled_in_url_and_options(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DB_HOST", "db7")
        monkeypatch.setenv("KEY_PW", SECRET)
        opened = store(
            tmp_path,
            'url = "mongodb://${DB_HOST}/shop"\n'
            'options = { tls = { keyPassword = "${KEY_PW}" }, seeds = ["${DB_HOST}", 1],'
            ' plain = "$${KEY_PW}" }',
        )
        assert opened.url == "mongodb://db7/shop"
        assert opened.options == {
            "tls": {"keyPassword": SECRET},
            "seeds": ["db7", 1],
            "plain": "${KEY_PW}",
        }
        assert SECRET not in repr(opened)

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            ('password = "${NOT_SET}"', "store shop: the environment variable NOT_SET is not set"),
            ('password = { file = "none" }', "can't be read: No such file or directory"),
            ('password = { file = "." }', "can't be read: Is a directory"),
            ('password = { file = "binary" }', "is no UTF-8 text"),
            ('password = { command = "no-such-program x" }', "command 'no-such-program' does not"),
            ('password = { command = "" }', "the password command '' does not run: it is empty"),
            (
                "password = { command = \"sh -c 'echo hunter2; exit 3'\" }",
                "failed with exit code 3",
            ),
            ('password = { command = "sh \'" }', "a quote of the password command is not closed"),
        ],
    )
    def test_a_secret_that_cannot_be_had_is_one_clear_error(
        self, tmp_path: Path, body: str, message: str
    ) -> None:
        (tmp_path / "binary").write_bytes(b"\xff")
        opened = store(tmp_path, f'url = "mysql://a@h/d"\n{body}')
        assert opened.secret is not None
        with pytest.raises(Terminal) as caught:
            opened.secret()
        assert message in str(caught.value)
        assert str(caught.value).startswith("store shop: ")
        assert SECRET not in str(caught.value)

    def test_a_command_that_hangs_is_ended(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("migrator.secret.COMMAND_SECONDS", 0.2)
        opened = store(tmp_path, 'url = "mysql://a@h/d"\npassword = { command = "sleep 9" }')
        assert opened.secret is not None
        with pytest.raises(Terminal, match=r"took over 0.2 s"):
            opened.secret()

    @pytest.mark.parametrize(
        "url", ["${NOT_SET}", "mongodb://${NOT_SET}/x", "mongodb://h/${NOT_SET}"]
    )
    def test_a_variable_missing_in_a_url_names_store_and_variable(
        self, tmp_path: Path, url: str
    ) -> None:
        with pytest.raises(Terminal, match=r"^store shop: the environment variable NOT_SET"):
            store(tmp_path, f'url = "{url}"')

    @pytest.mark.parametrize(
        "url",
        [
            f"postgresql://app:{SECRET}@db/shop",
            f"postgresql://app:{SECRET}@/shop",
            f"mongodb://app:x/{SECRET}@db/shop",
            f"mongodb://app:x#{SECRET}@db/shop",
            f"mongodb://app:1?{SECRET}@db/shop",
            f"mongodb://:{SECRET}@db:1,db:2/shop",
            f"mysql://app@db/shop?ssl=1&password={SECRET}",
            f"mysql://app@db/shop?sslPasswd={SECRET}&x=1",
            f"mysql://app@db/shop?aws_session_token={SECRET}#x",
        ],
    )
    def test_no_secret_shows_anywhere(self, tmp_path: Path, url: str) -> None:
        assert SECRET not in mask(url)
        file = write(tmp_path, f'[env.dev.stores.shop]\nurl = "{url}"')
        settings = load_settings(file)
        assert SECRET not in repr(settings)
        try:
            shown = repr(settings.store("shop")) + str(settings.fingerprint_view(["shop"]))
        except MigratorError as error:
            shown = str(error)
        assert SECRET not in shown

    @pytest.mark.parametrize(
        "url",
        [
            "postgresql://app@db:5432/shop",
            "postgresql://[::1]:5432/shop?application_name=a@b",
            "mongodb://db:27017,db2:27017/x?appName=a@b",
            "sqlite:///a@b/c:d.db",
            "redis://db:6379",
        ],
    )
    def test_what_is_no_secret_stays_readable(self, url: str) -> None:
        assert mask(url) == url

    def test_a_password_whose_end_cannot_be_told_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(Refused, match="percent-encoded\nwrite it apart: password"):
            store(tmp_path, 'url = "mongodb://app:x/y@db/shop"')

    def test_two_passwords_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(Refused, match="a password both in the URL and beside it"):
            store(tmp_path, 'url = "mongodb://a:b@h/d"\npassword = "c"')

    def test_a_written_out_password_does_not_show(self, tmp_path: Path) -> None:
        file = write(tmp_path, f'[env.d.stores.s]\nurl = "mongodb://a@h/d"\npassword = "{SECRET}"')
        settings = load_settings(file)
        assert SECRET not in repr(settings) + repr(settings.store("s"))
        secret = settings.store("s").secret
        assert secret is not None
        assert secret() == SECRET


class TestFingerprint:
    def view(self, folder: Path, body: str) -> object:
        file = write(folder, f"[env.dev.stores.shop]\n{body}")
        return load_settings(file).fingerprint_view(["shop"])

    def test_hosts_secrets_and_pools_are_left_out(self, tmp_path: Path) -> None:
        one = self.view(tmp_path, 'url = "postgresql://a:b@db1:1/shop"\noptions = { pool = 1 }')
        two = self.view(tmp_path, 'url = "postgresql://c@db2/shop"\noptions = { pool = 9 }')
        assert one == two

    @pytest.mark.parametrize(
        "body",
        [
            'url = "postgresql://a@db/other"',
            'url = "mysql://a@db/shop"',
            'url = "postgresql://a@db/shop"\noptions = { schema = "x" }',
        ],
    )
    def test_where_the_data_lies_counts(self, tmp_path: Path, body: str) -> None:
        one = self.view(tmp_path, 'url = "postgresql://a@db/shop"')
        assert one != self.view(tmp_path, body)

    def test_a_store_that_the_plan_does_not_use_needs_no_variable(self, tmp_path: Path) -> None:
        file = write(
            tmp_path,
            "[env.e.stores.a]\nurl = 'sqlite:///a.db'\n[env.e.stores.b]\nurl = '${NOT_SET}'",
        )
        assert load_settings(file).fingerprint_view(["a"]) == {
            "env": "e",
            "stores": {"a": {"scheme": "sqlite", "database": "a.db", "options": {}}},
        }


def test_the_project_is_found_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "[env.dev]")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert load_settings().root == Path(os.path.realpath(tmp_path))
