"""`history` and `hold` over real sockets, with a real journal under them."""

import json
import re
import socket
from datetime import UTC, datetime
from itertools import count, islice
from pathlib import Path

import pytest

from mqks.journal import Reader
from mqks.journal.format import HEADER_SIZE, parse_header
from tests.conftest import Connect, Start
from tests.journal.making import LIKE_A_HEADER
from tests.running import PATIENCE, RunningBroker

MEMORY = 4 << 20  # --max-memory, the least there is


def talk(broker: RunningBroker, *requests: bytes) -> list[bytes]:
    """Send all, say that there is no more, and read to the end."""
    with socket.create_connection(("127.0.0.1", broker.port), timeout=PATIENCE) as client:
        client.sendall(b"".join(request + b"\n" for request in requests))
        client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(1 << 20), b"")).splitlines()


def history(broker: RunningBroker, words: str) -> tuple[list[bytes], int]:
    """What comes after the positions, and the position of the end."""
    *lines, end = talk(broker, b"h1 history " + words.encode())
    found = re.fullmatch(rb"h1 ok --end (\d+)", end)
    assert found, end
    return [re.fullmatch(rb"h1 ok \d+ (.*)", line)[1] for line in lines], int(found[1])  # type: ignore[index]


def position_of(line: bytes) -> int:
    return int(line.split(b" ")[2])


def three(start: Start, *flags: str) -> RunningBroker:
    """A broker with three messages, each in a batch of its own."""
    broker = start(*flags)
    numbers = count(1)
    for request in (b"publish --confirm e1.a d1", b'send {"event": "e2", "x": 1}', b"publish --confirm e3 d 3"):
        number = next(numbers)
        assert talk(broker, b"m%d %s" % (number, request)) == [b"m%d ok " % number]
    return broker


THREE = [b"m1 event=e1.a d1", b'm2 event=e2 {"event": "e2", "x": 1}', b"m3 event=e3 d 3"]


def test_all_that_was_taken_and_no_control_lines(start: Start) -> None:
    broker = three(start)
    assert talk(broker, b"r1 rebind q1 e1.a --confirm") == [b"r1 ok "]
    lines, end = history(broker, "earliest")
    assert lines == THREE
    assert history(broker, "latest") == ([], end)


def test_on_from_where_it_ended(start: Start) -> None:
    broker = three(start)
    one, end = history(broker, "earliest --limit=1")
    two, last = history(broker, f"{end} --limit=1")
    rest, _ = history(broker, str(last))
    assert [one, two, rest] == [THREE[:1], THREE[1:2], THREE[2:]]


def test_from_and_to_a_position(start: Start) -> None:
    broker = three(start)
    positions = [position_of(line) for line in talk(broker, b"h1 history earliest")[:3]]
    assert history(broker, f"{positions[1]}")[0] == THREE[1:]
    assert history(broker, f"{positions[1] + 1}")[0] == THREE[2:]
    assert history(broker, f"earliest --to={positions[2]}") == (THREE[:2], positions[2])
    assert history(broker, f"{positions[1]} --to={positions[1]}") == ([], positions[1])


def test_from_and_to_a_time(start: Start, folder: Path) -> None:
    broker = three(start)
    messages = islice(Reader(folder).messages("earliest", follow=True), 3)
    times = [f"{message.time:%Y-%m-%dT%H:%M:%S.%f}" for message in messages]
    assert history(broker, times[1])[0] == THREE[1:]
    assert history(broker, f"{times[1]}Z --to={times[2]}+00:00")[0] == THREE[1:2]
    assert history(broker, "2000-01-01T00:00:00")[0] == THREE
    assert history(broker, "2999-01-01T00:00:00Z")[0] == []


def test_chosen_events(start: Start) -> None:
    broker = three(start)
    assert history(broker, "earliest --events=e1.*,e3")[0] == [THREE[0], THREE[2]]
    assert history(broker, "earliest --events=e2")[0] == THREE[1:2]
    assert history(broker, "earliest --events=*")[0] == []


def test_raw_is_the_batches_as_they_are(start: Start, folder: Path) -> None:
    broker = three(start)
    broker.stop()
    files = [path.read_bytes() for path in sorted((folder / "journal").iterdir())]
    written = b"".join(file.partition(b"\n")[2] for file in files)
    broker = start()
    lines = talk(broker, b"h1 history earliest --raw")
    raw = b"".join(line + b"\n" for line in lines[:-1])
    assert raw.startswith(written), "and what the second start has written"
    assert raw[len(written) :].count(b"\n") == raw[len(written) :].count(b" batch ")
    assert re.fullmatch(rb"h1 ok --end \d+", lines[-1])


def test_raw_from_the_middle_begins_with_a_whole_batch(start: Start) -> None:
    broker = three(start)
    position = position_of(talk(broker, b"h1 history earliest")[1])
    first = talk(broker, b"h1 history %d --raw" % (position + 1))[0] + b"\n"
    header = parse_header(first)
    assert header is not None
    assert header.position + HEADER_SIZE == position


def test_follow(start: Start, connect: Connect) -> None:
    broker = three(start)
    follower = connect(broker)
    follower.send(b"h1 history earliest --follow --limit=5\n")
    assert [follower.line().split(b" ", 3)[3] for _ in range(3)] == THREE
    talk(broker, b"m4 publish e4 d4")
    assert follower.line().endswith(b" m4 event=e4 d4")
    talk(broker, b"m5 publish --confirm e5 d5", b"m6 publish --confirm e6 d6")
    assert follower.line().endswith(b" m5 event=e5 d5")
    assert follower.line().startswith(b"h1 ok --end ")
    assert follower.ask("p1 ping still here") == "p1 ok still here"


def test_a_follower_that_sends_no_more_gets_what_there_is_and_the_end(start: Start) -> None:
    """It may be gone wholly: a close looks the same until something is sent."""
    broker = three(start)
    lines = talk(broker, b"h1 history earliest --follow", b"h2 history latest --follow")
    *shown, end = (line for line in lines if line.startswith(b"h1 "))
    assert [line.split(b" ", 3)[3] for line in shown] == THREE
    assert end.startswith(b"h1 ok --end ")
    assert [line for line in lines if line.startswith(b"h2 ")] == [end.replace(b"h1", b"h2")]


def test_a_follower_that_has_seen_enough(start: Start, connect: Connect) -> None:
    broker = start()
    follower = connect(broker)
    follower.send(b"h1 history latest --follow\nh2 history latest --follow\nm1 publish --confirm e1 d1\n")
    seen = sorted(follower.line().split(b" ")[:3] for _ in range(3))
    assert [words[0] for words in seen] == [b"h1", b"h2", b"m1"]
    follower.send(b"dc1 delete_consumer --confirm h1\n")
    assert follower.line().startswith(b"h1 ok --end ")
    assert follower.line() == b"dc1 ok "
    follower.send(b"m2 publish e1 d2\n")
    assert follower.line().startswith(b"h2 ok ")
    assert follower.ask("p1 ping and no more of h1") == "p1 ok and no more of h1"


@pytest.mark.parametrize("fsync", ["interval=20", "never"])
def test_follow_where_nobody_waits_for_the_disk(start: Start, connect: Connect, fsync: str) -> None:
    broker = start(f"--fsync={fsync}")
    follower = connect(broker)
    follower.send(b"h1 history latest --follow\n")
    assert follower.ask("p1 ping") == "p1 ok "
    talk(broker, b"m1 publish e1 d1")
    assert follower.line().endswith(b" m1 event=e1 d1")


def test_many_segments_and_a_long_line(start: Start) -> None:
    broker = start("--segment-size=64K", "--max-line=3M", "--max-memory=64M")
    wanted = []
    for number in range(20):
        data = b"x" * (2_000_000 if number == 7 else 20_000)
        assert talk(broker, b"m%d publish --confirm e1 %s" % (number, data)) == [b"m%d ok " % number]
        wanted.append(b"m%d event=e1 %s" % (number, data))
    assert history(broker, "earliest")[0] == wanted


def test_who_reads_slowly_costs_little_and_gets_all(start: Start, connect: Connect) -> None:
    broker = start(f"--max-memory={MEMORY}", "--max-line=64K")
    publisher = connect(broker)
    for number in range(0, 40_000, 1000):
        publisher.send(b"".join(b"m%d publish e1 %0500d\n" % (n, n) for n in range(number, number + 1000)))
    assert publisher.ask("m publish --confirm e1 end") == "m ok "
    with socket.create_connection(("127.0.0.1", broker.port), timeout=PATIENCE) as slow:
        slow.sendall(b"h1 history earliest\n")
        file = slow.makefile("rb", buffering=1 << 16)
        for number in range(40_000):
            assert file.readline().endswith(b" m%d event=e1 %0500d\n" % (number, number))
            if number % 10_000 == 0:  # others are served, and 20 MB are not on their way
                used = int(publisher.ask("e _eval state.memory").removeprefix("e ok "))
                assert used < MEMORY
        assert file.readline().endswith(b" m event=e1 end\n")
        assert file.readline().startswith(b"h1 ok --end ")


@pytest.mark.parametrize("flags", [["--memory"], []], ids=["in memory", "on disk"])
@pytest.mark.parametrize("words", ["earliest", "earliest --to=2099-01-01T00:00:00Z"])
def test_a_message_that_looks_like_the_header_of_a_batch_is_shown(start: Start, flags: list[str], words: str) -> None:
    """It was hidden, and with a time to end at it ended the history for all that came after."""
    broker = start(*flags)
    talk(broker, b"m1 publish --confirm e1 d1", LIKE_A_HEADER, b"m3 publish --confirm e1 d3")
    shown = [b"m1 event=e1 d1", LIKE_A_HEADER.replace(b" publish ", b" event="), b"m3 event=e1 d3"]
    assert history(broker, words)[0] == shown


def test_it_leaves_queues_alone(start: Start, connect: Connect) -> None:
    broker = start()
    assert talk(broker, b"s1 subscribe --confirm q1 e1", b"m1 publish --confirm e1 d1") == [b"s1 ok ", b"m1 ok "]
    assert history(broker, "earliest")[0] == [b"m1 event=e1 d1"]
    client = connect(broker)
    client.send(b"c1 consume q1\n")
    assert client.line() == b"c1 ok m1 event=e1 d1"


@pytest.mark.parametrize(
    "words",
    [
        "",
        "soon",
        "-1",
        "999999999",
        "2026-13-01T00:00:00",
        "2026-01-01",
        "earliest 5",
        "earliest --to",
        "earliest --to=x",
        "earliest --limit=x",
        "earliest --limit",
        "earliest --follow=1",
        "earliest --events=",
        "earliest --raw --limit=1",
        "earliest --raw --events=e1",
        "earliest --nonsense",
    ],
)
def test_mistakes(start: Start, words: str) -> None:
    broker = start()
    (line,) = talk(broker, b"h1 history " + words.encode())
    assert re.fullmatch(rb"h1 error \w{24}", line)
    assert broker.wait_for_log(line.split(b" ")[2].decode())


def test_one_request_id_has_one_history(start: Start, connect: Connect) -> None:
    client = connect(start())
    client.send(b"h1 history latest --follow\nh1 history latest --follow\n")
    assert client.line().startswith(b"h1 error ")


def fill(broker: RunningBroker, connect: Connect, count: int) -> None:
    """So many segments of 64 KiB."""
    client = connect(broker)
    for number in range(count):
        assert client.ask(f"f{number} publish --confirm fill {'x' * 70_000}") == f"f{number} ok "


def test_a_hold_keeps_segments_and_a_gone_position_is_refused(start: Start, connect: Connect, folder: Path) -> None:
    broker = start("--segment-size=64K", "--retain-bytes=200K")
    assert talk(broker, b"m1 publish --confirm e1 d1") == [b"m1 ok "]
    held = position_of(talk(broker, b"h1 history earliest")[0])
    assert talk(broker, b"x1 hold archive %d --for=1000 --confirm" % held) == [b"x1 ok "]
    stats = json.loads(talk(broker, b"s1 stats")[0].split(b" ", 2)[2])
    assert stats["journal"]["holds"]["archive"]["position"] == held
    assert 900 < stats["journal"]["holds"]["archive"]["seconds"] <= 1000
    fill(broker, connect, 10)
    broker.stop()
    broker = start("--segment-size=64K", "--retain-bytes=200K")  # a start looks at what is to be retained
    assert history(broker, str(held))[0][0] == b"m1 event=e1 d1", "a hold outlives the broker"
    assert talk(broker, b"x2 hold archive 0 --for=0 --confirm") == [b"x2 ok "]
    fill(broker, connect, 10)
    assert broker.wait_for_log("is removed: it is older or more")
    while json.loads(talk(broker, b"s1 stats")[0].split(b" ", 2)[2])["journal"]["bytes"] >= 600_000:
        pass  # it removes when a checkpoint is done, in the background
    broker.stop()
    assert sum(path.stat().st_size for path in (folder / "journal").iterdir()) < 600_000
    broker = start("--segment-size=64K", "--retain-bytes=200K")
    (line,) = talk(broker, b"h1 history %d" % held)
    assert line.startswith(b"h1 error ")
    assert broker.wait_for_log("this position is gone")


@pytest.mark.parametrize("words", ["", "a", "a b", "a 1", "a 1 --for", "a 1 --for=x", "a 1 2 --for=3", "a -1 --for=1"])
def test_mistakes_of_hold(start: Start, words: str) -> None:
    (line,) = talk(start(), b"x1 hold " + words.encode())
    assert line.startswith(b"x1 error ")


def test_a_day_is_a_place_too(start: Start) -> None:
    """The time now is beyond all that was taken before."""
    broker = three(start)
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"
    assert history(broker, now)[0] == []


def test_numbers_too_large_to_be_true(start: Start) -> None:
    broker = three(start)
    assert history(broker, "earliest --to=99999999999999999999999")[0] == THREE
    assert history(broker, "earliest --limit=999999999999999")[0] == THREE
    for words in (
        b"99999999999999999999999",
        b"0001-01-01T00:00:00+23:00",
        b"earliest --limit=99999999999999999999999",
    ):
        (line,) = talk(broker, b"h1 history " + words)
        assert line.startswith(b"h1 error ")


@pytest.mark.parametrize("zeros", [1, 18, 19, 20, 5000])
def test_zeros_before_a_number_mean_nothing(start: Start, zeros: int) -> None:
    broker = three(start)
    begin, _, end = (f"{'0' * zeros}{position_of(line)}" for line in talk(broker, b"h1 history earliest")[:3])
    assert history(broker, f"{begin} --to={end}")[0] == THREE[:2]


def test_to_before_from_goes_nowhere(start: Start) -> None:
    broker = three(start)
    position = position_of(talk(broker, b"h1 history earliest")[2])
    assert history(broker, f"{position} --to=0") == ([], position)


def test_in_memory_from_within_a_line(start: Start) -> None:
    broker = start("--memory")
    talk(broker, b"m1 publish e1 some publish e2 data", b"m2 publish e2 x")
    for position in range(1, 36):
        assert history(broker, str(position))[0] == [b"m2 event=e2 x"]


def test_a_very_long_request_id_costs_no_memory(start: Start, connect: Connect) -> None:
    broker = start(f"--max-memory={MEMORY}", "--max-line=64K")
    publisher = connect(broker)
    publisher.send(b"".join(b"m%d publish e1 d\n" % number for number in range(5000)))
    assert publisher.ask("m publish --confirm e1 end") == "m ok "
    name = b"h" * 50_000
    with socket.create_connection(("127.0.0.1", broker.port), timeout=PATIENCE) as slow:
        slow.sendall(name + b" history earliest\n")
        file = slow.makefile("rb", buffering=1 << 16)
        for number in range(100):
            assert file.readline() == b"%s ok %s" % (name, file_line(broker, number))
        assert int(publisher.ask("e _eval state.memory").removeprefix("e ok ")) < MEMORY


def file_line(broker: RunningBroker, number: int) -> bytes:
    """What history tells of a message."""
    return talk(broker, b"x history earliest --limit=%d" % (number + 1))[-2].removeprefix(b"x ok ") + b"\n"


def test_a_position_that_was_removed_in_the_middle(start: Start, connect: Connect, folder: Path) -> None:
    """A queue keeps the first segment; what retention took after it is not passed over in silence."""
    flags = ("--segment-size=64K", "--retain-bytes=200K")
    broker = start(*flags)
    assert talk(broker, b"s1 subscribe --confirm q1 e1", b"m1 publish --confirm e1 d1") == [b"s1 ok ", b"m1 ok "]
    fill(broker, connect, 12)
    assert broker.wait_for_log("is removed: it is older or more")
    broker.stop()
    broker = start(*flags)
    first, second = sorted((folder / "journal").iterdir())[:2]
    end = int(first.name[:20]) + first.stat().st_size
    assert end < int(second.name[:20])
    (line,) = talk(broker, b"h1 history %d" % end)
    assert line.startswith(b"h1 error ")
    *_, last = talk(broker, b"h1 history earliest")
    assert last.startswith(b"h1 error ")
    assert broker.wait_for_log("this position is gone.*the journal goes on at")


def test_who_follows_is_told_when_the_broker_stops(start: Start, connect: Connect) -> None:
    broker = three(start)
    follower = connect(broker)
    follower.send(b"h1 history latest --follow\n")
    assert follower.ask("p1 ping") == "p1 ok "
    broker.stop()
    assert follower.line().startswith(b"h1 ok --end ")


def test_a_hold_of_nothing_is_refused(start: Start) -> None:
    broker = three(start)
    (line,) = talk(broker, b"x1 hold archive 99999999 --for=60 --confirm")
    assert line.startswith(b"x1 error ")
    assert talk(broker, b"x1 hold archive earliest --for=60 --confirm") == [b"x1 ok "]


def test_raw_where_there_is_no_batch(start: Start) -> None:
    """The first line of a segment is none."""
    assert history(three(start), "0 --raw --to=20") == ([], 20)
