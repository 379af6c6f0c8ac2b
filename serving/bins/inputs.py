"""Reads the fields that several routes of bins have: texts and token ids, prompts, and the width of embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pliant.errors import InputError
from serving.bins.request import Input, TokenIds
from serving.http.json_body import shorten
from serving.http.texts import check_count, clean

ID_LIMIT = 2**32  # token ids are below it


def embedding_inputs(name: str, value: object, max_texts: int) -> tuple[Input, ...]:
    """Return a text or token ids, or a list of these, as TEI and OpenAI accept them for embeddings.

    Raises `InputError`, and as `check_count` and `clean`.
    """
    if not isinstance(value, list) or (value and _is_number(value[0])):
        return (_input(name, value, "a text, a list of token ids, or a list of these"),)
    check_count(name, value, max_texts)
    return tuple(_input(f"{name}[{index}]", item, "a text or a list of token ids") for index, item in enumerate(value))


def id_lists(name: str, value: object, max_texts: int) -> tuple[TokenIds, ...]:
    """Return a list of token ids, or several. Raises `InputError`, and as `check_count`."""
    if not isinstance(value, list):
        raise InputError(name, shorten(value), "a list of token ids, or a list of these")
    if value and _is_number(value[0]):
        return (token_ids(name, value),)
    check_count(name, value, max_texts)
    return tuple(token_ids(f"{name}[{index}]", item) for index, item in enumerate(value))


def token_ids(name: str, value: object) -> TokenIds:
    """Return token ids. Raises `InputError` unless it is a list of at least one whole number from 0 on."""
    if not isinstance(value, list) or not value or not all(_is_number(id) and 0 <= id < ID_LIMIT for id in value):
        raise InputError(name, shorten(value), f"a list of at least one token id from 0 to {ID_LIMIT - 1}")
    return TokenIds(name, tuple(value))


def texts(name: str, value: object, max_texts: int) -> tuple[str, ...]:
    """Return a list of texts. Raises `InputError`, and as `check_count` and `clean`."""
    if not isinstance(value, list):
        raise InputError(name, shorten(value), "a list of texts")
    check_count(name, value, max_texts)
    return tuple(clean(f"{name}[{index}]", item)[0] for index, item in enumerate(value))


def prompt_name(fields: Mapping[str, Any], name: str = "prompt_name") -> str | None:
    """Return the name of a prompt, if one is given. Raises `InputError` for another type."""
    value = fields.get("prompt_name")
    if value is not None and not isinstance(value, str):
        raise InputError(name, shorten(value), "the name of a prompt")
    return value


def positive(fields: Mapping[str, Any], name: str) -> int | None:
    """Return a whole number from 1 on, if the field is given. Raises `InputError` for anything else."""
    value = fields.get(name)
    if value is not None and not (_is_number(value) and value > 0):
        raise InputError(name, shorten(value), "a whole number from 1 on")
    return value


def _input(name: str, value: object, wanted: str) -> Input:
    if isinstance(value, str):
        return clean(name, value)[0], None
    if isinstance(value, list):
        return token_ids(name, value)
    raise InputError(name, shorten(value), wanted)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
