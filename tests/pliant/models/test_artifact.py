"""What a stored classifier is called."""

from __future__ import annotations

from pliant.models.artifact import Classifier


def test_registries_hold_classifiers_of_this_kind_and_schema():
    assert (Classifier.KIND, Classifier.SCHEMA) == ("cascade-classifier", 1)
