"""What the bins flow alone does: lengths from journals, compiled files, several streams, encoders from elsewhere."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pliant.bins.artifact import Bins
from pliant.bins.runtimes.cache import cache_folder, verify
from pliant.errors import RegistryError
from pliant.flows import settings
from pliant.flows.bins.champions import Record, fetch_encoder, fetch_score
from pliant.flows.bins.reprofile import reprofile
from pliant.flows.champions import champion_artifacts, load_champions
from pliant.flows.release import open_registry
from pliant.flows.run import run_connected
from pliant.journal import encode
from pliant.progress import silent
from pliant.protocol import Arrived, JournalEntry, Request
from tests.fixtures.bins.tiny import setting
from tests.fixtures.cascade import tiny
from tests.fixtures.processor import NEEDS_BFLOAT16

ENCODER, BINS = "pliant-bins-encoder-things", "pliant-bins-things"
PROFILE, PLAN = "things: compile, latency profile", "things: bins"
ALWAYS = ["things: gate", "publish"]

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("world", ["bins"], indirect=True)]


def test_what_a_service_was_asked_takes_the_place_of_the_texts_once_it_is_enough(run, place):
    """A journal that is not there, or too short, is passed over for the next source."""
    sources = ["journal:served.jsonl", "data"]
    streams = [{**setting(place)["streams"][0], "lengths": sources}]
    run(streams=streams)
    assert champion_artifacts(settings.read(), Bins)["things"].lengths.sum() == 240
    write_journal(place / "served.jsonl", 120)
    write_journal(place / "served-2.jsonl", 30)
    _, stages = run(streams=streams)
    assert stages == ["things: lengths", PLAN, *ALWAYS]
    champion = load_champions(open_registry(settings.read(), "bins"), Bins)["things"]
    assert (champion.artifact.lengths.sum(), champion.artifact.lengths[33]) == (150, 150)
    assert champion.published.tags["pliant.lengths"] == "journal:served.jsonl"


def write_journal(path: Path, requests: int) -> None:
    entries = [JournalEntry(0.1 * n, Arrived(Request(n, 0.1 * n, 9.0, "things", 1.0, 33)), ()) for n in range(requests)]
    path.write_text("".join(encode(entry) + "\n" for entry in entries))


def test_the_version_says_what_it_was_made_of(run):
    run.unchanged()
    registry = open_registry(settings.read(), "bins")
    champion = load_champions(registry, Bins)["things"]
    loaded, version = fetch_encoder(registry, champion)
    assert (loaded.name, loaded.head, version) == ("things", "classification", 1)
    assert champion.record(Record).edges.most == 3
    assert champion.published.tags["pliant.device"] == champion.artifact.device_class
    assert fetch_score(registry, champion).data == loaded.data


def test_compiled_files_are_vouched_for_and_made_again_where_they_have_gone(run):
    """With ONNX Runtime there are some, on the device's folder of the cache."""
    given = {"engine": {"engine": "onnx"}}
    run(**given)
    things = champion_artifacts(settings.read(), Bins)["things"]
    folder = cache_folder(settings.read().home, things.encoder, things.device_class)
    assert things.engine == "onnx"
    verify(folder, things.files)
    shutil.rmtree(folder)
    _, stages = run(**given)
    assert stages == [PROFILE, PLAN, *ALWAYS]
    verify(folder, champion_artifacts(settings.read(), Bins)["things"].files)


def test_a_reranker_and_an_embedding_with_prompts_are_released_from_folders(run, place):
    """A cross-encoder, which gives one score for a pair of texts, as transformers writes it."""
    from pliant.serving.bins.endpoint import is_reranker
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
    champions = {name: load_champions(registry, Bins)[name] for name in ("pairs", "sentences")}
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
    run_connected("cascade", None, tiny.setting(place))
    run(streams=streams)
    registry = open_registry(settings.read(), "bins")
    encoder, _ = fetch_encoder(registry, load_champions(registry, Bins)["cascaded"])
    assert (encoder.classes, encoder.max_length) == (("fruit", "metal", "tree"), 32)
    assert fetch_score(registry, load_champions(registry, Bins)["cascaded"]).data == encoder.data


@NEEDS_BFLOAT16
def test_half_precision_is_served_where_it_is_named_and_tolerated_and_can_be_profiled_again(run):
    released, _ = run(arithmetic={"precision": "bfloat16", "tolerance": 0.9})
    registry = open_registry(settings.read(), "bins")
    champion = load_champions(registry, Bins)["things"]
    assert released["promoted"], released["reason"]
    assert champion.artifact.precision == "bfloat16"
    score = fetch_score(registry, champion)
    assert score is not None and 0 <= score.accuracy <= 1
    reprofile("cpu", 1, silent)
    again = load_champions(registry, Bins)["things"]
    assert again.artifact.precision in ("bfloat16", "float32")
    assert fetch_score(registry, again).data == score.data
