"""The page of a report as a browser shows it: Chromium, where the Debian package is installed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from migrator.drill.page import page
from migrator.drill.report import Kill, Report
from tests.drill.test_page import HOSTILE, PASSED, REPLAYED, failed

_PATIENCE = 60_000.0  # milliseconds
_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    found = shutil.which("chromium")
    if found is None:
        message = "no chromium here (install the package: apt-get install chromium)"
        if os.environ.get("MIGRATOR_REQUIRE_SERVICES"):
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
    with sync_playwright() as playwright:
        # Without a sandbox: tests may run as root, and the page is our own.
        options = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=found, args=options, timeout=_PATIENCE)
        yield browser
        browser.close()


class Shown:
    """A report in a window, and what the browser had to say about it."""

    def __init__(self, browser: Browser, folder: Path, report: Report, width: int) -> None:
        file = folder / "report.html"
        file.write_text(page(report), encoding="utf-8")
        self.asked: list[str] = []
        self.errors: list[str] = []
        window = browser.new_context(viewport={"width": width, "height": 800})
        window.set_default_timeout(_PATIENCE)
        self.page: Page = window.new_page()
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda said: self.errors.append(said.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: self.errors.append(dialog.message))
        self.page.goto(file.as_uri())
        self.file = file

    def assert_alone(self) -> None:
        """It asked for nothing but itself, ran nothing, and is no wider than its window."""
        assert self.asked == [self.file.as_uri()]
        assert self.errors == []
        assert self.page.evaluate(_WIDE) <= 0


@pytest.mark.parametrize("width", [400, 1280])
def test_a_report_stands_alone_and_fits_its_window(
    chromium: Browser, tmp_path: Path, width: int
) -> None:
    shown = Shown(chromium, tmp_path, PASSED, width)
    shown.assert_alone()
    assert "passed" in shown.page.locator(".verdict.good").inner_text().lower()
    line = shown.page.locator("svg").first
    assert line.is_visible()
    assert {"1", "2", "mirror †", "writer 0 †"} <= set(line.locator("text").all_text_contents())
    assert line.locator("rect.stage, rect.swap").count() == len(PASSED.stages)
    assert "1 copy; 2 cut over" in shown.page.locator("body").inner_text()
    shown.page.context.close()


def test_names_of_what_was_killed_are_read_in_the_dark_too(
    chromium: Browser, tmp_path: Path
) -> None:
    kills = [Kill(at=3.0 + n / 5, process="writer 0", again=9.0) for n in range(4)]
    shown = Shown(chromium, tmp_path, msgspec.structs.replace(PASSED, kills=kills), 1280)
    shown.page.emulate_media(color_scheme="dark")
    names = shown.page.locator("svg text.killed")
    boxes = [box for name in names.all() if (box := name.bounding_box()) is not None]
    assert len(boxes) == 2  # of two more there is the line
    assert boxes[0]["y"] >= boxes[1]["y"] + boxes[1]["height"] - 2  # one above the other
    for part, style in (("text.killed", "fill"), (".kill", "stroke"), (".lag", "stroke")):
        colour = f"e => getComputedStyle(e).{style}.match(/\\d+/g)"
        rgb = [int(n) / 255 for n in shown.page.locator(f"svg {part}").first.evaluate(colour)]
        light = [n / 12.92 if n <= 0.04 else ((n + 0.055) / 1.055) ** 2.4 for n in rgb]
        luminance = sum(a * b for a, b in zip((0.2126, 0.7152, 0.0722), light, strict=True))
        assert (luminance + 0.05) / (0.009 + 0.05) >= 4.5, part  # WCAG's ratio to #14181f
    shown.page.context.close()


def test_what_was_replayed_is_seen_in_a_narrow_window(chromium: Browser, tmp_path: Path) -> None:
    shown = Shown(chromium, tmp_path, REPLAYED, 400)
    shown.assert_alone()
    assert shown.page.get_by_role("heading", name="Replayed").is_visible()
    body = shown.page.locator("body").inner_text()
    assert "1,200 lines of 34 keys" in body
    row = shown.page.get_by_role("row", name="Player is not of this move")
    assert row.locator("td").nth(1).inner_text() == "3"
    shown.page.context.close()


def test_text_of_the_data_is_text_in_a_browser_too(chromium: Browser, tmp_path: Path) -> None:
    shown = Shown(chromium, tmp_path, failed(), 400)
    shown.assert_alone()
    assert shown.page.locator("script").count() == 0
    assert HOSTILE[:25] in shown.page.locator(".verdict.bad").inner_text()
    # What is wrong is named: by the comparison of both sides, and by the history.
    for place in (
        "h2:text-is('Both sides compared') + .scroll + .scroll",
        "h2:text-is('Against what was acknowledged') + .scroll",
    ):
        assert shown.page.locator(place).is_visible()
        assert HOSTILE[:25] in shown.page.locator(place).inner_text()
    shown.page.context.close()
