"""Of the engines that are tried one that does not work is passed over with its reason, whatever it raises."""

from __future__ import annotations

import pytest
import torch

from flows.bins import measure as bins_measure
from flows.bins.config import BinsFlowConfig, EngineConfig
from flows.bins.measure import measure
from pliant.bins.runtimes import runtime as bins_runtime
from pliant.errors import ArtifactError, InputError
from pliant.progress import silent
from profiling.bins.latency import LatencyConfig
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

    def engine(name, encoder, folder, files, device, threads, note):
        if name != "graphs":
            return engine_of(name, encoder, folder, files, device, threads, note)
        model = bins_runtime.load_model(encoder)
        return bins_runtime.GraphsEngine(model, model.inputs, device, uncapturable, note)

    monkeypatch.setattr(bins_runtime, "_engine", engine)


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
    measured = measure(config("graphs", "eager"), tiny_encoder(), tmp_path, silent)
    reason = "tiny does not run with the engine graphs: CUDA out of memory."
    assert (measured.engine, measured.untried) == ("eager", {"graphs": reason})
    with pytest.raises(ArtifactError, match=f"^{reason}$"):
        measure(config(engine="graphs"), tiny_encoder(), tmp_path, silent)
    monkeypatch.setattr(bins_measure, "engines", lambda config: ("graphs", "graphs"))
    with pytest.raises(InputError, match="one that works here"):
        measure(config("graphs"), tiny_encoder(), tmp_path, silent)
