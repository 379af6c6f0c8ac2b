"""Without a network the hub of models is given up within seconds, and with one it is asked as always."""

from __future__ import annotations

import socket

import pytest
from huggingface_hub import constants

from pliant.training.loading import quick_if_offline


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
