"""What a client shows when it comes, a token and perhaps a certificate, and by what it knows the broker.

What the caller does not give is looked for in the environment. The files are read anew for each connection, so that a
certificate that was renewed is used from the next one on. A token is never shown, in no `repr` and in no log.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from mqks.client.address import Address
from mqks.client.errors import TlsFailed

if TYPE_CHECKING:
    import ssl

ENVIRONMENT = {
    "token": "MQKS_TOKEN",  # nosec B105  # where it is looked for
    "ca": "MQKS_CA",
    "cert": "MQKS_CLIENT_CERT",
    "key": "MQKS_CLIENT_KEY",
}
UNUSABLE = {  # what OpenSSL has against a file; often it does not say more than that there is something
    None: "it has no certificate with its key in PEM, or the key has a passphrase",
    "NO_CERTIFICATE_OR_CRL_FOUND": "it has no certificate in PEM",
    "KEY_VALUES_MISMATCH": "the key is that of another certificate",
    "NO_CERTIFICATE_ASSIGNED": "the key is that of another certificate",
}


@dataclass(frozen=True)
class Access:
    token: str | None = field(default=None, repr=False)
    ca: str | os.PathLike[str] | None = None
    cert: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None
    verify: bool = True

    def __post_init__(self) -> None:
        if self.token is not None:  # as a file has it, which ends its line
            object.__setattr__(self, "token", self.token.rstrip("\r\n"))
        if self.token is not None and (
            not self.token or not self.token.isascii() or not self.token.isprintable() or " " in self.token
        ):
            raise ValueError("a token is one word, as `mqks token new` prints it")

    @property
    def who(self) -> str:
        """For messages: the name before the dot is no secret, but what has no dot may be one."""
        if not self.token:
            return "who has no token (give one by token=…, --token-file or MQKS_TOKEN)"
        name, dot, _ = self.token.partition(".")
        return f"who shows the token {name}.…" if dot else "who shows this token"

    @property
    def given(self) -> dict[str, str]:
        """What is not left to the environment, as text: for those who hand it on."""
        named = {name: getattr(self, name) for name in ENVIRONMENT}
        return {name: os.fspath(value) for name, value in named.items() if value is not None}

    def found(self) -> Self:
        """With what the environment has of it. A certificate and its key come from one place."""
        told = {name: os.environ.get(variable, "").strip() or None for name, variable in ENVIRONMENT.items()}
        made = replace(
            self,
            token=self.token or told["token"],
            ca=self.ca or told["ca"],
            cert=self.cert or told["cert"],
            key=self.key or (None if self.cert else told["key"]),
        )
        if made.key and not made.cert:
            raise ValueError("key is that of a client's certificate: give cert, too")
        return made

    def warn(self, address: Address) -> None:
        """Of what others on the way could do; once for each client."""
        log = logging.getLogger("mqks.client")
        if address.tls and not self.verify:
            log.warning("%s: its certificate is not checked (verify=False), so it may be anybody", address)
        if self.token and not address.tls and not address.is_here:
            log.warning("%s: the token travels readable; mqkss:// would hide it", address)

    def context(self) -> "ssl.SSLContext":
        import ssl  # which whoever needs no TLS does not load

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif self.ca is None:
            context.load_default_certs()
        else:
            folder = self.ca if Path(self.ca).is_dir() else None
            with _told("ca", self.ca):
                context.load_verify_locations(None if folder else self.ca, folder)
        if self.cert:
            with _told("cert", self.cert):
                context.load_cert_chain(self.cert, self.key, password="")  # nosec B106  # rather than to ask a terminal
        return context


@contextmanager
def _told(name: str, path: str | os.PathLike[str]) -> Iterator[None]:
    """What is wrong with a file that was named, as one line that names it."""
    try:
        yield
    except (OSError, ValueError) as error:
        import ssl  # which is loaded by now

        reason = getattr(error, "strerror", None) or error
        if isinstance(error, ssl.SSLError):
            reason = UNUSABLE.get(error.reason) or error.reason.lower().replace("_", " ")
        raise TlsFailed(f"{name} {os.fspath(path)} cannot be used: {reason}") from None
