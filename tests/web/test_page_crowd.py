"""The dashboard where there is much of something: tabs, queues, messages a second; and figures of long ago."""

import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Page, expect

import mqks
import mqks.testing
from mqks.web.words import key
from tests.web.browser import PATIENCE, Pages, chromium, keep, keep_pointing, look, pages
from tests.web.staging import STATS, running

__all__ = ["chromium", "pages"]  # fixtures

QUEUES = 230  # the state has 200 of them
TABS = 8  # a browser has six connections to one host
TURN = 1 / 150

expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def broker() -> Iterator[mqks.testing.Broker]:
    with mqks.testing.broker(http=True) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def mq(broker: mqks.testing.Broker) -> Iterator[mqks.Client]:
    """`queue-000` has nothing, each next one has one message more."""
    with mqks.Client(broker.url) as client:
        for number in range(QUEUES):
            client.rebind(f"queue-{number:03}", [f"event.{number}"])
        client.publish_many((f"event.{number}", "x") for number in range(QUEUES) for _ in range(number))
        yield client


def at(broker: mqks.testing.Broker, view: str) -> str:
    return f"{broker.http_url}/{view}"


# ── tabs ──


def test_many_tabs(broker: mqks.testing.Broker, mq: mqks.Client, pages: Pages) -> None:
    """Only the one that is looked at keeps connections, so there is always one for what somebody does."""
    first = page = pages.open(at(broker, "#/tail"))
    for _ in range(TABS - 1):
        look(page, at_it=False)
        page = pages.open(at(broker, "#/tail"), beside=first)
    page.evaluate("location.hash = '#/publish'")
    page.get_by_label("Event").fill("by.hand")
    page.get_by_label("Data").fill("x")
    page.get_by_role("button", name="Publish").click()
    expect(page.locator(".good")).to_contain_text("The broker has it")
    look(first, at_it=True)
    row = first.locator(".messages li", has_text="seen.again")
    while not row.count():
        mq.publish("seen.again", "x", confirm=True)
        first.wait_for_timeout(50)
    expect(first.get_by_text("none while the page was hidden")).to_be_visible()


def test_a_hidden_tab_tells_in_its_title(broker: mqks.testing.Broker, pages: Pages) -> None:
    pages.expect_complaints()
    page = pages.open(broker.http_url)
    expect(page).to_have_title("⚠ Overview · MQKS")
    page.clock.install()
    look(page, at_it=False)
    page.context.set_offline(True)
    page.clock.run_for(16_000)
    expect(page).to_have_title("✕ lost · Overview · MQKS")
    page.context.set_offline(False)
    page.clock.run_for(16_000)
    expect(page).to_have_title("⚠ Overview · MQKS")


# ── queues ──


def names(page: Page) -> list[str]:
    return page.locator(".queues tbody th a").all_inner_texts()


def sort_by(page: Page, column: str) -> None:
    page.get_by_role("columnheader", name=column).get_by_role("button").click()


def test_more_queues_than_the_state_has(broker: mqks.testing.Broker, pages: Pages) -> None:
    """The filter and the columns, both ways, look at all of them; and it is said how many there are."""
    page = pages.open(broker.http_url)
    first = page.locator(".queues tbody th a").first
    expect(page.get_by_text(f"These 200 of {QUEUES} need you most.")).to_be_visible()
    assert len(names(page)) == 200
    sort_by(page, "Ready")
    expect(first).to_have_text("queue-229")
    expect(page.get_by_text(f"These 200 of {QUEUES} are the first by ready.")).to_be_visible()
    sort_by(page, "Ready")
    expect(first).to_have_text("queue-000")
    sort_by(page, "Queue")
    expect(page.locator(".queues tbody th a").last).to_have_text("queue-199")
    sort_by(page, "Queue")
    expect(first).to_have_text("queue-229")
    find = page.get_by_label("Filter queues by name")
    find.fill("QUEUE-22")
    expect(page.get_by_text("10 queues with “QUEUE-22” in the name.")).to_be_visible()
    assert names(page) == [f"queue-{number}" for number in range(229, 219, -1)]
    find.fill("queue-00")
    expect(page.locator(".queues tbody tr")).to_have_count(10)
    assert all("Last" in title for title in page.locator(".queues .spark title").all_text_contents())
    find.fill("queue")
    expect(page.get_by_text(f"{QUEUES} queues with “queue” in the name. These 200 of {QUEUES}")).to_be_visible()


def test_the_order_is_true_again_when_nobody_points(broker: mqks.testing.Broker, mq: mqks.Client, pages: Pages) -> None:
    """Who points at a row keeps it where it is; who pressed a heading does not."""
    page = pages.open(broker.http_url)
    first = page.locator(".queues tbody th a").first
    sort_by(page, "Ready")
    expect(first).to_have_text("queue-229")
    mq.publish_many(("event.5", "x") for _ in range(1000))
    expect(first).to_have_text("queue-005")  # though the focus is still on the heading
    page.locator(".queues tbody tr").nth(1).hover()
    keep_pointing(page)
    mq.publish_many(("event.6", "x") for _ in range(2000))
    expect(page.locator(".queues tbody tr", has_text="queue-006").locator("td").nth(2)).to_have_text("2,006")
    expect(page.locator("#queue-order")).to_contain_text("held while you point")
    expect(first).to_have_text("queue-005")
    page.mouse.move(5, 5)
    expect(first).to_have_text("queue-006")


def test_to_the_queues_again(broker: mqks.testing.Broker, pages: Pages) -> None:
    page = pages.open(broker.http_url)
    more = page.locator("#sentence a[href='#/queues']").last
    heading = page.locator("#queues-heading")
    for _ in range(2):
        more.click()
        expect(heading).to_be_focused()
        expect(heading).to_be_in_viewport()
        page.evaluate("document.activeElement.blur(), scrollTo(0, 0)")
    expect(page.locator(".flows .queue[data-level=warning]")).to_have_count(12)  # the drawing knows of trouble too


NAMES = {
    "\u202egnp.evil": "\\u202egnp.evil",
    "e" + "\u0301" * 60: "e" + "\u0301" * 4 + "…",
    "W" * 80: "W" * 80,
    "..": "..",
}


@pytest.mark.parametrize("name", NAMES, ids=["turns", "covers", "wide", "dots"])
def test_names_keep_to_their_place(name: str, broker: mqks.testing.Broker, mq: mqks.Client, pages: Pages) -> None:
    pages.expect_complaints()  # a question about it may be on its way when it is gone
    mq.rebind(name, ["odd.name"])
    page = pages.open(broker.http_url)
    box = page.locator(".flows .queue", has=page.locator("title", has_text=NAMES[name]))
    while not box.count():  # the busiest are drawn
        mq.publish_many(("odd.name", "x") for _ in range(500))
        page.wait_for_timeout(50)
    assert box.evaluate("box => box.querySelector('.name').getBBox().width < box.querySelector('rect').getBBox().width")
    page.evaluate("key => location.hash = `#/queue/${key}`", key(name.encode()))
    expect(page.get_by_role("heading", level=1)).to_have_text(NAMES[name])
    page.get_by_role("button", name="Delete …").click()
    page.get_by_role("dialog").get_by_role("textbox").fill(NAMES[name])
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("Deleted.")).to_be_visible()


# ── messages ──


def test_the_message_that_is_pointed_at_opens(broker: mqks.testing.Broker, mq: mqks.Client, pages: Pages) -> None:
    """At 150 a second rows would be gone before one has pressed; counts are not read aloud."""
    stop = threading.Event()

    def publish() -> None:
        number = 0
        while not stop.wait(TURN):
            mq.publish("fast.news", f"number {(number := number + 1)}")

    page = pages.open(at(broker, "#/tail?mask=fast.*"))
    with running(publish):
        try:
            page.locator(".messages li").nth(40).wait_for()
            page.mouse.move(500, 500)
            page.mouse.move(500, 505)
            keep_pointing(page)
            held = page.get_by_text(re.compile("held while you are at the list, [1-9]"))
            expect(held).to_be_visible()
            aimed = page.evaluate(
                "document.elementFromPoint(500, 505).closest('button').querySelector('.data').textContent"
            )
            expect(held).not_to_have_text(held.inner_text())  # more came, and it was drawn
            page.mouse.down()
            page.mouse.up()
            expect(page.get_by_role("dialog").get_by_label("Data")).to_have_text(aimed)
            page.keyboard.press("Escape")
            expect(page.locator(".messages :focus .data")).to_have_text(aimed)
            keep(page, "tail-held")
            assert page.locator("main [role=status]").inner_text() == ""
            page.get_by_label("Events").click()
            expect(page.locator(".messages .data", has_text=re.compile(f"^{aimed}$"))).to_have_count(0)
        finally:
            stop.set()


ATTENTIVE = """async () => {
  const { attention } = await import("/page/dom.js");
  const node = document.createElement("div");
  const attentive = attention(node);
  const after = (kind, told) => (node.dispatchEvent(new PointerEvent(kind, told)), attentive());
  const still = { pointerType: "mouse" };
  return [
    after("pointermove", still), // something moved below it
    after("pointermove", { ...still, movementX: 1 }),
    after("focusout"), // of a row that had the focus until this one was pressed
    after("pointerleave", still),
    after("pointerdown", { pointerType: "touch" }),
    after("pointerleave", { pointerType: "touch" }), // and the click comes after that
    after("pointerleave", still),
    after("focusin"),
    after("pointerleave", still),
    after("focusout"),
  ];
}"""


def test_what_one_is_at_is_known(broker: mqks.testing.Broker, pages: Pages) -> None:
    held = pages.open(broker.http_url).evaluate(ATTENTIVE)
    assert held == [False, True, True, False, True, True, False, True, True, False]


# ── time ──


def test_minutes_have_their_place(broker: mqks.testing.Broker, mq: mqks.Client, pages: Pages) -> None:
    """One in which nothing came has its room, and what is old says so."""
    newest = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(hours=5)
    for back in (24 * 60 + 1, 24 * 60, 10, 1, 0):
        minute = (newest - timedelta(minutes=back)).strftime("%Y-%m-%dT%H:%M:%SZ")
        row = {"minute": minute, "kind": "event", "name": "a", "count": 6, "bytes": 9, "rate": 0.1, "final": True}
        mq.publish(STATS, row, confirm=True)
    page = pages.open(at(broker, "#/pipeline"))
    expect(page.locator(".plot .bar")).to_have_count(60)
    expect(page.locator(".plot .bar:not([height='0.0'])")).to_have_count(3)
    heights = page.locator(".plot .bar").evaluate_all("bars => bars.map((bar) => Number(bar.getAttribute('height')))")
    assert [index for index, height in enumerate(heights) if height] == [49, 58, 59]
    expect(page.get_by_role("heading", name="The newest minute")).to_contain_text(re.compile(r"\d\d:\d\d, 5 h ago"))
    ends = page.locator(".plot .grid text").all_inner_texts()
    assert "now" not in ends
    keep(page, "pipeline-old")
