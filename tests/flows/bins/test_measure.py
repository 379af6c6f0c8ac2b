"""Of the engines that are tried one that does not work is passed over with its reason, whatever it raises."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pliant.bins.artifact import ENGINES_ON
from pliant.bins.runtimes import runtime as bins_runtime
from pliant.errors import ArtifactError, InputError
from pliant.flows.bins import measure as bins_measure
from pliant.flows.bins.config import BinsFlowConfig, EngineConfig
from pliant.flows.bins.measure import Half, measure
from pliant.profiling.bins.latency import LatencyConfig
from pliant.progress import silent
from tests.fixtures.bins.encoders import tiny_encoder

QUICK = LatencyConfig(lengths=(8,), batches=(1,), warmup=0, repeats=1, least=1)


def uncapturable(call):
    call()
    raise RuntimeError("operation not permitted when stream is capturing")


def config(*tried: str, engine: str = "auto") -> BinsFlowConfig:
    return BinsFlowConfig(engine=EngineConfig(engine=engine, tried=tried, lengths=(8,)), latency=QUICK)


@pytest.fixture
def graphs_on_a_cpu(monkeypatch):
    """The engine of graphs, whose captures all fail, on the CPU."""
    engine_of = bins_runtime._engine

    def engine(name, encoder, folder, files, device, threads, dtype, note):
        if name != "graphs":
            return engine_of(name, encoder, folder, files, device, threads, dtype, note)
        model = bins_runtime.load_model(encoder)
        return bins_runtime.GraphsEngine(model, model.inputs, device, uncapturable, note)

    monkeypatch.setattr(bins_runtime, "_engine", engine)
    monkeypatch.setitem(ENGINES_ON, "cpu", ("graphs", "eager"))


def test_a_model_that_cannot_be_captured_is_measured_with_the_next_engine(tmp_path, graphs_on_a_cpu):
    measured = measure(config("graphs", "eager"), tiny_encoder(), tmp_path, silent)
    assert measured.engine == "eager"
    assert list(measured.untried) == ["graphs"]
    assert "runs without a CUDA graph (operation not permitted when stream is capturing)" in measured.untried["graphs"]


def test_an_engine_that_the_settings_name_is_measured_as_it_runs_and_says_what_it_could_not_do(
    tmp_path, graphs_on_a_cpu
):
    measured = measure(config(engine="graphs"), tiny_encoder(), tmp_path, silent)
    assert measured.engine == "graphs"
    assert all("without a CUDA graph" in text for text in measured.fallbacks) and measured.fallbacks


def test_whatever_torch_raises_the_next_engine_is_tried_and_without_one_it_is_a_sentence(tmp_path, monkeypatch):
    profile = bins_measure.profile

    def failing(encoder, engine, *rest, **options):
        if engine == "graphs":
            raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 20 GiB")
        return profile(encoder, engine, *rest, **options)

    monkeypatch.setattr(bins_measure, "profile", failing)
    monkeypatch.setitem(ENGINES_ON, "cpu", ("graphs", "eager"))
    measured = measure(config("graphs", "eager"), tiny_encoder(), tmp_path, silent)
    reason = "tiny does not run with the engine graphs: CUDA out of memory."
    assert (measured.engine, measured.untried) == ("eager", {"graphs": reason})
    with pytest.raises(ArtifactError, match=f"^{reason}$"):
        measure(config(engine="graphs"), tiny_encoder(), tmp_path, silent)
    monkeypatch.setattr(bins_measure, "engines", lambda config: ("graphs", "graphs"))
    with pytest.raises(InputError, match="one that works here"):
        measure(config("graphs"), tiny_encoder(), tmp_path, silent)


@pytest.fixture
def timed(monkeypatch):
    """Trials take the seconds in this mapping; what is not in it runs as it is."""
    seconds: dict[tuple[str, str], float] = {}
    attempt = bins_measure._try

    def fixed(config, encoder, trial, folder, compared, progress):
        _, files = attempt(config, encoder, trial, folder, False, progress)
        return seconds[trial], files

    monkeypatch.setattr("pliant.precision.has_bfloat16", lambda device: True)
    monkeypatch.setattr(bins_measure, "_try", fixed)
    return seconds


@pytest.mark.parametrize(("seconds", "served"), [(0.5, "bfloat16"), (1.5, "float32")])
def test_half_precision_is_taken_where_it_is_faster(tmp_path, timed, seconds, served):
    timed |= {("eager", "float32"): 1.0, ("eager", "bfloat16"): seconds}
    measured = measure(config("eager"), tiny_encoder(), tmp_path, silent, Half("bfloat16", lambda: 0.001))
    assert measured.precision == served
    assert measured.arithmetic.startswith(f"{served} is served: ")
    assert measured.trials == {"eager": 1.0, "eager.bfloat16": seconds}


def test_a_plan_is_measured_and_served_in_the_precision_of_its_latencies(tmp_path, timed, monkeypatch):
    timed |= {("eager", "float32"): 1.0, ("eager", "bfloat16"): 0.5}
    encoder, used = tiny_encoder(), []
    measured = measure(config("eager"), encoder, tmp_path, silent, Half("bfloat16", lambda: 0.0))
    runtime = bins_measure.BinsRuntime

    def noted(*arguments, **options):
        used.append(arguments[-1] if len(arguments) > 8 else options["precision"])
        return runtime(*arguments, **options)

    monkeypatch.setattr(bins_measure, "BinsRuntime", noted)
    monkeypatch.setattr("pliant.profiling.bins.latency.BinsRuntime", noted)
    requests_N = np.full(encoder.max_length + 1, 5)
    bins, notes = bins_measure.finish(config("eager"), encoder, "digest", 0.1, requests_N, measured, tmp_path, silent)
    assert (bins.precision, set(used)) == ("bfloat16", {"bfloat16"})
    assert notes["fallbacks"] == []
