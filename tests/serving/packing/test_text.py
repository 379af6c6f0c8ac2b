"""Text from tokens as they arrive: no incomplete characters, and nothing of a stop string."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from pliant.serving.packing.text import Detokenizer, TokenTexts, Writer
from tests.fixtures.packing.fakes import new_tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return new_tokenizer()


def pieces(tokenizer: Tokenizer, ids: list[int], prompt: tuple[int, ...] = ()) -> list[str]:
    detokenizer = Detokenizer(tokenizer, prompt)
    return [*(detokenizer.put(id) for id in ids), detokenizer.end()]


def written(tokenizer: Tokenizer, ids: list[int], stops: tuple[str, ...]) -> tuple[list[str], bool]:
    """Return the text taken after each token, and whether a stop string ended it."""
    writer, found = Writer(Detokenizer(tokenizer, ()), stops), []
    for id in ids:
        stopped = writer.put(id)
        found.append(writer.take())
        if stopped:
            return found, True
    writer.end()
    return [*found, writer.take()], writer.stopped


@settings(max_examples=200, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_pieces_of_any_text_make_the_text(tokenizer, text):
    ids = tokenizer.encode(text).ids
    shown = pieces(tokenizer, ids)
    assert "".join(shown) == text
    assert all("\ufffd" not in piece for piece in shown) or "\ufffd" in text


def slowly(tokenizer: Tokenizer, ids: list[int], stops: tuple[str, ...]) -> tuple[str, bool]:
    """A simple reference: search the whole text for a stop string after each token."""
    shown = ""
    for piece in pieces(tokenizer, ids):
        shown += piece
        places = [shown.index(stop) for stop in stops if stop in shown]
        if places:
            return shown[: min(places)], True
    return shown, False


@settings(max_examples=300, deadline=None)
@given(
    text=st.text("abé", max_size=24),
    stops=st.lists(st.text("abé", min_size=1, max_size=4), max_size=3).map(tuple),
)
def test_the_writer_agrees_with_looking_at_the_whole_text(tokenizer, text, stops):
    ids = tokenizer.encode(text).ids
    found, stopped = written(tokenizer, ids, stops)
    assert ("".join(found), stopped) == slowly(tokenizer, ids, stops)
    assert not any(stop in "".join(found) for stop in stops)


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
