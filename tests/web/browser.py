"""A real browser for tests: Debian's chromium without a window, driven by Playwright; and screenshots of what it shows.

    def test_it(pages: Pages) -> None:
        page = pages.open(broker.http_url, width=PHONE)

What the page complains about on its console fails the test, unless it said `pages.expect_complaints`. A module has one
browser, not the session: Playwright keeps an event loop in the thread of the tests, beside which no other one can run.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Error, Page, sync_playwright

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
PATIENCE = 60_000.0  # ms for what takes a second; a busy machine is slow
DESKTOP, PHONE = 1280, 390
HEIGHT = 900
NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",  # in a container there is nothing to make one of
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Pages:
    """Pages of one test, each like a new user's: no cookies, nothing stored."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._complaints: list[str] = []
        self._expected = False

    def open(
        self,
        url: str | None,
        *,
        width: int = DESKTOP,
        scheme: Literal["light", "dark"] = "light",
        motion: Literal["reduce", "no-preference"] = "reduce",
        beside: Page | None = None,
    ) -> Page:
        """Returns when the figures are there. A page `beside` another is the same user's: they share connections."""
        assert url, "the broker was started without http=True"
        context = (
            beside.context
            if beside
            else self._browser.new_context(
                viewport={"width": width, "height": HEIGHT},
                color_scheme=scheme,
                reduced_motion=motion,
                permissions=["clipboard-read", "clipboard-write"],
            )
        )
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.on("console", self._hear)
        page.on("pageerror", self._note)
        page.goto(url)
        page.wait_for_selector("body:not(.stale)")
        return page

    def expect_complaints(self) -> None:
        """The test takes the broker away: the browser says so."""
        self._expected = True

    def close(self) -> None:
        for context in self._browser.contexts:
            context.close()
        assert self._expected or not self._complaints, self._complaints

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._complaints.append(message.text)

    def _note(self, error: Error) -> None:
        self._complaints.append(str(error))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.fail("the dashboard is tested in a real browser: apt-get install chromium", pytrace=False)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def pages(chromium: Browser) -> Iterator[Pages]:
    opened = Pages(chromium)
    yield opened
    opened.close()


def look(page: Page, *, at_it: bool) -> None:
    """To a browser without a window every page is in front; so it is told."""
    page.evaluate(
        """hidden => {
            Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        not at_it,
    )


def keep_pointing(page: Page) -> None:
    """A hand is never quite still; one that is counts as gone after six seconds, which a busy machine may need."""
    page.evaluate(
        """setInterval(() => {
            const node = [...document.querySelectorAll(":hover")].at(-1);
            node?.dispatchEvent(new PointerEvent("pointermove", {bubbles: true, movementX: 1}));
        }, 500)"""
    )


def keep(page: Page, name: str) -> None:
    """A screenshot of the whole page, to be looked at. For it the browser may make the window small for a moment: then
    the pointer leaves what it was at, so this is nothing to do between pointing and pressing."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)
