"""Log-probabilities reach the client in OpenAI's shapes, whole and in streams, each beside its token."""

from __future__ import annotations

import pytest

from pliant.serving.packing import schemas
from pliant.serving.packing.text import TokenTexts
from tests.fixtures.documented import check_answer
from tests.fixtures.packing.fakes import TALE, logprobs_of, new_tokenizer
from tests.fixtures.packing.in_process import events

TOKENIZER = new_tokenizer()
TEXTS = TokenTexts(TOKENIZER)
OUTPUT = [*TOKENIZER.encode(TALE).ids, 0]
PROMPT = TOKENIZER.encode("Tell me").ids


def top_of(token: int, top: int) -> dict[str, float]:
    known = logprobs_of(token, top)
    return {TEXTS.text_of(id): logprob for id, logprob in (*known.top, (token, known.logprob))}


def expected(tokens: list[int], top: int) -> dict[str, list]:
    return {
        "tokens": [TEXTS.text_of(token) for token in tokens],
        "token_logprobs": [logprobs_of(token, top).logprob for token in tokens],
        "top_logprobs": [top_of(token, top) for token in tokens],
    }


@pytest.mark.parametrize("top", [0, 3])
def test_a_completion_has_those_of_its_tokens_the_last_included(service, top):
    (choice,) = service.complete(logprobs=top).json()["choices"]
    offsets = choice["logprobs"].pop("text_offset")
    assert choice["logprobs"] == expected(OUTPUT, top)
    assert offsets[0] == 0 and offsets[-1] == len(TALE)
    for token, begin, end in zip(OUTPUT, offsets, offsets[1:], strict=False):
        whole = not TEXTS.text_of(token).startswith("bytes:")
        assert not whole or TALE[begin:end] == TEXTS.text_of(token)


def test_a_chat_has_tokens_with_bytes_and_the_likeliest_ones(service):
    response = service.chat(logprobs=True, top_logprobs=2)
    logprobs = response.json()["choices"][0]["logprobs"]
    assert logprobs["refusal"] is None
    for token, entry in zip(OUTPUT, logprobs["content"], strict=True):
        known = logprobs_of(token, 2)
        assert entry == {
            "token": TEXTS.text_of(token),
            "logprob": known.logprob,
            "bytes": list(TEXTS.bytes_of(token)),
            "top_logprobs": [
                {"token": TEXTS.text_of(id), "logprob": logprob, "bytes": list(TEXTS.bytes_of(id))}
                for id, logprob in known.top
            ],
        }
    check_answer(schemas.ChatCompletion, response.json())


@pytest.mark.parametrize("echo", [False, True])
def test_a_stream_has_every_token_once(service, echo):
    whole = service.complete(logprobs=2, echo=echo).json()["choices"][0]
    *chunks, _ = events(service.complete(logprobs=2, echo=echo, stream=True))
    parts = [chunk["choices"][0] for chunk in chunks]
    assert "".join(part["text"] for part in parts) == whole["text"]
    for name, values in whole["logprobs"].items():
        streamed = [value for part in parts if part["logprobs"] for value in part["logprobs"][name]]
        assert streamed == values


def test_log_probabilities_of_prompts_are_limited_by_tokens_and_alternatives(service, monkeypatch):
    monkeypatch.setattr("pliant.serving.packing.endpoint.MAX_PROMPT_LOGPROBS", 6 * len(PROMPT))
    assert service.complete(logprobs=2, echo=True, n=2).status_code == 200
    refused = service.complete(logprobs=3, echo=True, n=2)
    assert refused.status_code == 400 and "tokens x (logprobs + 1) x n" in refused.text
    assert service.complete(logprobs=20).status_code == 200, "without its prompt"
