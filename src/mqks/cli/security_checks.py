"""The checks of `mqks doctor` on the broker's certificate and its tokens, by the files that the configuration names; on
a certificate that it does not name, by what the broker shows to who connects.

They only read. What this shell's settings say holds for a broker that is started with them, and for no other.
"""

from __future__ import annotations

import os
import socket
import ssl
import time

from mqks.cli.case import PATIENCE, Case, Finding, bad, ok, warn
from mqks.client.access import Access
from mqks.client.address import find_address
from mqks.client.errors import TlsFailed
from mqks.client.hello import explained
from mqks.formatting import counted
from mqks.server.config import ConfigError
from mqks.server.tls import ends_at
from mqks.server.tokens import is_open_to_others, read

DAY = 86_400.0
SOON = 21  # days
RENEW = "renew it, then `systemctl reload mqksd` or SIGHUP"
READ_OF_TLS = "see TLS in docs/OPERATIONS.md"
WITHOUT_TOKENS = "this shell's settings have no --auth-file: a broker that is started with them"


def tls(case: Case) -> Finding:
    config = case.config
    if config.tls_cert is None:
        if case.has_tls:
            return as_shown(case)
        return ok("this shell's settings have no --tls-cert: a broker that is started with them is without TLS")
    try:
        ends = ends_at(config.tls_cert, config.tls_key)
    except ssl.SSLCertVerificationError as error:
        return bad(f"{config.tls_cert}: {error.verify_message}", RENEW)
    except (OSError, ValueError) as error:  # of OpenSSL too
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        advice = "give a certificate in PEM form, and the key that belongs to it"
        return bad(f"{config.tls_cert}: {str(reason).replace('_', ' ').lower()}", advice)
    found = valid(str(config.tls_cert), ends)
    key = config.tls_key or config.tls_cert
    if is_open_to_others(key):
        return warn(f"{found.text}; others may read or change its key", f"chmod g-w,o= {key}")
    return found


def as_shown(case: Case) -> Finding:
    """The certificate that a client gets to see, if it trusts it."""
    address, access = find_address(case.url), case.access or Access()
    try:
        with (
            socket.create_connection((address.host, address.port), PATIENCE) as plain,
            access.context().wrap_socket(plain, server_hostname=address.host) as sealed,
        ):
            shown = sealed.getpeercert()
    except OSError as error:
        why = explained(address, error)
        if isinstance(why, TlsFailed):
            return bad(str(why), READ_OF_TLS)
        return warn(f"no certificate was seen at {case.url}: {why.strerror or why}", "see `broker`")
    assert shown
    return valid(f"the certificate of {case.url}", ssl.cert_time_to_seconds(str(shown["notAfter"])))


def valid(what: str, ends: float) -> Finding:
    left = int((ends - time.time()) // DAY)
    text = f"{what} is valid for {counted(left, 'day')}"
    return ok(text) if left > SOON else warn(text, RENEW)


def tokens(case: Case) -> Finding:
    path = case.config.auth_file
    if path is None:
        if case.config.insecure:
            return warn(
                f"{WITHOUT_TOKENS} lets in whoever can reach it (--insecure)",
                "give it an --auth-file",
            )
        return ok(f"{WITHOUT_TOKENS} lets in clients of this machine only")
    if is_open_to_others(path):
        mode = path.stat().st_mode & 0o777
        return warn(f"{path} may be read or changed by others (mode {mode:o})", f"chmod g-w,o= {path}")
    if not os.access(path, os.R_OK):
        return warn(f"{path} cannot be read by this user", "look as the broker's user")
    try:
        return ok(f"{path}, with {counted(len(read(path)), 'token')}")
    except ConfigError as error:
        return bad(str(error), "mqksd would not start: correct it")
