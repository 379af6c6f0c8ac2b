"""An error is one sentence that says what is wrong, also after its way between processes, and holds no secret."""

from __future__ import annotations

import pickle

from pliant.errors import DigestError, InputError, RegistryError


def test_a_value_outside_its_limit_is_named_with_field_and_limit_in_every_process():
    error = InputError("gamma", 7, "at most 4")
    assert str(error) == "gamma is 7, but must be at most 4"
    moved = pickle.loads(pickle.dumps(error))
    assert (str(moved), moved.field, moved.value, moved.limit) == (str(error), "gamma", "7", "at most 4")


def test_an_altered_file_is_named_with_both_digests():
    error = DigestError("weights", "aa", "bb")
    assert str(error) == "weights was altered or truncated: expected sha256 aa, found bb"
    assert (error.file, error.expected, error.actual) == ("weights", "aa", "bb")


def test_no_error_shows_the_password_of_an_address():
    assert "hidden" not in str(RegistryError("no answer from http://me:hidden@host:5000"))
