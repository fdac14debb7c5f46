"""New scripts: drafts run as they stand and declare what was meant."""

from __future__ import annotations

import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from migrator.errors import Failed, Refused
from migrator.model.layouts import item, item_collection, written
from migrator.model.move import At, Layout, Move, tables
from migrator.model.shape import ForeignKey, TableShape
from migrator.revisions import FromSql, NewScript, load, new
from migrator.revisions.new import slug
from migrator.revisions.source import quoted

STORES = ("shop", "docs")


def fk(column: str, table: str, *refers_to: str) -> ForeignKey:
    return ForeignKey((column,), table, refers_to)


PLAYER = TableShape("player", ("username", "score"), ("username",))
GAME = TableShape(
    "game",
    ("id", "first_player", "second_player"),
    ("id",),
    (fk("first_player", "player", "username"), fk("second_player", "player", "username")),
)
ROUND = TableShape(
    "round", ("game_id", "number", "moves"), ("game_id", "number"), (fk("game_id", "game"),)
)
SHOP = (PLAYER, GAME, ROUND)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "migrations"
    folder.mkdir()
    return folder


def drafted(folder: Path, table: str, *shapes: TableShape) -> tuple[Move, str]:
    script = new(
        folder, load(folder), "Out", from_sql=FromSql("shop", table, shapes), stores=STORES
    )
    (move,) = load(folder).moves(script.id, STORES)
    return move, script.text


def tables_of(folder: Path, table: str, *shapes: TableShape) -> object:
    move, _ = drafted(folder, table, *shapes)
    assert move.source is not None
    return move.source.tables


# ---------------------------------------------------------------------------- the script


def test_numbers_and_parents_follow_the_heads(folder: Path) -> None:
    first = new(folder, load(folder), "  First of\n all: \"games\" & 'rounds' ")
    assert (first.id, first.down, first.file.name) == (
        "0001",
        (),
        "0001_first_of_all_games_rounds.py",
    )
    assert first.file.read_text() == first.text
    assert first.text.startswith('"""First of all: "games" & \'rounds\'."""\n')
    with pytest.raises(Refused, match=r"0001_first.*py:7: move is still to be written"):
        load(folder)
    first.file.unlink()
    drafted(folder, "game", *SHOP)
    (folder / "x.py").write_text(
        '"""Odd."""\nfrom migrator import At, Move\nrevision, down_revision = "12", None\n'
        'move = Move("Other", At("docs", "o"), At("docs", "p"))\n'
    )
    second = new(folder, load(folder), "Second", repartition="Game")
    assert (second.id, second.down) == ("0013", ("0001", "12"))
    assert load(folder).heads == ("0013",)


@pytest.mark.parametrize("message", ["", "  ", "a\0b"])
def test_a_message_that_is_none_is_refused(folder: Path, message: str) -> None:
    with pytest.raises(Refused, match="a revision needs a message"):
        new(folder, load(folder), message)


@pytest.mark.parametrize(
    "message",
    ['say """hi"""', '"', "back\\slash \\N", "ends in \\", "Größe 数", "$x ${y} $$", "why?"],
)
def test_every_message_comes_back(folder: Path, message: str) -> None:
    script = new(
        folder, load(folder), message, from_sql=FromSql("shop", "game", SHOP), stores=STORES
    )
    assert load(folder).get(script.id).message in (message, f"{message}.")


def test_slugs_are_short_and_plain() -> None:
    assert slug("Größe, 数!") == "gr_e"
    assert slug("数") == "revision"
    assert slug("word " * 30) == "_".join(["word"] * 10)
    assert slug("x" * 90) == "x" * 50


def test_a_file_that_is_there_is_not_overwritten(folder: Path) -> None:
    graph = load(folder)
    (folder / "0001_one.py").write_text("mine")
    with pytest.raises(Refused, match="the file is there already"):
        new(folder, graph, "One")
    assert (folder / "0001_one.py").read_text() == "mine"


def test_a_folder_that_cannot_be_written_is_one_error(folder: Path) -> None:
    graph = load(folder)
    shutil.rmtree(folder)
    folder.write_text("a file")
    with pytest.raises(Failed, match="it can't be written: "):
        new(folder, graph, "One")


def test_a_full_disk_leaves_no_half_a_script(folder: Path) -> None:
    graph = load(folder)
    # A file the process may write 10 bytes of, as on a full disk.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limit[1]))
    try:
        with pytest.raises(Failed, match="it can't be written: File too large"):
            new(folder, graph, "One")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert list(folder.iterdir()) == []


def test_two_kinds_of_draft_at_once_are_refused(folder: Path) -> None:
    with pytest.raises(Refused, match="from tables or from a class"):
        new(folder, load(folder), "x", from_sql=FromSql("s", "t", ()), repartition="Game")


# ------------------------------------------------------------------------- from foreign keys


def test_the_running_example_is_drafted(folder: Path) -> None:
    move, text = drafted(folder, "game", *SHOP)
    assert move == Move(
        "Game",
        source=At("shop", tables("game", rounds=tables("round", order_by="number"))),
        target=At("docs", "games", representation=["/Game/*"]),
        identifier="id",
        references={"first_player": "Player", "second_player": "Player"},
    )
    assert (
        '    source=At("shop", tables("game", rounds=tables("round", order_by="number"))),' in text
    )


def test_a_table_that_points_here_twice_is_no_part(folder: Path) -> None:
    move, text = drafted(folder, "player", *SHOP)
    assert move.source == At("shop", tables("player"))
    assert "# game points here by first_player and by second_player: it is no part" in text


def test_children_go_to_any_depth(folder: Path) -> None:
    artist = TableShape("Artist", ("ArtistId", "Name"), ("ArtistId",))
    album = TableShape("Album", ("AlbumId", "ArtistId"), ("AlbumId",), (fk("ArtistId", "Artist"),))
    genre = TableShape("Genre", ("GenreId",), ("GenreId",))
    track = TableShape(
        "Track",
        ("TrackId", "AlbumId", "GenreId"),
        ("TrackId",),
        (fk("AlbumId", "Album"), fk("GenreId", "Genre")),
        nullable=frozenset({"AlbumId"}),
    )
    move, text = drafted(folder, "Artist", track, album, artist, genre)
    assert move.source is not None
    assert move.source.tables == tables(
        "Artist",
        Albums=tables("Album", order_by="AlbumId", Tracks=tables("Track", order_by="TrackId")),
    )
    assert move.references == {"Albums[*].Tracks[*].GenreId": "Genre"}
    assert "# rows of Track without AlbumId belong to none and stay behind" in text


def test_a_link_table_becomes_a_list_of_identifiers(folder: Path) -> None:
    playlist = TableShape("playlist", ("id", "name"), ("id",))
    track = TableShape("track", ("id",), ("id",))
    link = TableShape(
        "playlist_track",
        ("playlist_id", "track_id"),
        ("playlist_id", "track_id"),
        (fk("playlist_id", "playlist"), fk("track_id", "track")),
    )
    move, _ = drafted(folder, "playlist", playlist, track, link)
    assert move.source is not None
    assert move.source.tables == tables(
        "playlist", tracks=tables("playlist_track", value="track_id", order_by="track_id")
    )
    assert move.references == {"tracks[*]": "Track"}


def test_a_link_table_that_says_more_becomes_records(folder: Path) -> None:
    order = TableShape("order", ("id",), ("id",))
    product = TableShape("product", ("id",), ("id",))
    line = TableShape(
        "line",
        ("order_id", "product_id", "amount"),
        ("order_id", "product_id"),
        (fk("order_id", "order"), fk("product_id", "product")),
    )
    move, _ = drafted(folder, "order", order, product, line)
    assert move.source is not None
    assert move.source.tables == tables("order", lines=tables("line", order_by="product_id"))
    assert move.references == {"lines[*].product_id": "Product"}


def test_self_references_are_references(folder: Path) -> None:
    employee = TableShape("employee", ("id", "boss"), ("id",), (fk("boss", "employee", "id"),))
    note = TableShape(
        "note", ("id", "of", "answers"), ("id",), (fk("of", "employee"), fk("answers", "note"))
    )
    move, text = drafted(folder, "employee", employee, note)
    assert move.source is not None
    assert move.source.tables == tables("employee", notes=tables("note", order_by="id"))
    assert move.references == {"boss": "Employee"}
    assert "# answers points to note, inside some aggregate" in text


def test_one_row_for_each_parent_is_a_record(folder: Path) -> None:
    user = TableShape("user", ("id",), ("id",))
    by_key = TableShape("profile", ("user_id", "bio"), ("user_id",), (fk("user_id", "user"),))
    by_unique = TableShape(
        "badge", ("id", "user_id"), ("id",), (fk("user_id", "user"),), (("user_id",),)
    )
    assert tables_of(folder, "user", user, by_key, by_unique) == tables(
        "user", profile=tables("profile", one=True), badge=tables("badge", one=True)
    )


def test_odd_names_are_quoted(folder: Path) -> None:
    order = TableShape("Order Details", ("Order ID", "value"), ("Order ID",))
    quote = TableShape(
        'a "b"\n\\', ("id", "Order ID", "x.y"), ("id",), (fk("Order ID", "Order Details"),)
    )
    key = TableShape("key", ("id", "o"), ("id",), (fk("o", "Order Details"),))
    cls = TableShape("class", ("id", "o"), ("id",), (fk("o", "Order Details"),), (("o",),))
    move, text = drafted(folder, "Order Details", order, quote, key, cls)
    assert (move.cls, move.identifier) == ("OrderDetails", "Order ID")
    assert move.source is not None
    assert move.source.tables == tables(
        "Order Details",
        keys=tables("key", order_by="id"),
        children={
            'a "b"\n\\': tables('a "b"\n\\', order_by="id"),
            "class": tables("class", one=True),
        },
    )
    assert '"class": tables("class", one=True)' in text


def test_a_key_of_several_columns_has_no_identifier_field(folder: Path) -> None:
    move, _ = drafted(folder, "round", *SHOP)
    assert move.identifier is None
    assert move.references == {"game_id": "Game"}


def test_a_field_never_hides_a_column(folder: Path) -> None:
    a = TableShape("a", ("id", "bs"), ("id",))
    b = TableShape("b", ("id", "a"), ("id",), (fk("a", "a"),))
    assert tables_of(folder, "a", a, b) == tables("a", b=tables("b", order_by="id"))


def test_a_reference_to_another_column_than_the_key_is_not_declared(folder: Path) -> None:
    a = TableShape("a", ("id", "code"), ("id",), (fk("code", "b", "code"), fk("id", "gone")))
    b = TableShape("b", ("id", "code"), ("id",))
    move, _ = drafted(folder, "a", a, b)
    assert move.references == {}


def test_a_table_that_is_not_there_or_has_no_key_is_refused(folder: Path) -> None:
    with pytest.raises(Refused, match="there is no table 'gmae'\nknown: game, player, round"):
        drafted(folder, "gmae", *SHOP)
    with pytest.raises(Refused, match="table log has no primary key"):
        drafted(folder, "log", TableShape("log", ("x",)))


def test_a_target_that_must_be_chosen_is_refused_until_it_is(folder: Path) -> None:
    stores = ["shop", "docs", "cache"]
    script = new(folder, load(folder), "Out", from_sql=FromSql("shop", "game", SHOP), stores=stores)
    assert "# one of: docs, cache" in script.text
    with pytest.raises(Refused, match="'STORE' is no store of the settings"):
        load(folder).moves(script.id, stores)


# --------------------------------------------------------------------------- repartition


def repartition(folder: Path, target: str, name: str = "Game") -> NewScript:
    (folder / "0001.py").write_text(
        '"""One."""\nfrom migrator import At, Layout, Move\n'
        'revision, down_revision = "0001", None\n'
        f'move = Move("Game", source=At("shop", "game"), target={target})\n'
    )
    return new(folder, load(folder), "Again", repartition=name)


@pytest.mark.parametrize("name", ["Game", "games", "docs:games"])
def test_a_class_is_drafted_from_where_it_lies(folder: Path, name: str) -> None:
    rules = ["/Game/*/rounds[*]", "/Game/*/*"]
    script = repartition(folder, f'At("docs", "games", {rules}, layout="flat")', name)
    (move,) = load(folder).moves(script.id, STORES)
    assert move.source == At("docs", "games", rules, "flat")
    assert move.target == At("docs", "games_0002", rules, "flat")
    assert "# Game lies at docs:games in layout flat now" in script.text


def test_every_choice_of_rules_runs_when_it_is_taken(folder: Path) -> None:
    script = repartition(folder, 'At("docs", "games")')
    lines = script.text.splitlines()
    for choice in ("/Game/*/*", "/Game/*/**", "/Game/*/FIELD[*]"):
        added = [line.replace("# ", "", 1) if f'"{choice}"' in line else line for line in lines]
        if "FIELD" not in choice:
            added = [line for line in added if line.strip() != '"/Game/*",']
        script.file.write_text("\n".join(added))
        assert choice in load(folder).get(script.id).moves[0].target.representation


def test_a_layout_with_options_is_left_to_the_reader(folder: Path) -> None:
    script = repartition(folder, 'At("docs", "games", layout=Layout("item", {"pk": "x"}))')
    assert load(folder).get(script.id).moves[0].target.layout is None
    assert Layout("item").name in script.text


def test_what_no_revision_moved_is_refused(folder: Path) -> None:
    with pytest.raises(Refused, match="named 'Gaem'\nknown: Game at docs:games"):
        repartition(folder, 'At("docs", "games")', "Gaem")


def test_a_collection_of_several_classes_asks_for_one(folder: Path) -> None:
    (folder / "0002.py").write_text(
        '"""Two."""\nfrom migrator import At, Move\nrevision, down_revision = "0002", "0001"\n'
        'move = Move("Player", source=At("shop", "p"), target=At("docs", "games"))\n'
    )
    with pytest.raises(Refused, match="several classes lie at games: Game, Player"):
        repartition(folder, 'At("docs", "games")', "games")


# -------------------------------------------------------------------------------- format


@pytest.mark.parametrize("text", ['a"b', "a\\b", "a\nb\t\r", "\0\x7f", "ü数", "\ud800", "\u2028"])
def test_a_quoted_text_is_that_text(text: str) -> None:
    assert eval(quoted(text)) == text
    assert len(quoted(text).splitlines()) == 1


def test_drafts_are_formatted_as_ruff_would(folder: Path) -> None:
    ruff = Path(sys.executable).with_name("ruff")
    if not ruff.exists():
        pytest.skip("ruff is not installed")
    wide = TableShape(
        "a_table_with_a_long_name",
        ("id",),
        ("one_part_of_the_key", "another_part_of_the_key"),
    )
    below = TableShape(
        "below",
        ("id", *(f"column_{i}" for i in range(9))),
        tuple(f"column_{i}" for i in range(9)),
        (fk("id", wide.name),),
    )
    drafted(folder, "game", *SHOP)
    drafted(folder, wide.name, wide, below)
    new(folder, load(folder), "Again", repartition="Game")
    command = [str(ruff), "format", "--config", "line-length=100", "--diff", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == ""
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "text",
    [
        'At("d", "games")',
        'At("d", "games", ["/Game/*/rounds[*]", "/Game/*"])',
        'At("d", "games", layout="flat")',
        'At("d", "games", ["/Game/*"], Layout("document", {"expires": "ends", "x": [1, true]}))',
        'At("d", "t", layout=item("id:N", expires="a \\"b\\"", read_units=5))',
        'At("d", "t", layout=item_collection("G#{id}"))',
        'At("d", "t", ["/Game/*"], item_collection("G#{id}", sk="{n:05}#{entry}", '
        'entries={"": "G"}, keys=["p", "s"], indexes=[{"name": "one", "hash": "h", '
        '"local": true, "project": "all"}]))',
    ],
)
def test_a_location_is_written_as_it_was_declared(text: str) -> None:
    text = text.replace("true", "True")
    words = {"At": At, "Layout": Layout, "item": item, "item_collection": item_collection}
    assert written(eval(text, words)) == text
