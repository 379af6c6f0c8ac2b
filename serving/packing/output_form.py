"""Reads the form that a request gives its outputs, and writes it as a grammar for the engine.

OpenAI's `response_format` and vLLM's `structured_outputs`. The grammars are in llguidance's dialect of Lark, which both
engines understand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pliant.errors import InputError
from pliant.packing.engine.grammar import json_rule
from serving.http.api_errors import ApiError
from serving.http.json_body import shorten

FORMATS = ("text", "json_object", "json_schema")
FORM_CHARACTERS = 64 * 1024  # of a schema, a regular expression, the choices or a grammar
ANY_OBJECT: Mapping[str, Any] = {"type": "object"}


def output_grammar(fields: Mapping[str, Any]) -> tuple[str, str]:
    """Return the grammar of a request's outputs, empty if they may be any text, and the field that gives it.

    Raises `InputError` and `ApiError`. Whether the grammar can be compiled is not checked.
    """
    response_format, structured = "response_format", "structured_outputs"
    if structured in fields:
        if fields.get(response_format, {"type": "text"}) != {"type": "text"}:
            raise InputError(structured, "given", f"left out beside {response_format}")
        return _structured(structured, fields[structured]), structured
    return _response_format(response_format, fields.get(response_format, {"type": "text"})), response_format


def _response_format(name: str, value: object) -> str:
    if not isinstance(value, dict) or value.get("type") not in FORMATS:
        shown = shorten(value.get("type") if isinstance(value, dict) else value)
        raise InputError(f"{name}.type" if isinstance(value, dict) else name, shown, f"one of {', '.join(FORMATS)}")
    if value["type"] == "text":
        return ""
    if value["type"] == "json_object":
        inner = value.get("value")  # a schema, as text-generation-inference takes it and huggingface_hub sends it
        return f"start: {json_rule(ANY_OBJECT if inner is None else _schema(f'{name}.value', inner))}"
    inner = value.get("json_schema")
    if not isinstance(inner, dict):
        raise InputError(f"{name}.json_schema", shorten(inner), "an object with a name and a schema")
    schema = inner.get("schema", ANY_OBJECT)
    return f"start: {json_rule(_schema(f'{name}.json_schema.schema', schema))}"


def _structured(name: str, value: object) -> str:
    """Return the grammar of vLLM's field, which has one of several keys."""
    given = {key: item for key, item in value.items() if item not in (None, False)} if isinstance(value, dict) else {}
    if len(given) != 1:
        raise InputError(name, shorten(value), "an object with one of json, json_object, regex, choice and grammar")
    ((key, item),) = given.items()
    field = f"{name}.{key}"
    match key:
        case "json":
            return f"start: {json_rule(_schema(field, _parsed(field, item) if isinstance(item, str) else item))}"
        case "json_object":
            return f"start: {json_rule(ANY_OBJECT)}"
        case "regex":
            return f"start: {regex_rule(_text(field, item))}"
        case "choice":
            return f"start: {' | '.join(json.dumps(choice, ensure_ascii=False) for choice in _choices(field, item))}"
        case "grammar":
            return _text(field, item)
    raise ApiError(400, "unsupported_parameter", f"{field} is not supported by this service", field)


def regex_rule(pattern: str) -> str:
    """Return the rule for a regular expression."""
    escaped = re.sub(
        r"(\\.)|/|\n", lambda part: part[1] or {"/": r"\/", "\n": r"\n"}[part[0]], pattern, flags=re.DOTALL
    )
    return f"/{escaped}/"


def _schema(name: str, value: object) -> object:
    if not isinstance(value, dict | bool):
        raise InputError(name, shorten(value), "a JSON schema, which is an object")
    try:
        text = json.dumps(value)
    except (RecursionError, ValueError):
        raise InputError(name, "nested too deep", "a JSON schema of reasonable depth") from None
    _check_size(name, text)
    return value


def _parsed(name: str, text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(name, shorten(text), "a JSON schema") from None


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise InputError(name, shorten(value), "a text that is not empty")
    _check_size(name, value)
    return value


def _choices(name: str, value: object) -> list[str]:
    if not isinstance(value, list) or not value or not all(isinstance(item, str) and item for item in value):
        raise InputError(name, shorten(value), "a list of texts, none of them empty")
    _check_size(name, "".join(value))
    return value


def _check_size(name: str, text: str) -> None:
    if len(text) > FORM_CHARACTERS:
        raise InputError(name, f"{len(text)} characters", f"at most {FORM_CHARACTERS} characters")
