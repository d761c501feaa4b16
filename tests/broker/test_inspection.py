"""Who may ask `_eval`, and that asking is cheap and changes nothing."""

import json

import pytest

from mqks.broker import Broker
from tests.broker.on_disk import OnDisk


def ask(broker: Broker, peer: str, request: bytes) -> bytes:
    client = broker.connect(peer)
    broker.feed(client, request + b"\n")
    reply = client.pending()
    broker.disconnect(client)
    return reply


@pytest.mark.parametrize("peer", ["127.0.0.1:5000", "127.8.9.10:1", "[::1]:5000", "[::ffff:127.0.0.1]:5000"])
def test_a_client_on_this_machine_may_ask(peer: str) -> None:
    assert ask(Broker(), peer, b"e1 _eval 6 * 7") == b"e1 ok 42\n"


@pytest.mark.parametrize("peer", ["10.0.0.1:5000", "[2001:db8::1]:5000", "[::ffff:10.0.0.1]:5000", "somewhere"])
@pytest.mark.parametrize("request_line", [b"e1 _eval 6 * 7", b'e1 _eval {"code": "6 * 7"}'])
def test_a_client_from_elsewhere_may_not(peer: str, request_line: bytes) -> None:
    assert ask(Broker(), peer, request_line).startswith(b"e1 error ")


def test_anyone_may_ask_for_stats() -> None:
    broker = Broker()
    ask(broker, "127.0.0.1:1", b"r1 rebind q1 e1 e2")
    ask(broker, "127.0.0.1:1", b"m1 publish e1 d1")
    stats = json.loads(ask(broker, "10.0.0.1:5000", b"s1 stats").removeprefix(b"s1 ok "))
    assert stats["published"] == 1
    assert stats["queues"]["q1"]["ready"] == 1
    assert stats["queues"]["q1"]["events"] == ["e1", "e2"]


def test_holds_have_their_names_in_stats() -> None:
    on_disk = OnDisk()
    names = ["archive", "ключ", "caf\\xe9"]
    held = [b"h hold %s 0 --for=1000" % name for name in (b"archive", "ключ".encode(), b"caf\xe9")]
    on_disk.say(on_disk.connect(), *held)
    for _ in ("at once", "from the journal", "from a checkpoint"):
        [told] = on_disk.say(on_disk.connect(), b"s1 stats")
        assert list(json.loads(told.removeprefix(b"s1 ok "))["journal"]["holds"]) == names
        on_disk.crash()


def test_asking_in_a_loop_makes_each_view_once() -> None:
    """A view that is made anew each time would let a short expression keep the broker busy for minutes."""
    broker = Broker()
    for n in range(2000):
        ask(broker, "127.0.0.1:1", b"r1 rebind q%d e%d common" % (n, n))
    for part in (b"state.events", b"state.clients", b"state.consumers"):
        assert ask(broker, "127.0.0.1:1", b"e1 _eval sum(len(%s) >= 0 for x in [0] * 9000)" % part) == b"e1 ok 9000\n"
    looked_up = b"e1 _eval sum(len(state.events['common']) for x in [0] * 9000)"
    assert ask(broker, "127.0.0.1:1", looked_up) == b"e1 ok 18000000\n"


def test_a_name_is_found_by_the_text_that_shows_it() -> None:
    broker = Broker()
    for name in (rb"a\x41", b"\xff", b"plain"):
        ask(broker, "127.0.0.1:1", b"r1 rebind %s e1" % name)
    found = b"e1 _eval sorted(name == state.queues[name].name for name in state.queues)"
    assert ask(broker, "127.0.0.1:1", found) == b"e1 ok [True, True, True]\n"
    assert ask(broker, "127.0.0.1:1", b"e1 _eval state.queues.get(1, 'none')") == b"e1 ok none\n"
