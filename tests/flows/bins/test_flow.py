"""The real bins flow under a real Prefect server, with the tiny setting: what it makes, keeps and refuses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from flows import settings
from flows.bins.champions import Record, champion_artifacts, fetch_encoder, fetch_score, load_champions
from flows.bins.reprofile import reprofile
from flows.bins.run import run_connected
from flows.cascade import run as cascade_run
from flows.release import open_registry
from pliant.bins.runtimes.cache import cache_folder, verify
from pliant.device import device_class, threads
from pliant.errors import InputError, RegistryError
from pliant.journal import encode
from pliant.progress import silent
from pliant.protocol import Arrived, JournalEntry, Request
from registry.store import FolderStore
from tests.fixtures.bins.tiny import setting
from tests.fixtures.cascade import tiny
from tests.fixtures.cascade.tiny import write_texts
from tests.fixtures.processor import NEEDS_BFLOAT16
from tests.fixtures.runs import Runs, answer, place_in, versions

ENCODER, BINS = "pliant-bins-encoder-things", "pliant-bins-things"
PROFILE, PLAN = "things: compile, latency profile", "things: bins"
ALWAYS = ["things: gate", "publish"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def place(tmp_path_factory, prefect) -> Iterator[Path]:
    """A working directory with texts, state and registry of its own."""
    folder = tmp_path_factory.mktemp("bins-flow")
    write_texts(folder)
    with place_in(folder, prefect):
        yield folder


@pytest.fixture(scope="module")
def runs(place) -> Runs:
    """Runs the flow; gives what it released and which stages did work."""
    # Champions of two classes of device take turns here.
    return Runs(lambda **changes: run_connected(None, setting(place, **{"other_device": True, **changes}), True))


@pytest.fixture(scope="module")
def first(runs) -> dict[str, Any]:
    """What the very first run released."""
    return runs()[0]


@pytest.fixture(scope="module")
def second(first, runs) -> tuple[dict[str, Any], list[str]]:
    """What a second run with nothing changed released, and which stages did work."""
    runs.unchanged()
    return runs()


@pytest.fixture
def run(first, runs) -> Runs:
    """After the first run."""
    return runs


def test_the_first_run_publishes_and_promotes_the_encoder_and_its_bins(first):
    assert first["promoted"], first["reason"]
    assert first["versions"] == {ENCODER: 1, BINS: 1}
    assert sorted(first["new"]) == sorted([ENCODER, BINS])
    things = champion_artifacts(settings.read())["things"]
    assert things.shapes[-1].dynamic
    assert things.shapes[-1].length == 40
    assert things.lengths.sum() == 240


def test_a_second_run_with_nothing_changed_trains_and_measures_nothing_and_keeps_every_version(first, second):
    released, stages = second
    assert stages == ALWAYS
    assert released["new"] == ()
    assert released["versions"] == versions("bins") == first["versions"]


def test_an_artifact_that_has_gone_is_made_again_and_nothing_else(run):
    run.unchanged()
    store = FolderStore(settings.read().store)
    (lost,) = (store.root / "bins" / "lengths-things").iterdir()
    shutil.rmtree(lost)
    before = versions("bins")
    released, stages = run()
    assert stages == ["things: lengths", *ALWAYS]
    assert released["versions"] == before


def test_other_edges_are_chosen_without_training_or_the_staircase(run):
    run.unchanged()
    released, stages = run(edges={"count": 2, "batches": [1, 2]})
    assert stages == [PLAN, *ALWAYS]
    assert released["versions"][ENCODER] == 1
    assert released["new"] == (BINS,)


def test_what_a_service_was_asked_takes_the_place_of_the_texts_once_it_is_enough(run, place):
    """A journal that is not there, or too short, is passed over for the next source."""
    sources = ["journal:served.jsonl", "data"]
    streams = [{**setting(place)["streams"][0], "lengths": sources}]
    run(streams=streams)
    assert champion_artifacts(settings.read())["things"].lengths.sum() == 240
    write_journal(place / "served.jsonl", 120)
    write_journal(place / "served-2.jsonl", 30)
    _, stages = run(streams=streams)
    assert stages == ["things: lengths", PLAN, *ALWAYS]
    champion = load_champions(open_registry(settings.read(), "bins"))["things"]
    assert (champion.artifact.lengths.sum(), champion.artifact.lengths[33]) == (150, 150)
    assert champion.published.tags["pliant.lengths"] == "journal:served.jsonl"


def write_journal(path: Path, requests: int) -> None:
    entries = [JournalEntry(0.1 * n, Arrived(Request(n, 0.1 * n, 9.0, "things", 1.0, 33)), ()) for n in range(requests)]
    path.write_text("".join(encode(entry) + "\n" for entry in entries))


def test_the_run_holds_figures_reports_metrics_curves_and_parameters(second):
    released, _ = second
    client = open_registry(settings.read(), "bins").connect()
    files = {file.path for file in client.list_artifacts(released["run"])}
    figures = {"staircase-things.png", "padding-things.png", "static-things.png", "curves-things.png"}
    assert {"gate.json", "plan-things.json", "encoder-things.json", *figures} <= files
    gate = json.loads(Path(client.download_artifacts(released["run"], "gate.json")).read_text())["things"]
    assert gate["challenger"]["reports"][0]["requests"] == gate["champion"]["reports"][0]["requests"] > 0
    plan = json.loads(Path(client.download_artifacts(released["run"], "plan-things.json")).read_text())
    assert "static runtime" in plan["told"]
    run = client.get_run(released["run"])
    assert run.info.status == "FINISHED"
    assert run.data.params["embedded.scratch.width"] == "16"
    assert 0 <= run.data.metrics["test_accuracy.things"] <= 1
    assert run.data.metrics["seconds.padded_to_longest.things"] >= run.data.metrics["seconds.padded_to_bins.things"]
    assert len(client.get_metric_history(released["run"], "held_out_loss.things")) == 2
    assert [item.dataset.name for item in run.inputs.dataset_inputs] == ["things"]


def test_the_version_says_what_it_was_made_of(run):
    run.unchanged()
    registry = open_registry(settings.read(), "bins")
    champion = load_champions(registry)["things"]
    loaded, version = fetch_encoder(registry, champion)
    assert (loaded.name, loaded.head, version) == ("things", "classification", 1)
    assert champion.record(Record).edges.most == 3
    assert champion.published.tags["pliant.device"] == champion.artifact.device_class
    assert fetch_score(registry, champion).data == loaded.data


def test_any_mlflow_client_can_load_the_champions_and_predict(first, place):
    texts = pd.DataFrame({"text": ["an old oak", "some iron and the"]})
    assert list(answer(ENCODER, texts).columns) == ["label", "confidence"]
    inputs = pd.DataFrame({"length": [9, 30], "batch": [1, 2]})
    assert all(answer(BINS, inputs)["padded_batch"] >= [1, 2])


def test_measured_on_another_device_the_champions_bins_are_chosen_again_for_their_lengths(run):
    run.unchanged()
    before, was = versions("bins"), champion_artifacts(settings.read())["things"]
    published, run.standing = reprofile("cpu", 2, silent, other_device=True), None
    now = champion_artifacts(settings.read())["things"]
    with threads(2):
        assert now.device_class == device_class("cpu") != was.device_class
    assert published == {"things": before[BINS] + 1}
    assert (now.encoder, now.slo) == (was.encoder, was.slo)
    assert np.array_equal(now.lengths, was.lengths)
    assert versions("bins") == before | {BINS: before[BINS] + 1}
    released, _ = run(other_device=False)
    assert not released["promoted"] and f"the champion on {now.device_class}" in released["reason"]
    assert versions("bins") == before | {BINS: before[BINS] + 1}
    run.standing = None


def test_compiled_files_are_vouched_for_and_made_again_where_they_have_gone(run):
    """With ONNX Runtime there are some, on the device's folder of the cache."""
    given = {"engine": {"engine": "onnx"}}
    run(**given)
    things = champion_artifacts(settings.read())["things"]
    folder = cache_folder(settings.read().home, things.encoder, things.device_class)
    assert things.engine == "onnx"
    verify(folder, things.files)
    shutil.rmtree(folder)
    _, stages = run(**given)
    assert stages == [PROFILE, PLAN, *ALWAYS]
    verify(folder, champion_artifacts(settings.read())["things"].files)


def test_two_streams_are_released_together_and_one_is_a_folder_of_its_own(run, place):
    from tests.training.bins.test_encoder import write_model

    (place / "model").mkdir()
    write_model(place / "model", head=False)
    streams = [*setting(place)["streams"], {**setting(place)["streams"][0], "encoder": f"path:{place / 'model'}"}]
    released, stages = run(streams=streams)
    assert {"pliant-bins-model", "pliant-bins-encoder-model"} <= set(released["new"])
    assert [stage for stage in stages if stage.startswith("things")] == ["things: gate"]
    assert set(champion_artifacts(settings.read())) == {"things", "model"}


def test_a_reranker_and_an_embedding_with_prompts_are_released_from_folders(run, place):
    """A cross-encoder, which gives one score for a pair of texts, as transformers writes it."""
    from serving.bins.request import is_reranker
    from tests.training.bins.test_encoder import write_model, write_sentence_model

    for name in ("pairs", "sentences"):
        (place / name).mkdir()
    write_model(place / "pairs", head=True, outputs=1)
    write_sentence_model(place / "sentences", {"pooling_mode": "mean"})
    (place / "sentences" / "config_sentence_transformers.json").write_text('{"prompts": {"query": "query: "}}')
    streams = [
        {**setting(place)["streams"][0], "encoder": f"path:{place / name}", "name": name}
        for name in ("pairs", "sentences")
    ]
    released, _ = run(streams=streams)
    assert {"pliant-bins-encoder-pairs", "pliant-bins-encoder-sentences"} <= set(released["new"])
    registry = open_registry(settings.read(), "bins")
    champions = {name: load_champions(registry)[name] for name in ("pairs", "sentences")}
    encoders = {name: fetch_encoder(registry, champion)[0] for name, champion in champions.items()}
    assert is_reranker(encoders["pairs"]) and not is_reranker(encoders["sentences"])
    assert dict(encoders["sentences"].prompts) == {"query": "query: "}
    assert {name: champion.artifact.unpooled for name, champion in champions.items()} == {
        "pairs": False,
        "sentences": True,
    }


def test_the_largest_model_of_a_cascade_serves_as_an_encoder(run, place):
    streams = [{**setting(place)["streams"][0], "encoder": "cascade:things", "name": "cascaded"}]
    with pytest.raises(RegistryError, match="no champion of the cascade 'things'"):
        run(streams=streams)
    cascade_run.run_connected(None, tiny.setting(place))
    run(streams=streams)
    registry = open_registry(settings.read(), "bins")
    encoder, _ = fetch_encoder(registry, load_champions(registry)["cascaded"])
    assert (encoder.classes, encoder.max_length) == (("fruit", "metal", "tree"), 32)
    assert fetch_score(registry, load_champions(registry)["cascaded"]).data == encoder.data


@pytest.mark.parametrize(
    ("config", "overrides", "sentence"),
    [
        (
            None,
            {"data": ["json:absent.jsonl"]},
            "data is absent.jsonl (No such file or directory), but must be a readable",
        ),
        (None, {"encoder": "path:/nowhere"}, "encoder is /nowhere, but must be an existing folder"),
        (None, {"lengths": ["parquet:none.parquet"]}, "lengths of things is parquet:none.parquet has no such file"),
        (None, {"engine": {"engine": "graphs"}}, "engine is graphs, but must be"),
        ("absent.toml", {}, "config is absent.toml, but must be a readable TOML file"),
    ],
)
def test_a_mistake_comes_out_of_the_flow_as_the_sentence_that_it_is(place, config, overrides, sentence):
    with pytest.raises(InputError) as error:
        run_connected(config, setting(place, **overrides), new_task=True)
    assert str(error.value).startswith(sentence)


@NEEDS_BFLOAT16
def test_half_precision_is_served_where_it_is_named_and_tolerated_and_can_be_profiled_again(run):
    released, _ = run(arithmetic={"precision": "bfloat16", "tolerance": 0.9})
    registry = open_registry(settings.read(), "bins")
    champion = load_champions(registry)["things"]
    assert released["promoted"], released["reason"]
    assert champion.artifact.precision == "bfloat16"
    score = fetch_score(registry, champion)
    assert score is not None and 0 <= score.accuracy <= 1
    reprofile("cpu", 1, silent)
    again = load_champions(registry)["things"]
    assert again.artifact.precision in ("bfloat16", "float32")
    assert fetch_score(registry, again).data == score.data
