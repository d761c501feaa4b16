"""The checks of `mqks doctor` on the broker's certificate and its tokens, by the files that the configuration names.

They only read.
"""

from __future__ import annotations

import os
import ssl
import time

from mqks.cli.case import Case, Finding, bad, ok, warn
from mqks.cli.output import counted
from mqks.server.config import ConfigError
from mqks.server.tls import ends_at
from mqks.server.tokens import is_open_to_others, read

DAY = 86_400.0
SOON = 21  # days


def tls(case: Case) -> Finding:
    config = case.config
    if config.tls_cert is None:
        return ok("off, by this shell's settings: no --tls-cert")
    try:
        ends = ends_at(config.tls_cert, config.tls_key)
    except ssl.SSLCertVerificationError as error:
        return bad(f"{config.tls_cert}: {error.verify_message}", "renew it, then `systemctl reload mqksd` or SIGHUP")
    except (OSError, ValueError) as error:  # of OpenSSL too
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        advice = "give a certificate in PEM form, and the key that belongs to it"
        return bad(f"{config.tls_cert}: {str(reason).replace('_', ' ').lower()}", advice)
    left = int((ends - time.time()) // DAY)
    text = f"{config.tls_cert} is valid for {counted(left, 'day')}"
    key = config.tls_key or config.tls_cert
    if is_open_to_others(key):
        return warn(f"{text}; others may read or change its key", f"chmod g-w,o= {key}")
    return ok(text) if left > SOON else warn(text, "renew it, then `systemctl reload mqksd` or SIGHUP")


def tokens(case: Case) -> Finding:
    path = case.config.auth_file
    if path is None:
        if case.config.insecure:
            return warn(
                "off, by this shell's settings: whoever can reach the broker may do all (--insecure)",
                "give it an --auth-file",
            )
        return ok("off, by this shell's settings: no --auth-file, so only clients of this machine are let in")
    if is_open_to_others(path):
        mode = path.stat().st_mode & 0o777
        return warn(f"{path} may be read or changed by others (mode {mode:o})", f"chmod g-w,o= {path}")
    if not os.access(path, os.R_OK):
        return warn(f"{path} cannot be read by this user", "look as the broker's user")
    try:
        return ok(f"{path}, with {counted(len(read(path)), 'token')}")
    except ConfigError as error:
        return bad(str(error), "mqksd would not start: correct it")
