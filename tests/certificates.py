"""Certificates for tests: an authority of their own, what it signs as files, and contexts of clients that trust it."""

import ssl
from datetime import datetime
from pathlib import Path

import trustme


class Authority:
    """Signs certificates for localhost and 127.0.0.1, and for clients. Its files are in the folder."""

    def __init__(self, folder: Path) -> None:
        self._ca = trustme.CA()
        self._folder = folder
        self.file = folder / "ca.pem"
        self._ca.cert_pem.write_to_path(str(self.file))

    def issue(self, name: str = "server.pem", *names: str, ends: datetime | None = None) -> Path:
        """A file with a key and its certificate; one of the same name is replaced."""
        path = self._folder / name
        issued = self._ca.issue_cert(*(names or ("localhost", "127.0.0.1")), not_after=ends)
        issued.private_key_and_cert_chain_pem.write_to_path(str(path))
        path.chmod(0o600)
        return path

    def issue_apart(self, name: str) -> tuple[Path, Path]:
        """The certificate and its key, each in a file of its own."""
        issued = self._ca.issue_cert("localhost", "127.0.0.1")
        cert, key = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        cert.write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
        key.write_bytes(issued.private_key_pem.bytes())
        key.chmod(0o600)
        return cert, key

    def context(self, certificate: Path | None = None) -> ssl.SSLContext:
        """Of a client that trusts this authority, and shows a certificate if it has one."""
        context = ssl.create_default_context(cafile=self.file)
        if certificate:
            context.load_cert_chain(certificate)
        return context
