"""The interface of text-embeddings-inference 1.9 as an OpenAPI page, restated from its own (docs/openapi.json, Apache-2.0).

The page has the bodies and answers of TEI's paths, with the limits that TEI itself documents. Not on it are the errors of
/v1/embeddings, which have OpenAI's shape in Pliant, and /metrics, which a service has once for all its streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

_TEXT: Schema = {"type": "string"}
_FLAG: Schema = {"type": "boolean"}
_NUMBER: Schema = {"type": "number"}
_SIZE: Schema = {"type": "integer", "minimum": 0}
_MAYBE_TEXT: Schema = {"type": "string", "nullable": True}
_MAYBE_SIZE: Schema = {"type": "integer", "minimum": 0, "nullable": True}
_ID: Schema = {"type": "integer", "format": "int32", "minimum": 0}


def _list(items: Schema, **limits: int) -> Schema:
    return {"type": "array", "items": items, **limits}


def _object(required: Mapping[str, Schema], optional: Mapping[str, Schema] = {}) -> Schema:
    return {"type": "object", "required": list(required), "properties": {**required, **optional}}


def _any(*schemas: Schema) -> Schema:
    return {"oneOf": list(schemas)}


_INPUT = _any(_TEXT, _list(_ID))
_INPUTS = {"anyOf": [_INPUT, _list(_INPUT)]}
_CUT: Mapping[str, Schema] = {
    "truncate": {"type": "boolean", "nullable": True},
    "truncation_direction": {"type": "string", "enum": ["Left", "Right"]},
}
_NAMED: Mapping[str, Schema] = {"prompt_name": _MAYBE_TEXT}
_PAIR = _list(_TEXT, minItems=2, maxItems=2)
_WIDTH: Mapping[str, Schema] = {"dimensions": {"type": "integer", "minimum": 1, "nullable": True}}
_SCORES = _list(_object({"score": _NUMBER, "label": _TEXT}))
_CLASSIFIER = _object({"id2label": {"type": "object"}, "label2id": {"type": "object"}})
_INFO = _object(
    {
        "model_id": _TEXT,
        "model_dtype": _TEXT,
        "model_type": _any(
            _object({"classifier": _CLASSIFIER}),
            _object({"embedding": _object({"pooling": _TEXT})}),
            _object({"reranker": _CLASSIFIER}),
        ),
        "max_concurrent_requests": _SIZE,
        "max_input_length": _SIZE,
        "max_batch_tokens": _SIZE,
        "max_client_batch_size": _SIZE,
        "auto_truncate": _FLAG,
        "tokenization_workers": _SIZE,
        "version": _TEXT,
    },
    {"model_sha": _MAYBE_TEXT, "sha": _MAYBE_TEXT, "docker_label": _MAYBE_TEXT, "max_batch_requests": _MAYBE_SIZE},
)
_TOKEN = _object({"id": _ID, "text": _TEXT, "special": _FLAG}, {"start": _MAYBE_SIZE, "stop": _MAYBE_SIZE})
_EMBEDDINGS = _object(
    {
        "object": _TEXT,
        "data": _list(_object({"object": _TEXT, "embedding": _any(_list(_NUMBER), _TEXT), "index": _SIZE})),
        "model": _TEXT,
        "usage": _object({"prompt_tokens": _SIZE, "total_tokens": _SIZE}),
    }
)
_SIMILARITY = _object(
    {"inputs": _object({"source_sentence": _TEXT, "sentences": _list(_TEXT)})},
    {"parameters": {**_object({}, {**_CUT, **_NAMED}), "nullable": True}},
)
_POSTED: Mapping[str, tuple[Schema, Schema]] = {
    "/embed": (
        _object({"inputs": _INPUTS}, {"normalize": _FLAG, **_WIDTH, **_NAMED, **_CUT}),
        _list(_list(_NUMBER)),
    ),
    "/embed_all": (_object({"inputs": _INPUTS}, {**_NAMED, **_CUT}), _list(_list(_list(_NUMBER)))),
    "/embed_sparse": (
        _object({"inputs": _INPUTS}, {**_NAMED, **_CUT}),
        _list(_list(_object({"index": _SIZE, "value": _NUMBER}))),
    ),
    "/predict": (
        _object(
            {"inputs": {"anyOf": [_TEXT, _PAIR, _list(_list(_TEXT, minItems=1, maxItems=2))]}},
            {"raw_scores": _FLAG, **_CUT},
        ),
        {"anyOf": [_SCORES, _list(_SCORES)]},
    ),
    "/rerank": (
        _object({"query": _TEXT, "texts": _list(_TEXT)}, {"raw_scores": _FLAG, "return_text": _FLAG, **_CUT}),
        _list(_object({"index": _SIZE, "score": _NUMBER}, {"text": _MAYBE_TEXT})),
    ),
    "/similarity": (_SIMILARITY, _list(_NUMBER)),
    "/tokenize": (
        _object({"inputs": _any(_TEXT, _list(_TEXT))}, {"add_special_tokens": _FLAG, **_NAMED}),
        _list(_list(_TOKEN)),
    ),
    "/decode": (
        _object({"ids": {"anyOf": [_list(_ID), _list(_list(_ID))]}}, {"skip_special_tokens": _FLAG}),
        _list(_TEXT),
    ),
    "/v1/embeddings": (
        _object(
            {"input": _INPUTS},
            {"encoding_format": {"type": "string", "enum": ["float", "base64"]}, "user": _MAYBE_TEXT, **_WIDTH},
        ),
        _EMBEDDINGS,
    ),
}
_ERROR = _object(
    {"error": _TEXT, "error_type": {"enum": ["Unhealthy", "Backend", "Overloaded", "Validation", "Tokenizer", "Empty"]}}
)
_STATUSES = {
    400: "Empty",
    413: "A batch, or an input, that the model does not take.",
    422: "A field of the wrong type, or a text that cannot be tokenized.",
    424: "The model does not do this, or it failed.",
    429: "Overload.",
}


def page() -> dict[str, Any]:
    """Return the page: an OpenAPI 3.0.3 document."""
    paths: dict[str, Any] = {path: {"post": _post(path, *schemas)} for path, schemas in _POSTED.items()}
    paths["/info"] = {"get": {"responses": {200: _answer("The model", _INFO)}}}
    paths["/health"] = {"get": {"responses": {200: {"description": "Well"}, 503: _answer("Down", _ERROR)}}}
    return {"openapi": "3.0.3", "info": {"title": "Text Embeddings Inference", "version": "1.9"}, "paths": paths}


def _post(path: str, body: Schema, answer: Schema) -> dict[str, Any]:
    errors = {status: _answer(text, _ERROR) for status, text in _STATUSES.items()}
    if path == "/v1/embeddings":
        errors = {status: {"description": text} for status, text in _STATUSES.items()}
    content = {"application/json": {"schema": body}}
    return {
        "requestBody": {"required": True, "content": content},
        "responses": {200: _answer("The result", answer), **errors},
    }


def _answer(text: str, schema: Schema) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}
