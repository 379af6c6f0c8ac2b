"""When bytes came to a socket, which is not when the event loop reads them: the system knows."""

from __future__ import annotations

import socket
import sys
from typing import Any

LAST_RECEIVED = slice(52, 56)  # of Linux's struct tcp_info: tcpi_last_data_recv, in milliseconds


def received_ago(sock: Any) -> float | None:
    """Return for how many seconds the newest bytes of a TCP socket have been here; None where the system does not say.

    The system counts in ticks of 1 to 10 ms.
    """
    if sys.platform != "linux":
        return None
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, LAST_RECEIVED.stop)
    except OSError:  # no TCP, or closed
        return None
    return int.from_bytes(info[LAST_RECEIVED], sys.byteorder) / 1000
