"""A revision that was planned live is carried out live, whichever words begin it."""

from __future__ import annotations

import pytest

from tests.cli.kit import Project, one_line


def is_live(shop: Project) -> bool:
    (run,) = shop.done("status", "0001", "--format", "json").json
    return run["live"] is not None


def test_a_revision_is_applied_live_where_its_last_plan_was(shop: Project) -> None:
    told = one_line(shop("mirror", "0001"), 3, "refused")
    assert "migrator apply 0001 --live --until prepared" in told
    shop.done("plan", "0001", "--live")
    shop.done("apply", "0001", "--until", "prepared", "--yes")
    assert is_live(shop)
    shop.done("apply", "0001", "--live", "--until", "shadow_read", "--yes")


@pytest.mark.parametrize(("words", "live"), [([], False), (["--live"], True)])
def test_a_revision_without_a_plan_is_at_rest_unless_said(
    shop: Project, words: list[str], live: bool
) -> None:
    shop.done("apply", "0001", "--until", "prepared", "--yes", *words)
    assert is_live(shop) is live
    assert shop("apply", "0001", "--until", "backfilled", "--live").code == (0 if live else 3)


def test_a_plan_at_rest_is_not_carried_out_live(shop: Project) -> None:
    shop.done("plan", "0001", "--live", "-o", "plan.json")
    shop.done("plan", "0001", "-o", "plan.json")
    told = one_line(shop("apply", "plan.json", "--live"), 3, "refused")
    assert "what is written meanwhile is not followed" in told
    shop.done("plan", "0001", "--live")
    shop.done("plan", "0001")  # the latest counts
    shop.done("apply", "0001", "--until", "prepared", "--yes")
    assert not is_live(shop)
