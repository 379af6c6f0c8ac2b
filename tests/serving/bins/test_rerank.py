"""Texts are ranked by a stream that gives one score for a pair, in the shapes of TEI and of Jina and Cohere."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.bins.runtimes.runtime import BinsRuntime
from pliant.models.text import Reader
from pliant.serving.bins import bodies
from tests.fixtures.bins.in_process import serving
from tests.fixtures.bins.published import LONG, MOST, SHAPES, SHORT, TEXT, encoder, publish_tiny
from tests.fixtures.documented import check_answer
from tests.fixtures.registry import FolderRegistry

TEXTS = [TEXT, "dogs or cats", LONG, "trees\x00", "every large word"]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    registry = FolderRegistry(tmp_path_factory.mktemp("ranks"))
    publish_tiny(registry, "ranks")
    with serving(registry) as service:
        yield service


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    registry = FolderRegistry(tmp_path_factory.mktemp("three"))
    publish_tiny(registry, "colours", "meanings", "ranks")
    with serving(registry) as service:
        yield service


def logits(query: str = SHORT) -> np.ndarray:
    """Return the model's output for each pair alone."""
    model = encoder("ranks")
    reader, runtime = Reader(model.tokenizer, MOST), BinsRuntime(model, SHAPES, "eager")
    readings = [reader.read(query, text.replace("\x00", " ")) for text in TEXTS]
    return np.array([runtime.run(3, [(one.ids, one.types)]).outputs[0][0] for one in readings])


def test_texts_come_best_first_with_the_sigmoid_of_their_logits_or_the_logits_themselves(ranks, three):
    scores = logits()
    order = np.argsort(-scores).tolist()
    assert len({round(float(score), 3) for score in scores}) == len(TEXTS), "the model tells the texts apart"
    for service, path in ((ranks, "/rerank"), (ranks, "/"), (three, "/ranks/rerank"), (three, "/rerank")):
        answer = service.post(path, {"query": SHORT, "texts": TEXTS})
        assert [set(rank) for rank in answer.json()] == [{"index", "score"}] * len(TEXTS)
        assert [rank["index"] for rank in answer.json()] == order
        assert [rank["score"] for rank in answer.json()] == pytest.approx(
            [1 / (1 + np.exp(-scores[index])) for index in order], abs=1e-5
        )
        assert len(answer.headers["x-pliant-length"].split(",")) == len(TEXTS)
    raw = ranks.post("/rerank", {"query": SHORT, "texts": TEXTS, "raw_scores": True, "return_text": True}).json()
    assert [rank["score"] for rank in raw] == pytest.approx(scores[order].tolist(), abs=1e-5)
    assert [rank["text"] for rank in raw] == [TEXTS[index] for index in order]
    for rank in raw:
        check_answer(bodies.Rank, rank)


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/ranks/v1/rerank"])
def test_documents_are_ranked_in_the_shape_of_jina_and_cohere(three, path):
    expected = three.post("/ranks/rerank", {"query": SHORT, "texts": TEXTS})
    documents = [{"text": text, "title": "ignored"} if number % 2 else text for number, text in enumerate(TEXTS)]
    answer = three.post(path, {"model": "ranks", "query": SHORT, "documents": documents, "top_n": 3})
    content = answer.json()
    check_answer(bodies.Reranking, content)
    best = expected.json()[:3]
    assert [item["index"] for item in content["results"]] == [rank["index"] for rank in best]
    assert [item["relevance_score"] for item in content["results"]] == pytest.approx([rank["score"] for rank in best])
    assert [item["document"]["text"] for item in content["results"]] == [TEXTS[rank["index"]] for rank in best]
    tokens = sum(map(int, answer.headers["x-pliant-length"].split(",")))
    assert (content["model"], content["usage"]) == ("ranks", {"prompt_tokens": tokens, "total_tokens": tokens})


def test_a_reranker_classifies_too_and_describes_itself_as_tei_does(ranks):
    (single,) = ranks.post("/predict", {"inputs": [SHORT, TEXT]}).json()
    assert single == {"label": "LABEL_0", "score": pytest.approx(1 / (1 + np.exp(-logits()[0])), abs=1e-5)}
    assert ranks.post("/", {"inputs": [SHORT, TEXT]}).json() == [single]
    assert list(ranks.call("GET", "/info").json()["model_type"]) == ["reranker"]


def test_a_classifier_and_an_embedding_are_refused_in_teis_words(three):
    for stream in ("colours", "meanings"):
        refused = three.post(f"/{stream}/rerank", {"query": SHORT, "texts": TEXTS})
        error = {"error": "model is not a re-ranker model", "error_type": "Backend"}
        assert (refused.status_code, refused.json()) == (424, error)
        refused = three.post("/v1/rerank", {"model": stream, "query": SHORT, "documents": TEXTS})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "wrong_head")


@pytest.mark.parametrize(
    ("fields", "status", "sentence"),
    [
        ({"query": "a"}, 422, "texts is missing"),
        ({"query": "a", "texts": []}, 422, "texts is empty"),
        ({"query": "a", "texts": ["a"] * 9}, 413, "texts is a list of 9"),
        ({"query": "a", "texts": [LONG], "truncate": False}, 413, f"longer than {MOST} tokens"),
        ({"query": "a", "texts": [LONG], "truncation_direction": "Left"}, 413, "must be Right if a pair is longer"),
    ],
)
def test_what_does_not_fit_is_refused_in_teis_shape(ranks, fields, status, sentence):
    refused = ranks.post("/rerank", fields)
    assert (refused.status_code, refused.json()["error_type"]) == (status, "Validation")
    assert sentence in refused.json()["error"]


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"query": "a"}, "documents", "invalid"),
        ({"query": "a", "documents": []}, "documents", "invalid"),
        ({"query": "a", "documents": ["a"] * 9}, "documents", "too_many_texts"),
    ],
)
def test_what_does_not_fit_is_refused_in_openais_shape_below_v1(ranks, fields, param, code):
    refused = ranks.post("/v1/rerank", fields)
    error = refused.json()["error"]
    assert (refused.status_code, error["param"], error["code"]) == (400, param, code)
