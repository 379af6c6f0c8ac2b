"""A service's certificate: what is refused at its start, what is said of its end, and a new one that is taken at once."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path

import pytest
import uvicorn.config
from prometheus_client import CollectorRegistry

from pliant.errors import InputError
from serving.http.access.certificate import (
    DAY,
    LOOK_SECONDS,
    CertificateFollower,
    Validity,
    check_certificate,
    remembered_contexts,
    validity,
)
from serving.http.access.metrics import CertificateMetrics
from tests.fixtures.certificate import Certificate, certificate
from tests.fixtures.fakes import run_virtually

EXPIRY = "pliant_tls_certificate_expiry_timestamp_seconds"


def follower(given: Certificate, contexts=(), clock=None, registry=None) -> CertificateFollower:
    more = {} if clock is None else {"clock": clock}
    return CertificateFollower(
        given.path, given.key, CertificateMetrics(registry or CollectorRegistry()), contexts, **more
    )


def test_a_certificate_and_its_key_are_accepted_also_after_its_end(tmp_path):
    check_certificate(None, None)
    for days in (1.0, -1.0):
        given = certificate(tmp_path, days)
        check_certificate(given.path, given.key)


@pytest.mark.parametrize(
    ("break_", "sentence"),
    [
        (lambda own, _: own.path.unlink(), "tls_cert is .*certificate.pem, .*can be read .No such file"),
        (lambda own, _: own.key.unlink(), "tls_key is .*key.pem, .*can be read .No such file"),
        (lambda own, other: shutil.copy(other.key, own.key), "they do not fit together"),
        (lambda own, _: own.path.write_text("no PEM"), "one of them is no PEM, or has a password"),
        (lambda own, _: own.key.write_text(""), "one of them is no PEM, or has a password"),
    ],
)
def test_files_that_are_no_certificate_with_its_key_are_refused_with_one_sentence(tmp_path, break_, sentence):
    own, other = certificate(tmp_path / "own"), certificate(tmp_path / "other")
    break_(own, other)
    with pytest.raises(InputError, match=sentence) as raised:
        check_certificate(own.path, own.key)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("content", [b"", b"no PEM", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_a_file_without_a_certificate_has_no_validity(tmp_path, content):
    (tmp_path / "c.pem").write_bytes(content)
    with pytest.raises(InputError, match="must be a certificate in PEM"):
        validity(tmp_path / "c.pem")


@pytest.mark.parametrize(
    ("now", "sentence"),
    [
        (9.0, r"is not valid before 1970-01-01 00:00 UTC"),
        (10.0, r"expires on 1970-01-02 00:00 UTC, in 1 days: replace its file"),
        (86_400.0, r"has expired on 1970-01-02 00:00 UTC, and clients refuse it: replace its file"),
    ],
)
def test_what_is_wrong_with_a_certificate_is_said_with_its_file_and_the_day(now, sentence):
    assert re.search(f"^the certificate a.pem {sentence}", Validity(10.0, DAY).fault(Path("a.pem"), now))


def test_nothing_is_said_of_a_certificate_that_is_valid_for_more_than_fourteen_days():
    valid = Validity(0.0, 100 * DAY)
    assert valid.fault(Path("a.pem"), 86 * DAY) == ""
    assert "in 14 days" in valid.fault(Path("a.pem"), 86 * DAY + 1)


def test_the_end_is_a_metric_and_is_said_once_a_day_while_it_is_near(tmp_path, caplog):
    given, registry = certificate(tmp_path, 10.0), CollectorRegistry()
    end = validity(given.path).end
    now = end - 10 * DAY
    with caplog.at_level(logging.WARNING):
        watching = follower(given, clock=lambda: now, registry=registry)
        for _ in range(120):
            now += DAY / 10
            watching.look()
    levels = [record.levelno for record in caplog.records]
    assert levels == [logging.WARNING] * 10 + [logging.ERROR] * 3
    assert registry.get_sample_value(EXPIRY, {"source": "service"}) == end


def served(context: ssl.SSLContext) -> bytes:
    """Return the certificate that a client gets in a handshake with this context."""
    ours, theirs = socket.socketpair()

    def answer():
        with suppress(OSError), context.wrap_socket(theirs, server_side=True) as channel:
            channel.recv(1)

    thread = threading.Thread(target=answer)
    thread.start()
    anything = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anything.check_hostname, anything.verify_mode = False, ssl.CERT_NONE
    with anything.wrap_socket(ours) as channel:
        content = channel.getpeercert(binary_form=True)
        channel.send(b"x")
    thread.join()
    return content


def content(path: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(path.read_text())


def test_a_new_certificate_is_taken_without_a_restart_once_its_key_is_there_too(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(uvicorn.config, "create_ssl_context", uvicorn.config.create_ssl_context)
    contexts, registry = remembered_contexts(), CollectorRegistry()
    own, other = certificate(tmp_path / "own", 5.0), certificate(tmp_path / "other", 90.0)
    config = uvicorn.Config("x:y", ssl_certfile=own.path, ssl_keyfile=own.key, log_config=None)  # of the process
    with suppress(BaseException):
        config.load()  # there is no such app; TLS comes before it
    (context,) = contexts
    assert served(context) == content(own.path)
    former, watching = content(own.path), follower(own, contexts, registry=registry)
    end = validity(other.path).end

    async def main():
        task = asyncio.create_task(watching.follow())
        shutil.copy(other.path, own.path)
        await asyncio.sleep(1.5 * LOOK_SECONDS)
        assert served(context) == former
        shutil.copy(other.key, own.key)
        await asyncio.sleep(LOOK_SECONDS)
        assert served(context) == content(other.path)
        task.cancel()

    with caplog.at_level(logging.INFO):
        run_virtually(main())
    kept, taken = [record.getMessage() for record in caplog.records][-2:]
    assert kept.startswith("the former certificate stays in force: ") and "do not fit together" in kept
    assert taken.startswith(f"the certificate of {own.path} is in force, until ")
    assert registry.get_sample_value(EXPIRY, {"source": "service"}) == end
