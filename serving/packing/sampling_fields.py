"""Reads the fields of a request that say how tokens are drawn, when an output ends, and which log-probabilities it gets."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from pliant.errors import InputError
from pliant.packing.engine.submission import Sampling
from serving.http.json_body import number, shorten
from serving.packing.values import between, flag, whole

MAX_STOPS = 16
STOP_CHARACTERS = 256  # of one stop string, at most
MAX_TOKENS_NAMED = 1024  # entries of logit_bias or stop_token_ids
MAX_LOGPROBS = 20  # likeliest tokens that are reported with each token
MAX_PENALTY = 2.0
MAX_BIAS = 100.0


def sampling(fields: Mapping[str, Any], chat: bool, echo: bool, best_of: bool, grammar: str = "") -> Sampling:
    """Return how tokens are drawn. `echo`: the prompt's tokens get log-probabilities, too, if the output's do.

    `best_of`: outputs are compared by their log-probabilities. `grammar`: what they keep to. Raises `InputError`.
    """
    top_p = number("top_p", fields.get("top_p", 1.0))
    if not 0 < top_p <= 1:
        raise InputError("top_p", f"{top_p:g}", "more than 0 and at most 1")
    repetition = number("repetition_penalty", fields.get("repetition_penalty", 1.0))
    if not 0 < repetition < float("inf"):
        raise InputError("repetition_penalty", f"{repetition:g}", "more than 0 and finite")
    logprobs = wanted_logprobs(fields, chat)
    return Sampling(
        temperature=between("temperature", fields.get("temperature", 1.0), 0, 2),
        top_p=top_p,
        top_k=max(whole("top_k", fields.get("top_k", 0), -1, 1 << 31), 0),
        seed=whole("seed", fields.get("seed", secrets.randbits(62)), -(1 << 63), (1 << 63) - 1),
        min_p=between("min_p", fields.get("min_p", 0.0), 0, 1),
        repetition_penalty=repetition,
        frequency_penalty=_penalty(fields, "frequency_penalty"),
        presence_penalty=_penalty(fields, "presence_penalty"),
        logit_bias=_logit_bias(fields.get("logit_bias", {})),
        min_tokens=whole("min_tokens", fields.get("min_tokens", 0), 0),
        stop_tokens=_stop_tokens(fields.get("stop_token_ids", [])),
        ignore_eos=flag(fields, "ignore_eos"),
        logprobs=max(logprobs, 0) if best_of else logprobs,
        prompt_logprobs=logprobs if echo else -1,
        grammar=grammar,
    )


def wanted_logprobs(fields: Mapping[str, Any], chat: bool) -> int:
    """Return how many of the likeliest tokens are reported with each token; -1: no log-probabilities."""
    value, name = fields.get("logprobs", False), "top_logprobs"
    if not chat:
        return -1 if value is False else whole("logprobs", value, 0, MAX_LOGPROBS)
    if not isinstance(value, bool):
        raise InputError("logprobs", shorten(value), "true or false")
    top = whole(name, fields.get(name, 0), 0, MAX_LOGPROBS)
    if top and not value:
        raise InputError(name, top, "left out unless logprobs is true")
    return top if value else -1


def stops(value: object) -> tuple[str, ...]:
    """Return the stop strings, each once. Raises `InputError`."""
    texts = [value] if isinstance(value, str) else value
    if texts is None or texts == []:
        return ()
    if not isinstance(texts, list) or not all(isinstance(stop, str) and stop for stop in texts):
        raise InputError("stop", shorten(value), "a text or a list of texts, none of them empty")
    if len(texts) > MAX_STOPS:
        raise InputError("stop", f"a list of {len(texts)}", f"a list of at most {MAX_STOPS}")
    longest = max(map(len, texts))
    if longest > STOP_CHARACTERS:
        raise InputError("stop", f"{longest} characters", f"at most {STOP_CHARACTERS} characters")
    return tuple(dict.fromkeys(texts))


def _penalty(fields: Mapping[str, Any], name: str) -> float:
    return between(name, fields.get(name, 0.0), -MAX_PENALTY, MAX_PENALTY)


def _logit_bias(value: object) -> tuple[tuple[int, float], ...]:
    name = "logit_bias"
    if not isinstance(value, dict) or len(value) > MAX_TOKENS_NAMED:
        raise InputError(name, shorten(value), f"an object of at most {MAX_TOKENS_NAMED} token ids with their biases")
    biases = {}
    for key, bias in value.items():
        if not (key.isascii() and key.isdecimal() and len(key) < 10):
            raise InputError(name, f"with the key {shorten(key)}", "an object whose keys are token ids")
        biases[int(key)] = between(f"{name}[{key}]", bias, -MAX_BIAS, MAX_BIAS)
    return tuple(biases.items())


def _stop_tokens(value: object) -> tuple[int, ...]:
    name = "stop_token_ids"
    if not isinstance(value, list) or len(value) > MAX_TOKENS_NAMED:
        raise InputError(name, shorten(value), f"a list of at most {MAX_TOKENS_NAMED} token ids")
    return tuple(dict.fromkeys(whole(f"{name}[{index}]", id, 0) for index, id in enumerate(value)))
