"""The bytes of a blocking client over TLS. It touches one socket, always from its driver's thread: OpenSSL does not
read and write at the same time, and an interrupt, which comes to the main thread, could lose or repeat a piece.
"""

import socket
import ssl

from mqks.client.reaching import cut
from mqks.client.wire import Lines

PIECE = 64 << 10  # bytes sealed at a time
NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)  # what sockets that do not block raise


class Sealed:
    def __init__(self, connection: socket.socket) -> None:
        assert isinstance(connection, ssl.SSLSocket)
        self._socket = connection
        self._piece = b""  # taken, and perhaps sent in part: OpenSSL wants the same again

    def send(self, lines: Lines) -> bool:
        """Give what is taken now; answers whether that was all."""
        try:
            while self._piece or lines.size:
                self._piece = self._piece or lines.piece(PIECE)
                self._socket.send(self._piece)  # all of it or nothing
                self._piece = b""
        except NOT_NOW:
            return False
        except OSError:
            cut(self._socket)  # so that whoever reads finds out
            return False
        return True

    def recv(self, most: int) -> bytes | None:
        """Of what is there, at least so much if there is; None: there is nothing. b"": the end.

        Each call of OpenSSL gives one record. What it has decrypted no selector sees, so that all of it is taken.
        """
        pieces, size = [], 0
        try:
            while size < most or self._socket.pending():
                piece = self._socket.recv(most)
                if not piece:
                    break
                pieces.append(piece)
                size += len(piece)
        except NOT_NOW:
            if not pieces:
                return None
        except OSError:
            pass  # as the end
        return b"".join(pieces)
