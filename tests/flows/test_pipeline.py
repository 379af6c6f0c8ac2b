"""A pipeline without a system: whether a stage runs is for the store to say, and what the gate refuses is not released."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest
from prefect import flow

from pliant.errors import InputError, UnreachableError
from pliant.flows import pipeline, settings
from pliant.flows.gate import Judged, judged
from pliant.flows.pipeline import Pipeline, tasks
from pliant.flows.record import Recorder
from pliant.flows.stage import Stage, StageResult
from pliant.progress import silent
from pliant.registry import codec
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.releases import COLUMN
from pliant.registry.store import FolderStore
from pliant.tokens.artifact import Backbone
from tests.fixtures.light_mlflow import lay_database
from tests.fixtures.mlflow_client import RELEASES, Package, Run, publishing
from tests.fixtures.runs import place_in
from tests.fixtures.tokens.samples import tiny_backbone


@pytest.fixture
def store(tmp_path, prefect):
    with place_in(tmp_path, prefect):
        yield FolderStore(settings.read().store)


def make_foundation(name, seed, worked, meanwhile, progress):
    worked.append(name)
    if meanwhile is not None:
        meanwhile()
    progress(1, 1)
    return tiny_backbone(seed), {"seed": seed, "rates": (0.1, 0.2)}


FOUNDATION = Stage(
    "foundation",
    Backbone,
    make_foundation,
    lambda name: {"name": name},
    folder="tokens/{name}",
    bar="foundation of {name}",
    run="foundation-{name}",
    code=(codec.load,),
)


def run(store: FolderStore, seed: int, meanwhile=None) -> tuple[StageResult, list[tuple[str, str]], bool]:
    """What a flow of one stage returns, which makes a backbone of this seed; the names and states of its tasks in Prefect;
    whether it did any work. `meanwhile` is called while it works.
    """
    worked: list[str] = []

    @flow
    def system() -> StageResult:
        return tasks(store)(FOUNDATION, "things", seed, worked, meanwhile)

    state = system(return_state=True)
    return state.result(), ran(state), bool(worked)


def ran(state) -> list[tuple[str, str]]:
    from prefect import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId

    chosen = FlowRunFilter(id=FlowRunFilterId(any_=[state.state_details.flow_run_id]))
    with get_client(sync_client=True) as client:
        while True:  # the server hears of the end a little later
            found = [(task.name, task.state.name) for task in client.read_task_runs(flow_run_filter=chosen)]
            if found and all(name != "Running" for _, name in found):
                return found
            time.sleep(0.05)


def test_a_stage_is_run_once_and_again_only_when_its_result_has_gone(store):
    """A worker whose Prefect had never seen the key once trained anew, and overwrote what others had read."""
    first, _, worked = run(store, seed=0)
    assert worked
    assert (first.digest, dict(first.notes)) == (codec.digest(first.folder), {"seed": 0, "rates": [0.1, 0.2]})
    assert run(store, seed=1)[::2] == (first, False)
    assert FOUNDATION.work(store, first.key, "things", 1, [], None) == first, "also where it is forced to run"
    store.remove(first.key)
    other, _, worked = run(store, seed=1)
    assert (other.key, other.notes["seed"], worked) == (first.key, 1, True)
    assert other.load().source == "random weights, seed 1"


def test_a_task_is_named_after_what_it_makes_and_shown_as_cached(store):
    assert run(store, seed=0)[1] == [("foundation-things", "Completed")]
    assert run(store, seed=0)[1] == [("foundation-things", "Cached")]


def test_of_two_runs_that_make_the_same_at_once_both_go_on_with_what_is_kept_first(store, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr("pliant.flows.stage.say", said.append)
    for seed, words in ((2, "not alike"), (1, "")):
        meanwhile = lambda seed=seed: FOUNDATION.result(store, "things", seed, [], None)  # noqa: E731
        result, _, worked = run(store, seed=1, meanwhile=meanwhile)
        assert worked and result.notes["seed"] == seed
        assert result.load().source == f"random weights, seed {seed}"
        assert [words in each and result.digest in each for each in said] == [True] * bool(words)
        store.remove(result.key)
        said.clear()


def test_prefect_keeps_no_result_beside_the_stores(store):
    from prefect.settings import PREFECT_LOCAL_STORAGE_PATH

    storage = Path(PREFECT_LOCAL_STORAGE_PATH.value())
    before = sorted(storage.rglob("*"))
    assert run(store, seed=0)[2]
    assert sorted(storage.rglob("*")) == before


@dataclass(frozen=True)
class Config:
    other_device: bool = False
    gate: str = "settings of the gate"
    reference: str = "load"


@dataclass(frozen=True)
class Result:
    name: str


class Figures:
    def deciding(self):
        return {"a request takes": "1 ms"}


class Listed(Pipeline[Config, Result, Result, None]):
    """A flow whose results are registered as a part and a whole."""

    system = "listed"
    model = "whole-"
    naming = ()
    judge = staticmethod(lambda champion, challenger, *_: judged("", "good", challenger, champion))
    device_of = staticmethod(lambda side: side)

    def sides(self, results):
        return ((None if result.name == "first" else "cpu", result.name) for result in results)

    def register(self, published, result):
        names = [f"pliant-bins-{kind}-{result.name}" for kind in ("part", "whole")]
        for name in names:
            published.register(name, f"digest of {name}", lambda name=name: Package(name, f"digest of {name}"))
        return names


Listed.__abstractmethods__ = frozenset()  # the rest is for other tests


@pytest.mark.parametrize("refused", [(), ("one",), ("one", "two")])
def test_of_several_those_are_released_together_that_the_gate_let_pass(refused, monkeypatch):
    client, registry = (
        publishing(monkeypatch),
        MlflowRegistry("sqlite:///registry.db", "pliant-bins", Path("artifacts")),
    )
    monkeypatch.setattr(pipeline, "open_registry", lambda *_: registry)
    items, run = [Result("one"), Result("two")], Run(client)
    verdicts = {
        item.name: Judged(item.name not in refused, "bad" if item.name in refused else "good", Figures())
        for item in items
    }
    names = [f"pliant-bins-{kind}-{item.name}" for item in items for kind in ("part", "whole")]
    release = Listed(Config(), None).released(items, verdicts, {names[1]: '{"seed": 1}'}, run, silent)
    table = ["| measure | challenger | champion |", "| --- | --- | --- |", "| one: a request takes | 1 ms |  |"]
    assert run.logged["about"].replace(COLUMN, " | ").splitlines()[-4:-1] == table
    assert table[1] in run.logged["about"], "as Markdown has it"
    passed = [name for name in names if name.rpartition("-")[2] not in refused]
    moved = [write[1] for write in client.writes if write[0] == "champion"]
    assert moved == ([RELEASES, *passed] if passed else []), "all by one write, and each part before its whole"
    assert release.promoted is (not refused)
    assert set(release.new) == {*names}
    assert ("one: bad" in release.reason) is ("one" in refused)
    if passed:
        kept = {} if "one" in refused else {names[1]: '{"seed": 1}'}
        assert registry.release("bins").configurations == kept


@pytest.mark.parametrize(
    ("error", "status", "about"),
    [
        (InputError("data", "gone", "a file"), "FAILED", "Failed: data is gone, but must be a file"),
        (ValueError("postgres://me:secret@host"), "FAILED", "Failed: ValueError: postgres://***@host"),
        (KeyboardInterrupt(), "KILLED", "Interrupted."),
        (None, "FINISHED", None),
    ],
)
@pytest.mark.parametrize("away", [False, True])
def test_a_flows_run_is_open_from_its_start_and_ends_with_its_state_and_reason(
    error, status, about, away, tmp_path, monkeypatch
):
    """Where the registry is away when the flow begins, the run is opened once it answers."""
    registry = MlflowRegistry(lay_database(tmp_path / "mlflow.db"), "pliant-listed", tmp_path / "artifacts")
    monkeypatch.setattr(pipeline, "open_registry", lambda *_: registry)
    recorder, client = Recorder(), registry.connect()
    if away:
        (tmp_path / "mlflow.db").rename(tmp_path / "away")
        monkeypatch.setattr(MlflowRegistry, "start", unless_away(tmp_path / "mlflow.db", MlflowRegistry.start))
    with (
        pytest.raises(type(error)) if error else nullcontext(),
        Listed(Config(), None, recorder=recorder).logged() as opened,
    ):
        if away:
            (tmp_path / "away").rename(tmp_path / "mlflow.db")
        recorder.results.append(
            StageResult(Backbone, None, "listed/stage/key", "", curves={"loss": [(0, 2.0), (5, 1.0)]})
        )
        opened()
        (run,) = client.search_runs([client.get_experiment_by_name("pliant-listed").experiment_id])
        assert (run.info.status, run.data.params["gate"]) == ("RUNNING", "settings of the gate")
        if error:
            raise error
    run = client.get_run(run.info.run_id)
    assert (run.info.status, run.data.tags.get("mlflow.note.content")) == (status, about)
    if error:
        curve = client.get_metric_history(run.info.run_id, "listed/stage/loss")
        assert [(each.step, each.value) for each in curve] == [(0, 2.0), (5, 1.0)]
        assert run.data.metrics["seconds"] > 0


def unless_away(file, start):
    def started(registry, *args):
        if not file.exists():
            raise UnreachableError("no MLflow server answers")
        return start(registry, *args)

    return started


@pytest.mark.parametrize("allowed", [False, True])
def test_what_is_worse_than_a_linear_model_or_of_another_class_of_device_is_rejected_whatever_the_gate_says(
    store, allowed
):
    @flow
    def judged_flow() -> list[tuple[bool, str]]:
        below = {"first": "", "cpu": "", "gpu": "", "bad": "a linear model is better"}
        verdicts = Listed(Config(other_device=allowed), None).verdicts([*map(Result, below)], [*below.values()])
        return [(each.passed, each.reason) for each in verdicts.values()]

    first, same, other, bad = judged_flow()
    assert first == same == (True, "good") and bad == (False, "a linear model is better")
    assert other[0] == allowed and (allowed or other[1].startswith("it was measured on gpu, the champion on cpu"))
