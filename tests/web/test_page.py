"""The dashboard in a real browser: each view of a broker at work, live, in dark and light, on a phone, by keyboard."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

import mqks
import mqks.testing
import mqks.web
from tests.web.browser import DESKTOP, PATIENCE, PHONE, Pages, chromium, keep, pages
from tests.web.staging import HOSTILE, PATH, QUEUES, at_work

__all__ = ["chromium", "pages"]  # fixtures

PAGE = Path(mqks.web.__file__).parent / "page"
MOST_BYTES = 100_000
VIEWS = {
    "overview": ("#/", "Overview"),
    "queue": ("#/queue/mail", "mail"),
    "tail": ("#/tail", "Tail"),
    "publish": ("#/publish", "Publish"),
    "pipeline": ("#/pipeline", "Pipeline"),
    "connections": ("#/connections", "Connections"),
    "journal": ("#/journal", "Journal"),
}

expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mqks.testing.Broker]:
    with mqks.testing.broker(http=True, data=tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def mq(broker: mqks.testing.Broker) -> Iterator[mqks.Client]:
    with at_work(broker) as client:
        yield client


def at(broker: mqks.testing.Broker, view: str) -> str:
    return f"{broker.http_url}/{view}"


def filled(page: Page, name: str) -> None:
    """Until what the view is about has come."""
    shown = {
        "overview": ".queues tbody tr",
        "queue": ".messages li",
        "tail": ".messages li",
        "publish": "#event",
        "pipeline": ".plot .bar",
        "connections": "tbody tr",
        "journal": ".figures dd:not(:empty)",
    }
    page.locator(shown[name]).first.wait_for()


def sideways(page: Page) -> int:
    """How far one could scroll to the side."""
    width: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return width


# ── each view ──


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [DESKTOP, PHONE])
def test_views(scheme: Literal["light", "dark"], width: int, broker: mqks.testing.Broker, pages: Pages) -> None:
    page = pages.open(broker.http_url, width=width, scheme=scheme)
    for name, (view, heading) in VIEWS.items():
        page.evaluate("view => location.hash = view", view)
        expect(page.get_by_role("heading", level=1)).to_contain_text(heading)
        filled(page, name)
        assert heading in page.title()
        assert page.get_by_role("main").count() == page.get_by_role("banner").count() == 1
        assert sideways(page) <= 0
        everything_has_a_name(page)
        keep(page, f"{name}-{scheme}-{width}")


def everything_has_a_name(page: Page) -> None:
    """What can be pressed, filled in or seen as a drawing has words; ids are there once; headings skip no level."""
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("button, a, input, textarea, dialog, svg[role]")].filter((node) => {
            const label = node.getAttribute("aria-label") || node.textContent.trim();
            const labelled = node.labels?.length || document.getElementById(node.getAttribute("aria-labelledby"));
            return !label && !labelled && !node.querySelector("title") && getComputedStyle(node).display !== "none";
        }).map((node) => node.outerHTML)"""
    )
    assert unnamed == []
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((node) => node.id)")
    assert len(ids) == len(set(ids))
    levels = page.evaluate("[...document.querySelectorAll('main :is(h1,h2,h3)')].map((node) => +node.tagName[1])")
    assert levels[0] == 1 and all(after - before <= 1 for before, after in pairwise(levels))
    assert page.evaluate("[...document.querySelectorAll('table')].every((table) => table.caption)")


def test_overview(broker: mqks.testing.Broker, pages: Pages) -> None:
    page = pages.open(broker.http_url)
    rows = page.locator(".queues tbody tr")
    expect(rows).to_have_count(len(QUEUES) + 1)
    expect(rows.first).to_contain_text("mail")  # which has trouble
    expect(rows.first).to_contain_text("no consumer for")
    expect(rows.first.locator("td").nth(2)).to_have_text("30")
    expect(page.locator("#sentence a[href='#/queue/mail']")).to_contain_text("30 messages wait")
    links = page.locator("#sentence a").evaluate_all("links => links.map((link) => link.getAttribute('href'))")
    assert links and all(link.startswith("#/") for link in links)
    expect(page.locator("#durability")).to_contain_text(re.compile(r"fsync always · synced .+ · .+ (left|free)"))
    expect(page.locator(".flows .flow").nth(sum(map(len, QUEUES.values())) - 1)).to_be_attached()
    title = page.locator(".flows .flow title", has_text="user.connected → sessions")
    expect(title).to_have_text(re.compile(r"user\.connected → sessions: [1-9][\d.,]* per second"))


def test_width_is_rate(broker: mqks.testing.Broker, pages: Pages) -> None:
    pages.open(broker.http_url).wait_for_function(
        """names => {
            const lines = [...document.querySelectorAll(".flows .flow")];
            const line = (name) => lines.find((line) => line.textContent.startsWith(name));
            const [fast, slow, still] = names.map((name) => Number(line(name)?.getAttribute("stroke-width")));
            return fast > slow && slow > still && still > 0;
        }""",
        arg=["user.connected → sessions", "page.changed → search-index", "mail.wanted → mail"],
    )


def test_names_are_text(broker: mqks.testing.Broker, pages: Pages) -> None:
    """Whatever a name is made of, it is shown as it is, and its page is found."""
    page = pages.open(broker.http_url)
    assert page.locator("img[src=x]").count() == 0
    for name in (HOSTILE, PATH, "очередь:{1}"):
        page.get_by_role("link", name=name, exact=True).first.click()
        expect(page.get_by_role("heading", level=1)).to_have_text(name)
        expect(page.locator(".names")).to_contain_text("user.created")
        assert page.url.endswith(f"#/queue/{quote(name, safe='')}")
        page.get_by_role("link", name="All queues").click()


def test_pipeline(broker: mqks.testing.Broker, pages: Pages) -> None:
    page = pages.open(at(broker, "#/pipeline"))
    job = page.get_by_role("article", name="Job archive")
    expect(job).to_contain_text("running")
    expect(job).to_contain_text("2,311")
    expect(page.locator(".plot .bar").nth(40)).to_be_attached()
    expect(page.get_by_role("table").first).to_contain_text("user.connected")


def test_connections(broker: mqks.testing.Broker, pages: Pages) -> None:
    page = pages.open(at(broker, "#/connections"))
    expect(page.get_by_role("table", name="Consumers").locator("tbody tr")).to_have_count(len(QUEUES))
    expect(page.get_by_role("table", name="Connections").locator("tbody tr")).to_have_count(2)
    page.get_by_role("link", name="billing").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("billing")


# ── live ──


def test_figures_are_live(broker: mqks.testing.Broker, mq: mqks.Client, pages: Pages) -> None:
    """A new queue shows up, and focus and selected text stay where they are meanwhile."""
    page = pages.open(broker.http_url)
    page.get_by_role("link", name="mail", exact=True).first.focus()
    page.evaluate("getSelection().selectAllChildren(document.querySelector('.queues tbody a'))")
    mq.rebind("fresh", ["fresh.news"])
    mq.publish("fresh.news", "1", confirm=True)
    row = page.locator(".queues tbody tr", has_text="fresh")
    expect(row.locator("td").nth(2)).to_have_text("1")
    mq.publish("fresh.news", "2", confirm=True)
    expect(row.locator("td").nth(2)).to_have_text("2")
    assert page.evaluate("document.activeElement.textContent") == "mail"
    assert page.evaluate("String(getSelection())") == "mail"
    mq.delete_queue("fresh")
    expect(row).to_have_count(0)


def test_sorting_and_filter(broker: mqks.testing.Broker, pages: Pages) -> None:
    page = pages.open(broker.http_url)
    names = page.locator(".queues tbody th a")
    expect(names.first).to_have_text("mail")
    head = page.get_by_role("columnheader", name="Queue")
    head.get_by_role("button").focus()
    page.keyboard.press("Enter")
    expect(head).to_have_attribute("aria-sort", "ascending")
    expect(names.last).to_have_text("очередь:{1}")
    page.keyboard.press("Enter")
    expect(head).to_have_attribute("aria-sort", "descending")
    expect(names.first).to_have_text("очередь:{1}")
    page.get_by_role("button", name="By trouble").click()
    expect(names.first).to_have_text("mail")
    page.get_by_label("Filter queues by name").fill("SeArCh")
    expect(names).to_have_text(["search-index"])


def test_theme_is_kept(broker: mqks.testing.Broker, pages: Pages) -> None:
    page = pages.open(broker.http_url, scheme="light")
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    theme = page.get_by_role("button", name=re.compile("^Theme"))
    theme.click()  # light
    assert page.evaluate(paper) == light
    theme.click()  # dark
    dark = page.evaluate(paper)
    assert dark != light
    page.reload()
    expect(theme).to_have_attribute("aria-label", re.compile("Theme: dark"))
    assert page.evaluate(paper) == dark


# ── for everyone ──


def test_by_keyboard(broker: mqks.testing.Broker, pages: Pages) -> None:
    """From the top of the page into a view, with nothing but Tab and Enter; and one always sees where one is."""
    page = pages.open(broker.http_url)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Pipeline":
            break
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    page.keyboard.press("Enter")
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_contain_text("Pipeline")
    expect(heading).to_be_focused()
    expect(page.get_by_role("link", name="Pipeline", exact=True)).to_have_attribute("aria-current", "page")
    page.get_by_role("link", name="Skip to the content").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    assert page.url.endswith("#/pipeline")


def test_size_and_hosts() -> None:
    """It all fits in 100 KB, and nothing comes from elsewhere."""
    files = [path for path in PAGE.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= MOST_BYTES
    for path in files:
        text = path.read_text()
        assert set(re.findall(r"https?://[^\s\"'`]+", text)) <= {"http://www.w3.org/2000/svg"}, path
        assert "innerHTML" not in text, path


DRAWN = """async () => {
  const { lines, bars } = await import("/page/plots.js");
  const place = document.createElement("div");
  place.style.width = "600px";
  document.body.append(place);
  const made = [lines("Rate", {}, 100), bars("Count", "events", 100)];
  place.append(...made.map((one) => one.node));
  const draw = (most) => {
    made[0].update([{ name: "in", values: [0, most / 2], now: most }], 10);
    made[1].update([1, 2].map((part) => ({ key: `${part}`, name: `${part}`, value: (most * part) / 2 })));
  };
  const look = () => ({
    points: place.querySelector("polyline").getAttribute("points"),
    bars: [...place.querySelectorAll(".bar")].map((bar) => bar.getAttribute("height")),
    axis: [...place.querySelectorAll("figure:first-child text")].map((label) => label.textContent),
  });
  const found = [];
  for (const most of [2, 2000]) {
    draw(most);
    found.push(look());
  }
  place.style.width = "300px";
  await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  found.push(look());
  place.remove();
  return found;
}"""


def test_a_plot_follows_its_figures_and_its_place(broker: mqks.testing.Broker, pages: Pages) -> None:
    quiet, busy, narrow = pages.open(at(broker, "#/journal")).evaluate(DRAWN)
    assert quiet["points"] == busy["points"] == "0.0,100.0 278.0,50.0 556.0,0.0"
    assert quiet["bars"] == busy["bars"] == ["50.0", "100.0"]
    assert (quiet["axis"][:3], busy["axis"][:3]) == (["0", "1", "2"], ["0", "1,000", "2,000"])
    assert narrow["points"] == "0.0,100.0 128.0,50.0 256.0,0.0"
