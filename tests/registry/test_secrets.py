"""No secret of an address gets into a message, a log, a traceback or an answer, however the registry fails."""

from __future__ import annotations

import io
import logging
import traceback

import pytest

from pliant import redaction
from pliant.errors import RegistryError
from pliant.redaction import redact
from pliant.registry.mlflow_store import MlflowRegistry
from tests.fixtures.bins.in_process import serving
from tests.fixtures.bins.published import publish_tiny
from tests.fixtures.registry import FolderRegistry
from tests.fixtures.secret_registries import SECRETS, WAYS, failing


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


@pytest.mark.parametrize(
    "text, expected",
    [
        ("at postgresql+psycopg://ann:pw@db:5432/x: no", "at postgresql+psycopg://***@db:5432/x: no"),
        ("http://ann:p@ss:w/rd@db/x", "http://***@db/x"),
        ("http://tok@db/x", "http://***@db/x"),
        ("(s3://b/k?X-Amz-Signature=ab&x=1)", "(s3://b/k?X-Amz-Signature=***&x=1)"),
        ("/x?token=ab&access_key=cd#y", "/x?token=***&access_key=***#y"),
        ("host=db password=pw dbname=x", "host=db password=*** dbname=x"),
        ("Authorization: Bearer abcdef123456", "Authorization: Bearer ***"),
        ("nothing: http://db/x?page=2, to = 3", "nothing: http://db/x?page=2, to = 3"),
    ],
)
def test_what_is_secret_in_an_address_or_a_header_is_masked_and_nothing_else(text, expected):
    assert redact(text) == expected
    assert redact(redact(text)) == expected


def test_configured_secrets_are_masked_wherever_they_stand(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://ann:p%40ss-word@db?token=t0ken-value")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "another-pass")
    text = "p%40ss-word, p@ss-word, t0ken-value and another-pass"
    assert redact(text) == "***, ***, *** and ***"
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "a")
    assert redact("a plain text") == "a plain text"


@pytest.mark.parametrize("hostile", ["://" * 30_000, "a" * 90_000, "token" * 20_000, "a://" + "b" * 90_000])
def test_a_hostile_text_is_looked_through_soon(hostile):
    import time

    start = time.process_time()
    redact(hostile)
    assert time.process_time() - start < 5


def test_records_of_any_logger_are_redacted_with_their_arguments_and_tracebacks():
    stream = io.StringIO()
    handler, logger = logging.StreamHandler(stream), logging.getLogger("some.library")
    before = logging.getLogRecordFactory()
    logger.addHandler(handler)
    try:
        redaction.install()
        redaction.install()  # again: once is enough
        logger.error("at http://u:%s@h", SECRETS[0])
        logger.error("at %s", ValueError(f"http://u:{SECRETS[0]}@h"))
        logger.error("at %(url)s", {"url": f"http://h?token={SECRETS[1]}"})
        try:
            try:
                raise ValueError(f"http://u:{SECRETS[0]}@h")
            except ValueError as error:
                raise OSError(f"?access_key={SECRETS[2]}") from error
        except OSError:
            logger.exception("failed")
    finally:
        logging.setLogRecordFactory(before)
        logger.removeHandler(handler)
    text = stream.getvalue()
    assert "ValueError" in text and "OSError" in text and "test_secrets.py" in text
    assert text.count("***") == 7  # two of them in lines of this file
    assert not any(secret in text for secret in SECRETS)


@pytest.mark.parametrize("way", WAYS)
def test_a_registry_that_fails_shows_no_secret_in_message_traceback_log_or_answer(way, tmp_path, caplog):
    shown = []
    with failing(way) as address:
        registry = MlflowRegistry(address, "e", tmp_path)
        calls = (
            registry.names,
            registry.identity,
            lambda: registry.version("pliant-bins-x"),
            lambda: registry.commit({"pliant-bins-x": 1}),
            lambda: registry.run("x").__enter__(),
        )
        for call in calls:
            with pytest.raises(RegistryError) as caught:
                call()
            shown += [str(caught.value), repr(caught.value), *traceback.format_exception(caught.value)]
            logging.getLogger("pliant.test").error("failed", exc_info=caught.value)
        shown.append(_of_a_service(registry, tmp_path))
    shown.append(caplog.text)
    assert all(len(text) > 10 for text in shown)
    for secret in SECRETS:
        assert not [text for text in shown if secret in text]


def _of_a_service(broken: MlflowRegistry, folder) -> str:
    """Return what a service says whose registry fails while it runs."""
    registry = FolderRegistry(folder / "models")
    publish_tiny(registry, "colours")
    with serving(registry) as service:
        registry.identity = broken.identity
        answers = [service.call("POST", "/refresh"), service.call("GET", "/status"), service.call("GET", "/metrics")]
        assert answers[0].status_code == 503
        assert answers[1].json()["refresh"]["outcome"] == "failed"
    return "".join(answer.text for answer in answers)
