"""Measuring vLLM's iterations: by an engine that takes no time itself, by a child that is a stand-in, and by vLLM."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest

from pliant.errors import WorkerError
from pliant.packing.scheduling.iteration_cost import LinearCost, fit
from pliant.packing.scheduling.request import Memory
from pliant.serving.packing.vllm import measuring
from pliant.serving.packing.vllm.engine import variables
from pliant.serving.packing.vllm.measuring import Lab, MeasuringSpec, measure
from pliant.serving.workers.child_process import Interpreter, pack, receive
from tests.fixtures.packing import tiny_llama, vllm_environment

COST = LinearCost(0.02, 0.001, 0.0005, 1e-5, 0.0)


@dataclass
class Engine:
    """Steps last as COST says. With `behind` a step's tokens come with the next one, as where vLLM works ahead."""

    behind: bool = False
    now: float = 0.0
    texts: dict[str, list[int]] = field(default_factory=dict)  # tokens in the cache, unread ones, and to generate
    late: list[list[str]] = field(default_factory=list)

    def add(self, name: str, tokens: int, limit: int) -> None:
        self.texts[name] = [0, tokens, limit]

    def step(self):
        queries = sum(max(text[1], 1) for text in self.texts.values())
        for text in self.texts.values():
            text[0] += max(text[1], 1)
            text[1] = 0
            text[2] -= 1
        cached = sum(text[0] for text in self.texts.values())
        names = list(self.texts)
        if names:
            self.now += float(COST.seconds(queries, len(names), cached))
        self.texts = {name: text for name, text in self.texts.items() if text[2] > 0}
        if self.behind:
            self.late.append(names)
            names = self.late.pop(0) if len(self.late) > 1 else []
        return [SimpleNamespace(request_id=name, outputs=[SimpleNamespace(token_ids=[1])]) for name in names]

    def abort_request(self, names) -> None:
        for name in names:
            self.texts.pop(name, None)

    def has_unfinished_requests(self) -> bool:
        return bool(self.texts)


class FakeLab(Lab):
    def _add(self, tokens: int, limit: int) -> str:
        self._number += 1
        self._engine.add(str(self._number), tokens, limit)
        return str(self._number)


@pytest.fixture
def spec(tmp_path) -> MeasuringSpec:
    return MeasuringSpec(
        folder=tmp_path,
        context=400,
        precision="float32",
        memory=Memory(200, 16, step_tokens=64, sequences=8),
        token_bytes=1024,
        device="cpu",
        threads=1,
        states=((1, 20), (1, 200), (4, 20), (4, 150), (8, 40)),
        prompts=(0.0, 0.25, 1.0),
        warmup=2,
        repeats=5,
        log=tmp_path / "log",
    )


@pytest.mark.parametrize("behind", [False, True])
def test_the_cost_that_is_fitted_to_the_measured_iterations_is_the_engines(spec, behind):
    engine = Engine(behind)
    lab = FakeLab(spec, engine, clock=lambda: engine.now)
    points = [point for state in spec.states for point in lab.measure(*state)]
    assert not engine.texts
    assert {point.queries - point.sequences + (point.queries > point.sequences) for point in points} >= {0, 15, 63}
    measured = fit(points)
    for queries, sequences, cached in ((8, 8, 500), (40, 5, 800), (64, 2, 100)):
        truth = float(COST.seconds(queries, sequences, cached))
        assert float(measured.seconds(queries, sequences, cached)) == pytest.approx(truth, rel=0.05)


def fails(channel, incoming) -> None:
    receive(incoming)
    channel.sendall(pack(("failed", "the disk is full")))


def dies(_channel, incoming) -> None:
    receive(incoming)
    os._exit(3)


OURS = Interpreter(sys.executable, dict(os.environ) | {"PYTHONPATH": os.pathsep.join(sys.path)})


@pytest.mark.parametrize(
    ("entry", "text"), [("fails", "could not be measured: the disk is full"), ("dies", "ended with status 3 while")]
)
def test_a_child_that_fails_or_dies_is_one_sentence(spec, monkeypatch, entry, text):
    monkeypatch.setattr(measuring, "ENTRY", f"{__name__}:{entry}")
    with pytest.raises(WorkerError, match=text) as caught:
        measure(OURS, spec)
    assert str(spec.log) in str(caught.value)


@pytest.mark.slow
def test_vllm_is_measured(spec, tmp_path):
    python = vllm_environment.needed()
    interpreter = Interpreter(python, variables(python.parents[1]))
    model = replace(
        spec,
        folder=tiny_llama.write(tmp_path / "model"),
        context=256,
        memory=Memory(64, 32, step_tokens=64, sequences=8),
        states=((1, 20), (4, 60)),
    )
    points = measure(interpreter, model)
    assert {(point.queries, point.sequences) for point in points} == {
        (1, 1),
        (16, 2),
        (64, 2),
        (4, 4),
        (19, 5),
        (64, 5),
    }
    assert all(0 < point.seconds < 10 for point in points)
    assert model.log.is_file()
