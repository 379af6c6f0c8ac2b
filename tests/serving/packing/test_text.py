"""Text from tokens as they arrive: no incomplete characters, and nothing of a stop string."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from pliant.serving.packing.text import Detokenizer, Writer
from tests.fixtures.packing.fakes import TALE, new_tokenizer

STORIES = Path("../shared/data/models/stories260K/tokenizer.json")


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


def test_a_character_of_several_tokens_comes_whole(tokenizer):
    ids = tokenizer.encode("é🙂").ids
    assert len(ids) > 2
    assert [piece for piece in pieces(tokenizer, ids) if piece] == ["é", "🙂"]


def test_a_character_that_is_never_finished_ends_as_a_replacement(tokenizer):
    ids = tokenizer.encode("tea 🙂").ids[:-1]
    assert "".join(pieces(tokenizer, ids)) == "tea \ufffd"


@settings(max_examples=200, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_pieces_of_any_text_make_the_text(tokenizer, text):
    ids = tokenizer.encode(text).ids
    shown = pieces(tokenizer, ids)
    assert "".join(shown) == text
    assert all("\ufffd" not in piece for piece in shown) or "\ufffd" in text


@settings(max_examples=200, deadline=None)
@given(ids=st.lists(st.integers(3, 299), max_size=40))
def test_bytes_that_are_no_characters_never_wait_for_ever(ids):
    tokenizer = new_tokenizer()
    detokenizer, shown, most = Detokenizer(tokenizer, ()), 0, 0
    for count, id in enumerate(ids, start=1):
        if detokenizer.put(id):
            shown = count
        most = max(most, count - shown)
    assert most <= 8


def test_special_tokens_are_no_text(tokenizer):
    ids = [1, *tokenizer.encode("tea").ids, 2, 0]
    assert "".join(pieces(tokenizer, ids)) == "tea"


def test_a_word_keeps_the_space_that_its_tokenizer_leaves_out_at_the_beginning_of_a_text():
    vocabulary = {"▁Once": 0, "▁upon": 1, "▁a": 2}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="▁a"))
    made.decoder = decoders.Metaspace()
    assert made.decode([1, 2]) == "upon a"
    assert pieces(made, [1, 2], prompt=(0,)) == [" upon", " a", ""]


def test_a_pretrained_tokenizers_pieces_make_its_text():
    if not STORIES.is_file():
        pytest.skip("no ../shared/data here")
    tokenizer = Tokenizer.from_file(str(STORIES))
    ids = tokenizer.encode("Once upon a time, é 世 was there. 🙂").ids
    assert (
        "".join(pieces(tokenizer, ids[2:], tuple(ids[:2]))) == tokenizer.decode(ids)[len(tokenizer.decode(ids[:2])) :]
    )


def test_a_stop_string_that_spans_tokens_is_never_partly_given(tokenizer):
    found, stopped = written(tokenizer, tokenizer.encode(TALE).ids, ("tea; nob",))
    assert stopped
    assert "".join(found) == TALE[: TALE.index("tea; nob")]


def test_what_only_began_as_a_stop_string_is_given_in_the_end(tokenizer):
    found, stopped = written(tokenizer, tokenizer.encode("one two th").ids, ("three", "two three"))
    assert not stopped and "".join(found) == "one two th"


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


def test_text_is_given_out_as_soon_as_it_cannot_begin_a_stop_string(tokenizer):
    writer = Writer(Detokenizer(tokenizer, ()), ("xyz", "zz"))
    given = []
    for letter in "abxabxyazxyz":
        stopped = writer.put(*tokenizer.encode(letter).ids)
        given.append((writer.waiting, writer.take(), stopped))
    texts = ["a", "b", "", "xa", "b", "", "", "xya", "", "z", "", ""]
    assert given == [(len(text), text, index == 11) for index, text in enumerate(texts)]
    assert writer.stopped and writer.waiting == 0
    writer.end()
    assert writer.take() == "", "nothing follows a stop string"


def test_text_that_waits_is_counted_until_it_is_taken(tokenizer):
    writer = Writer(Detokenizer(tokenizer, ()))
    assert (writer.waiting, writer.stopped, writer.take()) == (0, False, "")
    counts = []
    for letter in "abc":
        assert not writer.put(*tokenizer.encode(letter).ids)
        counts.append(writer.waiting)
    assert (counts, writer.take(), writer.waiting, writer.take()) == ([1, 2, 3], "abc", 0, "")
    writer.put(*tokenizer.encode("d").ids)
    writer.end()
    assert (writer.waiting, writer.take()) == (1, "d")


def test_what_waits_for_the_rest_of_a_character_goes_after_eight_tokens(tokenizer):
    (first, *_) = tokenizer.encode("🙂").ids
    detokenizer = Detokenizer(tokenizer, ())
    shown = [detokenizer.put(first) for _ in range(8)]
    assert shown[:7] == [""] * 7 and shown[7] == "\ufffd" * 8
    assert detokenizer.end() == ""


class Recorded:
    """A tokenizer that notes what is decoded."""

    def __init__(self) -> None:
        self.decoded = []

    def decode(self, ids, skip_special_tokens):
        assert skip_special_tokens
        self.decoded.append(tuple(ids))
        return "".join(chr(97 + id) for id in ids)


def test_only_the_last_tokens_are_decoded_however_long_the_prompt_is():
    tokenizer = Recorded()
    detokenizer = Detokenizer(tokenizer, tuple(range(20)))
    assert [detokenizer.put(20), detokenizer.put(21), detokenizer.end()] == ["u", "v", ""]
    assert tokenizer.decoded == [tuple(range(14, 20)), tuple(range(14, 21)), (20,), (20, 21), (21,)]
