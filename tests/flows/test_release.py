"""What a run registers, keeps and promotes, in a registry in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from pliant.errors import InputError, RegistryError
from pliant.flows.release import Release, commit, merged, publication, publish_champion
from pliant.registry import decisions
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.mlflow_switch import TAKEN_BACK, allow, switch
from pliant.serving.loop.trials import TrialRecord
from tests.fixtures.mlflow_client import RELEASES, A, B, Package, publishing

REGISTRY = MlflowRegistry("sqlite:///registry.db", "pliant-bins", Path("artifacts"))


@pytest.fixture
def client(monkeypatch):
    return publishing(monkeypatch)


def released(promoted: bool, digests: dict[str, str], why: str = "") -> Release:
    gate = {"passed": promoted, "reason": why} if why else {"passed": promoted}
    with REGISTRY.run("things") as run:
        published = publication(REGISTRY, run, gate)
        for name, digest in digests.items():
            published.register(name, digest, lambda name=name, digest=digest: Package(name, digest))
        before = published.kept_out(published.versions) if promoted else ""
        if promoted and not before:
            published.promote(published.versions)
    assert published.run.logged == {"gate": gate}
    return published.release(promoted and not before, before or "because", before)


def challenger() -> tuple[str, dict[str, int], str]:
    proposed = REGISTRY.release("bins", "challenger")
    return proposed.state, proposed.versions, proposed.reason


def test_what_is_new_is_a_challenger_first_and_promoted_in_the_order_of_registration(client):
    release = released(True, {B: "x", A: "y"})
    assert (release.versions, release.new) == ({B: 1, A: 1}, (B, A))
    moved = [write[:2] for write in client.writes if write[0] in ("challenger", "champion")]
    assert moved == [("challenger", B), ("challenger", A), ("champion", RELEASES), ("champion", B), ("champion", A)]


def test_a_known_champion_or_challenger_keeps_its_version_and_is_not_packed_again(client):
    released(True, {A: "x"})
    refused, again = released(False, {A: "z"}), released(False, {A: "z"})
    assert (refused.versions, refused.new) == ({A: 2}, (A,))
    assert (again.versions, again.new) == ({A: 2}, ())
    assert released(False, {A: "x"}).versions == {A: 1}
    assert REGISTRY.release("bins").versions == {A: 1}


def test_what_the_gate_refused_is_a_release_that_nobody_serves(client):
    released(True, {A: "x"})
    assert REGISTRY.release("bins", "challenger") is None
    released(False, {A: "z"})
    assert challenger() == ("refused", {A: 2}, "")
    released(False, {A: "x"})  # the champion itself
    assert challenger() == ("refused", {A: 2}, "")
    released(False, {A: "y"}, "its mean request is 3% slower")
    assert challenger() == ("refused", {A: 3}, "its mean request is 3% slower")


def test_where_challengers_are_tried_first_only_the_first_champion_is_served_at_once(client, monkeypatch):
    monkeypatch.setenv("PLIANT_ROLLOUT", "canary")
    released(True, {A: "x"})
    assert REGISTRY.release("bins").versions == {A: 1} and REGISTRY.release("bins", "challenger") is None
    released(True, {A: "y"})
    assert REGISTRY.release("bins").versions == {A: 1} and challenger()[:2] == ("waiting", {A: 2})
    monkeypatch.setenv("PLIANT_ROLLOUT", "sandwich")
    with pytest.raises(InputError, match="PLIANT_ROLLOUT is 'sandwich', but must be one of direct, canary, ask"):
        released(True, {A: "z"})


def test_what_was_taken_back_is_not_served_again_by_any_night_until_somebody_allows_it(client):
    released(True, {A: "x", B: "u"})
    released(True, {A: "bad", B: "u"})
    switch(REGISTRY, "bins", 1, "customers complain", TAKEN_BACK)
    for _ in range(10):
        again = released(True, {A: "bad", B: "u"})
        assert not again.promoted and REGISTRY.release("bins").number == 1
        assert (
            "this is release 2, which was taken back on 20" in again.reason and "(customers complain)" in again.reason
        )
    assert challenger()[0] == "refused" and "`pliant allow bins 2`" in challenger()[2]
    assert released(True, {A: "good", B: "u"}).promoted, "another one is judged anew"
    assert not released(True, {A: "bad", B: "v"}).promoted, "with another part, too"
    assert allow(REGISTRY, "bins", 2, "it was the network").state == TAKEN_BACK
    assert released(True, {A: "bad", B: "v"}).promoted and REGISTRY.release("bins").digests == {A: "bad", B: "v"}
    log = decisions.read(REGISTRY, "bins")
    assert [(each.what, each.release) for each in log[:3]] == [("released", 1), ("released", 2), ("taken back", 2)]
    assert log[2].why == "customers complain" and "@" in log[2].who and log[2].digests == {A: "bad"}
    assert [each.what for each in log[-2:]] == ["allowed", "released"]
    with pytest.raises(RegistryError, match="release 2 of bins is none that is kept out"):
        allow(REGISTRY, "bins", 2, "")


def test_a_challenger_that_was_taken_back_in_its_trial_waits_again_once_it_is_allowed(client, monkeypatch):
    monkeypatch.setenv("PLIANT_ROLLOUT", "canary")
    released(True, {A: "x"})
    released(True, {A: "y"})
    record = TrialRecord(REGISTRY, "bins")
    record.mark(record.challenger(), TAKEN_BACK, "undecided after 86400 s")
    assert not released(True, {A: "y"}).promoted and record.challenger() is None
    allow(REGISTRY, "bins", 2, "labels will come")
    assert record.challenger().number == 2 and released(True, {A: "y"}).promoted


def test_where_a_person_decides_what_passes_the_gate_waits_and_no_service_tries_it(client, monkeypatch):
    monkeypatch.setenv("PLIANT_ROLLOUT", "ask")
    released(True, {A: "x"})
    released(True, {A: "y"})
    assert REGISTRY.release("bins").versions == {A: 1} and challenger()[:2] == ("asks", {A: 2})
    assert TrialRecord(REGISTRY, "bins").challenger() is None


def test_what_is_damaged_in_the_registry_is_published_once_more(client):
    released(True, {A: "x"})
    client.damaged.add(A)
    assert released(True, {A: "x"}).versions == {A: 2}


def test_a_profile_measured_here_is_the_champion_at_once(client):
    released(True, {A: "x"})
    runs = []
    assert publish_champion(REGISTRY, "things profile", Package(A, "y"), log=runs.append) == 2
    assert REGISTRY.release("bins").versions == {A: 2} and len(runs) == 1


def test_a_release_keeps_the_configurations_of_the_tasks_that_it_takes_up_alone(client):
    with REGISTRY.run("things") as run:
        published = publication(REGISTRY, run, {}, {A: '{"a": 1}', "pliant-bins-other": '{"a": 2}'})
        for name in (A, "pliant-bins-other", B):
            published.register(name, name, lambda name=name: Package(name, name))
        published.promote([B, A])
    assert REGISTRY.release("bins").configurations == {A: '{"a": 1}'}


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
