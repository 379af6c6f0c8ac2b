"""The OpenAPI page of bins documents what the service takes and answers."""

from __future__ import annotations

import pytest

from pliant.serving.bins import bodies
from pliant.serving.http.schemas import OpenaiErrorAnswer, OpenaiModels, Score, TeiError
from tests.fixtures.bins.in_process import serving
from tests.fixtures.bins.published import publish_tiny
from tests.fixtures.documented import check_answer
from tests.fixtures.registry import FolderRegistry


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    registry = FolderRegistry(tmp_path_factory.mktemp("registry"))
    publish_tiny(registry, "colours", "meanings", "ranks")
    with serving(registry) as service:
        yield service


def test_answers_models_and_status_have_the_documented_fields_and_no_other(both):
    for encoding in ("float", "base64"):
        answer = both.post("/v1/embeddings", {"input": ["a", "dog"], "encoding_format": encoding}).json()
        check_answer(bodies.OpenaiEmbeddings, answer)
    check_answer(OpenaiModels, both.call("GET", "/v1/models").json())
    for score in both.post("/colours/predict", {"inputs": "a dog"}).json():
        check_answer(Score, score)
    check_answer(TeiError, both.post("/colours/predict", {}).json())
    check_answer(OpenaiErrorAnswer, both.post("/v1/embeddings", {}).json())
    check_answer(bodies.Status, both.call("GET", "/status").json())
