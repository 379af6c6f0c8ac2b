"""Secrets are replaced wherever they stand in a text, and nothing else is."""

from __future__ import annotations

import logging
import sys
import threading

import pytest

from pliant.redaction import install, redact, redact_record, secrets_of


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
        ("Bearer hiddenn is too short, BEARER hidden-- is not", "Bearer hiddenn is too short, BEARER *** is not"),
        ("http://h/?key=hidden;pass=hidden#part", "http://h/?key=***;pass=***#part"),
        ("my-api_key=hidden&apikey=hidden", "my-api_key=***&apikey=***"),
        ("monkey=1 and ?monkey=2", "monkey=1 and ?monkey=2"),
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
    assert redact("a" * 100_000) == "a" * 100_000
    assert redact("a" * 100_001) == "a" * 100_000 + "..."


@pytest.mark.parametrize(
    ("address", "secrets"),
    [
        ("http://me:pass@host", {"pass"}),
        ("http://token@host", {"token"}),
        ("http://host/?token=t1&x=2", {"t1"}),
        ("http://me:a%20b@host", {"a%20b", "a b"}),
        ("http://host", set()),
        ("http://me:p@ss@host", {"p@ss"}),
        ("http://me:a:b@host", {"a:b"}),
        ("http://host/?x=1&sig=s1;password=p1", {"s1", "p1"}),
        ("http://[broken", set()),
    ],
)
def test_the_secrets_of_an_address_are_its_password_and_what_its_query_calls_so(address, secrets):
    assert secrets_of(address) == secrets


def record(message: object, *args: object) -> logging.LogRecord:
    return logging.LogRecord("name", logging.INFO, "path", 1, message, args, None)


def test_only_what_is_called_like_a_secret_or_holds_an_address_hides_its_value(monkeypatch):
    for number, name in enumerate(("MLFLOW_REGISTRY_URI", "PLIANT_REGISTRY_URI", "PLIANT_ARTIFACT_ROOT")):
        monkeypatch.setenv(name, f"s3://key:hidden{number}-@host/path")
    for number, name in enumerate(("PASSWORD", "MY_PASSWD", "A_SECRET_B", "ACCESS_KEY_ID", "DB_CREDENTIAL")):
        monkeypatch.setenv(name, f"masked{number}-")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "visible-1")
    monkeypatch.setenv("SECRETARY", "visible-2")
    monkeypatch.setenv("FOUR_TOKEN", "w4rd")
    text = (
        "hidden0- hidden1- hidden2- masked0- masked1- masked2- masked3- masked4- visible-1 visible-2 s3 host path w4rd"
    )
    assert redact(text) == "*** *** *** *** *** *** *** *** visible-1 visible-2 s3 host path ***"


@pytest.fixture
def process(monkeypatch):
    """What a process writes with, as it was before the test."""
    factory = logging.getLogRecordFactory()
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)
    logging.setLogRecordFactory(logging.LogRecord)
    yield
    logging.setLogRecordFactory(factory)


def raised(error: BaseException) -> tuple:
    try:
        raise error
    except BaseException as caught:
        return type(caught), caught, caught.__traceback__


def test_once_installed_nothing_that_the_process_writes_shows_a_secret(process, capsys, caplog):
    install()
    first = logging.getLogRecordFactory(), sys.excepthook, threading.excepthook
    install()
    assert (logging.getLogRecordFactory(), sys.excepthook, threading.excepthook) == first
    logging.getLogger("any").warning("no answer from %s", "http://me:hidden@host")
    assert [record.getMessage() for record in caplog.records] == ["no answer from http://***@host"]
    sys.excepthook(*raised(ValueError("http://me:hidden@host")))
    written = capsys.readouterr().err
    assert written.startswith("Traceback") and written.endswith("ValueError: http://***@host\n")


def test_a_thread_that_dies_shows_no_secret_and_one_that_ends_says_nothing(process, capsys):
    install()
    for error in (ValueError("http://me:hidden@host"), SystemExit("password=hidden")):
        kind, value, trace = raised(error)
        threading.excepthook(threading.ExceptHookArgs((kind, value, trace, None)))
    written = capsys.readouterr().err
    assert written.startswith("Traceback") and written.endswith("ValueError: http://***@host\n")


def test_the_causes_of_an_error_show_no_secret_either_and_a_record_without_an_error_has_no_traceback():
    try:
        try:
            raise OSError("token=hidden")
        except OSError as cause:
            raise ValueError("no answer") from cause
    except ValueError:
        logged = record("failed")
        logged.exc_info = sys.exc_info()
    redact_record(logged)
    assert "token=***" in logged.exc_text and logged.exc_text.endswith("ValueError: no answer")
    bare = record("fine")
    bare.exc_info = (None, None, None)
    assert redact_record(bare).exc_text is None
