"""`pliant label`: labels that are given in the terminal and by CSV files, and what is refused."""

from __future__ import annotations

import io
import sys
from dataclasses import replace

import pytest

from pliant import labelling
from pliant.cli.label import matching
from pliant.jsonl import write_whole
from tests.fixtures.commands import refused, shown
from tests.fixtures.labels import PAIRS, REVIEWS

HEAD = "reviews: "


@pytest.fixture
def folder(here):
    folder = labelling.folder_of(here / ".pliant")
    labelling.ask(folder, REVIEWS)
    return folder


def said(monkeypatch, capsys, *lines: str) -> str:
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    return shown(["label", "cascade"], capsys)


def given(folder, task: str = "reviews") -> dict[str, str]:
    return {each.first: each.label for each in labelling.answers(folder, task)}


def test_labels_are_given_by_number_and_by_the_beginning_of_a_name_and_the_last_is_taken_back(
    folder, monkeypatch, capsys
):
    output = said(monkeypatch, capsys, "b", "3", "ne", "neg", "b", "neu", "q")
    assert REVIEWS.purpose in output and "1 negative, 2 neutral, 3 positive" in output
    assert "There is no label that could be taken back." in output
    assert "'ne' begins several classes: 'negative', 'neutral'." in output
    assert "\x1b" not in output
    assert output.endswith(
        "reviews: 2 of 3 labels that are wanted are there; run `pliant train cascade` to use them.\n"
    )
    assert given(folder) == {"Good.": "positive", "Bad.": "neutral"}


def test_what_was_given_before_the_end_of_the_input_or_an_interrupt_is_kept(folder, monkeypatch, capsys):
    said(monkeypatch, capsys, "s", "negative")
    assert given(folder) == {"Bad.": "negative"}
    words = iter(["positive"])

    def interrupted(prompt: str) -> str:
        word = next(words, None)
        if word is None:
            raise KeyboardInterrupt
        return word

    monkeypatch.setattr("builtins.input", interrupted)
    shown(["label", "cascade"], capsys)
    assert given(folder) == {"Bad.": "negative", "Good.": "positive"}


def test_a_name_that_looks_like_a_number_or_a_command_is_a_name():
    assert matching("1", ("0", "1")) == ["1"] and matching("2", ("0", "1")) == []
    assert matching("2", ("a", "b")) == ["b"] and matching("0", ("a", "b")) == matching("", ("a",)) == []
    assert matching("card", ("card", "card_lost")) == ["card"] and matching("CARD_", ("card", "card_lost")) == [
        "card_lost"
    ]


def test_a_class_that_is_called_as_a_command_is_chosen_and_the_commands_begin_with_a_colon(here, monkeypatch, capsys):
    folder = labelling.folder_of(here / ".pliant")
    labelling.ask(folder, replace(REVIEWS, classes=("a", "b")))
    assert ":q: end" in said(monkeypatch, capsys, "b", ":b", "a", ":s", ":q")
    assert given(folder) == {"Good.": "a"}


@pytest.mark.parametrize("separator", [",", ";"])
@pytest.mark.parametrize("questions", [REVIEWS, PAIRS], ids=lambda questions: questions.task)
def test_a_csv_file_goes_out_and_comes_back_also_as_a_spreadsheet_saves_it(questions, separator, here, capsys):
    import csv

    folder = labelling.folder_of(here / ".pliant")
    labelling.ask(folder, questions)
    file = here / "labels.csv"
    shown(["label", "cascade", "--csv", "labels.csv"], capsys)
    assert "a file that is not there yet" in refused(["label", "cascade", "--csv", "labels.csv"], capsys)
    rows = list(csv.reader(io.StringIO(file.read_text("utf-8-sig").replace("\r\n", "\n"))))
    assert len(rows) == 1 + len(questions.texts) and file.read_bytes().startswith(b"\xef\xbb\xbf")
    for row in rows[2:]:
        row[-1] = questions.classes[0]
    with file.open("w", encoding="utf-8-sig", newline="") as opened:
        csv.writer(opened, delimiter=separator).writerows(rows)
    output = shown(["label", "cascade", questions.task, "--take", "labels.csv"], capsys)
    assert output.startswith(f"New labels: {len(rows) - 2}.\n")
    assert labelling.unanswered(folder, questions.task).texts == questions.texts[:1]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("text,label\nGood.,positive\n\nBad.,great\n", "row 4: label of 'Bad.' is 'great'"),
        ("text,label\nGood.,positive\nFine.,positive\n", "row 3: text is 'Fine.'"),
        ("text,label\nGood.,positive\nGood.,neutral\n", "row 3: label of 'Good.' is 'neutral', but must be 'positive'"),
        ("text\nGood.\n", "a file whose first row names the column label"),
        ("", "a CSV file in UTF-8"),
        ('text,label\n"Good', "a CSV file in UTF-8"),
        ("text,label\nGood.,positive\nSch\xf6n,", "a CSV file in UTF-8"),
    ],
)
def test_a_file_with_an_error_is_refused_as_a_whole(content, sentence, folder, capsys):
    (folder / "it.csv").write_bytes(content.encode("latin-1"))
    assert sentence in refused(["label", "cascade", "--take", str(folder / "it.csv")], capsys)
    assert given(folder) == {}


def test_what_is_missing_or_fails_is_a_sentence(here, capsys, monkeypatch):
    assert shown(["label", "cascade"], capsys) == "No labels are wanted now.\n"
    folder = labelling.folder_of(here / ".pliant")
    for questions in (REVIEWS, PAIRS):
        labelling.ask(folder, questions)
    assert "TASK is missing, but must be given, as labels of several are wanted: pairs, reviews" in refused(
        ["label", "cascade"], capsys
    )
    assert "TASK is 'mails'" in refused(["label", "cascade", "mails"], capsys)
    assert "--take is nowhere" in refused(["label", "cascade", "pairs", "--take", "nowhere"], capsys)
    assert "--csv is no/way" in refused(["label", "cascade", "pairs", "--csv", "no/way"], capsys)
    write_whole(folder / "pairs.json", b"{")
    assert "questions as a flow writes them" in refused(["label", "cascade", "pairs"], capsys)
