"""Secrets are replaced wherever they stand in a text, and nothing else is."""

from __future__ import annotations

import logging

import pytest

from pliant.redaction import LONGEST, redact, redact_record, secrets_of


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:hidden@host/db", "postgresql://***@host/db"),
        ("https://hidden@host and http://open/path", "https://***@host and http://open/path"),
        ("http://h/x?access_key=hidden&page=2", "http://h/x?access_key=***&page=2"),
        ("http://h/x?sig=hidden", "http://h/x?sig=***"),
        ("PASSWORD = hidden; user=me", "PASSWORD = ***; user=me"),
        ("Authorization: Bearer hidden-hidden", "Authorization: Bearer ***"),
        ("basic hiddenhidden==", "basic ***"),
        ("3 tokens of 4, a = b", "3 tokens of 4, a = b"),
        ("Basic needs", "Basic needs"),
        ("http://host:5000/path?page=2", "http://host:5000/path?page=2"),
        ("", ""),
    ],
)
def test_a_secret_is_masked_and_what_is_none_is_left(text, shown):
    assert redact(text) == shown


def test_values_of_variables_that_are_called_like_secrets_are_masked_wherever_they_stand(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "hidden-value")
    monkeypatch.setenv("OTHER_TOKEN", "hidden-value-and-more")
    monkeypatch.setenv("SHORT_TOKEN", "the")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:p%40ss-word@host")
    monkeypatch.setenv("HARMLESS", "visible")
    text = "hidden-value, hidden-value-and-more, the visible p@ss-word p%40ss-word"
    assert redact(text) == "***, ***, the visible *** ***"


def test_a_long_text_is_cut_off_after_what_was_looked_through():
    assert redact("a" * LONGEST) == "a" * LONGEST
    assert redact("a" * (LONGEST + 1)) == "a" * LONGEST + "..."


@pytest.mark.parametrize(
    ("address", "secrets"),
    [
        ("http://me:pass@host", {"pass"}),
        ("http://token@host", {"token"}),
        ("http://host/?token=t1&x=2", {"t1"}),
        ("http://me:a%20b@host", {"a%20b", "a b"}),
        ("http://host", set()),
        ("http://[broken", set()),
    ],
)
def test_the_secrets_of_an_address_are_its_password_and_what_its_query_calls_so(address, secrets):
    assert secrets_of(address) == secrets


def record(message: object, *args: object) -> logging.LogRecord:
    return logging.LogRecord("name", logging.INFO, "path", 1, message, args, None)


def test_a_records_arguments_stay_where_masking_them_suffices():
    masked = redact_record(record("no answer from %s in %d s", "http://me:hidden@host", 3))
    assert masked.args == ("http://***@host", 3)
    assert masked.getMessage() == "no answer from http://***@host in 3 s"


def test_a_record_whose_secret_arises_from_its_parts_becomes_one_text():
    masked = redact_record(record("password=%s", "hidden"))
    assert (masked.getMessage(), masked.args) == ("password=***", ())


def test_a_record_without_secrets_or_with_too_few_arguments_is_left_as_it_is():
    plain, broken = record("%d of %d", 1, 2), record("%d of %d", 1)
    assert redact_record(plain).args == (1, 2)
    assert redact_record(broken).args == (1,)


def test_a_traceback_is_kept_as_text_without_secrets():
    try:
        raise ValueError("no answer from http://me:hidden@host")
    except ValueError as error:
        logged = record("failed")
        logged.exc_info = (ValueError, error, error.__traceback__)
    redact_record(logged)
    assert logged.exc_info is None
    assert "http://***@host" in logged.exc_text and "hidden" not in logged.exc_text
