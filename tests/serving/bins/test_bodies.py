"""Bodies of bins are read within their limits, and what does not fit is named."""

from __future__ import annotations

import pytest

from pliant.errors import InputError
from pliant.serving.bins.api import inputs_of, pairs
from pliant.serving.bins.bodies import (
    ClassifyBody,
    DecodeBody,
    EmbedAllBody,
    EmbedBody,
    OpenaiEmbeddingsBody,
    RerankBody,
    RerankDocumentsBody,
    SimilarityBody,
    TokenizeBody,
)
from pliant.serving.bins.endpoint import TokenIds
from pliant.serving.http.api_errors import ApiError

USUAL = {
    EmbedBody: {"inputs": "a"},
    EmbedAllBody: {"inputs": "a"},
    ClassifyBody: {"inputs": "a"},
    SimilarityBody: {"inputs": {"source_sentence": "a", "sentences": ["a"]}},
    RerankBody: {"query": "a", "texts": ["a"]},
    RerankDocumentsBody: {"query": "a", "documents": ["a"]},
    TokenizeBody: {"inputs": "a"},
    DecodeBody: {"ids": [1]},
    OpenaiEmbeddingsBody: {"input": "a"},
}
EMBEDDED = [  # what is no input of an embedding
    *((value, "inputs") for value in (None, 7, "", "\ud800", {"a": 1}, [1, 2**32], [-1], [1, 1.0], [7, "a"])),
    (["a", " "], "inputs[1]"),
    (["a", None], "inputs[1]"),
    (["a", 7], "inputs[1]"),
    *(([value], "inputs[0]") for value in (True, float("nan"), [], ["a"], [7, True], [[7]])),
]
REFUSED = [
    *((EmbedBody, {"inputs": value}, name) for value, name in EMBEDDED),
    *((EmbedAllBody, {"inputs": value}, name) for value, name in EMBEDDED),
    *((OpenaiEmbeddingsBody, {"input": value}, name.replace("inputs", "input")) for value, name in EMBEDDED),
    (EmbedBody, {"prompt_name": 1}, "prompt_name"),
    (EmbedBody, {"truncate": "yes"}, "truncate"),
    (EmbedBody, {"truncation_direction": "up"}, "truncation_direction"),
    (EmbedBody, {"normalize": 1}, "normalize"),
    *((EmbedBody, {"dimensions": value}, "dimensions") for value in (0, 1.5, True)),
    *((EmbedBody, {"deadline": value}, "deadline") for value in (0, "soon", float("nan"))),
    *((SimilarityBody, {"inputs": value}, "inputs") for value in (None, "a")),
    (SimilarityBody, {"inputs": {"sentences": ["a"]}}, "inputs.source_sentence"),
    (SimilarityBody, {"inputs": {"source_sentence": "a"}}, "inputs.sentences"),
    (SimilarityBody, {"inputs": {"source_sentence": "a", "sentences": ["a", 1]}}, "inputs.sentences[1]"),
    (SimilarityBody, {"parameters": 1}, "parameters"),
    (SimilarityBody, {"parameters": {"prompt_name": 1}}, "parameters.prompt_name"),
    *((RerankBody, {"query": value}, "query") for value in (None, " ", 7)),
    *((RerankBody, {"texts": value}, "texts") for value in (None, "a")),
    (RerankBody, {"texts": ["a", [1]]}, "texts[1]"),
    (RerankBody, {"raw_scores": 1}, "raw_scores"),
    (RerankBody, {"return_text": "yes"}, "return_text"),
    (RerankDocumentsBody, {"query": None}, "query"),
    (RerankDocumentsBody, {"documents": None}, "documents"),
    (RerankDocumentsBody, {"documents": ["a", {}]}, "documents[1].text"),
    (RerankDocumentsBody, {"documents": [["a"]]}, "documents[0]"),
    *((RerankDocumentsBody, {"top_n": value}, "top_n") for value in (0, True)),
    (RerankDocumentsBody, {"return_documents": 1}, "return_documents"),
    (RerankDocumentsBody, {"model": 1}, "model"),
    *((TokenizeBody, {"inputs": value}, "inputs") for value in (None, "")),
    (TokenizeBody, {"inputs": [1, 2]}, "inputs[0]"),
    (TokenizeBody, {"add_special_tokens": 1}, "add_special_tokens"),
    *((DecodeBody, {"ids": value}, "ids") for value in (None, "a", [1, -1], [1, 2**32], [1, None])),
    (DecodeBody, {"ids": [[]]}, "ids[0]"),
    (DecodeBody, {"skip_special_tokens": "no"}, "skip_special_tokens"),
    (OpenaiEmbeddingsBody, {"encoding_format": "int8"}, "encoding_format"),
    (OpenaiEmbeddingsBody, {"dimensions": 0}, "dimensions"),
    (OpenaiEmbeddingsBody, {"model": 1}, "model"),
]


@pytest.mark.parametrize(("kind", "fields", "name"), REFUSED)
def test_what_does_not_fit_is_named(kind, fields, name):
    with pytest.raises(InputError) as refused:
        kind.read({**USUAL[kind], **fields})
    assert refused.value.field == name


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a\x00", (("a ", None),)),
        (["a", "b"], (("a", None), ("b", None))),
        ([7, 8, 9], (TokenIds("inputs", (7, 8, 9)),)),
        (["a", [7]], (("a", None), TokenIds("inputs[1]", (7,)))),
    ],
)
def test_inputs_of_embeddings_are_texts_and_token_ids_alone_or_in_a_list(value, expected):
    assert inputs_of("inputs", EmbedBody.read({"inputs": value}).inputs, 2) == expected


def test_a_query_is_paired_with_each_document_and_no_more_are_taken_than_allowed():
    body = RerankDocumentsBody.read({"query": "q\x00", "documents": ["a\x00", {"text": "b", "title": "c"}]})
    assert pairs(body.query, "documents", body.documents, 2) == (("q ", "a "), ("q ", "b"))
    with pytest.raises(ApiError) as refused:
        pairs(body.query, "documents", body.documents, 1)
    assert (refused.value.status, refused.value.field) == (413, "documents")
