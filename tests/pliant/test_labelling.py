"""Questions that a flow asks, and the labels that people give: what is refused, and what survives a fault."""

from __future__ import annotations

import os
import stat

import pytest

from pliant import labelling
from pliant.errors import InputError
from pliant.labelling import Label, LabelsError, Questions
from tests.fixtures.labels import REVIEWS


@pytest.fixture
def folder(tmp_path):
    folder = labelling.folder_of(tmp_path)
    labelling.ask(folder, REVIEWS)
    return folder


def test_labels_are_kept_once_and_only_their_owner_may_read_them(folder):
    assert labelling.tasks(folder) == ["reviews"]
    assert labelling.take(folder, "reviews", [("Good.", None, "positive")] * 2, "ann") == 1
    assert labelling.take(folder, "reviews", [("Good.", None, "positive"), ("Bad.", None, "negative")], "bob") == 1
    assert labelling.answers(folder, "reviews") == [
        Label("Good.", None, "positive", "ann"),
        Label("Bad.", None, "negative", "bob"),
    ]
    assert labelling.unanswered(folder, "reviews").texts == REVIEWS.texts[2:]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.glob("reviews.*")} == {0o600}
    labelling.ask(folder, Questions("reviews", REVIEWS.classes, (), ""))
    assert labelling.tasks(folder) == [] and len(labelling.answers(folder, "reviews")) == 2


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("Fine.", None, "positive"), "text is 'Fine.', but must be one of those whose labels are wanted"),
        (("Good.", "", "positive"), "text is 'Good.'"),
        (("Good.", None, "great"), "label of 'Good.' is 'great', but must be one of 'negative', 'neutral', 'positive'"),
        (("Bad.", None, "neutral"), "label of 'Bad.' is 'neutral', but must be 'negative', as it was given before"),
    ],
)
def test_what_does_not_fit_is_refused_with_all_that_came_with_it(given, sentence, folder):
    labelling.take(folder, "reviews", [("Bad.", None, "negative")], "ann")
    with pytest.raises(InputError, match=sentence):
        labelling.take(folder, "reviews", [("Good.", None, "positive"), given], "ann")
    assert len(labelling.answers(folder, "reviews")) == 1
    with pytest.raises(InputError, match="TASK is 'mails', but must be one whose labels are wanted: reviews"):
        labelling.take(folder, "mails", [given], "ann")


def test_a_torn_line_spoils_no_other(folder):
    labelling.take(folder, "reviews", [("Good.", None, "positive")], "ann")
    with (folder / "reviews.jsonl").open("ab") as file:
        file.write(b'{"first": "Ba')
    labelling.take(folder, "reviews", [("Bad.", None, "negative")], "ann")
    assert [each.first for each in labelling.answers(folder, "reviews")] == ["Good.", "Bad."]


def test_a_full_disk_and_a_torn_file_of_questions_are_sentences(folder, monkeypatch):
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(LabelsError, match=r"one that can be written to .*No space left"):
            labelling.take(folder, "reviews", [("Good.", None, "positive")], "ann")
    assert labelling.take(folder, "reviews", [("Good.", None, "positive")], "ann") == 1
    (folder / "reviews.json").write_text('{"task": "rev')
    with pytest.raises(LabelsError, match=r"reviews\.json, but must be questions as a flow writes them"):
        labelling.unanswered(folder, "reviews")
