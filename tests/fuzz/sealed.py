r"""TLS: any bytes as the first that a client sends, or in the place of records after a good handshake.

An input is what the client sends, with \x02 where a piece ends; if it begins with \x01, a handshake comes first. What
must hold: the server's side goes on, or refuses by a TlsFault, whose reason is one short line; it never gives what was
not sealed for it, and what it has to say at the end can be asked for whatever happened.
"""

import contextlib
import functools
import ssl
import tempfile
from pathlib import Path

import trustme

from mqks.server.tls import Tls, TlsFault, Wrapped


@functools.lru_cache(maxsize=1)
def server() -> Tls:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "cert.pem")
        issued = trustme.CA(key_type=trustme.KeyType.ECDSA).issue_cert("localhost", key_type=trustme.KeyType.ECDSA)
        issued.private_key_and_cert_chain_pem.write_to_path(path)
        path.chmod(0o600)
        return Tls(path)


def shake_hands(side: Wrapped) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing)
    while not side.established:
        with contextlib.suppress(ssl.SSLWantReadError):
            client.do_handshake()
        side.put(memoryview(outgoing.read()))
        assert side.open() == b""
        incoming.write(side.take())


def sealed(data: bytes) -> None:
    side = server().wrap(lambda: None)
    if data.startswith(b"\x01"):
        shake_hands(side)
        data = data[1:]
    try:
        for piece in filter(None, data.split(b"\x02")):
            side.put(memoryview(piece))
            while opened := side.open():
                raise AssertionError(f"{opened!r} was never sealed")
            side.take()
    except TlsFault as fault:
        assert str(fault)
        assert "\n" not in str(fault)
    side.end()
