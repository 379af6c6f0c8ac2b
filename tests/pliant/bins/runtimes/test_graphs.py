"""Captured graphs over fixed buffers, tested without a GPU: the capture is one that calls again."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from pliant.bins.artifact import Shape
from pliant.bins.runtimes.graphs import EagerEngine, GraphsEngine
from pliant.bins.runtimes.model import load_model
from pliant.bins.runtimes.padding import padded
from tests.fixtures.bins.encoders import FAMILIES, random_payload, tiny_encoder

CPU = torch.device("cpu")


class Calls:
    """A capture that keeps the call. As with a graph, what it reads later is what lies at the same addresses then."""

    def __init__(self) -> None:
        self.captured = self.replayed = 0

    def __call__(self, call):
        self.captured += 1
        call()

        def replay():
            self.replayed += 1
            return call()

        return replay


@pytest.mark.parametrize("family", FAMILIES)
def test_a_graph_answers_for_what_its_buffers_hold_now(family):
    encoder, capture = tiny_encoder(family, "embedding"), Calls()
    model = load_model(encoder)
    eager, graphs = EagerEngine(model, CPU), GraphsEngine(model, model.inputs, CPU, capture)
    rng = np.random.default_rng(0)
    shapes = [Shape(12, 3), Shape(12, 1), Shape(5, 2)]
    calls = {shape: graphs.open(shape) for shape in shapes}
    for _ in range(2):
        for shape, call in calls.items():
            payloads = [random_payload(rng, int(rng.integers(1, shape.length + 1))) for _ in range(shape.batch)]
            batch = padded(shape, payloads, model.pad, model.typed)
            np.testing.assert_allclose(call(batch), eager.open(shape)(batch), atol=1e-5)
    assert (capture.captured, capture.replayed) == (3, 6)


def test_a_dynamic_shape_is_not_captured():
    model, capture = load_model(tiny_encoder()), Calls()
    shape = Shape(12, 2, dynamic=True)
    batch = padded(shape, [random_payload(np.random.default_rng(0), 7)], model.pad, model.typed)
    output = GraphsEngine(model, model.inputs, CPU, capture).open(shape)(batch)
    assert (output.shape, capture.captured) == ((1, 3), 0)


def test_threads_take_turns():
    """Graphs share memory: a second one must not run before the first one's result was read."""
    model, rng = load_model(tiny_encoder()), np.random.default_rng(0)
    inside, most, lock = 0, 0, threading.Lock()

    def capture(call):
        def replay():
            nonlocal inside, most
            with lock:
                inside += 1
                most = max(most, inside)
            out = call()
            with lock:
                inside -= 1
            return out

        return replay

    engine = GraphsEngine(model, model.inputs, CPU, capture)
    shapes = [Shape(30, 4), Shape(20, 4)]
    work = [(engine.open(shape), padded(shape, [random_payload(rng, 20)], model.pad, model.typed)) for shape in shapes]
    threads = [threading.Thread(target=lambda w=job: [w[0](w[1]) for _ in range(10)]) for job in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_only_a_mask_is_left_out_and_nothing_is_learnt_from_what_runs():
    passed = []

    def model(**inputs):
        passed.append((sorted(inputs), torch.is_inference_mode_enabled()))
        return torch.zeros(1, 1)

    batch = {name: np.ones((1, 2), np.int64) for name in ("input_ids", "attention_mask", "token_type_ids")}
    EagerEngine(model, CPU).open(Shape(2, 1))(batch)
    graphs = GraphsEngine(model, tuple(batch), CPU, Calls())
    graphs.open(Shape(2, 1))(batch)
    every = sorted(batch)
    assert passed == [(["input_ids", "token_type_ids"], True), (every, True), (every, True)]


def test_a_shape_that_cannot_be_captured_runs_without_a_graph_beside_the_others_and_is_told():
    model, good, notes = load_model(tiny_encoder()), Calls(), []

    def capture(call):
        if good.captured == 1:
            good.captured += 1
            raise RuntimeError("operation not permitted when stream is capturing")
        return good(call)

    shapes = [Shape(12, 2), Shape(8, 2), Shape(8, 1)]
    engine = GraphsEngine(model, model.inputs, CPU, capture, lambda *noted: notes.append(noted))
    calls = {shape: engine.open(shape) for shape in shapes}
    reason = "2 x 8 runs without a CUDA graph (operation not permitted when stream is capturing)"
    assert notes == [("capture", reason)]
    for shape, call in calls.items():
        payloads = [random_payload(np.random.default_rng(0), 5)] * shape.batch
        batch = padded(shape, payloads, model.pad, model.typed)
        np.testing.assert_allclose(call(batch), EagerEngine(model, CPU).open(shape)(batch), atol=1e-5)
    assert good.replayed == 2
