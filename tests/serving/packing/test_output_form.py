"""The form of outputs that a request gives becomes a grammar that the engine's library takes, or is refused by name."""

from __future__ import annotations

import json

import pytest

from pliant.errors import InputError
from pliant.packing.engine.grammar import Grammars
from pliant.serving.packing.bodies import FORM_CHARACTERS, CompletionBody
from pliant.serving.packing.request import output_grammar
from tests.fixtures.packing.fakes import new_tokenizer
from tests.fixtures.packing.in_process import error_of
from tests.serving.packing.test_bodies import DEEP

TOKENIZER = new_tokenizer()
GRAMMARS = Grammars(TOKENIZER.to_str(), TOKENIZER.get_vocab_size(), (0,))
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


def grammar_of(fields: dict) -> tuple[str, str]:
    body = CompletionBody.read({"prompt": "a", **fields})
    return output_grammar(body.response_format, body.structured_outputs)


def allows(fields: dict, text: str) -> bool:
    """Whether the grammar lets a text come, and end there."""
    grammar, name = grammar_of(fields)
    GRAMMARS.try_out(grammar, name)
    matcher = GRAMMARS._compiled(grammar).deep_copy()
    return matcher.consume_tokens([*TOKENIZER.encode(text).ids, 0])


def schema(value) -> dict:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "it", "schema": value, "strict": True}}}


def structured(**value) -> dict:
    return {"structured_outputs": value}


@pytest.mark.parametrize(
    ("fields", "allowed", "excluded"),
    [
        ({"response_format": {"type": "json_object"}}, ['{"a": [1, null]}', "{}"], ["[]", "tea", '{"a":1}', "{ }"]),
        ({"response_format": {"type": "json_object", "value": SCHEMA}}, ['{"a": ""}'], ["{}", '{"b": ""}']),
        ({"response_format": {"type": "json_object", "value": None}}, ["{}"], ["[]"]),
        (schema(SCHEMA), ['{"a": "é 🙂"}'], ["{}", '{"b": ""}', '{"a": 7}', '{"a": "x"} ']),
        (schema(True), ["7", '"tea"'], ["tea"]),
        (structured(json=SCHEMA), ['{"a": ""}'], ["{}"]),
        (structured(json=json.dumps({"type": "integer"})), ["-12"], ["1.5"]),
        (structured(json_object=True), ["{}"], ["7"]),
        (structured(regex="[a-c]+/x\\d"), ["abc/x7"], ["abc/x", "d/x7"]),
        (structured(regex=r"a\/b|c\\/d"), ["a/b", "c\\/d"], ["a\\/b"]),
        (structured(regex="a\nb"), ["a\nb"], ["a", "a b"]),
        (
            structured(choice=["tea", "cake", 'a "\n🙂'], json=None, json_object=False),
            ["tea", 'a "\n🙂'],
            ["te", "cat"],
        ),
        (structured(grammar='start: "a"+ "b"'), ["aab"], ["b"]),
    ],
)
def test_a_form_allows_what_it_says_and_nothing_else(fields, allowed, excluded):
    assert all(allows(fields, text) for text in allowed)
    assert not any(allows(fields, text) for text in excluded)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_object", "value": "a"}}, "response_format.value"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (schema("it"), "response_format.json_schema.schema"),
        (schema({"enum": ["x" * FORM_CHARACTERS]}), "response_format.json_schema.schema"),
        (schema(DEEP), "response_format.json_schema.schema"),
        (structured(), "structured_outputs"),
        (structured(json={}, regex="a"), "structured_outputs"),
        ({"structured_outputs": []}, "structured_outputs"),
        ({**structured(regex="a"), "response_format": {"type": "json_object"}}, "structured_outputs"),
        (structured(json="{"), "structured_outputs.json"),
        (structured(json=7), "structured_outputs.json"),
        (structured(regex=7), "structured_outputs.regex"),
        (structured(choice=["a", ""]), "structured_outputs.choice[1]"),
        (structured(choice=["x" * FORM_CHARACTERS, "y"]), "structured_outputs.choice"),
    ],
)
def test_a_form_that_cannot_be_read_is_named(fields, name):
    with pytest.raises(InputError) as refused:
        grammar_of(fields)
    assert refused.value.field == name


def test_the_grammar_reaches_the_engine_with_every_output(service):
    response = service.chat(**schema(SCHEMA), n=2)
    assert response.status_code == 200
    sent = [arguments[0] for verb, arguments in service.worker.sent if verb == "submit"][-2:]
    assert {submission.sampling.grammar for submission in sent} == {grammar_of(schema(SCHEMA))[0]}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        (schema({"type": "objekt"}), "response_format"),
        (schema({"$ref": "#/missing"}), "response_format"),
        (structured(regex="("), "structured_outputs"),
        (structured(grammar="start: missing"), "structured_outputs"),
        ({**schema(SCHEMA), "ignore_eos": True}, "ignore_eos"),
        ({**schema(SCHEMA), "min_tokens": 3}, "min_tokens"),
    ],
)
def test_a_form_that_cannot_be_compiled_is_refused_in_openais_shape(service, fields, param):
    response = service.complete(**fields)
    error = error_of(response)
    assert (response.status_code, error["param"], error["code"]) == (400, param, "invalid_value")
