"""The dashboard where one must log in, in a real browser: the login, who one is, the log-out, and what is hidden."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import pytest
from playwright.sync_api import Page, expect

import mqks
import mqks.testing
from mqks.broker.auth.access import Rights
from tests.web.browser import DESKTOP, PATIENCE, PHONE, Pages, chromium, keep, look, pages
from tests.web.logins import ALL, Tokens, guarded

__all__ = ["chromium", "pages"]  # fixtures

expect.set_options(timeout=PATIENCE)

LONG = "name-that-is-as-long-as-a-name-of-a-token-can-ever-be-which-is-64"[:64]
WORKER = Rights("worker", publish=("order.*",), history=("order.**",))
VIEWER = Rights("viewer", admin=True)
NOTHING = Rights("nothing")


@pytest.fixture
def tokens() -> Tokens:
    return Tokens(ALL, WORKER, VIEWER, NOTHING, replace(ALL, name=LONG))


@pytest.fixture
def broker(tokens: Tokens) -> Iterator[mqks.testing.Broker]:
    with guarded(tokens) as running, mqks.connect(running.url) as client:
        client.rebind("mail", ["order.paid"])
        client.publish("order.paid", "first")
        yield running


@pytest.fixture(autouse=True)
def complaints(pages: Pages) -> None:
    """The browser tells of each answer that is no success, and here are some."""
    pages.expect_complaints()


def log_in(page: Page, name: str) -> None:
    page.get_by_label("Token").fill(f"{name}.secret")
    page.get_by_role("button", name="Log in").click()
    page.wait_for_selector("body:not(.stale) #views", state="attached")


def log_out(page: Page) -> None:
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_visible()


def views(page: Page) -> list[str]:
    return [link.inner_text() for link in page.locator("#views a").all() if link.is_visible()]


def sideways(page: Page) -> int:
    width: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return width


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [DESKTOP, PHONE])
def test_how_it_looks(scheme: Literal["light", "dark"], width: int, broker: mqks.testing.Broker, pages: Pages) -> None:
    page = pages.open(broker.http_url, width=width, scheme=scheme)
    keep(page, f"login-{scheme}-{width}")
    assert sideways(page) <= 0
    page.get_by_label("Token").fill("all.guessed")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("status")).to_have_text("this token is not known")
    keep(page, f"login-wrong-{scheme}-{width}")
    log_in(page, LONG)
    expect(page.locator("#name")).to_have_text(LONG)
    keep(page, f"logged-in-long-{scheme}-{width}")
    assert sideways(page) <= 0
    log_out(page)
    log_in(page, "all")
    keep(page, f"logged-in-{scheme}-{width}")
    log_out(page)
    log_in(page, "worker")
    page.locator(".bar").wait_for()
    keep(page, f"logged-in-worker-{scheme}-{width}")
    assert sideways(page) <= 0


def test_log_in_and_out(broker: mqks.testing.Broker, pages: Pages) -> None:
    page = pages.open(f"{broker.http_url}/#/publish")
    expect(page).to_have_url(f"{broker.http_url}/login#/publish")
    assert page.title() == "Log in · MQKS"
    expect(page.get_by_label("Token")).to_be_focused()
    page.get_by_label("Token").fill("all.guessed")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_have_text("this token is not known")
    assert page.context.cookies() == []
    log_in(page, "all")
    expect(page).to_have_url(f"{broker.http_url}/#/publish")
    expect(page.locator("#name")).to_have_text("all")
    assert views(page) == ["Overview", "Tail", "Publish", "Pipeline", "Connections"]
    assert page.evaluate("document.cookie") == ""  # no script can read it
    log_out(page)
    assert page.context.cookies() == []
    page.goto(broker.http_url)
    expect(page).to_have_url(f"{broker.http_url}/login")


def test_who_is_logged_in_needs_no_login(broker: mqks.testing.Broker, pages: Pages) -> None:
    """As one who comes by a link of another site: the first request has no cookie."""
    page = pages.open(broker.http_url)
    log_in(page, "all")
    page.goto(f"{broker.http_url}/login#/tail")
    page.wait_for_selector("#views")
    expect(page).to_have_url(f"{broker.http_url}/#/tail")


def test_what_is_done_by_the_page(broker: mqks.testing.Broker, pages: Pages) -> None:
    page = pages.open(f"{broker.http_url}/#/publish")
    log_in(page, "all")
    page.get_by_label("Event").fill("order.paid")
    page.get_by_role("button", name="Publish").click()
    expect(page.get_by_text("The broker has it")).to_be_visible()
    page.goto(f"{broker.http_url}/#/queue/mail")
    expect(page.locator(".messages li")).to_have_count(2)
    page.get_by_role("button", name="Purge …").click()
    page.locator("#typed").fill("mail")
    page.get_by_role("button", name="Purge", exact=True).click()
    expect(page.get_by_text("2 messages purged.")).to_be_visible()
    page.get_by_role("button", name="Delete …").click()
    page.locator("#typed").fill("mail")
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_text("Deleted.")).to_be_visible()


def test_without_what_the_page_knows_nothing_changes(broker: mqks.testing.Broker, pages: Pages) -> None:
    page = pages.open(broker.http_url)
    log_in(page, "all")
    publish = """headers => fetch("/api/publish", {
        method: "POST", headers: {"content-type": "application/json", ...headers}, body: '{"event": "order.paid"}'
    }).then((answer) => answer.status)"""
    assert page.evaluate(publish, {}) == 403
    assert page.evaluate(publish, {"x-csrf-token": "guessed"}) == 403
    csrf = page.evaluate("fetch('/api/session').then((answer) => answer.json()).then(({csrf}) => csrf)")
    assert page.evaluate(publish, {"x-csrf-token": csrf}) == 200


def test_another_window_logs_in_anew(broker: mqks.testing.Broker, pages: Pages) -> None:
    """The first one goes on with the new session."""
    page = pages.open(f"{broker.http_url}/#/publish")
    log_in(page, "all")
    page.evaluate(
        """() => fetch("/api/session", {
            method: "POST", headers: {"content-type": "application/json"}, body: '{"token": "all.secret"}'
        })"""
    )
    page.get_by_label("Event").fill("order.paid")
    page.get_by_role("button", name="Publish").click()
    expect(page.get_by_text("The broker has it")).to_be_visible()


def test_a_token_without_admin(broker: mqks.testing.Broker, pages: Pages) -> None:
    page = pages.open(broker.http_url)
    log_in(page, "worker")
    assert views(page) == ["Tail", "Publish"]
    expect(page.get_by_role("heading", level=1)).to_contain_text("Tail")
    expect(page.get_by_role("link", name="metrics")).to_be_hidden()
    look(page, at_it=False)
    look(page, at_it=True)
    expect(page.locator("#lost")).to_be_hidden()  # there are no figures that could be
    expect(page.locator("body")).not_to_have_class("stale")
    page.evaluate("location.hash = '#/connections'")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Tail")
    page.get_by_role("link", name="Publish").click()
    for event, said in (("user.created", "not permitted: publish user.created"), ("order.paid", "The broker has it")):
        page.get_by_label("Event").fill(event)
        page.get_by_role("button", name="Publish").click()
        expect(page.get_by_role("status").filter(has_text=said)).to_be_visible()


def test_a_token_that_only_sees(broker: mqks.testing.Broker, pages: Pages) -> None:
    page = pages.open(f"{broker.http_url}/#/queue/mail")
    log_in(page, "viewer")
    assert views(page) == ["Overview", "Pipeline", "Connections"]
    expect(page.get_by_role("heading", name="Consumers")).to_be_visible()
    expect(page.get_by_text("order.paid")).to_be_visible()
    for hidden in ("Purge …", "Delete …"):
        expect(page.get_by_role("button", name=hidden)).to_be_hidden()
    expect(page.get_by_role("heading", name="Next messages")).to_have_count(0)
    expect(page.get_by_role("link", name="Watch order.paid")).to_have_count(0)


def test_a_token_without_anything(broker: mqks.testing.Broker, pages: Pages) -> None:
    page = pages.open(broker.http_url)
    log_in(page, "nothing")
    assert views(page) == []
    expect(page.get_by_role("heading", level=1)).to_have_text("Nothing here is for this token")


@pytest.mark.parametrize("name", ["all", "worker"])
def test_a_revoked_token(name: str, broker: mqks.testing.Broker, tokens: Tokens, pages: Pages) -> None:
    """The page notices by itself: its stream ends."""
    page = pages.open(f"{broker.http_url}/#/tail")
    log_in(page, name)
    del tokens.rights[name]
    expect(page).to_have_url(f"{broker.http_url}/login#/tail")


def test_rights_that_change(broker: mqks.testing.Broker, tokens: Tokens, pages: Pages) -> None:
    page = pages.open(broker.http_url)
    log_in(page, "all")
    tokens.rights["all"] = replace(ALL, admin=False, publish=())
    expect(page.get_by_role("heading", level=1)).to_contain_text("Tail")
    assert views(page) == ["Tail"]


def test_where_nobody_has_to_log_in(web: mqks.testing.Broker, pages: Pages) -> None:
    page = pages.open(f"{web.http_url}/login")
    page.wait_for_selector("body:not(.stale) #views")
    expect(page.locator("#who")).to_be_hidden()
