"""What the gate refuses is registered and not released, in the flows of all systems."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace

import pytest

from flows import pipeline
from flows.gate import Judged
from flows.pipeline import Pipeline
from pliant.progress import silent
from registry.mlflow_store import CHAMPION
from tests.fixtures.remembering import Package, Registry


@dataclass(frozen=True)
class Figures:
    reports: tuple = ()
    bound: tuple = ()


@dataclass(frozen=True)
class Config:
    retrain: Figures = Figures()


STORE = SimpleNamespace(path=lambda key: key)
RESULT = {"key": "k", "digest": "d"}
KEPT = {"one": "its configuration"}


@pytest.fixture
def registry() -> Registry:
    return Registry()


def module_of(system: str, registry: Registry, monkeypatch: pytest.MonkeyPatch, **others):
    """Return the system's `publish` module, with a registry that remembers and without figures of its runs."""
    module = import_module(f"flows.{system}.publish")
    for name, value in {"open_registry": lambda *_: registry, **others}.items():
        monkeypatch.setattr(module, name, value)
    return module


def verdict(passed: bool) -> Judged[Figures]:
    return Judged(passed, "good" if passed else "bad", Figures())


def nothing(*_args: object) -> None:
    pass


def register(published, *names: str) -> list[str]:
    for name in names:
        published.register(name, f"digest of {name}", lambda name=name: Package(name, f"digest of {name}"))
    return list(names)


@dataclass(frozen=True)
class Result:
    name: str


class Listed(Pipeline[Config, Result, Result, None]):
    """A flow whose results are registered as a part and a whole."""

    system = "listed"
    model = "whole-"

    def register(self, published, result):
        return register(published, f"part-{result.name}", f"whole-{result.name}")


Listed.__abstractmethods__ = frozenset()  # the rest is for other tests


@pytest.mark.parametrize("refused", [(), ("one",), ("one", "two")])
def test_of_several_those_are_released_together_that_the_gate_let_pass(refused, registry, monkeypatch):
    monkeypatch.setattr(pipeline, "open_registry", lambda *_: registry)
    items = [Result("one"), Result("two")]
    verdicts = {item.name: verdict(item.name not in refused) for item in items}
    release = Listed(Config(), None).released(items, verdicts, KEPT, silent)
    passed = [name for name in ("part-one", "whole-one", "part-two", "whole-two") if name.split("-")[1] not in refused]
    assert registry.commits == ([passed] if passed else [])
    assert release.promoted is (not refused)
    assert set(release.new) == {"part-one", "whole-one", "part-two", "whole-two"}
    assert ("one: bad" in release.reason) is ("one" in refused)


@pytest.mark.parametrize("refused", [(), ("one",), ("one", "two")])
def test_of_several_cascades_those_are_released_together_that_the_gate_let_pass(refused, registry, monkeypatch):
    def registered(published, config, item, store):
        return register(published, f"part-{item.name}", f"whole-{item.name}")

    module = module_of("cascade", registry, monkeypatch, _register=registered, log_task=nothing)
    items = [SimpleNamespace(name=name, task=name) for name in ("one", "two")]
    verdicts = {item.name: verdict(item.name not in refused) for item in items}
    release = module.publish(None, Config(), items, verdicts, STORE, silent, KEPT)
    passed = [name for name in ("part-one", "whole-one", "part-two", "whole-two") if name.split("-")[1] not in refused]
    assert registry.commits == ([passed] if passed else [])
    assert release.promoted is (not refused)


@pytest.mark.parametrize("passed", [True, False])
def test_a_backbone_and_its_tasks_are_released_only_if_the_gate_let_them_pass(passed, registry, monkeypatch):
    packed = lambda name, *_: Package(name, "d")  # noqa: E731
    module = module_of("tokens", registry, monkeypatch, _log=nothing, _log_training=nothing, _package=packed)
    results = {"backbone": RESULT, "profile": RESULT}
    release = module.publish(None, Config(), results, None, verdict(passed), STORE, silent, KEPT)
    assert registry.commits == ([["pliant-tokens-backbone", "pliant-tokens-profile"]] if passed else [])
    assert (release.promoted, release.reason) == (passed, verdict(passed).reason)
    assert len(release.new) == 2


@pytest.mark.parametrize("retrained", [True, False])
@pytest.mark.parametrize("passed", [True, False])
def test_a_generators_plan_is_released_only_if_the_gate_let_it_pass(retrained, passed, registry, monkeypatch):
    module = module_of(
        "packing",
        registry,
        monkeypatch,
        log_model=nothing,
        log_retrained=nothing,
        load_generator=nothing,
        record=nothing,
        generator_package=lambda name, *_: Package(f"generator-{name}", "d"),
        _register_plan=lambda published, *_: register(published, "predictor", "plan"),
    )
    results = SimpleNamespace(name="n", generator=RESULT, predictor=RESULT, plan=RESULT)
    champion = SimpleNamespace(version=lambda _: 1, origin="", record=None)
    if retrained:
        loaded = SimpleNamespace(champion=champion, generator=None)
        release = module.publish_retrained(None, Config(), loaded, results, verdict(passed), STORE, silent)
    else:
        release = module.publish(None, Config(), results, verdict(passed), STORE, silent, KEPT)
    assert [names[-2:] for names in registry.commits] == ([["predictor", "plan"]] if passed else [])
    assert (("plan", CHAMPION) in registry.aliases) is passed
    assert (release.promoted, release.reason) == (passed, verdict(passed).reason)
