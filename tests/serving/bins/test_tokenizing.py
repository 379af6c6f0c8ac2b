"""Texts become tokens and token ids texts, as TEI's /tokenize and /decode give them."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer

from pliant.serving.bins import bodies
from tests.fixtures.bins.in_process import serving
from tests.fixtures.bins.published import LONG, MOST, SHORT, TEXT, encoder, publish_tiny
from tests.fixtures.documented import check_answer
from tests.fixtures.registry import FolderRegistry


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    registry = FolderRegistry(tmp_path_factory.mktemp("registry"))
    publish_tiny(registry)
    with serving(registry) as service:
        yield service


def tokens_of(service, inputs, **fields):
    answer = service.post("/meanings/tokenize", {"inputs": inputs, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_text_gives_its_tokens_with_their_places_between_special_ones_that_have_none(service):
    (tokens,) = tokens_of(service, TEXT)
    encoding = Tokenizer.from_str(encoder("meanings").tokenizer).encode(TEXT)
    assert [token["id"] for token in tokens] == encoding.ids
    first, *middle, last = tokens
    for special, name in ((first, encoding.tokens[0]), (last, encoding.tokens[-1])):
        assert (special["text"], special["special"], special["start"], special["stop"]) == (name, True, None, None)
    assert all(token["text"] == TEXT[token["start"] : token["stop"]] and not token["special"] for token in middle)
    assert "".join(token["text"] for token in middle) == TEXT.replace(" ", "")
    for token in tokens:
        check_answer(bodies.Token, token)


def test_places_are_bytes_of_utf8_and_long_texts_are_not_cut(service):
    text = "ä dog reads 🜁 dog"
    (tokens,) = tokens_of(service, text, add_special_tokens=False)
    for token in tokens:
        assert text.encode()[token["start"] : token["stop"]].decode() == token["text"]
    assert tokens[-1]["stop"] == len(text.encode())
    lists = tokens_of(service, [LONG, SHORT])
    assert len(lists) == 2 and len(lists[0]) > MOST


def test_ids_are_read_back_as_the_text(service):
    lists = [[token["id"] for token in tokens] for tokens in tokens_of(service, [TEXT, SHORT])]
    joined = service.post("/meanings/decode", {"ids": lists}).json()
    tokenizer = Tokenizer.from_str(encoder("meanings").tokenizer)
    assert joined == [tokenizer.decode(ids) for ids in lists]
    assert service.post("/meanings/decode", {"ids": lists[0]}).json() == joined[:1]
    with_special = service.post("/meanings/decode", {"ids": lists[0], "skip_special_tokens": False}).json()
    assert with_special == [tokenizer.decode(lists[0], skip_special_tokens=False)] != joined[:1]


@pytest.mark.parametrize(
    ("path", "fields", "status", "sentence"),
    [
        ("/meanings/tokenize", {}, 422, "inputs is missing"),
        ("/meanings/tokenize", {"inputs": []}, 422, "inputs is empty"),
        ("/meanings/tokenize", {"inputs": ["a"] * 9}, 413, "inputs is a list of 9"),
        ("/meanings/tokenize", {"inputs": ["a" * 60_000] * 5}, 413, "inputs are 300000 bytes together"),
        ("/meanings/tokenize", {"inputs": "a", "prompt_name": "x"}, 413, "prompt_name is 'x'"),
        ("/colours/tokenize", {"inputs": "a", "prompt_name": "x"}, 413, "no prompts were found"),
        ("/meanings/decode", {"ids": []}, 422, "ids is empty"),
        ("/meanings/decode", {"ids": [[1]] * 9}, 413, "ids is a list of 9"),
        ("/other/decode", {"ids": [1]}, 404, "task is 'other'"),
        ("/tokenize", {"inputs": "a"}, 422, "task is missing"),
    ],
)
def test_what_does_not_fit_is_refused_in_teis_shape(service, path, fields, status, sentence):
    refused = service.post(path, fields)
    assert (refused.status_code, refused.json()["error_type"]) == (status, "Validation")
    assert sentence in refused.json()["error"]
