"""Five things go wrong, one after the other: the sentence in the browser names each, and no more when it is over.

It has five seconds for that. The broker tells its state each second: so the states are counted from the first one in
which the thing can be seen to be wrong, and no clock of the test's own has a say.
"""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

import mqks.testing
from tests.web.asking import Stream, stream
from tests.web.browser import PATIENCE, Pages, chromium, keep, pages
from tests.web.staging import INCIDENTS, Incident

__all__ = ["chromium", "pages"]  # fixtures

WITHIN = 5  # states, one each second

expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mqks.testing.Broker]:
    with mqks.testing.broker(http=True, data=tmp_path_factory.mktemp("data")) as running:
        yield running


def states_until_named(live: Stream, incident: Incident) -> int:
    """How many have it wrong and do not say so yet."""
    silent = 0
    while True:
        state = live.wait_for("state")
        if any(phrase["kind"] == incident.kind for phrase in state["health"]["phrases"]):
            return silent
        silent += incident.holds(state)


@pytest.mark.parametrize("incident", INCIDENTS, ids=lambda incident: incident.kind)
def test_the_sentence_names_it(incident: Incident, broker: mqks.testing.Broker, pages: Pages) -> None:
    pages.expect_complaints()  # in the end a queue is gone that the page asks about
    page = pages.open(broker.http_url)
    sentence = page.locator("#sentence")
    expect(sentence).not_to_have_text(re.compile(incident.named))
    with stream(broker, "/api/live") as live, incident.stage(broker):
        assert states_until_named(live, incident) <= WITHIN
        expect(sentence).to_have_text(re.compile(incident.named))
        assert page.title().startswith("⚠")
        keep(page, f"incident-{incident.kind}")
        sentence.get_by_role("link", name=re.compile(incident.named)).click()
        expect(page).to_have_url(f"{broker.http_url}/{incident.leads_to}")
        expect(sentence).to_have_text(re.compile(incident.named))
    expect(sentence).not_to_have_text(re.compile(incident.named), timeout=3 * PATIENCE)  # it may take ten calm seconds
