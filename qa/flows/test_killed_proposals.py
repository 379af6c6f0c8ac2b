"""A publisher that is killed (SIGKILL) at any write while it proposes a challenger ends the same when run again."""

from __future__ import annotations

from typing import Any

from pliant.registry import codec
from pliant.registry import mlflow_switch as switching
from pliant.registry.mlflow_store import CHALLENGER, MlflowRegistry
from pliant.registry.releases import RegistryRelease
from tests.fixtures.half_publishes import ENCODER, PLAN, Publisher, Steps, stepping
from tests.fixtures.killed import killed
from tests.fixtures.light_mlflow import lighten

CANARY = ("PLIANT_ROLLOUT", "canary")
SEEN = ("create_model_version", "set_registered_model_alias", "set_terminated")
"""Writes that others see; before each there are some that nobody does."""


def end(publisher: Publisher, seed: int) -> dict[str, Any]:
    """Return what a proposal leaves, by digests: numbers differ with what was published before."""
    registry = publisher.registry
    champion, challenger = registry.release("bins"), registry.release("bins", CHALLENGER)
    digests = dict(zip((ENCODER, PLAN), map(codec.digest, publisher.drafts(seed)), strict=True))
    own = {name: registry.aliased(name, CHALLENGER) for name in digests}
    alike = [each for each in latest(registry) if dict(each.digests) == digests]
    return {
        "served": publisher.served(),
        "champion": (champion.number, champion.state),
        "challenger": dict(challenger.digests) == digests,
        "its own aliases": {name: each.version for name, each in own.items()} == dict(challenger.versions),
        "state": (challenger.state, challenger.reason, challenger.former, bool(challenger.since)),
        "releases": len(alike),
        "aliases": sorted(switching.aliases(registry, "bins")),
    }


def latest(registry: MlflowRegistry) -> list[RegistryRelease]:
    """Return the releases that were written last, whether an alias names them or not."""
    return [registry.release("bins", number) for number in registry.numbers("pliant-release-bins")[-3:]]


def whole(publisher: Publisher) -> None:
    """Every new release names versions that are there, with the digests that it names; a challenger is one of them."""
    registry = publisher.registry
    for release in latest(registry)[-1:]:
        assert release.versions, f"{release.name} is half written"
        for name, number in release.versions.items():
            assert registry.version(name, number).digest == release.digests[name]
            assert registry.intact(registry.version(name, number))


def test_a_flow_killed_at_any_write_of_a_proposal_ends_the_same_and_publishes_nothing_half(tmp_path, monkeypatch):
    lighten(monkeypatch)
    publisher, steps = Publisher(tmp_path), Steps()
    publisher.publish(0)
    monkeypatch.setenv(*CANARY)
    with stepping(monkeypatch, tmp_path / "nothing", steps):
        publisher.publish(1)
    wanted = end(publisher, 1)
    assert wanted["served"] == {"colours": 0} and wanted["challenger"] and wanted["releases"] == 1
    assert wanted["state"][0] == "waiting"
    kills = [at for at, name in enumerate(steps.names) if name.startswith(SEEN)]
    assert len(kills) == 7, steps.names
    for seed, kill in enumerate(kills, start=2):
        before = publisher.registry.release("bins", CHALLENGER)
        assert killed(tmp_path, seed, kill, **dict([CANARY])), "by the system, in the midst of it"
        assert publisher.served() == {"colours": 0}, "services still see the champion"
        whole(publisher)
        challenger = publisher.registry.release("bins", CHALLENGER)
        assert challenger == before or end(publisher, seed)["challenger"], "the former one, or all of the new one"
        publisher.publish(seed)
        assert end(publisher, seed) == wanted, f"killed before {steps.names[kill]}"
