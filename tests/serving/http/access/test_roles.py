"""What a client may do follows from the roles of its key."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from serving.client import ANYBODY, Client
from serving.http.access.roles import CLIENT, check_admin, check_path, client_of, is_open
from serving.http.api_errors import ApiError

USER, MONITOR = Client(roles=frozenset({"use"})), Client(roles=frozenset({"monitor"}))


def request(method: str = "POST", client: Client | None = None, content_type: str | None = "application/json"):
    headers = [(b"content-type", content_type.encode())] if content_type else []
    scope = {"type": "http", "method": method, "path": "/refresh", "headers": headers}
    return Request(scope if client is None else {**scope, CLIENT: client})


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz", "/health", "/v2/health/live", "/v2/health/ready"])
def test_everybody_may_see_whether_the_process_is_sound_and_do_nothing_there(path):
    assert is_open({"path": path, "method": "GET"}) and is_open({"path": path, "method": "HEAD"})
    assert not is_open({"path": path, "method": "POST"})


def test_nothing_else_is_open():
    assert not any(is_open({"path": path, "method": "GET"}) for path in ("/", "/status", "/metrics", "/livez/x", "/v2"))


@pytest.mark.parametrize("path", ["/metrics", "/status", "/v1/status"])
def test_status_and_metrics_need_the_role_monitor_and_all_else_the_role_use(path):
    check_path({"path": path}, MONITOR)
    check_path({"path": "/predict"}, USER)
    for wrong, client, role in ((path, USER, "monitor"), ("/predict", MONITOR, "use")):
        with pytest.raises(ApiError, match=f"needs the role {role}") as raised:
            check_path({"path": wrong}, client)
        assert raised.value.status == 403


def test_without_keys_everybody_is_an_administrator():
    assert client_of(request()) is ANYBODY
    assert check_admin(request(), "refresh") is ANYBODY


def test_who_administers_has_the_role_and_announces_json():
    admin = Client(roles=frozenset({"admin"}))
    assert check_admin(request(client=admin), "refresh") is admin
    assert check_admin(request("GET", admin, None), "refresh") is admin
    with pytest.raises(ApiError, match="this key may not refresh: that needs the role admin") as raised:
        check_admin(request(client=USER), "refresh")
    assert raised.value.status == 403
    for content_type in ("text/plain", None):
        with pytest.raises(ApiError) as raised:
            check_admin(request(client=admin, content_type=content_type), "refresh")
        assert raised.value.status == 415
