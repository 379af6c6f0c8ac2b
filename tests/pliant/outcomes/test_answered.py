"""Whether a label shows that an answer was correct, and labels that can show nothing."""

from __future__ import annotations

import pytest

from pliant.errors import InputError
from pliant.outcomes.answered import Answered


def classified(*classes: str) -> Answered:
    return Answered("mails", 1, "default", "small", classes[0], 0.9, 0.95, classes=classes)


def valued(value: float, tolerance: float) -> Answered:
    return Answered("stars", 1, "default", "small", value, 1.0, None, tolerance)


@pytest.mark.parametrize(("label", "correct"), [(2.5, True), (3.0, True), (2.0, True), (3.01, False), (1.99, False)])
def test_a_value_is_correct_within_the_tolerance_on_either_side(label, correct):
    assert valued(2.5, 0.5).correct(label) is correct


@pytest.mark.parametrize("label", ["2.5", True, float("nan"), float("inf")])
def test_only_a_finite_number_labels_a_regression(label):
    with pytest.raises(InputError, match=r"^label is .*, but must be a finite number, as the task is a regression$"):
        valued(2.5, 0.5).correct(label)


@pytest.mark.parametrize(("count", "ending"), [(10, "c8, c9"), (11, "c8, c9 and 1 more"), (13, "c8, c9 and 3 more")])
def test_of_many_classes_ten_are_named_and_the_others_counted(count, ending):
    with pytest.raises(InputError, match=f"one of c0, c1, .*{ending}$"):
        classified(*(f"c{number}" for number in range(count))).correct("eggs")


@pytest.mark.parametrize(("length", "shown"), [(78, 80), (79, 83), (5000, 83)])
def test_of_a_long_label_only_the_beginning_is_shown(length, shown):
    with pytest.raises(InputError) as caught:
        classified("spam").correct("x" * length)
    label = str(caught.value).removeprefix("label is ").partition(", but")[0]
    assert len(label) == shown and label.endswith("..." if shown > 80 else "'")
