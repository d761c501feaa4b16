"""Is a broker that does not answer gone, or does it only take no more for now?

A broker near its memory limit stops reading those who only publish. Its machine then still acknowledges what the
kernel asks it, while one that is gone does not. Only Linux tells; elsewhere the answer is that it is gone.
"""

import array
import socket
import sys

_RETRANSMITS, _PROBES = 2, 3  # bytes of struct tcp_info: timeouts without an acknowledgement, probes without one


def is_held_back(connection: socket.socket) -> bool:
    """Bytes wait in this machine's kernel, and the other machine answers that it has no room for them."""
    if sys.platform != "linux":
        return False
    import fcntl
    import termios

    try:
        queued = array.array("i", [0])
        fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, queued)
        state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)
    except (OSError, ValueError):  # it is closed already
        return False
    return queued[0] > 0 and state[_RETRANSMITS] == 0 and state[_PROBES] <= 1
