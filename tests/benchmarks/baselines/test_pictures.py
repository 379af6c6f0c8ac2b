"""The three services: what they have in common in this process; and each as it is started, on tiny artifacts."""

from __future__ import annotations

import asyncio
import base64
import io
import urllib.error
import urllib.request

import pytest
from PIL import Image

from pliant.benchmarks.baselines.launch import serving
from pliant.benchmarks.baselines.model import Artifact, Model, ModelSpec, Question
from pliant.benchmarks.baselines.settings import RIVALS, TRIED
from pliant.benchmarks.load_generator import Example, replay
from pliant.protocol import Request
from pliant.registry import codec
from pliant.tokens.runtime import Payload, TokensRuntime
from tests.fixtures.tokens.samples import IMAGE_SIZE, random_images, tiny_backbone, tiny_task

TASKS = {"digit": ("a", "b", "c"), "loops": ("d", "e")}


@pytest.fixture(scope="module")
def spec(tmp_path_factory) -> ModelSpec:
    folder = tmp_path_factory.mktemp("artifacts")
    digest = codec.save(tiny_backbone(), folder / "backbone")
    tasks = [tiny_task(name, classes, digest, seed) for seed, (name, classes) in enumerate(TASKS.items())]
    saved = [Artifact(str(folder / task.name), codec.save(task, folder / task.name)) for task in tasks]
    return ModelSpec(Artifact(str(folder / "backbone"), digest), tuple(saved), IMAGE_SIZE)


def encoded(pixels) -> str:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def questions(count: int) -> list[Question]:
    return [Question(list(TASKS)[i % 2], pixels) for i, pixels in enumerate(random_images(count))]


def test_the_model_answers_as_the_runtime_does_at_gamma_0_each_question_by_its_own_task(spec):
    asked = questions(6)
    digest = spec.backbone.digest
    tasks = [tiny_task(name, classes, digest, seed) for seed, (name, classes) in enumerate(TASKS.items())]
    run = TokensRuntime(tiny_backbone(), digest, tasks).run(0, [Payload(q.task, q.pixels) for q in asked])
    expected = [TASKS[q.task][int(row.argmax())] for q, row in zip(asked, run.probabilities, strict=True)]
    answers = Model(spec, 4).classify(asked)
    assert [answer["label"] for answer in answers] == expected
    assert {(answer["gamma"], answer["batch_size"]) for answer in answers} == {(0, 6)}


@pytest.mark.slow
@pytest.mark.parametrize("rival", RIVALS, ids=lambda rival: rival.name)
def test_a_service_answers_as_the_model_does_and_ends_with_its_context(rival, spec, tmp_path):
    if rival.missing is not None:
        pytest.skip(rival.missing)
    asked = questions(8)
    labels = [answer["label"] for answer in Model(spec, 1).classify(asked)]
    pool = {name: [] for name in TASKS}
    for question, label in zip(asked, labels, strict=True):
        pool[question.task].append(Example(encoded(question.pixels), label))
    with serving(rival, TRIED[0].options(rival, 400.0), spec.text(), tmp_path) as address:
        load = [Request(i, 0.02 * i, 30.0, list(TASKS)[i % 2]) for i in range(16)]
        replies = asyncio.run(replay(address, load, pool))
    assert [reply.status for reply in replies] == [200] * 16
    assert {reply.observation.outcome for reply in replies} == {"accurate"}
    assert {reply.observation.setting for reply in replies} == {0}
    with pytest.raises((urllib.error.URLError, OSError)):
        urllib.request.urlopen(address, timeout=2)
