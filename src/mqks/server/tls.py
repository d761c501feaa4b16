"""TLS for all who connect: the certificate, read again when told to, and the sealing of one connection's bytes.

`Tls` has the context that new connections get; the connections that there are keep theirs. It touches the files that it
is told of and nothing else. `Wrapped` is one connection's TLS without its socket: core/sealing.pyx moves the bytes.
"""

import contextlib
import logging
import ssl
import stat
from collections.abc import Callable
from pathlib import Path

from mqks.broker.errors import BadRequest
from mqks.logs import Entry
from mqks.server.config import Config, ConfigError

log = logging.getLogger(__name__)

HANDSHAKE = 0x16  # the first byte of all TLS
OF_OTHER_PROTOCOLS = {"HTTP_REQUEST", "WRONG_VERSION_NUMBER"}  # as OpenSSL takes them
RECORD = 16 * 1024  # most that is sealed as one


class TlsFault(BadRequest):
    """A client with which no TLS can be spoken; OpenSSL tells it why."""


class NotTls(TlsFault):
    """A client that does not know of TLS: it is told in plain."""

    def __init__(self) -> None:
        super().__init__("it does not speak TLS, which --tls-cert asks for")


class Tls:
    def __init__(self, cert: Path, key: Path | None = None, ca: Path | None = None) -> None:
        """A ConfigError says which file will not do."""
        self._files = cert, key, ca
        self.context = _context(cert, key, ca)

    @classmethod
    def of(cls, config: Config) -> "Tls | None":
        """As it is configured. None: all is plain."""
        if config.tls_cert is not None:
            return cls(config.tls_cert, config.tls_key, config.tls_ca)
        if config.tls_key is not None or config.tls_ca is not None:
            given = "--tls-ca" if config.tls_key is None else "--tls-key"
            raise ConfigError(f"{given} is of no use without a certificate; give --tls-cert too")
        return None

    def reload(self) -> None:
        """Read the files again. If one of them will not do, all stays as it is."""
        try:
            self.context = _context(*self._files)
        except (ConfigError, OSError) as error:
            log.error(Entry("the certificate stays the old one: {reason}", reason=error))
        else:
            log.info(Entry("new connections get the certificate of {file}", file=str(self._files[0])))

    @staticmethod
    def fault(error: ssl.SSLError) -> BadRequest:
        """What is wrong with a client, whoever found it."""
        return NotTls() if error.reason in OF_OTHER_PROTOCOLS else TlsFault("TLS failed", reason_of(error))

    def wrap(self, established: Callable[[], None]) -> "Wrapped":
        """For one who connects; when its handshake is done: `established`."""
        return Wrapped(self.context, established)


class Wrapped:
    __slots__ = ("_begun", "_established", "_failed", "_incoming", "_object", "_outgoing", "established")

    def __init__(self, context: ssl.SSLContext, established: Callable[[], None]) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._established: Callable[[], None] | None = established
        self._begun = False
        self._failed = False
        self.established = False

    def put(self, data: memoryview) -> None:
        """Bytes as they came."""
        if not self._begun:
            if data[0] != HANDSHAKE:
                self._failed = True
                raise NotTls
            self._begun = True
        self._incoming.write(data)

    def open(self) -> bytes | None:
        """What was sealed in the next record. Nothing: the rest of it must come first. None: no more will come."""
        try:
            if not self.established:
                self._shake_hands()
            return self._object.read(RECORD) or None
        except ssl.SSLWantReadError:
            return b""
        except ssl.SSLZeroReturnError:
            return None
        except ssl.SSLError as error:
            self._failed = True
            raise TlsFault("TLS failed", reason_of(error)) from error

    def _shake_hands(self) -> None:
        self._object.do_handshake()
        self.established = True
        if self._established:
            self._established()
            self._established = None

    @property
    def has_words(self) -> bool:
        """Has TLS itself something to say?"""
        return self._outgoing.pending > 0

    def take(self) -> bytes:
        """What it has to say."""
        return self._outgoing.read()

    def seal(self, data: memoryview) -> bytes:
        """This as a record, after what TLS itself has to say."""
        self._object.write(data)
        return self._outgoing.read()

    def end(self) -> bytes:
        """The last words: that no more comes, or why not."""
        if self.established and not self._failed:
            with contextlib.suppress(ssl.SSLError):  # it would wait for the client's last words
                self._object.unwrap()
        return self._outgoing.read()


def reason_of(error: ssl.SSLError) -> str:
    """In words, without the names of OpenSSL's parts."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate will not do: {error.verify_message}"
    return (error.reason or str(error)).lower().replace("_", " ")


# ---- The files


def _context(cert: Path, key: Path | None, ca: Path | None) -> ssl.SSLContext:
    _look(cert, "--tls-cert", "CERTIFICATE")
    _look(key or cert, "--tls-key", "PRIVATE KEY")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    # A ticket is sent unasked: whoever publishes and closes without having read it would reset the connection, and what
    # it had published would be lost.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET
    try:
        context.load_cert_chain(cert, key, password=_no_password)
    except ssl.SSLError as error:
        why = reason_of(error)
        if error.reason == "KEY_VALUES_MISMATCH":
            why = "it is not the key of the certificate"
        raise ConfigError(f"--tls-cert {cert}, --tls-key {key or cert}: {why}") from error
    if ca is not None:
        _look(ca, "--tls-ca", "CERTIFICATE")
        try:
            context.load_verify_locations(ca)
        except ssl.SSLError as error:
            raise ConfigError(f"--tls-ca {ca}: {reason_of(error)}") from error
        context.verify_mode = ssl.CERT_REQUIRED
    _warn_of_readers(key or cert)
    _try(cert, key)
    return context


def _look(file: Path, option: str, what: str) -> None:
    """OpenSSL does not say which file it means, nor what it misses there."""
    try:
        text = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{option} {file} cannot be read: {error.strerror}") from error
    if f"{what}-----".encode() not in text:
        raise ConfigError(f"{option} {file} has no {what.lower()} in PEM")


def _no_password() -> str:
    """OpenSSL would ask for it on the terminal."""
    raise ConfigError("the key of --tls-cert has a passphrase; give one without, in a file for the broker's eyes only")


def _warn_of_readers(key: Path) -> None:
    if key.stat().st_mode & stat.S_IROTH:
        log.warning(Entry("every user of this machine can read the key in {file}; take that right away", file=str(key)))


def _try(cert: Path, key: Path | None) -> None:
    """One that clients refuse is better than none while another is on its way, so it is used. One with which no
    handshake comes so far will not do: of a key on a curve, say, that TLS does not take."""
    try:
        ends_at(cert, key)
    except ValueError as error:  # of verification too
        said = "clients will refuse the certificate of {file}: {reason}; renew it, then send SIGHUP"
        log.warning(Entry(said, file=str(cert), reason=getattr(error, "verify_message", error)))
    except ssl.SSLError as error:
        raise ConfigError(f"--tls-cert {cert}: clients cannot speak TLS with it: {reason_of(error)}") from error


def ends_at(cert: Path, key: Path | None) -> float:
    """When the certificate ends, in seconds since 1970. Raises if the key is another one's, or it is not valid now.

    It is looked at by a handshake with itself, in memory: what OpenSSL has against it, a client would have too.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(cert, key, password="")  # nosec B106  # rather than to ask at a terminal
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # to trust it without whoever has signed it
    client.load_verify_locations(cert)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for end in ends * 3:  # as often as TLS goes back and forth
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
    peer = ends[0].getpeercert()
    assert peer
    return ssl.cert_time_to_seconds(str(peer["notAfter"]))
