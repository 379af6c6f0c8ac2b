"""Training of one's own data starts from a pretrained model where the settings leave it open and one can be had."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import Any

import pytest

from pliant.flows import config

MODEL = "path:/models/encoder"
GIVEN: dict[str, dict[str, Any]] = {
    "cascade": {"levels": [{"name": "mine"}]},
    "bins": {"embedded": {"scratch": {"width": 64}}},
    "packing": {"predictor": {"epochs": 3}},
}
START: dict[str, Callable[[Any], str]] = {
    "cascade": lambda config: config.levels_of(config.tasks[0])[-1].start,
    "bins": lambda config: config.embedded.start,
    "packing": lambda config: config.predictor.encoder,
}


@pytest.mark.parametrize("system", GIVEN)
def test_own_data_start_from_what_can_be_had_and_embedded_data_and_given_sizes_from_scratch(system, monkeypatch):
    module = import_module(f"pliant.flows.{system}.config")
    start = START[system]
    monkeypatch.setattr(module, "pretrained", lambda: MODEL)
    own = {"data": ["csv:mine.csv"]}
    assert start(module.read(None, own)) == MODEL
    for overrides in ({}, {**own, **GIVEN[system]}):
        assert start(module.read(None, overrides)) in ("scratch", "embedded")
    monkeypatch.setattr(module, "pretrained", lambda: "")
    assert start(module.read(None, own)) in ("scratch", "embedded")


@pytest.fixture
def unasked():
    """What was found before is forgotten, and what is found here afterwards."""
    config.pretrained.cache_clear()
    yield
    config.pretrained.cache_clear()


@pytest.mark.parametrize("installed", [False, True])
def test_an_installed_package_carries_a_model_and_where_there_is_none_one_line_says_so(
    installed, unasked, monkeypatch, capsys
):
    spec = ModuleSpec("package", None, origin="/site/package/__init__.py") if installed else None
    monkeypatch.setattr("pliant.training.loading.find_spec", lambda _name: spec)
    assert [config.pretrained() for _ in range(2)] == ["path:/site/package/model" if installed else ""] * 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and ("random weights" in line) != installed
