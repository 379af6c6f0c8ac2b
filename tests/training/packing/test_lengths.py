"""What generators and predictors are trained on: prompts with lengths, files of prompts, and docstrings as a corpus."""

from __future__ import annotations

import json
from pathlib import Path

import datasets
import pytest

from pliant.errors import InputError
from pliant.flows.packing.stages import rendered
from pliant.packing.artifact import Generator
from pliant.training import docstrings
from pliant.training.docstrings import Docstring
from pliant.training.packing import corpus as packing_corpus
from pliant.training.packing.corpus import CHAT_TEMPLATE, MAKERS, select
from pliant.training.packing.lengths import divide, observed
from pliant.training.packing.prompts import load as load_prompts

PAIRS = [(f"prompt {n}", n + 1) for n in range(20)]


def test_observed_pairs_keep_their_order_and_have_a_fingerprint_of_their_own():
    data = observed("seen", PAIRS)
    assert (data.prompts[3], data.tokens[3], data.tokens.dtype.name) == ("prompt 3", 4, "int32")
    assert data.fingerprint == observed("other", PAIRS).fingerprint
    assert data.fingerprint != observed("seen", [*PAIRS[:-1], ("prompt 19", 7)]).fingerprint


def test_equal_prompts_are_not_divided():
    data = observed("seen", [(f"prompt {n % 7}", n + 1) for n in range(70)])
    fit, test = divide(data, 0.3, seed=1)
    assert not set(fit.prompts) & set(test.prompts)
    assert sorted([*fit.tokens, *test.tokens]) == sorted(data.tokens)
    assert len(set(test.prompts)) == 2


def write(folder: Path, *rows: dict) -> str:
    path = folder / "my asks.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"json:{path}"


def test_a_column_of_prompts_is_read_without_empty_ones_under_the_files_name(tmp_path):
    name, prompts = load_prompts(
        write(tmp_path, {"prompt": "a", "text": "x"}, {"prompt": " "}, {"prompt": None}, {"prompt": "b"})
    )
    assert (name, prompts) == ("my-asks", ("a", "b"))


def test_an_instruction_is_followed_by_what_it_is_about(tmp_path):
    _, prompts = load_prompts(
        write(tmp_path, {"instruction": "Sum.", "input": "1 2"}, {"instruction": "Sing.", "input": ""})
    )
    assert prompts == ("Sum.\n1 2", "Sing.")


def test_a_parquet_file_is_read(tmp_path):
    datasets.Dataset.from_dict({"question": ["why?", "how?"]}).to_parquet(tmp_path / "q.parquet")
    assert load_prompts(f"parquet:{tmp_path / 'q.parquet'}") == ("q", ("why?", "how?"))


def test_what_cannot_be_read_is_told_in_a_sentence(tmp_path):
    with pytest.raises(InputError, match="a readable csv file"):
        load_prompts(f"csv:{tmp_path / 'none.csv'}")
    (tmp_path / "bad.parquet").write_text("no parquet")
    with pytest.raises(InputError, match="a readable parquet file"):
        load_prompts(f"parquet:{tmp_path / 'bad.parquet'}")
    with pytest.raises(InputError, match="such that one is prompt or instruction"):
        load_prompts(write(tmp_path, {"words": "a"}))
    with pytest.raises(InputError, match=r"line 1 .*3.* is no text"):
        load_prompts(write(tmp_path, {"prompt": 3}))


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
    turns = select(corpus, "test")
    assert rendered(generator, None, [turn.ask for turn in turns]) == [turn.prompt for turn in turns]


def test_all_turns_of_a_file_are_to_fit_or_all_are_held_out(corpus):
    fit, held = ({turn.source for turn in select(corpus, part)} for part in ("fit", "profiling"))
    assert fit and held and not fit & (held | {turn.source for turn in select(corpus, "test")})


def test_the_same_seed_gives_the_same_corpus_and_another_one_another(corpus, monkeypatch):
    found_docstrings = [READER, *(Docstring("p", f"p/{n}.py", "class", READER.paragraphs, 2) for n in range(9))]
    monkeypatch.setattr(docstrings, "corpus", lambda packages: tuple(found_docstrings))
    first, again, other = (packing_corpus.load(seed) for seed in (0, 0, 1))
    assert first.fingerprint == again.fingerprint != other.fingerprint
