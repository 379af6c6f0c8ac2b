"""Without a network the hub of models is given up within seconds, and with one it is asked as always."""

from __future__ import annotations

import socket
import time

import pytest
from huggingface_hub import constants

from pliant.training import hub
from pliant.training.hub import quick_if_offline


@pytest.fixture(autouse=True)
def direct(monkeypatch):
    monkeypatch.setattr("urllib.request.getproxies", dict)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "https://hub.example")


def refusing(address, timeout):
    raise OSError("no route to host")


def test_a_hub_that_cannot_be_reached_is_not_asked(monkeypatch):
    monkeypatch.setattr(socket, "create_connection", refusing)
    with quick_if_offline() as reason:
        assert reason == "hub.example cannot be reached: no route to host"
        assert constants.HF_HUB_OFFLINE
    assert not constants.HF_HUB_OFFLINE


def test_a_hub_that_does_not_answer_is_given_up_soon(monkeypatch):
    monkeypatch.setattr(socket, "create_connection", lambda *_: time.sleep(0.2) or socket.socket())
    monkeypatch.setattr(hub, "PROBE_SECONDS", 0.02)
    with quick_if_offline() as reason:
        assert reason == "hub.example does not answer within 0.02 s"


@pytest.mark.parametrize(
    ("proxies", "asked"),
    [({}, ("hub.example", 443)), ({"https": "http://proxy.example:8080"}, ("proxy.example", 8080))],
)
def test_a_hub_that_answers_is_asked_also_by_a_proxy(monkeypatch, proxies, asked):
    addresses = []
    monkeypatch.setattr("urllib.request.getproxies", lambda: proxies)
    monkeypatch.setattr(socket, "create_connection", lambda address, _: addresses.append(address) or socket.socket())
    with quick_if_offline() as reason:
        assert reason == "" and not constants.HF_HUB_OFFLINE
    assert addresses == [asked]
