"""What the commands show a broker and trust: flags, files and the environment; what doctor says of certificates."""

import os
from argparse import ArgumentParser
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from pathlib import Path

import pytest

import mqks
from mqks import testing
from mqks.cli import checks, up
from mqks.cli.case import Case
from mqks.cli.pipeline import add_stats, place_of
from mqks.cli.security_checks import tls, tokens
from mqks.cli.up import url_of
from mqks.client.access import ENVIRONMENT, Access
from mqks.server.config import Config
from mqks.server.tokens import Hash, new_token
from tests.certificates import Authority
from tests.cli.conftest import Cli
from tests.cli.running import ended, started
from tests.tokens import ALL, auth_file
from tests.tokens import token as secret


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MQKS_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def token(tmp_path: Path) -> str:
    """In token.txt, and known to the broker."""
    made = new_token("worker")
    (tmp_path / "auth.toml").write_text(
        f'[tokens.worker]\nhash = "{Hash.of(made)}"\npublish = ["**"]\nmanage = ["q"]\n'
    )
    (tmp_path / "auth.toml").chmod(0o600)
    (tmp_path / "token.txt").write_text(f"{made}\n")
    return made


@pytest.fixture
def guarded(authority: Authority, token: str, tmp_path: Path) -> Iterator[testing.Broker]:
    """It wants a token and a certificate, and speaks TLS."""
    assert token
    with testing.broker(
        tls_cert=authority.issue(), tls_ca=authority.file, auth_file=tmp_path / "auth.toml", max_line="2M"
    ) as made:
        yield made


def test_flags(guarded: testing.Broker, authority: Authority, tmp_path: Path, cli: Cli) -> None:
    cert, key = authority.issue_apart("client")
    flags = ["--url", guarded.url, f"--ca={authority.file}", "--cert", str(cert), "--key", str(key)]
    said = cli("ping", "--count", "1", *flags, "--token-file", str(tmp_path / "token.txt"))
    assert said.code == 0, said.err
    before = cli(*flags, f"--token-file={tmp_path / 'token.txt'}", "pub", "e1", "d1")
    assert before.code == 0, before.err


def test_the_environment(
    guarded: testing.Broker, authority: Authority, token: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = authority.issue_apart("client")
    given = {"MQKS_URL": guarded.url, "MQKS_CA": authority.file, "MQKS_CLIENT_CERT": cert, "MQKS_CLIENT_KEY": key}
    for name, value in given.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("MQKS_TOKEN", token)
    assert cli("pub", "e1", "d1").code == 0
    monkeypatch.setenv("MQKS_CA", str(Path(__file__)))
    said = cli("pub", "e1", "d1")
    assert said.code == 1
    assert said.err.startswith(f"mqks: ca {__file__} cannot be used")


def test_who_is_not_let_in(token: str, tmp_path: Path, cli: Cli) -> None:
    """Without TLS too: one line, which names what is missing and shows no token."""
    wrong = tmp_path / "wrong.txt"
    wrong.write_text(token[:-1] + ("a" if token[-1] != "a" else "b"))
    with testing.broker(auth_file=tmp_path / "auth.toml") as broker:
        stranger = cli("pub", "e1", "d1", "--url", broker.url)
        liar = cli("pub", "e1", "d1", "--url", broker.url, "--token-file", str(wrong))
    assert (stranger.code, liar.code) == (1, 1)
    assert "does not let in who has no token (give one by token=…, --token-file or MQKS_TOKEN)" in stranger.err
    assert "does not let in who shows the token worker.…" in liar.err
    assert len(stranger.err.splitlines()) == len(liar.err.splitlines()) == 1
    assert token.partition(".")[2][:20] not in liar.err


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "No such file"), ("two words", "a token is one word"), ("", "a token is one word"), ("ä", "one word")],
)
def test_what_is_no_file_with_a_token(content: str | None, why: str, tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "token.txt"
    if content is not None:
        path.write_text(content)
    said = cli("ping", "--token-file", str(path))
    assert said.code == 2
    assert why in said.err
    assert not content or content not in said.err


def test_a_token_that_others_could_read_is_warned_of(token: str, tmp_path: Path, cli: Cli) -> None:
    assert token
    said = cli("ping", "--url", "mqks://192.0.2.1.invalid", "--token-file", str(tmp_path / "token.txt"))
    assert said.err.startswith("mqks: mqks://192.0.2.1.invalid:25000: the token travels readable; mqkss:// would hide")


def test_one_who_may_rebind_but_not_see(token: str, tmp_path: Path, cli: Cli) -> None:
    assert token
    with testing.broker(auth_file=tmp_path / "auth.toml") as broker:
        access = ["--url", broker.url, "--token-file", str(tmp_path / "token.txt")]
        said = cli("rebind", "q", *access)
        assert said.out == "q is rebound; this token may not see to what\n", said.err
        for _ in range(2):
            said = cli("delete-queue", "q", *access)
            assert said.out == "q is deleted, if it was there; this token may not see that\n", said.err


@pytest.mark.parametrize("command", [["sub", "q1"], ["tail", "--from=earliest"]], ids=lambda words: words[0])
def test_a_token_that_is_revoked_meanwhile_ends_the_command(command: list[str], tmp_path: Path) -> None:
    """A library goes on trying; whoever has typed a command wants to hear of it."""
    tokens = auth_file(tmp_path, worker=ALL, boss=ALL)
    with testing.broker(data=tmp_path / "data", auth_file=tokens) as broker:
        with mqks.Client(broker.url, token=secret("boss")) as mq:
            mq.rebind("q1", ["e1"])
            mq.publish("e1", "d1", confirm=True)
        environment = {**os.environ, "MQKS_TOKEN": secret("worker"), "MQKS_URL": broker.url}
        with started(*command, env=environment) as process:
            assert process.stdout
            assert process.stdout.readline().endswith(b" e1 d1\n")
            auth_file(tmp_path, boss=ALL)
            broker.reload()
            said = ended(process)
    assert (said.code, said.out) == (1, "")
    lost, why = said.err.splitlines()
    assert lost.endswith("lost, reconnecting")
    assert why.startswith("mqks: the broker does not let in who shows the token worker.…: error ")


def test_the_pipeline_hands_it_on(
    token: str, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To all that it starts, by the environment."""
    from mqks.cli.command import Command, parser_of

    for name in ENVIRONMENT.values():
        monkeypatch.setenv(name, "")  # so that it is taken back
    command = Command("stats", add_stats, lambda _: 0, "")
    flags = [f"--token-file={tmp_path / 'token.txt'}", f"--ca={authority.file}", "--url=mqkss://here"]
    assert place_of(parser_of("mqks stats", command).parse(flags)).broker == "mqkss://here:25000"
    assert (os.environ["MQKS_TOKEN"], os.environ["MQKS_CA"]) == (token, str(authority.file))


def test_the_pipeline_does_not_hand_on_the_key_of_another_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    from mqks.cli.command import Command, parser_of

    for name in ENVIRONMENT.values():
        monkeypatch.setenv(name, "of-another")
    command = Command("stats", add_stats, lambda _: 0, "")
    place_of(parser_of("mqks stats", command).parse(["--cert=both.pem"]))
    assert Access().found() == Access("of-another", ca="of-another", cert="both.pem")
    assert "MQKS_CLIENT_KEY" not in os.environ


def test_up_reaches_its_broker_as_it_is_configured() -> None:
    assert url_of(Config(port=1)) == "mqks://127.0.0.1:1"
    assert url_of(Config(host="::", port=1, tls_cert=Path("c.pem"))) == "mqkss://[::1]:1"


def test_up_reaches_it_by_another_name_if_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is in its certificate."""
    monkeypatch.setattr(up, "config_error", lambda _: None)
    parser = ArgumentParser()
    up.arguments(parser)
    command = up.pipeline_arguments(parser.parse_args(["--url=mqkss://broker.example:1"]), Config(port=1))
    assert "--url=mqkss://broker.example:1" in command
    assert "--url=mqks://127.0.0.1:1" in up.pipeline_arguments(parser.parse_args([]), Config(port=1))


def test_up_does_not_start_a_pipeline_that_nobody_would_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MQKS_TOKEN", raising=False)
    config = Config(port=1, auth_file=Path("tokens.toml"))
    reason = up.config_error(config)
    assert reason and "MQKS_TOKEN" in reason
    monkeypatch.setenv("MQKS_TOKEN", "pipeline.secret")
    assert up.config_error(config) is None


# ── doctor ──


def test_doctor_looks_at_the_certificate(authority: Authority, tmp_path: Path) -> None:
    assert tls(Case(Config())).text.startswith("this shell's settings have no --tls-cert: ")
    good = tls(Case(Config(tls_cert=authority.issue())))
    assert (good.level, good.text.startswith(f"{tmp_path / 'server.pem'} is valid for ")) == ("ok", True)
    cert, key = authority.issue_apart("apart")
    assert tls(Case(Config(tls_cert=cert, tls_key=key))).level == "ok"


def test_doctor_says_what_is_wrong_with_it(authority: Authority, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    soon = tls(Case(Config(tls_cert=authority.issue(ends=now + timedelta(days=10, hours=1)))))
    assert (soon.level, soon.text.endswith("is valid for 10 days")) == ("warn", True)
    ended = tls(Case(Config(tls_cert=authority.issue(ends=now - timedelta(days=1)))))
    assert (ended.level, "certificate has expired" in ended.text) == ("bad", True)
    cert, _ = authority.issue_apart("one")
    _, key = authority.issue_apart("two")
    other = tls(Case(Config(tls_cert=cert, tls_key=key)))
    assert (other.level, "key values mismatch" in other.text) == ("bad", True)
    missing = tls(Case(Config(tls_cert=tmp_path / "nowhere.pem")))
    assert (missing.level, "no such file" in missing.text) == ("bad", True)
    no_pem = tls(Case(Config(tls_cert=Path(__file__))))
    assert no_pem.level == "bad"
    shared = authority.issue()
    shared.chmod(0o644)
    seen = tls(Case(Config(tls_cert=shared)))
    assert (seen.level, seen.advice) == ("warn", f"chmod g-w,o= {shared}")


def test_doctor_looks_at_what_the_broker_itself_shows(authority: Authority, cli: Cli) -> None:
    """A shell that knows nothing of the broker's files: by its port."""
    cert, now = authority.issue(), datetime.now(UTC)
    for days, level, text in ((300, "ok", "is valid for 300 days"), (10, "warn", "is valid for 10 days")):
        authority.issue(ends=now + timedelta(days=days, hours=1))
        with testing.broker(tls_cert=cert) as broker:
            (found,) = cli("doctor", "tls", "--json", "--url", broker.url, f"--ca={authority.file}").json
        assert (found["level"], found["text"]) == (level, f"the certificate of {broker.url} {text}")
    authority.issue(ends=now - timedelta(days=1))
    with testing.broker(tls_cert=cert) as broker:
        said = cli("doctor", "tls", "broker", "--json", "--url", broker.url, f"--ca={authority.file}")
    assert said.code == 1
    for found in said.json:
        assert (found["level"], "certificate has expired; renew its certificate" in found["text"]) == ("bad", True)


def test_doctor_looks_at_the_certificate_of_a_broker_that_is_not_there(cli: Cli, unused_port: int) -> None:
    (found,) = cli("doctor", "tls", "--json", "--url", f"mqkss://127.0.0.1:{unused_port}").json
    assert (found["level"], found["advice"]) == ("warn", "see `broker`")


@pytest.mark.usefixtures("token")
def test_doctor_looks_at_the_tokens(tmp_path: Path) -> None:
    path = tmp_path / "auth.toml"
    assert (found := tokens(Case(Config()))).level == "ok"
    assert found.text.startswith("this shell's settings have no --auth-file: a broker that is started with them ")
    assert tokens(Case(Config(insecure=True))).level == "warn"
    assert tokens(Case(Config(auth_file=path))).level == "ok"
    path.chmod(0o640)  # as root:mqks has it
    assert tokens(Case(Config(auth_file=path))).level == "ok"
    for mode in (0o644, 0o660):
        path.chmod(mode)
        found = tokens(Case(Config(auth_file=path)))
        assert (found.level, found.advice) == ("warn", f"chmod g-w,o= {path}")
    path.write_text("[tokens.x]\n")
    path.chmod(0o600)
    assert (tokens(Case(Config(auth_file=path)))).level == "bad"


def test_doctor_says_what_http_wants(token: str, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert token
    with testing.broker(auth_file=tmp_path / "auth.toml", http=True) as broker:
        assert broker.http_url
        monkeypatch.setenv("MQKS_HTTP_PORT", broker.http_url.rstrip("/").rpartition(":")[2])
        for flags in ([], ["--token-file", str(tmp_path / "token.txt")]):  # which is one without admin
            said = cli("doctor", "http", "--json", "--url", broker.url, *flags)
            assert said.json[0]["advice"] == "show it a token that has `admin`"


def test_doctor_shows_its_token_only_where_one_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = {}

    def request(_: HTTPConnection, __: str, path: str, headers: dict[str, str]) -> None:
        shown[path] = headers
        raise ConnectionRefusedError

    monkeypatch.setattr(HTTPConnection, "request", request)
    case = Case(Config(), access=Access("boss.secret"))
    for path in ("/healthz", "/api/state"):
        with pytest.raises(ConnectionRefusedError):
            checks.ask(case, path)
    assert shown == {"/healthz": {}, "/api/state": {"Authorization": "Bearer boss.secret"}}


def test_doctor_does_not_take_a_broker_that_is_not_trusted_for_none(
    authority: Authority, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    with testing.broker(tls_cert=authority.issue(), http=True) as broker:
        assert broker.http_url
        monkeypatch.setenv("MQKS_HTTP_PORT", broker.http_url.rstrip("/").rpartition(":")[2])
        by_wire, by_http = cli("doctor", "broker", "http", "--json", "--url", broker.url).json
    assert (by_wire["level"], "token" in by_wire["advice"]) == ("bad", False)
    assert "cannot trust" in by_wire["text"]
    assert (by_http["level"], by_http["advice"]) == ("warn", "see `broker`")


def test_doctor_by_an_address_that_clients_do_not_use(authority: Authority) -> None:
    """Nobody has named the broker: that 127.0.0.1 is not in its certificate is nothing bad."""
    with testing.broker(tls_cert=authority.issue("server.pem", "broker.example.org")) as broker:
        found = checks.broker(Case(Config(tls_cert=authority.file, port=broker.port), access=Access(ca=authority.file)))
    assert (found.level, "--url" in found.advice) == ("warn", True)


def test_doctor_asks_for_http_where_it_may_be_another_brokers(
    authority: Authority, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    with testing.broker(tls_cert=authority.issue()) as asked, testing.broker(http=True) as other:
        assert other.http_url
        monkeypatch.setenv("MQKS_HTTP_PORT", other.http_url.rstrip("/").rpartition(":")[2])
        (found,) = cli("doctor", "http", "--json", "--url", asked.url, f"--ca={authority.file}").json
    assert found["level"] == "warn"
    asked_there = other.http_url.replace("http:", "https:")
    assert found["text"] == f"{asked_there}/ does not speak TLS: it may be another's"
    assert "MQKS_HTTP_PORT" in found["advice"]


def test_doctor_warns_of_a_token_that_others_could_read(token: str, tmp_path: Path, cli: Cli) -> None:
    assert token
    said = cli("doctor", "python", "--url", "mqks://192.0.2.1.invalid", "--token-file", str(tmp_path / "token.txt"))
    assert said.err.startswith("mqks: mqks://192.0.2.1.invalid:25000: the token travels readable; mqkss:// would hide")


def test_doctor_meets_a_broker_that_does_not_know_it(
    guarded: testing.Broker, authority: Authority, tmp_path: Path, cli: Cli
) -> None:
    """Somebody is there: that is not the same as nobody."""
    flags = ["--url", guarded.url, f"--ca={authority.file}", f"--cert={authority.issue('client.pem', 'client')}"]
    stranger = cli("doctor", "broker", *flags)
    assert (stranger.code, "but tells us nothing: the broker does not let in who has no token" in stranger.out) == (
        0,
        True,
    )
    known = cli("doctor", "broker", *flags, f"--token-file={tmp_path / 'token.txt'}")  # but it is no admin
    assert "but tells us nothing: the broker refused" in known.out
    untrusted = cli("doctor", "broker", "--url", guarded.url)
    assert "but tells us nothing: cannot trust" in untrusted.out
