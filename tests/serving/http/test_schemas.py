"""The schemas that several services share say what a request may hold."""

from __future__ import annotations

from serving.http.schemas import BATCH, CUT, PAIR, object_body
from serving.http.texts import TEXT_BYTES


def test_a_pair_is_two_texts_and_a_batch_a_list_of_texts_and_pairs():
    described = f"at least one visible character, at most {TEXT_BYTES} bytes of UTF-8"
    text = {"type": "string", "minLength": 1, "pattern": r"\S", "description": described}
    texts = {"type": "array", "items": text, "minItems": 1, "maxItems": 2}
    documented = {"pair": PAIR, "batch": BATCH}
    assert documented == {
        "pair": {"type": "array", "items": text, "minItems": 2, "maxItems": 2, "description": "a pair of texts"},
        "batch": {"type": "array", "items": texts, "minItems": 1},
    }


def test_truncating_is_the_default_and_at_the_end():
    assert CUT["truncate"] == {"type": ["boolean", "null"], "default": True}
    assert CUT["truncation_direction"]["default"] == "Right"


def test_a_body_is_required_with_its_one_field():
    assert object_body("inputs", {"inputs": {"type": "string"}}) == {
        "required": True,
        "content": {
            "application/json": {
                "schema": {"type": "object", "required": ["inputs"], "properties": {"inputs": {"type": "string"}}}
            }
        },
    }
