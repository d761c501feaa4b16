"""The page and the sentences of the broker say sizes, durations and counts alike: one table, both languages."""

import re

import pytest

import mqks.testing
from mqks.formatting import counted, duration, rate, size, size_in_tenths
from tests.web.browser import Pages, chromium, pages

__all__ = ["chromium", "pages"]  # fixtures

SIZES = (0, 1, 512, 1023, 1024, 1536, 9 << 10, 64 << 20, (1 << 30) - 1, 5 << 30, 3 << 40, 999 << 40)
DURATIONS = (10, 59.9, 119, 119.9, 120, 7199, 7200, 36 * 3600, 172_799, 172_800, 1e9)  # below 10 s the page has tenths
COUNTS = (0, 1, 2, 999, 1204, 999_999)  # from a million on the page is short
RATES = (0.5, 1, 3.5, 9.9, 10, 1204)
READ = """async (table) => {
  const format = await import("/page/format.js");
  return {
    sizes: table.sizes.map(format.bytes),
    durations: table.durations.map(format.span),
    counts: table.counts.map((count) => format.many(count, "queue")),
    rates: table.rates.map(format.rate),
  };
}"""


def test_the_page_writes_as_the_broker_does(web: mqks.testing.Broker, pages: Pages) -> None:
    table = {"sizes": SIZES, "durations": DURATIONS, "counts": COUNTS, "rates": RATES}
    shown = pages.open(web.http_url).evaluate(READ, table)
    assert shown["durations"] == [duration(seconds) for seconds in DURATIONS]
    assert shown["counts"] == [counted(count, "queue") for count in COUNTS]
    assert list(map(number_of, shown["rates"])) == [number_of(rate(value)) for value in RATES]
    for count, on_page in zip(SIZES, shown["sizes"], strict=True):
        in_log, column = size(count), size_in_tenths(count)
        assert unit_of(on_page) == unit_of(column) == unit_of(in_log).replace("bytes", "B")
        assert number_of(on_page) == pytest.approx(number_of(in_log), abs=0.5)  # the page has no tenths from 10 on
        assert number_of(column) == pytest.approx(number_of(in_log), abs=0.5)


def unit_of(text: str) -> str:
    return text.rpartition(" ")[2]


def number_of(text: str) -> float:
    return float(re.sub(r"[^\d.]", "", text))
