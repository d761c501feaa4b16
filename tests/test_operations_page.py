"""docs/OPERATIONS.md: its names, figures and commands are those of the program, and its backup can be restored."""

import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import mqks
from mqks import testing
from mqks.broker.limits import FIXED, REASONS
from mqks.broker.persistence.history import MOST_STREAMS
from mqks.broker.persistence.persistence import MOST_HOLDS
from mqks.cli.mqks import COMMANDS
from mqks.server.config import OPTIONS, Config
from tests.certificates import Authority
from tests.conftest import Connect, Start

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGE = (DOCS / "OPERATIONS.md").read_text(encoding="utf-8")
OF_OTHERS = {"--upgrade", "--file", "--build", "--detach", "--now"}  # pip's, Docker's, systemctl's
OF_CLIENTS = {"MQKS_TOKEN", "MQKS_URL", "MQKS_CA"}
OF_MQKS = {
    "--history",
    "--admin",
    "--manual-ack",
    "--prefetch",
    "--master",
    "--from",
    "--limit",
    "--count",
    "--once",
    "--for",
    "--confirm",
    "--publish",
    "--queues",
    "--events",
    "--all",
    "--url",
    "--ca",
}
STOP = "sudo systemctl stop mqksd.socket mqksd-http.socket mqksd.service"


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


# ── names ──


def test_each_metric_is_explained_and_no_other(tmp_path: Path) -> None:
    explained = [
        name for names in re.findall(r"^\| (`.*?) \|", section("What each metric means"), re.MULTILINE)
        for name in re.findall(r"`(\w+)`", names)
    ]  # fmt: skip
    with testing.broker(data=tmp_path, http=True) as broker, mqks.Client(broker.url) as mq:
        mq.rebind("q1", ["e1"])
        mq.publish("e1", "d1")
        assert broker.http_url
        with urllib.request.urlopen(f"{broker.http_url.rstrip('/')}/metrics") as answer:
            given = answer.read().decode()
    names = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in text_string_to_metric_families(given)
    }
    assert len(explained) == len(set(explained))
    assert names - set(explained) == set(), "not on the page"
    assert set(explained) - names == set(), "not in /metrics"


def test_flags_exist() -> None:
    known = {option.flag for option in OPTIONS} | {option.flag.replace("--", "--no-", 1) for option in OPTIONS}
    found = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE))
    assert found - known - OF_OTHERS - OF_MQKS == set()
    assert len(found & known) > 8


def test_variables_exist() -> None:
    assert set(re.findall(r"\bMQKS_[A-Z_]+", PAGE)) <= {option.env for option in OPTIONS} | OF_CLIENTS


def test_commands_exist() -> None:
    found = set(re.findall(r"(?:`|^ +|/)mqks ([a-z-]+)", PAGE, re.MULTILINE))
    assert {"doctor", "journal", "top", "pipeline"} <= found <= set(COMMANDS)


def test_what_changes_etc_is_done_by_root() -> None:
    commands = re.findall(r"^ {4}(.*/etc/.*)$", PAGE, re.MULTILINE)
    assert [each for each in commands if not each.startswith(("sudo ", "mqksd "))] == []
    assert len(commands) > 4


def test_files_and_links_exist() -> None:
    for name in re.findall(r"\bdeploy/[\w.-]*\w", PAGE):
        assert (ROOT / name).exists(), name
    for target in re.findall(r"\]\(([^)]+)\)", PAGE):
        file, _, anchor = target.partition("#")
        page = DOCS / file if file else DOCS / "OPERATIONS.md"
        assert page.exists(), target
        headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert not anchor or anchor in {heading.lower().replace(" ", "-") for heading in headings}, target


# ── figures ──


def test_figures_are_those_of_the_benchmarks() -> None:
    measured = (DOCS / "BENCHMARKS.md").read_text(encoding="utf-8")
    figures = re.findall(r"\b\d[\d.]* (?:[Mk]/s|µs|s with|B for)", section("How large"))
    assert len(figures) >= 6
    for figure in figures:
        assert figure.split(" with")[0].split(" for")[0] in measured, figure


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("`--dedup-count`, a million, for `--dedup-window`, an hour", Config().dedup_count == 1_000_000),
        ("`--dedup-count`, a million, for `--dedup-window`, an hour", Config().dedup_window == 3600),
        ("`--retain-age` (7 days)", Config().retain_age == 7 * 86400),
        ("| holds | 1,000, ", MOST_HOLDS == 1000),
        ("| histories of one connection | 16.", MOST_STREAMS == 16),
    ],
)
def test_figures_of_limits(text: str, value: bool) -> None:
    assert text in PAGE and value


WRITTEN = {0: "none", 1 << 20: "1 MiB", 64 << 20: "64 MiB", 1 << 30: "1 GiB", 10.0: "10 s", 60.0: "1 min"}


def test_each_limit_is_there_with_its_flag_its_default_and_what_is_said() -> None:
    told = re.findall(r"^\| [^|]+ \| `(--[a-z-]+)`, ([^|]+) \| [^|]+ \| ([^|]+) \|$", section("Limits"), re.MULTILINE)
    options = {option.name: option for option in OPTIONS}
    for flag, default, reason in told:
        name = flag.removeprefix("--").replace("-", "_")
        value = options[name].default
        assert (default, reason) == (WRITTEN.get(value) or f"{value:,}", REASONS[name])  # type: ignore[call-overload]
    assert sorted(flag for flag, _, _ in told) == sorted(options[name].flag for name in REASONS.keys() - FIXED.keys())


# ── commands ──


def test_an_error_id_is_in_the_log(start: Start, connect: Connect) -> None:
    broker = start()
    answer = connect(broker).ask("r1 nonsense")
    error_id = answer.removeprefix("r1 error ")
    assert broker.wait_for_log(rf"error {error_id} client=127\.0\.0\.1:\d+ ")


def environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def run(*command: str, folder: Path | None = None) -> None:
    done = subprocess.run(command, env=environment(), cwd=folder, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr


def back_up(data: Path, copy: Path, url: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = ["sh", str(ROOT / "deploy" / "backup.sh"), str(data), str(copy), url]
    return subprocess.run(command, env=environment() | environ, capture_output=True, text=True, timeout=100)


def commands(title: str, data: Path, copy: Path) -> list[str]:
    """Those of a section of the page, with these folders, without systemd."""
    lines = re.findall(r"^    (sudo .*)$", section(title), re.MULTILINE)
    assert lines[0] == STOP and lines[-1] == STOP.replace("stop", "start")
    return [
        line.replace("sudo ", "").replace("/var/lib/mqks", str(data)).replace("/backup/mqks", str(copy))
        for line in lines[1:-1]
    ]


def test_a_backup_of_a_running_broker_is_restored(tmp_path: Path) -> None:
    """As the page says, while messages come and go: what was confirmed before is there, and acked ones are not."""
    data, copy = tmp_path / "data", tmp_path / "copy"
    assert "deploy/backup.sh /var/lib/mqks /backup/mqks" in PAGE
    stop = threading.Event()

    def load(url: str) -> None:
        """So that segments, checkpoints and retention are busy."""
        with mqks.Client(url) as mq, mq.consume("busy", manual_ack=True) as consumer:
            while not stop.is_set():
                mq.publish("busy", 2000 * "x", confirm=True)
                next(iter(consumer)).ack()

    with testing.broker(data=data, segment_size="64K", retain_bytes="1M") as broker, mqks.Client(broker.url) as mq:
        mq.rebind("kept", ["e1"])
        mq.rebind("busy", ["busy"])
        for number in range(100):
            mq.publish("e1", str(number))
        take(broker.url, "kept", 40)
        busy = threading.Thread(target=load, args=(broker.url,))
        busy.start()
        try:
            for _ in range(2):
                made = back_up(data, copy, broker.url)
                assert made.returncode == 0, made.stdout + made.stderr
                mq.publish("e1", "later")
        finally:
            stop.set()
            busy.join()
        assert mq.stats()["journal"]["holds"] == {}
    for command in commands("Restore", data, copy):
        run("sh", "-c", command)
    assert (tmp_path / "data.old" / "journal").is_dir()
    with testing.broker(data=data) as broker, mqks.Client(broker.url) as mq:
        assert mq.stats()["queues"]["kept"]["ready"] == 61  # one came between the two backups
        assert take(broker.url, "kept", 61) == [*(str(number) for number in range(40, 100)), "later"]
        assert set(mq.stats()["queues"]) == {"kept", "busy"}


def test_a_folder_that_is_there_is_not_restored_into(tmp_path: Path) -> None:
    """A broker that was started in between made it: neither is mixed with the other, nor put into it."""
    data, copy = tmp_path / "data", tmp_path / "copy"
    for folder in (data, copy, tmp_path / "data.old"):
        folder.mkdir()
        (folder / folder.name).touch()
    move, restore, _ = commands("Restore", data, copy)
    for command in (move, restore):
        assert subprocess.run(["sh", "-c", command], capture_output=True).returncode != 0
    assert [path.name for path in data.iterdir()] == ["data"]
    assert [path.name for path in (tmp_path / "data.old").iterdir()] == ["data.old"]


def test_a_copy_is_mended_and_stays_as_small_as_the_journal(tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    with testing.broker(data=data, segment_size="64K", retain_bytes="256K") as broker, mqks.Client(broker.url) as mq:
        publish(mq, 100)
        assert back_up(data, copy, broker.url).returncode == 0
        first = min((copy / "journal").iterdir())
        whole = first.read_bytes()
        os.truncate(first, 30_000)  # as a copy that was interrupted leaves it
        assert back_up(data, copy, broker.url).returncode == 0
        assert first.read_bytes() == whole
        for _ in range(20):
            if (data / "journal" / first.name).exists():
                publish(mq, 100)
        assert back_up(data, copy, broker.url).returncode == 0
        assert not first.exists()


def publish(mq: mqks.Client, count: int) -> None:
    for _ in range(count):
        mq.publish("e1", 2000 * "x", confirm=True)


def test_a_backup_that_cannot_be_made_ends_and_says_why(tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    with testing.broker(data=data) as broker, mqks.Client(broker.url) as mq:
        misspelt = back_up(tmp_path / "date", copy, broker.url)
        assert (misspelt.returncode, misspelt.stderr.count("date/journal is not there")) == (1, 1)
        with socket.socket() as deaf:  # it has a port, and does not listen
            deaf.bind(("127.0.0.1", 0))
            nobody = back_up(data, copy, f"mqks://127.0.0.1:{deaf.getsockname()[1]}")
        assert nobody.returncode == 1 and "cannot reach mqks://" in nobody.stderr
        (copy / "journal" / "00000000000000999999.mqks").touch()
        others = back_up(data, copy, broker.url)
        assert others.returncode == 1 and "of another broker" in others.stderr
        (copy / "journal" / "00000000000000999999.mqks").unlink()
        (copy / "lost").mkdir()
        (data / "lost").touch()  # which cannot be copied over a folder
        failed = back_up(data, copy, broker.url)
        assert failed.returncode == 1 and "lost" in failed.stderr
        assert mq.stats()["journal"]["holds"] == {}
    with testing.broker() as broker:
        refused = back_up(data, copy, broker.url)
        assert refused.returncode == 1 and "does not hold its journal" in refused.stderr


def test_a_backup_of_a_broker_with_tokens_and_tls(tmp_path: Path) -> None:
    data, copy, tokens, ours = tmp_path / "data", tmp_path / "copy", tmp_path / "tokens.toml", Authority(tmp_path)
    made = subprocess.run(
        ["mqks", "token", "new", "backup", f"--auth-file={tokens}", "--history=**"],
        env=environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    with testing.broker(data=data, auth_file=tokens, tls_cert=ours.issue()) as broker:
        stranger = back_up(data, copy, broker.url, MQKS_CA=str(ours.file))
        assert stranger.returncode == 1 and "has no token" in stranger.stderr
        known = back_up(data, copy, broker.url, MQKS_CA=str(ours.file), MQKS_TOKEN=made.stdout.strip())
        assert known.returncode == 0, known.stdout + known.stderr


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_the_certificate_of_the_page_is_taken_by_broker_and_clients(tmp_path: Path) -> None:
    tls = section("TLS")
    (make,) = re.findall(r"^    (openssl req (?:.*\\\n)*.*)$", tls, re.MULTILINE)
    (start,) = re.findall(r"^    (mqksd .*)$", tls, re.MULTILINE)
    (ask,) = re.findall(r"^    (mqks ping .*)$", tls, re.MULTILINE)
    run("sh", "-c", make, folder=tmp_path)
    config = Config.load(start.split()[1:], {})
    assert config.tls_cert and config.tls_key
    with testing.broker(tls_cert=tmp_path / config.tls_cert, tls_key=tmp_path / config.tls_key) as broker:
        run(*ask.replace("mqkss://localhost", f"mqkss://localhost:{broker.port}").split(), folder=tmp_path)


def test_pages_name_the_certificate_alike() -> None:
    for page in [*ROOT.glob("*.md"), *DOCS.glob("*.md")]:
        text = page.read_text(encoding="utf-8")
        given = re.findall(r"--tls-(?:cert|key)[= ]([\w/]+\.\w+)", text)
        assert set(given) <= {"broker.pem", "broker.key"}, page
        assert not given or "#tls" in text, page


def test_a_hold_that_was_forgotten_is_ended(tmp_path: Path) -> None:
    (command,) = re.findall(r"`(mqks journal hold NAME .*)`", PAGE)
    with testing.broker(data=tmp_path) as broker, mqks.Client(broker.url) as mq:
        mq.hold("NAME", "earliest", 60)
        run(*command.split(), f"--url={broker.url}")
        assert mq.stats()["journal"]["holds"] == {}


def test_what_the_health_sentence_says_is_quoted() -> None:
    said = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src" / "mqks" / "web").glob("*.py"))
    quotes = re.findall(r'"([a-z][a-z ]+)(?: \d+ s)?"', section("What to do when"))
    assert quotes == ["has read nothing for", "gives the same messages again and again"]
    kinds = re.findall(r"`incident (\w+)`", section("What to do when"))
    assert kinds == ["deaf", "poison", "stalled"]
    assert [one for one in (*quotes, *(f'"{kind}"' for kind in kinds)) if one not in said] == []


def take(url: str, queue: str, count: int) -> list[str]:
    """So many messages of it, acked."""
    found: list[str] = []
    with mqks.Client(url) as mq, mq.consume(queue, manual_ack=True, prefetch=count) as consumer:
        for message in consumer:
            found.append(message.data)
            message.ack(confirm=True)
            if len(found) == count:
                break
    return found
