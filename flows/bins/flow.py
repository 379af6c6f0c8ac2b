"""The bins flow: encoder -> lengths -> latencies -> bins -> gate -> publish, per stream. Prefect's part only.

The work is in stages.py. Results are kept under keys of what they depend on, so a second run with nothing changed
trains and measures nothing. What has gone from the store, or whose compiled files have, is made again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prefect.artifacts import create_table_artifact

from flows import configuration, settings
from flows.arithmetic import half_of
from flows.bins import config as bins_config
from flows.bins import stages
from flows.bins.champions import Score, fetch_score, load_champions
from flows.bins.config import BinsFlowConfig
from flows.bins.gate import Candidate, Verdict, judge
from flows.bins.packages import weighed_of
from flows.bins.plan import describe
from flows.bins.publish import publish
from flows.bins.stages import Stream, StreamResults, compared, tested
from flows.configuration import Configuration
from flows.device import check_device
from flows.gate import below_linear, to_markdown
from flows.keys import StageResult
from flows.progress import stage
from flows.release import Release, merged, open_registry
from flows.repeats import noted
from flows.tasks import (
    cached_stage,
    clean,
    download_stage,
    gate_task,
    publish_task,
    show_release,
    system_flow,
)
from pliant.bins.artifact import Bins
from registry.names import BINS_PREFIX
from registry.store import FolderStore


@download_stage("encoder")
def get_encoder(key: str, config: BinsFlowConfig, stream: Stream, store: FolderStore) -> StageResult:
    with stage(f"{stream.name}: encoder") as progress:
        return stages.make_encoder(config, stream, key, store, progress)


@cached_stage("lengths")
def observe(key: str, config: BinsFlowConfig, stream: Stream, encoder: StageResult, store: FolderStore) -> StageResult:
    with stage(f"{stream.name}: lengths") as progress:
        return stages.make_lengths(config, stream, encoder, key, store, progress)


@cached_stage("latencies")
def profile(
    key: str, config: BinsFlowConfig, stream: Stream, encoder: StageResult, store: FolderStore, home: Path
) -> StageResult:
    with stage(f"{stream.name}: compile, latency profile") as progress:
        return stages.make_latencies(config, stream, encoder, key, store, home, progress)


@cached_stage("bins")
def plan(
    key: str, config: BinsFlowConfig, stream: Stream, results: dict[str, StageResult], store: FolderStore, home: Path
) -> StageResult:
    with stage(f"{stream.name}: bins") as progress:
        return stages.make_bins(config, stream, results, key, store, home, progress)


@gate_task()
def gate(config: BinsFlowConfig, champion: Candidate | None, challenger: Candidate, below_linear: str) -> Verdict:
    with stage(f"{challenger.bins.name}: gate") as progress:
        return judge(champion, challenger, config.gate, config.reference, progress, config.other_device, below_linear)


@publish_task()
def release(
    config: BinsFlowConfig,
    results: list[StreamResults],
    verdicts: dict[str, Verdict],
    store: FolderStore,
    kept: dict[str, str],
) -> Release:
    with stage("publish") as progress:
        released = publish(settings.read(), config, results, verdicts, store, progress, kept)
    _show(results, verdicts, released)
    return released


@system_flow("bins", "bins")
def bins(
    config: str | None = None,
    overrides: dict[str, Any] | None = None,
    reason: str | None = None,
    new_task: bool = False,
    nightly: bool = False,
) -> dict[str, Any]:
    """Get encoders, compile and profile them, choose bins, judge and publish the bins system.

    `config`: path of a TOML file; `overrides`: values laid over its top level (see flows/bins/config.py);
    `reason`: the alarm that started it (see flows/watch); `new_task`: whether it may release a task that the live release
    lacks; `nightly`: without a file, the configuration is that of the live release (flows/configuration.py).
    Returns what was released: model name -> version, and whether everything was promoted.
    """
    del reason  # flows/watch/triggered.py acts on it
    given = configuration.to_train(settings.read(), "bins", config, overrides, nightly)
    released = merged([_train(each, new_task) for each in given])
    clean("bins")
    return released.to_dict()


def _train(given: Configuration, new_task: bool) -> Release:
    """Train, judge and publish what one configuration says."""
    flow_config = bins_config.read(given.source, given.laid_over)
    check_device(flow_config)  # before anything is trained
    half_of(flow_config.arithmetic, flow_config.device)
    home = settings.read().home
    store = FolderStore(settings.read().store)
    with stage("texts") as progress:
        streams = stages.load_streams(flow_config, progress)
    kept = configuration.to_keep(
        settings.read(), "bins", given, [BINS_PREFIX + stream.name for stream in streams], new_task
    )
    results = [run_stream(flow_config, stream, store, home) for stream in streams]
    champions = _champions()
    verdicts = {
        result.name: gate(
            flow_config,
            champions.get(result.name),
            _challenger(result, store),
            _below_linear(flow_config, stream.config.data, result),
        )
        for stream, result in zip(streams, results, strict=True)
    }
    released: Release = release(flow_config, results, verdicts, store, kept)
    return released


def run_stream(config: BinsFlowConfig, stream: Stream, store: FolderStore, home: Path) -> StreamResults:
    """Run every stage of one stream, each from the cache where what it depends on has not changed."""
    key = stages.encoder_key(config, stream)
    encoder = get_encoder(key, config, stream, store)
    key = stages.lengths_key(config, stream, encoder)
    lengths = observe(key, config, stream, encoder, store)
    key = stages.latencies_key(config, stream, encoder)
    latencies = profile(key, config, stream, encoder, store, home)
    key = stages.bins_key(config, stream, lengths, latencies)
    named = {"encoder": encoder, "lengths": lengths, "latencies": latencies}
    planned = plan(key, config, stream, named, store, home)
    if not stages.compiled(store, home, planned):  # the cache was emptied: compile, measure and choose again
        for gone in (latencies, planned):
            store.remove(gone["key"])
        latencies = profile(latencies["key"], config, stream, encoder, store, home)
        key, named = stages.bins_key(config, stream, lengths, latencies), named | {"latencies": latencies}
        planned = plan(key, config, stream, named, store, home)
    encoder = noted(encoder, stream.data.repeats if stream.data else None)
    return StreamResults(stream.name, encoder, lengths, latencies, planned)


def _champions() -> dict[str, Candidate]:
    registry = open_registry(settings.read(), "bins")
    champions = load_champions(registry)
    return {name: Candidate(champion.bins, fetch_score(registry, champion)) for name, champion in champions.items()}


def _challenger(result: StreamResults, store: FolderStore) -> Candidate:
    planned = store.load(Bins, result.bins["key"], result.bins["digest"])
    score = tested(result)
    return Candidate(planned, Score(**score) if score else None)


def _below_linear(config: BinsFlowConfig, address: str, result: StreamResults) -> str:
    linear = compared(result)
    name = f"the encoder of {result.name}"
    return below_linear([(name, address, linear)] if linear else [], config.gate.below_linear)


def _show(results: Sequence[StreamResults], verdicts: Mapping[str, Verdict], released: Release) -> None:
    """Show the results in Prefect's UI."""
    rows = [
        {
            "stream": result.name,
            "tokens": trial.length,
            "batch": trial.batch,
            "static ms": round(1000 * trial.static, 3),
            "dynamic ms, same requests": round(1000 * trial.dynamic, 3),
            "kept": trial.kept,
        }
        for result in results
        for trial in weighed_of(result.bins["notes"])
    ]
    create_table_artifact(rows, key="bins-shapes", description="Static shapes against the dynamic runtime")
    plans = "\n".join(f"- {result.name}: {_told(result)}" for result in results)
    show_release("bins", f"The gate:\n\n{to_markdown(verdicts)}\n\nBins:\n\n{plans}", released)


def _told(result: StreamResults) -> str:
    """Return in sentences which static shapes are kept, and what an engine could not do."""
    notes = result.bins["notes"]
    arithmetic = result.latencies.get("notes", {}).get("arithmetic", "")
    return "; ".join([describe(weighed_of(notes)), *filter(None, [arithmetic]), *notes.get("fallbacks", ())])
