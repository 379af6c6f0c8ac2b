"""Long texts: docstrings of the encoder's length, whose files are trained on or held out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pliant.benchmarks.cascade import material
from pliant.benchmarks.cascade.material import LONG, SOURCES, read
from pliant.errors import InputError
from pliant.training.docstrings import Docstring


def docstring(number: int, words: int) -> Docstring:
    """Three are of one file; the first word is the file's, the second its own."""
    text = f"file{number // 3} text{number} of ray.remote" + " word" * words
    return Docstring(("ray", "torch")[number % 2], f"file{number // 3}", "function", (text,), 0)


@pytest.fixture
def parted(monkeypatch):
    every = [docstring(number, (20, 250, 300)[number % 3]) for number in range(180)]
    monkeypatch.setattr(material, "corpus", lambda *_: every)
    monkeypatch.setitem(SOURCES, LONG, replace(SOURCES[LONG], labelled=30, unlabelled=21))
    try:
        return read(LONG)
    except InputError as error:
        pytest.skip(str(error))


def test_no_file_is_both_trained_on_and_held_out(parted):
    data, hidden = parted
    trained = [*(data.first[row] for row in data.split.fit), *(text for text, _ in hidden)]
    held = [data.first[row] for row in data.split.profiling]
    files = [{text.split()[0] for text in part} for part in (trained, held)]
    assert (len(trained), len(held)) == (51, 68) and files[0].isdisjoint(files[1])


def test_short_docstrings_and_names_of_packages_are_left_out(parted):
    data, _ = parted
    assert min(len(text.split()) for text in data.first) > 200 and not any("ray" in text for text in data.first)
