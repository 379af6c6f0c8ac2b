"""What one service takes from HTTP to the device: what each step costs, and the device that computes nothing."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.tokens import host, idle_device
from benchmarks.tokens.host import HEADINGS, HostRow, pictures, processor_seconds, service_process
from benchmarks.tokens.idle_device import IdleBuild, build
from pliant.models.image import decode
from serving.tokens.assembly import build_plan
from serving.tokens.catalog import load_catalog
from serving.tokens.settings import TokensSettings
from tests.fixtures.tokens.http import registry

__all__ = ["registry"]


def test_the_limit_lies_in_the_step_that_takes_most_of_the_services_core():
    row = HostRow("a", 900.0, 0.001, {"parsing": 0.0001, "decoding": 0.0005, "scheduling": 0.0001, "transport": 0.0001})
    assert (row.bears, row.limit) == (1000.0, "decoding") and row.rest == pytest.approx(0.0002)
    assert len(row.cells()) == len(HEADINGS)
    assert HostRow("b", 1.0, 0.002, row.steps).limit == "HTTP and the event loop"
    assert row.plain()["limit"] == "decoding"


def test_every_step_is_measured_on_what_a_client_sends(monkeypatch):
    monkeypatch.setattr(host, "scheduling", lambda: 0.0001)
    (picture, *_others) = pictures(16).values()
    assert decode(picture, 16, 10**6).shape == (16, 16, 3)
    steps = host.steps("digits", 16, picture, repeats=10)
    assert tuple(steps) == host.STEPS and all(seconds > 0 for seconds in steps.values())


def test_an_idle_device_answers_as_the_real_one_would(registry, monkeypatch):
    monkeypatch.setattr(idle_device, "SECONDS", 0.0)
    catalog = load_catalog(registry, "champion")
    model = build(IdleBuild(build_plan(TokensSettings(), catalog, "cpu")))
    outputs, _ = model.run(0, [("digits", np.zeros((16, 16, 3), np.uint8))] * 2)
    assert all((task, backbone) in catalog.origins for task, backbone, _ in outputs)
    assert [row.tolist() for _, _, row in outputs] == [[1.0, 0.0, 0.0]] * 2


def test_the_process_of_the_service_is_the_child_that_has_children():
    command = (
        "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'input()']); print(flush=True); p.wait()"
    )
    with (
        subprocess.Popen([sys.executable, "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child,
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other,
    ):
        child.stdout.readline()
        assert service_process(os.getpid()) == child.pid != other.pid
        assert processor_seconds(child.pid) >= 0.0
        child.communicate(b"\n")
        other.communicate(b"\n")
