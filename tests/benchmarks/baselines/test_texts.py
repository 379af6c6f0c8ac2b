"""The text services: their model as in Pliant's own; and each as it is started, on a tiny encoder."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request

import numpy as np
import pytest

from pliant.benchmarks.baselines.launch import serving
from pliant.benchmarks.baselines.model import Artifact
from pliant.benchmarks.baselines.settings import SENTENCE, TEXT_RIVALS
from pliant.benchmarks.baselines.text_model import TextModel, TextSpec
from pliant.benchmarks.bins.requests import TASK, TIMEOUT, embeddings
from pliant.benchmarks.load_generator import in_turns, replay
from pliant.bins.runtimes.compile import compile_encoder
from pliant.protocol import Request
from pliant.registry import codec
from tests.fixtures.bins.encoders import tiny_encoder

# What is tried first of each; the other settings differ in numbers.
FIRST = list({one.name: one for one in reversed(TEXT_RIVALS) if one.name != SENTENCE}.values())
TEXTS = ("one", "one two three", "three two", "two three one two one")


@pytest.fixture(scope="module")
def spec(tmp_path_factory) -> TextSpec:
    folder = tmp_path_factory.mktemp("encoder")
    encoder = tiny_encoder("bert", "embedding")
    digest = codec.save(encoder, folder / "encoder")
    files = compile_encoder(encoder, "onnx", folder / "compiled")
    return TextSpec(Artifact(str(folder / "encoder"), digest), str(folder / "compiled"), files, "", encoder.max_length)


@pytest.mark.parametrize("engine", ["onnx", "eager"])
def test_a_vector_is_the_same_in_a_batch_and_alone(spec, engine):
    alone, batched = TextModel(spec, engine), TextModel(spec, engine, 4)
    expected = np.array([alone.embed([text])[0] for text in TEXTS])
    assert np.linalg.norm(expected, axis=1) == pytest.approx(np.ones(len(TEXTS)), abs=1e-5)
    assert np.abs(np.array(batched.embed(TEXTS)) - expected).max() < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("tried", FIRST, ids=lambda one: one.name)
def test_a_service_answers_what_the_model_says_and_ends_with_its_context(tried, spec, tmp_path):
    if tried.rival.missing is not None:
        pytest.skip(tried.rival.missing)
    model = TextModel(spec, "onnx")
    load = [Request(i, 0.01 * i, 0.01 * i + TIMEOUT, TASK) for i in range(24)]
    with serving(tried.rival, tried.options, spec.text(), tmp_path) as address:
        (first,) = asyncio.run(in_turns([address], load[:4], {TASK: TEXTS}, form=embeddings()))
        assert first[3].status == 200
        for text in TEXTS:
            assert np.abs(np.array(_asked(address, text)) - model.embed([text])).max() < 1e-5
        by_length = {0: list(TEXTS)}
        replies = asyncio.run(replay(address, load, {TASK: by_length}, form=embeddings()))
    assert [(reply.status, reply.observation.correct) for reply in replies] == [(200, True)] * 24
    with pytest.raises((urllib.error.URLError, OSError)):
        urllib.request.urlopen(address, timeout=2)


def _asked(address: str, text: str) -> list[list[float]]:
    body = json.dumps({"inputs": [text], "deadline": 30.0}).encode()
    request = urllib.request.Request(f"{address}/embed", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)
