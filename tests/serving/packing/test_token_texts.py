"""Tokens of every kind of tokenizer are shown by their bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models

from pliant.serving.packing.text import TokenTexts
from tests.fixtures.packing.fakes import new_tokenizer

STORIES = Path("../shared/data/models/stories260K/tokenizer.json")
TEXT = "Ein Café, 🙂 und\n\tmehr."


def test_byte_level_tokens_are_the_bytes_of_their_text():
    tokenizer = new_tokenizer()
    texts, ids = TokenTexts(tokenizer), tokenizer.encode(TEXT).ids
    assert b"".join(map(texts.bytes_of, ids)) == TEXT.encode()
    shown = [texts.text_of(id) for id in ids]
    assert "bytes:\\xc3" in shown and "C" in shown
    assert len(set(map(texts.text_of, range(tokenizer.get_vocab_size())))) == tokenizer.get_vocab_size()


@pytest.mark.skipif(not STORIES.exists(), reason="the shared data is not here")
def test_tokens_of_sentencepiece_have_spaces_and_bytes():
    tokenizer = Tokenizer.from_file(str(STORIES))
    texts, ids = TokenTexts(tokenizer), tokenizer.encode(TEXT, add_special_tokens=False).ids
    assert b"".join(map(texts.bytes_of, ids)) == f" {TEXT}".encode(), "it begins every text with a space"
    assert [texts.text_of(id) for id in tokenizer.encode("é🙂").ids][-4:] == [
        f"bytes:\\x{b:02x}" for b in "🙂".encode()
    ]


def test_tokens_of_any_other_tokenizer_are_decoded_alone():
    words = Tokenizer(models.WordPiece({"[UNK]": 0, "play": 1, "##ing": 2}, unk_token="[UNK]"))
    words.decoder = decoders.WordPiece()
    texts = TokenTexts(words)
    assert [texts.text_of(id) for id in (1, 2)] == ["play", "##ing"]
    plain = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    assert [TokenTexts(plain).text_of(id) for id in (0, 1)] == ["a", "b"]
