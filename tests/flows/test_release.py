"""What a run registers, keeps and promotes, with a registry that only remembers."""

from __future__ import annotations

import pytest

from pliant.errors import InputError
from pliant.flows.release import CHALLENGER, Release, commit, merged, publication, publish_champion
from pliant.registry.mlflow_store import CHAMPION
from tests.fixtures.remembering import Package, Registry


@pytest.fixture
def registry() -> Registry:
    return Registry()


def released(registry: Registry, promoted: bool, why: str = "", **digests: str):
    gate = {"passed": promoted, "reason": why} if why else {"passed": promoted}
    with publication(registry, "things", {"a": {"b": 1}}, gate) as published:
        for name, digest in digests.items():
            published.register(name, digest, lambda name=name, digest=digest: Package(name, digest))
        if promoted:
            published.promote(published.versions)
    assert published.run.logged == {"a.b": 1, "gate": gate}
    return published.release(promoted, "because")


def test_what_is_new_is_a_challenger_first_and_promoted_in_the_order_of_registration(registry):
    release = released(registry, True, part="x", whole="y")
    assert (release.versions, release.new) == ({"part": 1, "whole": 1}, ("part", "whole"))
    assert registry.aliases["part", CHALLENGER] == registry.aliases["part", CHAMPION] == 1
    assert registry.commits == [["part", "whole"]]


def test_a_known_champion_or_challenger_keeps_its_version_and_is_not_packed_again(registry):
    released(registry, True, part="x")
    refused = released(registry, False, part="z")
    again = released(registry, False, part="z")
    assert (refused.versions, refused.new) == ({"part": 2}, ("part",))
    assert (again.versions, again.new) == ({"part": 2}, ())
    assert released(registry, False, part="x").versions == {"part": 1}
    assert registry.aliases["part", CHAMPION] == 1


def test_what_the_gate_refused_is_a_release_that_nobody_serves(registry):
    released(registry, True, part="x")
    assert registry.proposed == []
    released(registry, False, part="z")
    assert [(state, changes) for state, changes, _ in registry.proposed] == [("refused", {"part": 2})]
    released(registry, False, part="x")  # the champion itself
    assert len(registry.proposed) == 1
    released(registry, False, "its mean request is 3% slower", part="y")
    assert registry.proposed[-1] == ("refused", {"part": 3}, "its mean request is 3% slower")


def test_where_challengers_are_tried_first_only_the_first_champion_is_served_at_once(registry, monkeypatch):
    monkeypatch.setenv("PLIANT_ROLLOUT", "canary")
    released(registry, True, part="x")
    assert registry.aliases["part", CHAMPION] == 1 and registry.proposed == []
    released(registry, True, part="y")
    assert registry.aliases["part", CHAMPION] == 1
    assert [(state, changes) for state, changes, _ in registry.proposed] == [("waiting", {"part": 2})]
    monkeypatch.setenv("PLIANT_ROLLOUT", "sandwich")
    with pytest.raises(InputError, match="PLIANT_ROLLOUT is 'sandwich', but must be one of direct, canary"):
        released(registry, True, part="z")


def test_what_is_damaged_in_the_registry_is_published_once_more(registry):
    released(registry, True, part="x")
    registry.damaged.add("part")
    assert released(registry, True, part="x").versions == {"part": 2}


def test_a_profile_measured_here_is_the_champion_at_once(registry):
    released(registry, True, part="x")
    runs = []
    assert publish_champion(registry, "things profile", Package("part", "y"), log=runs.append) == 2
    assert registry.aliases["part", CHAMPION] == 2
    assert len(runs) == 1


def test_a_release_keeps_the_configurations_of_the_tasks_that_it_takes_up_alone(registry):
    kept = {"part": "{1}", "other": "{2}"}
    with publication(registry, "things", {}, {}, kept) as published:
        for name in ("part", "other", "shared"):
            published.register(name, name, lambda name=name: Package(name, name))
        published.promote(["shared", "part"])
    assert registry.kept == {"part": "{1}"}


def test_the_releases_of_several_runs_of_a_flows_work_are_one():
    first = Release(True, "better", {"a": 2}, ("a",), "r1")
    second = Release(False, "worse", {"b": 1}, (), "")
    assert merged([first, second]) == Release(True, "better; worse", {"a": 2, "b": 1}, ("a",), "r1")


def test_a_machine_without_git_publishes_all_the_same_and_one_with_it_names_the_commit(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit() == "unknown"
    (tmp_path / "git").write_text("#!/bin/sh\necho abc1234\n")
    (tmp_path / "git").chmod(0o755)
    assert commit() == "abc1234"
