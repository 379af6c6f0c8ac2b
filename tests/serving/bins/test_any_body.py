"""Whatever JSON a route gets, it answers, or refuses with a 4xx in the shape of its interface, and then serves on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fixtures.bins.published import SHORT

USUAL: dict[str, dict[str, Any]] = {
    "/meanings/embed": {"inputs": SHORT, "dimensions": 3, "prompt_name": "query", "normalize": True, "truncate": True},
    "/meanings/embed_all": {"inputs": [SHORT, [5, 6]], "prompt_name": "passage", "truncation_direction": "Left"},
    "/meanings/embed_sparse": {"inputs": SHORT},
    "/meanings/similarity": {
        "inputs": {"source_sentence": SHORT, "sentences": [SHORT]},
        "parameters": {"truncate": True},
    },
    "/meanings/tokenize": {"inputs": [SHORT], "add_special_tokens": True, "prompt_name": "query"},
    "/meanings/decode": {"ids": [[5, 6], [7]], "skip_special_tokens": True},
    "/meanings/v1/embeddings": {"input": [[5, 6]], "dimensions": 3, "encoding_format": "base64"},
    "/ranks/rerank": {"query": SHORT, "texts": [SHORT, "cats"], "raw_scores": True, "return_text": True},
    "/ranks/v1/rerank": {"query": SHORT, "documents": [SHORT, {"text": "a"}], "top_n": 1, "return_documents": True},
    "/ranks": {"query": SHORT, "texts": ["cats"]},
    "/meanings": {"inputs": SHORT},
}
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.integers(-2, 90),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(("\ud800", "\x00", " ", "query", "Left", "a" * 70_000, "meanings")),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=10) | st.dictionaries(st.sampled_from(("text", "sentences", "a")), inner),
    max_leaves=12,
)


@pytest.mark.parametrize("path", USUAL)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_value_of_any_field_is_answered_or_refused(three, path, data):
    usual = USUAL[path]
    names = data.draw(st.lists(st.sampled_from([*usual, "deadline", "model", "parameters"]), min_size=1, unique=True))
    body = {**usual, **{name: data.draw(VALUES, name) for name in names}}
    answer = three.post(path, body)
    late = answer.status_code in (429, 503)  # a deadline of a trifle is valid, and missed
    assert answer.status_code == 200 or 400 <= answer.status_code < 500 or late, (body, answer.text)
    if answer.status_code != 200:
        content = answer.json()
        assert set(content) == ({"error"} if "/v1/" in path else {"error", "error_type"})
        assert json.dumps(content)
    usual_status = 424 if path.endswith("sparse") else 200
    assert three.post(path, usual).status_code == usual_status
