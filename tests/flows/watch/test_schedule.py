"""What is scheduled and when, without a server; with one: qa/flows/test_prefect.py."""

from __future__ import annotations

from importlib import import_module

import pytest

from pliant import systems
from pliant.errors import InputError, PliantError, RegistryError
from pliant.flows import settings
from pliant.flows.watch.automations import later, schedule
from pliant.flows.watch.deployments import nightly_flows


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("PLIANT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlruns' / 'mlflow.db'}")
    return settings.read()


def test_a_system_without_a_release_and_without_a_file_is_not_scheduled(project):
    with pytest.raises(
        RegistryError, match=r"cascade has no release .*: run `pliant train cascade` first, or name one with"
    ):
        schedule(project, "cascade", None, None, "UTC")


def test_a_file_that_is_wrong_is_refused_before_any_server_is_asked(project, tmp_path):
    file = tmp_path / "wrong.toml"
    file.write_text("sead = 3\n")
    with pytest.raises(
        InputError, match=r"key sead in .*wrong.toml is unknown, but must be a known one; did you mean seed"
    ):
        schedule(project, "cascade", file, None, "UTC")


@pytest.mark.parametrize(("cron", "moved"), [("5 3 * * *", "5 4 * * *"), ("0 23 * * 1-5", "0 0 * * 1-5")])
def test_the_second_flow_of_a_system_follows_an_hour_later(cron, moved):
    assert (later(cron, 0), later(cron, 1)) == (cron, moved)


@pytest.mark.parametrize("system", systems.names())
def test_every_system_has_one_flow_that_alarms_start_and_no_two_flows_begin_at_the_same_time(system):
    flows = nightly_flows(system).values()
    assert sum(flow.alarmed for flow in flows) == 1
    assert len({flow.cron for flow in nightly_flows().values()}) == len(nightly_flows())
    for flow in flows:
        module, _, function = flow.entrypoint.rpartition(".")
        assert module.startswith(f"pliant.flows.{system}.")
        assert getattr(import_module(module), function).name == flow.flow


def test_without_a_server_the_sentence_says_what_to_do(project, tmp_path, monkeypatch):
    from prefect.settings import PREFECT_API_URL, temporary_settings

    file = tmp_path / "empty.toml"
    file.write_text("")
    with temporary_settings(restore_defaults={PREFECT_API_URL}), pytest.raises(PliantError) as error:
        schedule(project, "cascade", file, None, "UTC")
    assert str(error.value).startswith("no Prefect server is named, which would keep the schedule: start one with")
