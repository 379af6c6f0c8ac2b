"""A server that somebody else configures gets the door by uvicorn's own tables."""

from __future__ import annotations

import uvicorn
import uvicorn.config
from uvicorn.server import ServerState

from pliant.serving.http.api_errors import error_response
from pliant.serving.http.door.door import Door
from pliant.serving.http.door.install import install
from pliant.serving.http.door.load import MeasuredLoop
from pliant.serving.http.door.protocol import LimitedProtocol
from tests.fixtures.door import answer


def test_a_server_of_usual_settings_gets_the_doors_protocol_and_a_loop_that_it_measures(monkeypatch):
    for table in ("HTTP_PROTOCOLS", "LOOP_FACTORIES"):
        monkeypatch.setattr(uvicorn.config, table, dict(getattr(uvicorn.config, table)))
    door = Door(lambda _path: error_response, lambda _path: True)
    install(door)
    config = uvicorn.Config(answer, log_config=None)
    config.load()
    loop = config.get_loop_factory()()
    try:
        protocol = config.http_protocol_class(config, ServerState(), {}, _loop=loop)
        assert isinstance(protocol, LimitedProtocol) and protocol.get_buffer(-1) is door.buffer
        assert isinstance(loop, MeasuredLoop)
        door.load.started()
        loop.call_soon(loop.stop)
        loop.run_forever()
        assert door.load.earliest > 0.0, "the loop reports its looks to the door"
    finally:
        loop.close()
