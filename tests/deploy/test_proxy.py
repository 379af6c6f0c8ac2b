"""nginx.conf and the services say the same. qa/stack/test_proxy.py runs it on a real nginx."""

from __future__ import annotations

from importlib import import_module

from tests.deploy.stack import SYSTEMS, check_settings, nginx_values, services


def test_the_door_for_events_is_the_address_that_endpoints_have():
    for system in SYSTEMS:
        assert services()[system]["environment"]["PREFECT_API_URL"] == "http://proxy:4280/api"
    assert "4280" in nginx_values("listen")


def test_a_body_may_be_as_large_at_the_proxy_as_at_the_services():
    first, *_ = nginx_values("client_max_body_size")
    assert first == "10m"
    for system in SYSTEMS:
        assert check_settings(system, services()[system]["environment"]).max_body_bytes == 10 * 1024**2


def timeout_of(system):
    service = import_module(f"pliant.serving.{system}.service")
    return getattr(service, f"{system.capitalize()}Service").config["traffic"]["timeout"]


def test_the_proxy_waits_for_an_answer_as_long_as_the_service_takes():
    usual, packing = (int(value.removesuffix("s")) for value in nginx_values("proxy_read_timeout"))
    assert {timeout_of(system) for system in SYSTEMS if system != "packing"} == {usual}
    assert timeout_of("packing") == packing


def test_tls_is_of_this_decade():
    assert nginx_values("ssl_protocols") == ["TLSv1.2 TLSv1.3"]
    assert nginx_values("ssl_session_tickets") == ["off"]
    assert all("ssl" in value for value in nginx_values("listen") if value.startswith("84"))
