"""When bytes came to a socket that nobody has read."""

from __future__ import annotations

import socket
import sys
import time

import pytest

from pliant.serving.http.door.received import received_ago

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says when bytes came")
TICK = 0.011  # seconds by which the system may be wrong


def test_the_system_knows_how_long_bytes_have_waited_for_a_connection_that_nobody_has_accepted():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        time.sleep(0.2)
        before = time.monotonic()
        client.sendall(b"abc")
        after = time.monotonic()
        time.sleep(0.3)
        accepted, _ = server.accept()
        with accepted:
            for size in (2, 1):  # reading changes nothing
                called = time.monotonic()
                ago = received_ago(accepted)
                assert called - after - TICK <= ago <= time.monotonic() - before + TICK
                accepted.recv(size)


def test_nobody_knows_for_what_is_no_open_tcp_socket():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert received_ago(ours) is None
    assert received_ago(ours) is None
