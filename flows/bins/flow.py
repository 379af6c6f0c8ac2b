"""The bins flow: encoder -> lengths -> latencies -> bins -> gate -> publish, per stream. Prefect's part only.

The work is in stages.py. Stages are cached under keys of what they depend on, so a second run with nothing changed
trains and measures nothing. A cached result whose artifact or whose compiled files have gone is made again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prefect import flow, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE

from flows import settings
from flows.bins import config as bins_config
from flows.bins import live, stages
from flows.bins.config import BinsFlowConfig
from flows.bins.gate import Contender, Verdict, judge
from flows.bins.packages import weighed_of
from flows.bins.plan import told as plan_told
from flows.bins.publish import publish
from flows.bins.stages import Stream, StreamMade
from flows.device import check_device
from flows.gate import told as gate_told
from flows.keys import StageResult
from flows.progress import stage
from flows.release import Release
from flows.tasks import fetched, fresh, kept, passing, show_release
from pliant.bins.artifact import Bins
from registry.store import FolderStore


@fetched("encoder")
def get_encoder(key: str, config: BinsFlowConfig, stream: Stream, store: FolderStore) -> StageResult:
    with stage(f"{stream.name}: encoder") as progress:
        return stages.make_encoder(config, stream, key, store, progress)


@kept("lengths")
def observe(key: str, config: BinsFlowConfig, stream: Stream, encoder: StageResult, store: FolderStore) -> StageResult:
    with stage(f"{stream.name}: lengths") as progress:
        return stages.make_lengths(config, stream, encoder, key, store, progress)


@kept("latencies")
def profile(
    key: str, config: BinsFlowConfig, stream: Stream, encoder: StageResult, store: FolderStore, home: Path
) -> StageResult:
    with stage(f"{stream.name}: compile, latency profile") as progress:
        return stages.make_latencies(config, encoder, key, store, home, progress)


@kept("bins")
def plan(
    key: str, config: BinsFlowConfig, stream: Stream, made: dict[str, StageResult], store: FolderStore, home: Path
) -> StageResult:
    with stage(f"{stream.name}: bins") as progress:
        return stages.make_bins(config, stream, made, key, store, home, progress)


@task(name="gate", cache_policy=NO_CACHE)
def gate(config: BinsFlowConfig, champion: Contender | None, challenger: Contender) -> Verdict:
    with stage(f"{challenger.bins.name}: gate") as progress:
        return judge(champion, challenger, config.gate, config.reference, progress)


@task(name="publish", cache_policy=NO_CACHE, retries=2, retry_delay_seconds=3, retry_condition_fn=passing)
def release(
    config: BinsFlowConfig, made: list[StreamMade], verdicts: dict[str, Verdict], store: FolderStore
) -> Release:
    with stage("publish") as progress:
        released = publish(settings.read(), config, made, verdicts, store, progress)
    _show(made, verdicts, released)
    return released


@flow(name="bins", validate_parameters=True)
def bins(config: str | None = None, overrides: dict[str, Any] | None = None) -> dict[str, Any]:
    """Get encoders, compile and profile them, choose bins, judge and publish the bins system.

    `config`: path of a TOML file; `overrides`: values laid over its top level (see flows/bins/config.py).
    Returns what was released: model name -> version, and whether everything was promoted.
    """
    told = bins_config.read(Path(config) if config else None, overrides)
    check_device(told)  # what the device cannot do is told before anything is trained
    home = settings.read().home
    store = FolderStore(settings.read().store)
    with stage("texts") as progress:
        streams = stages.load_streams(told, progress)
    made = [one_stream(told, stream, store, home) for stream in streams]
    champions = _champions()
    verdicts = {one.name: gate(told, champions.get(one.name), _challenger(one, store)) for one in made}
    return release(told, made, verdicts, store).plain()


def one_stream(told: BinsFlowConfig, stream: Stream, store: FolderStore, home: Path) -> StreamMade:
    """Every stage of one stream, each from the cache where what it depends on has not changed."""
    key = stages.encoder_key(told, stream)
    encoder: StageResult = fresh(get_encoder, store, key)(key, told, stream, store)
    key = stages.lengths_key(told, stream, encoder)
    lengths: StageResult = fresh(observe, store, key)(key, told, stream, encoder, store)
    key = stages.latencies_key(told, stream, encoder)
    latencies: StageResult = fresh(profile, store, key)(key, told, stream, encoder, store, home)
    key = stages.bins_key(told, stream, lengths, latencies)
    named = {"encoder": encoder, "lengths": lengths, "latencies": latencies}
    planned: StageResult = fresh(plan, store, key)(key, told, stream, named, store, home)
    if not stages.compiled(store, home, planned):  # the cache was emptied: compile, measure and choose again
        latencies = profile.with_options(refresh_cache=True)(latencies["key"], told, stream, encoder, store, home)
        key, named = stages.bins_key(told, stream, lengths, latencies), named | {"latencies": latencies}
        planned = plan.with_options(refresh_cache=True)(key, told, stream, named, store, home)
    return StreamMade(stream.name, encoder, lengths, latencies, planned)


def _champions() -> dict[str, Contender]:
    registry = live.open_registry(settings.read())
    found = live.live(registry)
    return {name: Contender(one.bins, live.score(registry, one)) for name, one in found.items()}


def _challenger(made: StreamMade, store: FolderStore) -> Contender:
    planned = store.load(Bins, made.bins["key"], made.bins["digest"])
    score = made.encoder.get("notes", {}).get("score")
    return Contender(planned, live.Score(**score) if score else None)


def _show(made: Sequence[StreamMade], verdicts: Mapping[str, Verdict], released: Release) -> None:
    """Results in Prefect's UI."""
    rows = [
        {
            "stream": one.name,
            "tokens": weighed.length,
            "batch": weighed.batch,
            "static ms": round(1000 * weighed.static, 3),
            "dynamic ms, same requests": round(1000 * weighed.dynamic, 3),
            "kept": weighed.kept,
        }
        for one in made
        for weighed in weighed_of(one.bins["notes"])
    ]
    create_table_artifact(rows, key="bins-shapes", description="Static shapes against the dynamic runtime")
    plans = "\n".join(f"- {one.name}: {plan_told(weighed_of(one.bins['notes']))}" for one in made)
    show_release("bins", f"The gate:\n\n{gate_told(verdicts)}\n\nBins:\n\n{plans}", released)
