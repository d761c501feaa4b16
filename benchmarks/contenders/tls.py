"""MQKS and NATS by TLS, each with a certificate made for the run, and MQKS in plain beside them."""

import socket
import ssl
from functools import cache
from pathlib import Path

from benchmarks.contenders.mqks import Mqks
from benchmarks.contenders.nats import Nats

CERT, CA = "tls.pem", "ca.pem"


class MqksTls(Mqks):
    name = "MQKS by TLS"
    mode = f"--memory --no-http --tls-cert={{folder}}/{CERT}"

    def command(self, port: int, folder: Path) -> list[str]:
        certify(folder)
        return super().command(port, folder)

    def secure(self, sock: socket.socket, folder: Path) -> socket.socket:
        return context(folder).wrap_socket(sock, server_hostname="localhost")


class MqksPlain(Mqks):
    """The same without it."""

    family = name = "MQKS plain"


class NatsTls(Nats):
    name = "NATS by TLS"
    config = f'tls {{{{ cert_file: "{{folder}}/{CERT}", key_file: "{{folder}}/{CERT}", timeout: 10 }}}}'

    def command(self, port: int, folder: Path) -> list[str]:
        certify(folder)
        return super().command(port, folder)

    def secure(self, sock: socket.socket, folder: Path) -> socket.socket:
        """It says in plain who it is, and speaks TLS after that."""
        while not sock.recv(4096).endswith(b"\r\n"):
            pass
        return context(folder).wrap_socket(sock, server_hostname="localhost")


class TlsSocket(ssl.SSLSocket):
    """One that can be asked, as others, for what is there already."""

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        if not flags & socket.MSG_DONTWAIT:
            return super().recv(buflen)
        self.setblocking(False)
        try:
            return super().recv(buflen)
        except ssl.SSLWantReadError:
            raise BlockingIOError from None
        finally:
            self.setblocking(True)


def certify(folder: Path) -> None:
    try:
        import trustme
    except ImportError:
        raise FileNotFoundError("trustme, which makes certificates (pip install trustme),") from None
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / CA))
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(folder / CERT))


@cache
def context(folder: Path) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=folder / CA)
    made.sslsocket_class = TlsSocket
    return made
