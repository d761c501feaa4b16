"""Config: each option reaches it from every place, the precedence, and one clear line for each mistake."""

import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path

import pytest

from mqks import __version__
from mqks.cli.logs import TextFormatter
from mqks.server.config import IN_FILE, OPTIONS, Config, ConfigError, Option, table
from mqks.values import SWITCH

DOCS = Path(__file__).parents[2] / "docs" / "CONFIGURATION.md"

# Option → another value than its default, as text and as it must arrive.
OTHER: dict[str, tuple[str, object]] = {
    "port": ("25001", 25001),
    "host": ("::1", "::1"),
    "http": ("false", False),
    "http_port": ("0", 0),
    "http_host": ("0.0.0.0", "0.0.0.0"),
    "http_name": ("broker,b-1.example.org", ("broker", "b-1.example.org")),
    "tls_cert": ("/etc/mqks/cert.pem", Path("/etc/mqks/cert.pem")),
    "tls_key": ("/etc/mqks/key.pem", Path("/etc/mqks/key.pem")),
    "tls_ca": ("/etc/mqks/ca.pem", Path("/etc/mqks/ca.pem")),
    "auth_file": ("/etc/mqks/auth.toml", Path("/etc/mqks/auth.toml")),
    "insecure": ("true", True),
    "auth_timeout": ("2.5", 2.5),
    "data": ("/var/lib/mqks", Path("/var/lib/mqks")),
    "memory": ("true", True),
    "fsync": ("interval=250", "interval=250"),
    "segment_size": ("1M", 1 << 20),
    "retain_bytes": ("10G", 10 << 30),
    "retain_age": ("12h", 43200.0),
    "restart_grace": ("1.5", 1.5),
    "salvage": ("true", True),
    "dedup_window": ("2h", 7200.0),
    "dedup_count": ("0", 0),
    "max_line": ("64K", 65536),
    "max_connections": ("12", 12),
    "max_connections_per_address": ("3", 3),
    "max_rate": ("1000", 1000),
    "line_timeout": ("5s", 5.0),
    "max_queues": ("10", 10),
    "max_events": ("11", 11),
    "max_consumers": ("13", 13),
    "max_unacked": ("14", 14),
    "max_length": ("1000000", 1_000_000),
    "max_bytes": ("1G", 1 << 30),
    "overflow": ("drop-oldest", "drop-oldest"),
    "min_free_disk": ("0", 0),
    "max_memory": ("2G", 2 << 30),
    "log_level": ("debug", "debug"),
    "log_format": ("json", "json"),
}

# Option → one that it makes no sense without.
NEEDS = {"tls_key": "tls_cert", "tls_ca": "tls_cert"}


def load(*argv: str, environ: Mapping[str, str] | None = None) -> Config:
    return Config.load(argv, environ or {})


def mistake(*argv: str, environ: Mapping[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(*argv, environ=environ)
    text = str(caught.value)
    assert text and "\n" not in text
    return text


def as_flag(option: Option, text: str) -> Sequence[str]:
    if option.kind is SWITCH:
        return [option.flag if text == "true" else option.flag.replace("--", "--no-", 1)]
    return [option.flag, text]


def write(tmp_path: Path, toml: str) -> str:
    file = tmp_path / "mqks.toml"
    file.write_text(toml, encoding="utf-8")
    return str(file)


@pytest.fixture(params=IN_FILE.values(), ids=list(IN_FILE))
def option(request: pytest.FixtureRequest) -> Option:
    assert isinstance(request.param, Option)
    return request.param


# ---- Where options come from


def test_nothing_given_is_the_defaults() -> None:
    assert load() == Config()
    assert (Config().port, Config().host, Config().http_port) == (25000, "127.0.0.1", 25080)
    assert (Config().max_line, Config().max_connections, Config().max_memory) == (1 << 20, 10_000, 1 << 30)


def test_every_field_is_an_option_with_help() -> None:
    assert [each.name for each in OPTIONS] == [each.name for each in fields(Config)]
    assert all(each.help for each in OPTIONS)


def test_config_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        Config().port = 1  # type: ignore[misc]


def test_default_can_be_written_as_it_is_shown(option: Option) -> None:
    if option.default is not None:
        assert option.parse(option.shown, "here") == option.default
    else:
        assert option.shown == ""


def test_each_option_from_each_place(option: Option, tmp_path: Path) -> None:
    given = {each: OTHER[each.name] for each in (IN_FILE.get(NEEDS.get(option.name, "")), option) if each}
    wanted = replace(Config(), **{each.name: value for each, (_, value) in given.items()})  # type: ignore[arg-type]
    assert load(*(word for each, (text, _) in given.items() for word in as_flag(each, text))) == wanted
    assert load(environ={each.env: text for each, (text, _) in given.items()}) == wanted
    file = write(tmp_path, "".join(f'{each.name} = "{text}"\n' for each, (text, _) in given.items()))
    assert load("--config", file) == replace(wanted, config=Path(file))
    assert load(environ={"MQKS_CONFIG": file}) == replace(wanted, config=Path(file))


def test_toml_takes_plain_numbers_and_booleans(tmp_path: Path) -> None:
    config = load("--config", write(tmp_path, "port = 1\nmemory = true\nmax_line = 2_048\nmax_connections = 3\n"))
    assert (config.port, config.memory, config.max_line, config.max_connections) == (1, True, 2048, 3)


def test_flag_over_environment_over_file_over_default(tmp_path: Path) -> None:
    file = write(tmp_path, 'port = 1\nhost = "file"\nmax_connections = 7\nmemory = true\n')
    environ = {"MQKS_PORT": "2", "MQKS_HOST": "environment", "MQKS_CONFIG": file}
    config = load("--port", "3", "--no-memory", environ=environ)
    assert (config.port, config.host, config.max_connections) == (3, "environment", 7)
    assert config.memory is False
    assert config.http_port == Config().http_port


def test_config_flag_over_config_variable(tmp_path: Path) -> None:
    file = write(tmp_path, "port = 1\n")
    assert load("--config", file, environ={"MQKS_CONFIG": "no such file"}).port == 1


def test_other_variables_are_left_alone() -> None:
    assert load(environ={"MQKS_URL": "mqks://h", "PORT": "x", "mqks_port": "x", "MQKS_PORT": ""}) == Config()


# ---- How values are written


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("64", 64),
        ("64k", 65536),
        ("64K", 65536),
        ("64KiB", 65536),
        ("1M", 1 << 20),
        ("1MiB", 1 << 20),
        ("0001mib", 1 << 20),
        ("1G", 1 << 30),
    ],
)
def test_sizes(text: str, value: int) -> None:
    assert load("--max-line", text).max_line == value


@pytest.mark.parametrize("text", ["2G", "2T"])
def test_large_sizes(text: str) -> None:
    assert load("--max-memory", text).max_memory == {"2G": 2 << 30, "2T": 2 << 40}[text]


@pytest.mark.parametrize("text", ["true", "True", "1", "yes", "on"])
def test_switch_on(text: str) -> None:
    assert load(environ={"MQKS_MEMORY": text}).memory is True


@pytest.mark.parametrize("text", ["false", "FALSE", "0", "no", "off"])
def test_switch_off(text: str) -> None:
    assert load(environ={"MQKS_MEMORY": text}).memory is False


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0.0), ("90", 90.0), ("1.25", 1.25), ("90s", 90.0), ("15m", 900.0), ("1.5H", 5400.0), ("7d", 604800.0)],
)
def test_times(text: str, seconds: float) -> None:
    assert load("--retain-age", text).retain_age == seconds


@pytest.mark.parametrize("text", ["always", "never", "interval", "interval=1", "INTERVAL=500"])
def test_fsync(text: str) -> None:
    assert load("--fsync", text).fsync == text.lower()


# ---- Mistakes


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *[("port", text) for text in ("65536", "-1", "x", "1.5", "\uff11", "0x10", "9" * 5000, " 1")],
        *[("max_line", text) for text in ("63", "2G", "1MB", "1.5M", "K", "-1", "1 M", "1\u212a", "9" * 5000)],
        *[("max_connections", text) for text in ("0", "1000001")],
        *[
            (name, text)
            for name in ("max_connections_per_address", "max_queues", "max_events", "max_consumers")
            for text in ("0", "1000001", "-1", "many")
        ],
        *[(name, text) for name in ("max_rate", "max_unacked", "max_length") for text in ("-1", "1e3", "", "9" * 19)],
        *[(name, text) for name in ("max_bytes", "min_free_disk") for text in ("-1", "1MB", "2097152T")],
        *[(name, text) for name in ("line_timeout", "auth_timeout") for text in ("-1", "soon", "1w")],
        *[("overflow", text) for text in ("drop", "drop_oldest", "")],
        *[(name, "") for name in ("tls_cert", "tls_key", "tls_ca", "auth_file")],
        *[("max_memory", text) for text in ("4", "999999999T")],
        *[
            ("fsync", text)
            for text in ("sometimes", "never=1", "interval=", "interval=0", "interval=1s", "interval=-1")
        ],
        *[("segment_size", text) for text in ("1K", "2T")],
        *[("retain_bytes", text) for text in ("-1", "all")],
        *[("retain_age", text) for text in ("-1", "7w", "d", "1e3", "inf", "1.2345")],
        *[("log_level", text) for text in ("loud", "warn ing\nx")],
        *[("host", text) for text in ("a b", "a\nb")],
        *[("http_name", text) for text in ("a b", "a,", ",", "http://a", "a:25080", "*", "[::1]", "é")],
    ],
)
def test_bad_value_is_named_with_its_place(name: str, text: str, tmp_path: Path) -> None:
    option = IN_FILE[name]
    line = mistake(f"{option.flag}={text}")
    assert line.startswith(f"{option.flag}: ") and repr(text) in line and "give " in line
    if text:  # an empty variable counts as not set
        assert mistake(environ={option.env: text}).startswith(f"{option.env}: ")
    file = write(tmp_path, f"{name} = {toml_string(text)}\n")
    assert mistake("--config", file).startswith(f"{file!r}: {name}: ")


def toml_string(text: str) -> str:
    return '"' + text.replace("\n", "\\n") + '"'


def test_bad_values_say_what_would_be_right() -> None:
    assert mistake("--port", "70000") == "--port: '70000' will not do; give a number from 0 to 65535"
    assert mistake("--max-line", "3") == "--max-line: '3' will not do; give a size from 64 to 1G, such as 65536 or 64K"
    assert mistake("--max-memory", "1M").endswith("give a size from 4M to 1024T, such as 4194304 or 4M")
    assert "debug, info, warning, error" in mistake("--log-level", "loud")
    assert "90, 15m, 12h or 7d" in mistake("--retain-age", "a week")
    assert "interval=500" in mistake("--fsync", "often")
    assert "true or false" in mistake(environ={"MQKS_MEMORY": "maybe"})
    assert "reject, drop-oldest" in mistake("--overflow", "block")


def test_unknown_flags() -> None:
    assert mistake("--prot=1") == "unknown argument '--prot'; did you mean --port?"
    assert "--help" in mistake("--xyzzy")
    assert "--help" in mistake("serve")
    assert "--max-line" in mistake("--max-l", "1M"), "no abbreviations: they break when an option is added"


def test_flag_without_its_value() -> None:
    assert "--port" in mistake("--port")
    assert "--memory" in mistake("--memory=1")


def test_unknown_variables() -> None:
    line = mistake(environ={"MQKS_MAXLINE": "1"})
    assert line == "unknown environment variable 'MQKS_MAXLINE'; did you mean MQKS_MAX_LINE?"
    assert "--help" in mistake(environ={"MQKS_SERVICE_HOST": "1"})


def test_unknown_keys(tmp_path: Path) -> None:
    line = mistake("--config", write(tmp_path, "max-line = 1\n"))
    assert "'max-line'" in line and line.endswith("did you mean max_line?")
    assert "'server'" in mistake("--config", write(tmp_path, "[server]\nport = 1\n"))
    assert "'config'" in mistake("--config", write(tmp_path, 'config = "other.toml"\n')), "a file names no file"


@pytest.mark.parametrize(
    ("toml", "advice"),
    [
        ("port = true", "a number"),
        ("port = 1.0", "a number"),
        ("port = [1]", "a number"),
        ("data = 1", "text in quotes"),
        ("host = {a = 1}", "text in quotes"),
        ("memory = 1", "true or false"),
        ('data = ""', "give a path"),
        ('data = "a\\u0000b"', "give a path"),
    ],
)
def test_value_of_the_wrong_type_in_toml(toml: str, advice: str, tmp_path: Path) -> None:
    line = mistake("--config", write(tmp_path, toml))
    assert toml.split()[0] in line and advice in line


@pytest.mark.parametrize("content", [b"port = ", b"port: 1", b"port = 1\nport = 2", b"\xff\xfe"])
def test_file_that_is_not_toml(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "mqks.toml"
    file.write_bytes(content)
    assert "is not TOML" in mistake("--config", str(file))


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    assert "No such file" in mistake("--config", str(tmp_path / "none"))
    assert "--config" in mistake(environ={"MQKS_CONFIG": str(tmp_path)})


def test_line_that_would_never_fit_in_memory() -> None:
    line = mistake("--max-line", "8M", "--max-memory", "4M")
    assert "8M" in line and "4M" in line


# ---- What people read


def test_help_names_every_option_and_fits_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        load("--help")
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    words = shown.split()
    for option in OPTIONS:
        assert option.flag in words or f"{option.flag}," in words
        assert option.help in " ".join(words)
        assert not option.shown or option.kind.metavar == "" or f"[{option.shown}]" in words
    assert max(map(len, shown.splitlines())) <= 80


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        load("--version")
    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"mqksd {__version__}\n"


def test_documented_table_is_the_generated_one() -> None:
    lines = DOCS.read_text(encoding="utf-8").splitlines(keepends=True)
    found = "".join(line for line in lines if line.startswith("|"))
    assert found == table(), f"put this into {DOCS.name}:\n{table()}"


def test_log_line() -> None:
    record = logging.LogRecord("mqks", logging.WARNING, "", 0, "got %s", ("a\nb\x1b[2Jé\x9b",), None)
    record.created, record.msecs = 1767323045.678, 678.0
    assert TextFormatter().format(record) == "2026-01-02T03:04:05.678Z warning got a\\nb\\x1b[2Jé\\x9b"


def test_log_keeps_the_traceback() -> None:
    try:
        raise RuntimeError("what went wrong")
    except RuntimeError:
        record = logging.LogRecord("mqks", logging.ERROR, "", 0, "failed", (), sys.exc_info())
    assert TextFormatter().format(record).endswith("RuntimeError: what went wrong")
