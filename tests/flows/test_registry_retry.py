"""A scheduled run outlasts a registry that is away for a moment; a command that a person typed fails at once."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from pliant.cascade.artifact import Cascade
from pliant.errors import RefusedError, RegistryError, UnreachableError
from pliant.flows import release
from pliant.flows.champions import RECORD, Champion, load_champions
from pliant.flows.release import OUTAGE_WAITS, retried
from pliant.registry import codec
from pliant.registry.package import Published
from pliant.tokens.artifact import Task
from tests.fixtures.cascade.tiny import some_cascade, some_outputs

AWAY = UnreachableError("no MLflow server answers")


class Answers:
    """Gives one answer at each call; an error is raised."""

    def __init__(self, *answers) -> None:
        self.answers, self.calls = list(answers), 0

    def __call__(self):
        self.calls += 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def waits(monkeypatch):
    waits = []
    monkeypatch.setattr(release.time, "sleep", waits.append)
    return waits


@pytest.fixture
def scheduled(monkeypatch):
    monkeypatch.setattr(release, "current_run", lambda: SimpleNamespace(deployment_id="a deployment"))


def test_a_scheduled_run_tries_again_until_the_registry_answers(waits, scheduled, caplog):
    assert retried(Answers(AWAY, AWAY, "an answer")) == "an answer"
    assert waits == [3, 15]
    assert caplog.messages == [f"no MLflow server answers; tried again in {seconds} s" for seconds in (3, 15)]


def test_it_gives_up_after_as_long_as_a_release_does(waits, scheduled):
    read = Answers(*[AWAY] * 4, "too late")
    with pytest.raises(UnreachableError):
        retried(read)
    assert waits == list(OUTAGE_WAITS) and read.calls == 4


@pytest.mark.parametrize("error", [RefusedError("a wrong password"), RegistryError("there is none")])
def test_what_another_try_does_not_mend_is_not_tried_again(waits, scheduled, error):
    with pytest.raises(type(error)):
        retried(Answers(error, "an answer"))
    assert waits == []


@pytest.mark.parametrize("run", [None, SimpleNamespace(deployment_id=None)])
def test_a_command_fails_at_once(waits, monkeypatch, run):
    monkeypatch.setattr(release, "current_run", lambda: run)
    with pytest.raises(UnreachableError):
        retried(Answers(AWAY, "an answer"))
    assert waits == []


def test_champions_are_read_patiently(waits, scheduled):
    registry = SimpleNamespace(exists=lambda: True, versions=lambda prefix: answers(), fetch=None)
    answers = Answers(AWAY, {"pliant-tokens-task-a": 1})
    fetches = Answers(AWAY, RegistryError("fetched"))
    registry.fetch = lambda name, which: fetches()
    with pytest.raises(RegistryError, match="fetched"):
        load_champions(registry, Task)
    assert waits == [3, 3]


def test_a_champion_that_an_older_version_wrote_in_another_schema_is_none(tmp_path, monkeypatch, caplog):
    """It cannot be served any more, and the sentence that says so asks for a run of the flow, which comes here."""
    folders, published = {"cascade-task-old": tmp_path / "old", "cascade-task-new": tmp_path / "new"}, {}
    for name, folder in folders.items():
        with monkeypatch.context() as patched:
            patched.setattr(Cascade, "SCHEMA", Cascade.SCHEMA - ("old" in name))
            digest = codec.save(some_cascade(some_outputs()), folder)
        published[f"pliant-{name}"] = folder, Published(f"pliant-{name}", 1, digest, f"models:/pliant-{name}/1", {})
    registry = SimpleNamespace(
        exists=lambda: True, versions=lambda _: dict.fromkeys(published, 1), fetch=lambda name, _: published[name]
    )
    assert list(load_champions(registry, Cascade)) == ["new"]
    assert "the champion of old counts for nothing: " in caplog.text


@dataclass(frozen=True, slots=True)
class Record:
    threads: int


def version(**tags: str) -> Published:
    return Published("pliant-bins-things", 3, "sha256:x", "models:/things/3", tags)


@pytest.mark.parametrize("text", ["{}", '{"threads": "four"}', '{"threads": 1, "cores": 2}', "threads"])
def test_a_record_of_other_settings_than_todays_is_told(text):
    with pytest.raises(RegistryError, match=r"the tag pliant\.record of models:/things/3 cannot be read"):
        Champion(None, version(**{RECORD: text})).record(Record)


def test_a_version_that_the_flow_did_not_publish_is_told():
    with pytest.raises(RegistryError, match=r"was not published by the bins flow: it has no tag pliant\.record"):
        Champion(None, version()).record(Record)
    with pytest.raises(RegistryError, match=r"was not published by the bins flow: it has no tag part"):
        Champion(None, version(part="newest")).version("part")
    assert Champion(None, version(part="12")).version("part") == 12
