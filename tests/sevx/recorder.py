"""A peer that notes what a client says and answers as a table has it. It touches one port on loopback."""

import contextlib
import queue
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence

from sevx.connection import KEEP_ALIVE
from tests.running import PATIENCE


class Recorder:
    """For one client. Answers by action: lines in which {id} is the request's; an action without any gets its ok."""

    def __init__(self, answers: Mapping[str, Sequence[str]], listening: socket.socket) -> None:
        self.url = f"mqks://127.0.0.1:{listening.getsockname()[1]}"
        self._answers = {"ping": ["{id} ok keep-alive"], **answers}
        self._listening = listening
        self._lines: queue.Queue[str] = queue.Queue()

    def next(self) -> str:
        """The next line that came, pings of the connection left out."""
        return self._lines.get(timeout=PATIENCE)

    def serve(self) -> None:
        with self._listening.accept()[0] as connection, connection.makefile(encoding="utf-8") as lines:
            for line in lines:
                id, action = line.split()[:2]
                if action != "ping" and KEEP_ALIVE not in line:
                    self._lines.put(line.rstrip("\n"))
                answers = self._answers.get(action, ["{id} ok "])
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    connection.sendall("".join(f"{answer.replace('{id}', id)}\n" for answer in answers).encode())


@contextlib.contextmanager
def recorder(answers: Mapping[str, Sequence[str]]) -> Iterator[Recorder]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        recording = Recorder(answers, listening)
        thread = threading.Thread(target=recording.serve, name="recorder", daemon=True)
        thread.start()
        yield recording
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the client did not close its connection"
