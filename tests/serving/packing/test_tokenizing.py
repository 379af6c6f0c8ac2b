"""vLLM's /tokenize and /detokenize at the root, and what else stands there."""

from __future__ import annotations

import pytest

from pliant.packing import chat as chat_program
from pliant.serving.packing import schemas
from tests.fixtures.documented import check_answer
from tests.fixtures.packing.fakes import new_tokenizer
from tests.fixtures.packing.in_process import CONTEXT, error_of, generator, publish, serving
from tests.fixtures.registry import FolderRegistry

TOKENIZER = new_tokenizer()
CHAT = [{"role": "user", "content": "Tell me"}]


def test_a_text_becomes_the_tokens_that_the_model_would_read(service):
    response = service.post_root("/tokenize", {"model": "tales", "prompt": "Tell me 🙂"})
    ids = TOKENIZER.encode("Tell me 🙂").ids
    assert response.json() == {"count": len(ids), "max_model_len": CONTEXT, "tokens": ids, "token_strs": None}
    check_answer(schemas.Tokens, response.json())
    strings = service.post_root("/tokenize", {"prompt": "Tell", "return_token_strs": True}).json()["token_strs"]
    assert "".join(strings) == "Tell"
    assert service.post_root("/tokenize", {"prompt": ""}).json()["count"] == 0


def test_a_conversation_is_written_by_its_template_first(service):
    tokens = service.post_root("/tokenize", {"messages": CHAT}).json()["tokens"]
    assert TOKENIZER.decode(tokens, skip_special_tokens=False) == "<|user|>Tell me<|assistant|>"
    read = service.post("/chat/completions", {"messages": CHAT, "max_tokens": 1}).json()
    assert read["usage"]["prompt_tokens"] == len(tokens)


@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", 503),
        ("{{ [1] | tojson(colour=2) }}", 503),
        ("{{ raise_exception('not today') }}", 400),
        ("{{ 1 / (messages[0].content | length - 7) }}", 400),
    ],
)
def test_a_client_is_blamed_for_nothing_but_its_conversation(tmp_path, monkeypatch, source, status):
    monkeypatch.setattr(chat_program, "SECONDS", 0.2)
    registry = FolderRegistry(tmp_path)
    publish(registry, model=generator(chat_template=source))
    with serving(registry) as service:
        answers = [
            service.post("/chat/completions", {"messages": CHAT, "max_tokens": 1}),
            service.post_root("/tokenize", {"messages": CHAT}),
        ]
    assert [response.status_code for response in answers] == [status] * 2
    assert {error_of(response)["code"] for response in answers} == {
        "artifact_unusable" if status == 503 else "invalid_value"
    }


def test_tokens_become_their_text_again_special_ones_included(service):
    ids = [1, *TOKENIZER.encode("Tell me 🙂").ids]
    response = service.post_root("/detokenize", {"tokens": ids})
    assert response.json() == {"prompt": "<|user|>Tell me 🙂"}
    check_answer(schemas.Detokenized, response.json())
    assert service.post_root("/detokenize", {"tokens": []}).json() == {"prompt": ""}
