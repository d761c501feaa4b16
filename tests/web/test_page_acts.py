"""What can be done on the dashboard: tail, look at a message, copy it, publish, purge, delete.

And what it says while the broker is away. Each test has queues of its own.
"""

import json
import re
from collections.abc import Iterator
from itertools import pairwise

import pytest
from playwright.sync_api import Locator, Page, expect

import mqks
import mqks.testing
from tests.web.browser import PATIENCE, PHONE, Pages, chromium, keep, pages
from tests.web.staging import PROGRESS, progress

__all__ = ["chromium", "pages"]  # fixtures

expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mqks.testing.Broker]:
    with mqks.testing.broker(http=True, data=tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture
def mq(broker: mqks.testing.Broker) -> Iterator[mqks.Client]:
    with mqks.Client(broker.url) as client:
        yield client
        for queue in client.stats()["queues"]:
            client.delete_queue(queue)


def at(broker: mqks.testing.Broker, view: str) -> str:
    return f"{broker.http_url}/{view}"


def ready(mq: mqks.Client, queue: str) -> int:
    count: int = mq.stats()["queues"][queue]["ready"]
    return count


def shade(page: Page, place: str) -> float:
    """Opacity of a node, with that of all that it is in."""
    opacity: float = page.locator(place).first.evaluate(
        """node => {
            let product = 1;
            for (; node instanceof Element; node = node.parentNode) product *= getComputedStyle(node).opacity;
            return product;
        }"""
    )
    return opacity


def copy(press: Locator) -> None:
    """Until it says so, which it does for a moment only: who looks now and then may miss it."""
    press.evaluate(
        """press => {
            window.copied = new Promise((resolve) => {
                const look = () => press.textContent === "Copied" && resolve();
                new MutationObserver(look).observe(press, {childList: true});
            });
        }"""
    )
    press.click()
    press.page.evaluate("copied")


def clipboard(page: Page) -> str:
    words: str = page.evaluate("navigator.clipboard.readText()")
    return words


# ── messages ──

DATA = '{"id":12345678901234567890,"tags":[],"deep":{"a":[1,"two, \\"three\\""]}}'
PRETTY = """{
  "id": 12345678901234567890,
  "tags": [],
  "deep": {
    "a": [
      1,
      "two, \\"three\\""
    ]
  }
}"""


def watching(page: Page, mq: mqks.Client, event: str) -> None:
    """Until the tail hears, and nothing is on its way: what was published before it began is not shown."""
    row = page.locator(".messages li", has_text=event)
    while not row.count():
        mq.publish(event, "are you there?", confirm=True)
        page.wait_for_timeout(50)
    mq.publish(event, "there you are", confirm=True)
    expect(row.first).to_contain_text("there you are")


def test_tail(broker: mqks.testing.Broker, mq: mqks.Client, pages: Pages) -> None:
    page = pages.open(at(broker, "#/tail?mask=user.*.connected"))
    expect(page.get_by_label("Events")).to_have_value("user.*.connected")
    watching(page, mq, "user.0.connected")
    mq.publish("user.1.disconnected", "no", confirm=True)
    id = mq.publish("user.1.connected", DATA, confirm=True)
    rows = page.locator(".messages li")
    expect(rows.first).to_contain_text("user.1.connected")
    expect(rows.filter(has_text="disconnected")).to_have_count(0)

    rows.first.get_by_role("button").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading")).to_have_text("user.1.connected")
    expect(dialog.get_by_label("Data")).to_have_text(PRETTY, use_inner_text=True)
    copy(dialog.get_by_role("button", name="Copy as nc line"))
    assert clipboard(page) == f"{id} publish user.1.connected {DATA}"
    keep(page, "message")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(rows.first.get_by_role("button")).to_be_focused()


def test_tail_of_another_mask_and_pause(broker: mqks.testing.Broker, mq: mqks.Client, pages: Pages) -> None:
    page = pages.open(at(broker, "#/tail"), width=PHONE)
    watching(page, mq, "e.0")
    page.get_by_label("Events").fill("a.* b.*")
    page.keyboard.press("Enter")
    expect(page.locator(".messages li")).to_have_count(0)
    expect(page).to_have_url(at(broker, "#/tail?mask=a.*&mask=b.*"))
    watching(page, mq, "b.0")
    page.get_by_role("button", name="Pause").click()
    shown = page.locator(".messages li").count()
    mq.publish("a.1", "unseen", confirm=True)
    expect(page.get_by_text("1 of them not shown")).to_be_visible()
    assert page.locator(".messages li").count() == shown
    page.get_by_role("button", name="Go on").click()
    mq.publish("a.2", "seen", confirm=True)
    expect(page.locator(".messages li").first).to_contain_text("seen")


def test_a_long_message_is_shown_whole(broker: mqks.testing.Broker, mq: mqks.Client, pages: Pages) -> None:
    mq.rebind("long", ["long.story"])
    mq.publish("long.story", "x" * 50_000 + "the end", confirm=True)
    page = pages.open(at(broker, "#/queue/long"))
    page.locator(".messages li button").click()
    expect(page.get_by_role("dialog").get_by_label("Data")).to_contain_text("the end")
    copy(page.get_by_role("button", name="Copy data"))
    assert clipboard(page) == "x" * 50_000 + "the end"


CONTROLS = "hello\rz delete_queue --confirm billing\x1b[201~"


def test_control_characters_are_seen_and_never_pasted(
    broker: mqks.testing.Broker, mq: mqks.Client, pages: Pages
) -> None:
    """In a terminal a carriage return ends a line: what comes after it would be a request."""
    mq.rebind("odd", ["odd.data"])
    mq.publish("odd.data", CONTROLS, confirm=True)
    page = pages.open(at(broker, "#/queue/odd"))
    shown = r"hello\rz delete_queue --confirm billing\x1b[201~"
    expect(page.locator(".messages li")).to_contain_text(shown)
    page.locator(".messages li button").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Data")).to_have_text(shown)
    expect(dialog.get_by_label("As a line for nc")).to_have_text(re.compile("cannot be typed"))
    expect(dialog.get_by_role("button", name="Copy as nc line")).to_be_disabled()
    copy(dialog.get_by_role("button", name="Copy data"))
    assert clipboard(page) == json.dumps(CONTROLS)
    keep(page, "controls")


def test_peeking_takes_nothing(broker: mqks.testing.Broker, mq: mqks.Client, pages: Pages) -> None:
    mq.rebind("seen", ["to.see"])
    mq.publish_many(("to.see", f"number {number}") for number in range(25))
    page = pages.open(at(broker, "#/queue/seen"))
    expect(page.locator(".messages li")).to_have_count(20)
    expect(page.locator(".messages li").first).to_contain_text("number 0")
    expect(page.get_by_text("The first 20 of 25.")).to_be_visible()
    stats = mq.stats()["queues"]["seen"]
    assert (stats["ready"], stats["unacked"], stats["delivered"]) == (25, 0, 0)


# ── acts ──


def test_publish(broker: mqks.testing.Broker, mq: mqks.Client, pages: Pages) -> None:
    with mq.consume("got", ["by.hand"]) as got:
        page = pages.open(at(broker, "#/queue/got"))
        page.get_by_role("link", name="Publish by.hand").click()
        expect(page.get_by_label("Event")).to_have_value("by.hand")
        page.get_by_label("Data").fill('{\n  "id": 12345678901234567890\n}')
        page.get_by_label("Id", exact=True).fill("mine-1")
        page.get_by_role("button", name="Publish").click()
        expect(page.locator(".good")).to_have_text("The broker has it, as mine-1.")
        message = got.get(timeout=PATIENCE / 1000)
        assert message and (message.id, message.data) == ("mine-1", '{ "id": 12345678901234567890 }')

        page.get_by_label("Data").fill("  blanks stay  \n")
        page.get_by_label("Id", exact=True).fill("mine-2")
        page.get_by_role("button", name="Publish").click()
        message = got.get(timeout=PATIENCE / 1000)
        assert message and (message.id, message.data) == ("mine-2", "  blanks stay  ")

        page.get_by_label("Data").fill("two\nlines")
        page.get_by_role("button", name="Publish").click()
        expect(page.locator(".bad")).to_contain_text("one line")


def test_what_the_broker_refuses_is_said(broker: mqks.testing.Broker, pages: Pages) -> None:
    pages.expect_complaints()  # a browser logs each answer that is not 200
    page = pages.open(at(broker, "#/publish?event=two%20words"))
    page.get_by_label("Data").fill("x")
    page.get_by_role("button", name="Publish").click()
    expect(page.locator(".bad")).not_to_be_empty()


def test_purge_asks_first(broker: mqks.testing.Broker, mq: mqks.Client, pages: Pages) -> None:
    mq.rebind("heap", ["thing"])
    mq.publish_many(("thing", str(number)) for number in range(12))
    page = pages.open(at(broker, "#/queue/heap"))
    page.get_by_role("button", name="Purge …").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("12 messages that wait in it will be gone")
    sure = dialog.get_by_role("button", name="Purge")
    expect(sure).to_be_disabled()
    dialog.get_by_role("textbox").fill("hea")
    expect(sure).to_be_disabled()
    keep(page, "purge")
    dialog.get_by_role("button", name="Leave it as it is").click()
    assert ready(mq, "heap") == 12

    page.get_by_role("button", name="Purge …").click()
    dialog.get_by_role("textbox").fill("heap")
    page.keyboard.press("Enter")
    expect(page.get_by_text("12 messages purged.")).to_be_visible()
    expect(page.get_by_text("Nothing waits.")).to_be_visible()
    assert ready(mq, "heap") == 0


def test_delete_asks_first(broker: mqks.testing.Broker, mq: mqks.Client, pages: Pages) -> None:
    pages.expect_complaints()  # a question about it may be on its way when it is gone
    mq.rebind("a/b", ["thing"])
    page = pages.open(at(broker, "#/queue/a%2Fb"), width=PHONE)
    page.get_by_role("button", name="Delete …").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox").fill("a/b")
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("Deleted.")).to_be_visible()
    assert "a/b" not in mq.stats()["queues"]
    expect(page.get_by_role("button", name="Delete …")).to_be_hidden()
    expect(page.locator("main .figures").first).to_be_hidden()


def test_a_queue_that_is_not_there(broker: mqks.testing.Broker, pages: Pages) -> None:
    pages.expect_complaints()
    page = pages.open(at(broker, "#/queue/nowhere"))
    expect(page.get_by_text("There is no such queue")).to_be_visible()
    expect(page.get_by_role("button", name="Purge …")).to_be_hidden()


def test_a_queue_that_ends_while_one_looks(broker: mqks.testing.Broker, mq: mqks.Client, pages: Pages) -> None:
    """Nothing is left of its figures; when it is there again, so are they."""
    pages.expect_complaints()
    mq.rebind("brief", ["brief.news"])
    mq.publish("brief.news", "1", confirm=True)
    page = pages.open(at(broker, "#/queue/brief"))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    ready = page.locator("main .figures.large dd").nth(2)
    expect(ready).to_have_text("1")
    mq.delete_queue("brief")
    expect(page.get_by_text("There is no such queue (any more).")).to_be_visible()
    expect(ready).to_be_hidden()
    expect(page.locator(".messages")).to_be_hidden()
    questions = [url for url in asked if "/api/queues/" in url]
    expect(page.locator("#sentence")).to_contain_text("No queues")
    assert [url for url in asked if "/api/queues/" in url] == questions  # nobody goes on asking
    mq.rebind("brief", ["brief.news"])
    mq.publish_many(("brief.news", str(number)) for number in range(3))
    expect(ready).to_have_text("3")
    expect(page.get_by_text("There is no such queue")).to_have_count(0)


def test_a_question_does_not_outlive_its_view(broker: mqks.testing.Broker, mq: mqks.Client, pages: Pages) -> None:
    mq.rebind("stays", ["thing"])
    page = pages.open(at(broker, "#/tail"))
    page.evaluate("location.hash = '#/queue/stays'")
    page.get_by_role("button", name="Delete …").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Tail")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_no_such_view(broker: mqks.testing.Broker, pages: Pages) -> None:
    page = pages.open(at(broker, "#/nowhere"))
    heading = page.get_by_role("heading", level=1)
    for place in ("constructor", "__proto__", "queue", "queue/", "tail/x", "Tail", "<b>", "nowhere"):
        page.evaluate("hash => location.hash = hash", f"#/{place}")
        expect(page.locator("main code")).to_have_text(f"#/{place}".replace("<b>", "%3Cb%3E"))
        expect(heading).to_have_text("No such page")
        assert page.title().endswith("No such page · MQKS")
        expect(page.locator("[aria-current]")).to_have_count(0)
    expect(page.locator("#about")).to_contain_text("up")
    keep(page, "no-such-page")
    page.get_by_role("link", name="Start page").click()
    expect(heading).to_have_text("Overview")
    page.evaluate("location.hash = '#/tail/'")
    expect(heading).to_contain_text("Tail")


# ── when the broker goes and comes ──


def test_lost_and_found(broker: mqks.testing.Broker, mq: mqks.Client, pages: Pages) -> None:
    """Old figures are grey, and it is said; after the restart they are true again by themselves."""
    pages.expect_complaints()
    mq.rebind("kept", ["thing"])
    mq.publish_many(("thing", str(number)) for number in range(5))
    mq.publish(PROGRESS, progress("archive", position=1_234_567), confirm=True)
    page = pages.open(broker.http_url)
    row = page.locator(".queues tbody tr", has_text="kept")
    expect(row.locator("td").nth(2)).to_have_text("5")
    broker.stop()
    try:
        expect(page.get_by_text(re.compile("Connection lost, trying again. These are the figures of"))).to_be_visible()
        expect(page.locator("body")).to_have_class("stale")
        assert 0.9 < shade(page, ".flows .detail") < 1  # grey, and yet to be read
        assert 0.9 < shade(page, ".queues td") < 1
        assert page.title() == "✕ lost · Overview · MQKS"
        expect(row.locator("td").nth(2)).to_have_text("5")
        keep(page, "lost")
    finally:
        broker.start()
    mq.publish("thing", "6", confirm=True)
    expect(row.locator("td").nth(2)).to_have_text("6")
    expect(page.locator("body")).not_to_have_class("stale")
    expect(page.get_by_text("Connection lost")).to_have_count(0)
    expect(page.locator("#sentence")).to_contain_text("archive")  # what the pipeline said is read back


def test_said_aloud_only_when_it_is_another(broker: mqks.testing.Broker, mq: mqks.Client, pages: Pages) -> None:
    """A reader hears of news, not of each second."""
    page = pages.open(broker.http_url)
    page.evaluate(
        """() => {
            window.heard = [];
            const news = document.getElementById("news");
            new MutationObserver(() => heard.push(news.textContent)).observe(news, {childList: true});
        }"""
    )
    mq.rebind("alone", ["thing"])
    mq.publish("thing", "1", confirm=True)
    sentence = page.locator("#sentence")
    expect(sentence).to_contain_text("alone has had no consumer for")
    for _ in range(2):
        expect(sentence).not_to_have_text(sentence.inner_text(), use_inner_text=True)
    heard = [re.sub(r"\d+", "", words) for words in json.loads(page.evaluate("JSON.stringify(heard)"))]
    assert any("alone" in words for words in heard)
    assert all(before != after for before, after in pairwise(heard))  # but for their figures
