"""The checks of `mqks doctor`, one function each, and the table of all: what is installed, the system, the broker.

None changes anything. What cannot be found out is a warning, never an end.
"""

from __future__ import annotations

import errno
import http.client
import json
import os
import platform
import resource
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mqks import __version__
from mqks.cli.case import PATIENCE, Case, Finding, bad, bind, ok, warn
from mqks.cli.disk_checks import disk, filesystem, folder, fsync, journal
from mqks.cli.security_checks import READ_OF_TLS, tls, tokens
from mqks.client.address import find_address
from mqks.client.errors import TlsFailed
from mqks.client.hello import NO_TLS
from mqks.formatting import counted, duration_in_two_units, size_in_tenths

LEAST_CONNECTIONS = 100
NEEDS_ADMIN = "show it a token that has `admin`"
OPEN_PATH = "/healthz"  # needs no token, so whoever has the port is shown none before it answers as a broker does
TELL_PORT = "set MQKS_HTTP_HOST and MQKS_HTTP_PORT as the broker has them"
AHEAD = timedelta(seconds=5)
NO_EARLIER = datetime(2026, 1, 1, tzinfo=UTC)  # than this program itself


# ── the program ──


def python(_: Case) -> Finding:
    try:
        import mqks.journal  # noqa: F401  # which needs it
    except ImportError as error:
        return bad(f"the compiled core cannot be loaded: {error}", "install mqks again, for this Python")
    return ok(f"{platform.python_version()}, mqks {__version__}")


def configuration(case: Case) -> Finding:
    if case.wrong:
        return bad(case.wrong, "mqksd would not start: correct it")
    given = [name for name in sorted(os.environ) if name.startswith("MQKS_")]
    return ok(f"by {', '.join(given)}" if given else "the defaults: no MQKS_ variable is set")


def java(_: Case) -> Finding:
    from mqks.pipeline.session import CannotStart, check, version_of

    if find_spec("pyspark") is None:
        return ok("not needed: Spark is not installed, and only `mqks pipeline` wants it")
    try:
        found = check()
    except CannotStart as error:
        return warn("Spark is installed, but cannot start", str(error))
    return ok(f"{version_of(found)}, at {found}")


# ── the system ──


def files(case: Case) -> Finding:
    from mqks.server.app import connections_within

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    whose = "this shell"
    if case.owner:
        try:  # the broker's own, which a service manager may have set
            limits = Path(f"/proc/{case.owner}/limits").read_text().splitlines()
            soft = next(line for line in limits if line.startswith("Max open files")).split()[3]
            most, whose = resource.RLIM_INFINITY if soft == "unlimited" else int(soft), f"process {case.owner}"
        except (OSError, StopIteration, ValueError):
            pass
    wanted = case.config.max_connections
    room = connections_within(most, wanted)
    if room == wanted:
        return ok(f"enough for {counted(wanted, 'connection')} ({whose})")
    say = bad if room < LEAST_CONNECTIONS else warn
    advice = "raise `ulimit -n` (systemd: LimitNOFILE=), or lower --max-connections"
    return say(f"room for {counted(room, 'connection')} of {wanted:,}, since {whose} may open {most:,}", advice)


def memory(case: Case) -> Finding:
    told = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    total, free = (int(told[name].split()[0]) << 10 for name in ("MemTotal", "MemAvailable"))
    group = Path("/sys/fs/cgroup/memory.max")  # there in containers
    limit = group.read_text().strip() if group.is_file() else "max"
    total = min(total, int(limit)) if limit.isdigit() else total
    wanted = case.config.max_memory
    text = (
        f"{size_in_tenths(min(free, total))} free of {size_in_tenths(total)}, --max-memory is {size_in_tenths(wanted)}"
    )
    if wanted > total * 0.9:
        return bad(
            text, f"lower it to {size_in_tenths(total // 2)} or less: the rest is for Python and the system's cache"
        )
    if free < wanted and case.owner is None:
        return warn(text, "lower it, or end what uses the rest")
    return ok(text)


def kernel(_: Case) -> Finding:
    from mqks.server.tcp import BACKLOG

    now = int(Path("/proc/sys/net/core/somaxconn").read_text())
    if now < BACKLOG:
        return warn(f"only {now} connections may wait to be accepted", f"sysctl -w net.core.somaxconn={BACKLOG}")
    return ok(f"Linux {platform.release()}, {now:,} connections may wait to be accepted")


def clock(case: Case) -> Finding:
    now = datetime.now(UTC)
    advice = "set the clock, and keep it right (chrony, systemd-timesyncd)"
    if now < NO_EARLIER:
        return bad(f"it is not {now:%Y-%m-%d %H:%M}", advice)
    last = max((one.last for one in case.segments if one.last), default=now)
    if last > now + AHEAD:
        ahead = duration_in_two_units((last - now).total_seconds())
        return warn(f"behind by {ahead}, or was ahead: the journal's last message is of {last:%Y-%m-%d %H:%M}", advice)
    return ok(f"{now:%Y-%m-%d %H:%M} UTC")


# ── the broker ──


def broker(case: Case) -> Finding:
    told = case.stats
    if told is None:
        return nobody(case)
    queues = counted(len(told["queues"]), "queue")
    text = f"mqksd {told['version']} at {case.url}, durability {told['durability']}, {queues}"
    full = (told.get("journal") or {}).get("full")
    if full:
        return bad(f"{text}; it takes nothing: {full}", "free some space on its disk: it goes on by itself")
    if told["version"] != __version__:
        return warn(f"{text}, but this is mqks {__version__}", "restart the broker after an upgrade")
    return ok(text)


def nobody(case: Case) -> Finding:
    if isinstance(case.answer, str):
        return warn(f"one is at {case.url}, but tells us nothing: {case.answer}", NEEDS_ADMIN)
    if isinstance(case.answer, TlsFailed):
        text = f"one is at {case.url}, but tells us nothing: {case.answer}"
        if case.asked:
            return bad(text, f"other clients meet the same: {READ_OF_TLS}")
        return warn(text, "name it with --url, as its clients do, and what they trust with --ca")
    if case.asked:
        return bad(f"none answers at {case.asked}", "start mqksd there, or see why it ended in its log")
    if case.owner is not None:
        return warn(f"one has {case.folder}, but none answers at {case.url}", "name it with --url, or see its log")
    return is_free(case.config.host, case.config.port, "--port")


def is_free(host: str, port: int, flag: str) -> Finding:
    """A port that nobody answers at."""
    try:
        bind(host, port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            return bad(f"port {port} on {host} cannot be used: {error.strerror}", f"choose another {flag}, or host")
        advice = f"choose another {flag}, or end what has it; if that is systemd, `systemctl status mqksd` says more"
        return bad(f"port {port} on {host} cannot be used: something else has it", advice)
    return ok(f"none runs; port {port} on {host} is free")


def http_side(case: Case) -> Finding:
    config, host = case.config, case.http_host
    if not config.http:
        return ok("off, by this shell's settings: --no-http")
    scheme = "https" if case.has_tls else "http"
    where = f"{scheme}://{f'[{host}]' if ':' in host else host}:{config.http_port}/"
    try:
        status, answer = ask(case, OPEN_PATH)
    except (ssl.SSLError, TlsFailed) as error:
        if getattr(error, "reason", None) in NO_TLS:
            return warn(f"{where} does not speak TLS: it may be another's", TELL_PORT)
        return warn(f"no TLS with {where}: {getattr(error, 'verify_message', None) or error}", "see `broker`")
    except (OSError, http.client.HTTPException, ValueError):
        if case.stats:
            return warn(f"a broker runs, but no HTTP answers at {where}", TELL_PORT)
        if case.asked:
            return bad(f"none answers at {where}", "see `broker`")
        return is_free(config.http_host, config.http_port, "--http-port")
    if status == 200:
        status, answer = ask(case, "/api/state")
    if status == 401 or str(answer.get("error")).startswith("not permitted"):
        return warn(f"{where} says: {answer.get('error')}", NEEDS_ADMIN)
    if "error" in answer:  # it answers others, whatever is the matter with the broker
        return warn(f"{where} says: {answer['error']}", "ask it where it runs, by an address that it takes")
    if status != 200:
        return bad(f"{where} says: {answer.get('status')}", "see the broker's log")
    others = answer.get("host", "")  # where the broker of this page has its clients connect
    if case.stats and others.rpartition(":")[2] != str(find_address(case.url).port):
        return warn(f"{where} says that its broker is at {others}: it may not be that of {case.url}", TELL_PORT)
    health = answer["health"]
    text = f"{where} says: {health['sentence']}"
    return ok(text) if health["level"] == "ok" else warn(text, "look there, and in docs/OPERATIONS.md")


def ask(case: Case, path: str) -> tuple[int, dict[str, Any]]:
    from mqks.client.access import Access

    access, where = case.access or Access(), (case.http_host, case.config.http_port)
    connection = http.client.HTTPConnection(*where, timeout=PATIENCE)
    if case.has_tls:
        connection = http.client.HTTPSConnection(*where, timeout=PATIENCE, context=access.context())
    try:
        token = None if path == OPEN_PATH else access.token
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        response = connection.getresponse()
        answer = json.loads(response.read())
    finally:
        connection.close()
    if not isinstance(answer, dict):
        raise ValueError(f"{path} gave no JSON object")
    return response.status, answer


CHECKS: dict[str, Callable[[Case], Finding]] = {
    "python": python,
    "configuration": configuration,
    "java": java,
    "files": files,
    "memory": memory,
    "kernel": kernel,
    "clock": clock,
    "folder": folder,
    "filesystem": filesystem,
    "disk": disk,
    "fsync": fsync,
    "journal": journal,
    "tls": tls,
    "tokens": tokens,
    "broker": broker,
    "http": http_side,
}
