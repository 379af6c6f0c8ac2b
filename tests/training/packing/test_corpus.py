"""Questions and answers made of docstrings: their form steers the answer's length, and no file is on both sides."""

from __future__ import annotations

import pytest

from pliant.flows.packing.stages import rendered
from pliant.packing.artifact import Generator
from pliant.training import docstrings
from pliant.training.docstrings import Docstring
from pliant.training.packing import corpus as packing_corpus
from pliant.training.packing.corpus import CHAT_TEMPLATE, MAKERS, messages, prompts, select

PROSE = "It reads the whole file. Every line is kept. Empty lines are left out. The order never changes. It is fast."
SECTION = "Parameters path : str, optional The file to be read. See more. limit : int The most lines that are read."
READER = Docstring(
    "one", "one/a.py", "function", ("Read the lines of a file.", PROSE, SECTION, "Returns list The lines."), 2
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Return a corpus of twelve files with two docstrings each."""
    documents = [
        Docstring(f"p{n % 2}", f"p{n % 2}/{n}.py", "function", (f"Read the {n}th file.", PROSE, SECTION), 2)
        for n in range(12)
        for _ in range(2)
    ]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(docstrings, "corpus", lambda packages: tuple(documents))
        yield packing_corpus.load(0)


@pytest.mark.parametrize(
    ("form", "asked", "answer"),
    [
        ("kind", "Read the lines of a file.", "a function"),
        ("count", "path, limit", "2"),
        ("one", "Read the lines of a file.", "It reads the whole file."),
        ("two", "Read the lines of a file.", "It reads the whole file. Every line is kept."),
        ("detail", "Read the lines of a file.", PROSE),
        ("summary", PROSE, "Read the lines of a file."),
        ("returns", "Read the lines of a file.", "The lines."),
        (
            "parameters",
            "Read the lines of a file. path, limit.",
            "1. path: The file to be read.\n2. limit: The most lines that are read.",
        ),
    ],
)
def test_each_form_asks_for_a_part_of_the_docstring(form, asked, answer):
    expected = None if form == "returns" else (asked, answer)  # two words are no sentence
    assert MAKERS[form](READER) == expected


def test_the_prompt_is_what_the_chat_template_makes_of_the_message(corpus):
    generator = Generator("g", "{}", "", CHAT_TEMPLATE, 64, (1,), "", {})
    asks = [chat[0]["content"] for chat in messages(corpus, "test")]
    assert rendered(generator, None, asks) == list(prompts(corpus, "test"))


def test_all_turns_of_a_file_are_to_fit_or_all_are_held_out(corpus):
    fit, held = ({turn.source for turn in select(corpus, part)} for part in ("fit", "profiling"))
    assert fit and held and not fit & (held | {turn.source for turn in select(corpus, "test")})


def test_the_same_seed_gives_the_same_corpus_and_another_one_another(corpus, monkeypatch):
    found_docstrings = [READER, *(Docstring("p", f"p/{n}.py", "class", READER.paragraphs, 2) for n in range(9))]
    monkeypatch.setattr(docstrings, "corpus", lambda packages: tuple(found_docstrings))
    first, again, other = (packing_corpus.load(seed) for seed in (0, 0, 1))
    assert first.fingerprint == again.fingerprint != other.fingerprint
