"""The translation of a move: aggregates and keys in both directions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator import (
    AddDefault,
    At,
    ChangeId,
    Convert,
    Drop,
    Id,
    Integer,
    Move,
    Nest,
    Ref,
    ReKey,
    Rename,
    Shard,
    Template,
)
from migrator.errors import DoesNotFit, Terminal
from migrator.model.block import Aggregate
from migrator.model.canonical import equal
from migrator.model.translate import Translation, key_agrees, rewrite_refs
from migrator.model.value import Record

EVOLVE = [
    Nest("name", {"first": "firstName", "last": "lastName"}),
    Convert("score", Integer),
    Rename("games[*].game", "id"),
    Drop("games[*].note"),
]


def translation(*evolve: object, **options: object) -> Translation:
    move = Move("Player", At("a", "p"), evolve=evolve, **options)  # type: ignore[arg-type]
    rules = move.target.rules("Player")
    return Translation(move, rules, rules)


def player(**fields: object) -> Aggregate:
    return Aggregate("mary", {"firstName": "Mary", "score": "7", **fields})


PLAYERS = st.fixed_dictionaries(
    {},
    optional={
        "firstName": st.text("xy"),
        "lastName": st.text("xy"),
        "score": st.one_of(st.none(), st.integers(0, 9).map(str)),
        "games": st.lists(
            st.fixed_dictionaries(
                {}, optional={"game": st.sampled_from(["Game:1", "Game:2"]), "note": st.text("n")}
            ),
            max_size=3,
        ),
    },
)


def test_a_move_without_change_of_shape_is_the_identity() -> None:
    same = translation()
    mary = player()
    assert same.identity
    assert same.forward(mary) == [mary]
    assert same.forward(mary)[0] is mary
    assert same.backward(mary) is mary
    assert same.affects(1) == same.sources(1) == [1]
    assert same.laws().kept
    assert same.residue(mary) is None


@settings(max_examples=100, deadline=None)
@given(PLAYERS, st.one_of(st.none(), PLAYERS))
def test_a_chain_keeps_the_laws_of_its_links(value: Record, other: Record | None) -> None:
    chain = translation(*EVOLVE, references={"games[*].game": "Game:"})
    old = Aggregate("k", value)
    (new,) = chain.forward(old)
    assert equal(chain.backward(new, old).value, value)
    unrelated = None if other is None else Aggregate("k", other)
    (again,) = chain.forward(chain.backward(new, unrelated))
    assert equal(again.value, new.value)


def test_each_step_back_sees_the_old_value_in_its_own_shape() -> None:
    chain = translation(Rename("a", "b"), Drop("b", archive=True))
    old = Aggregate(1, {"a": 5, "c": 6})
    (new,) = chain.forward(old)
    assert new.value == {"c": 6}
    assert chain.backward(new, old).value == old.value
    assert chain.archives
    assert chain.residue(old) == {"1": {"b": 5}}
    assert chain.backward(new, None, chain.residue(old)).value == old.value
    assert chain.backward(new, Aggregate(1, {"a": 7}), chain.residue(old)).value == {"a": 7, "c": 6}


def test_references_are_declared_by_path() -> None:
    chain = translation(references={"team": "Team", "games[*].game": "Game:"})
    old = player(team=4, games=[{"game": "Game:a:b"}, {"game": None}, {}], text="Game:1")
    (new,) = chain.forward(old)
    assert new.value["team"] == Ref("Team", 4)
    assert new.value["games"] == [{"game": Ref("Game", "a:b")}, {"game": None}, {}]
    assert new.value["text"] == "Game:1"
    assert equal(chain.backward(new).value, old.value)
    assert equal(chain.forward(new)[0].value, new.value)
    assert equal(chain.backward(new, new).value, new.value), "it was a reference before"


@pytest.mark.parametrize("game", ["1", "Player:1", 1, ["Game:1"]])
def test_what_is_not_the_declared_reference_does_not_fit(game: object) -> None:
    chain = translation(references={"games[*].game": "Game:"})
    with pytest.raises(DoesNotFit) as error:
        chain.forward(player(games=[{"game": game}]))
    assert (error.value.key, error.value.path) == ("mary", "games[0].game")
    assert error.value.where == "Player:mary"


def test_a_reference_that_would_not_come_back_does_not_fit() -> None:
    chain = translation(references={"team": "Team:"})
    with pytest.raises(DoesNotFit, match="int32"):
        chain.backward(Aggregate(1, {"team": Ref("Team", 4)}))
    with pytest.raises(DoesNotFit, match="not a reference"):
        chain.backward(Aggregate(1, {"team": "Team:4"}))


def test_keys_are_mapped_in_both_directions() -> None:
    chain = translation(Rename("login", "user"), ChangeId("user", keep="oldId"))
    old = Aggregate(17, {"login": "mary"}, expires=5)
    (new,) = chain.forward(old)
    assert (new.id, new.expires) == ("mary", 5)
    assert chain.affects(17, old.value) == ["mary"]
    assert chain.sources("mary", new.value) == [17]
    assert chain.backward(new, old) == old
    assert chain.backward(new) == old


def test_a_key_that_comes_from_the_value_needs_the_value() -> None:
    chain = translation(ChangeId("user", keep="oldId"))
    assert chain.changes_key
    for ask in (chain.affects, chain.sources):
        with pytest.raises(Terminal, match="Player:17") as error:
            ask(17)
        assert error.value.hint


def test_an_error_names_the_block_it_was_asked_for() -> None:
    chain = translation(ChangeId("user", keep="oldId"), Convert("score", Integer))
    with pytest.raises(DoesNotFit) as error:
        chain.forward(Aggregate(17, {"user": "mary", "score": "x"}))
    assert (error.value.key, error.value.path) == (17, "score")
    assert str(error.value).startswith("Player:17: score is text")


def test_the_laws_of_a_chain_say_which_link_breaks_them() -> None:
    laws = translation(Rename("a", "b"), AddDefault("level", 1), Drop("x")).laws()
    assert laws.returns.kept
    assert laws.survives.broken.startswith("add level, 1 where there is none: a rollback loses")
    assert "drop x" in laws.remark


def test_references_are_rewritten_at_declared_paths_only() -> None:
    def mapping(ref: Ref) -> Ref:
        return Ref("Match", f"new {ref.id}") if ref.cls == "Game" else ref

    old = Aggregate(1, {"g": [Ref("Game", 1), None, "Game:1", Ref("Team", 1)], "h": Ref("Game", 1)})
    new = rewrite_refs(old, ["g[*]", "missing"], mapping)
    assert new.value["g"] == [Ref("Match", "new 1"), None, "Game:1", Ref("Team", 1)]
    assert new.value["h"] == Ref("Game", 1)
    assert rewrite_refs(old, ["g[*]"], lambda ref: ref) is old


@pytest.mark.parametrize(
    ("id", "value", "agrees"),
    [
        (1, {"id": 1}, True),
        (1, {"id": 1.0}, False),
        (1, {"id": "1"}, False),
        (1, {}, False),
        ("", {"id": None}, False),
    ],
)
def test_key_and_identifier_agree_in_value_and_kind(
    id: object, value: Record, agrees: bool
) -> None:
    assert key_agrees(Aggregate(id, value), "id") is agrees
    assert key_agrees(Aggregate(id, {"a": value}), "a.id") is agrees


ALONE = [
    [ReKey([Shard(4), Id()])],
    [ReKey(Template("{s:02}.{}", {"s": Shard(16)}))],
    [ReKey("GAME#{}"), Nest("n", {"a": "b"}), ReKey(["{}", Shard(3)], keep="was")],
    [Rename("a", "c")],
]


@pytest.mark.parametrize("evolve", ALONE)
def test_keys_that_follow_from_one_another_do_so_without_the_aggregate(
    evolve: list[object],
) -> None:
    made = translation(*evolve)
    assert made.key_alone
    for id in ("mary", "", "a#b.c"):
        (new,) = made.forward(Aggregate(id, {"b": 1}))
        assert equal(made.key_onward(id), new.id)
        assert made.key_back(new.id) == id


def test_a_key_that_none_leads_to_is_refused_where_keys_follow_from_one_another() -> None:
    made = translation(ReKey([Shard(4), Id()]))
    (new,) = made.forward(player())
    assert isinstance(new.id, list)
    for wrong in ("mary", [9, "mary"], [new.id[0], "mary", "x"]):
        with pytest.raises(DoesNotFit, match="Player:"):
            made.key_back(wrong)


@pytest.mark.parametrize(
    "evolve",
    [
        ChangeId("score", keep="was"),
        ReKey(["score", Id()]),
        ReKey([Shard(4, "score"), Id()]),
        ReKey("score", was="id"),
        ReKey(Shard(4), keep="was"),
    ],
)
def test_keys_that_follow_values_do_not_follow_from_one_another(evolve: object) -> None:
    assert not translation(evolve).key_alone
