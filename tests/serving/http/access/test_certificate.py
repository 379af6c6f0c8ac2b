"""A service's certificate: what is refused at its start, and what is said of its end."""

from __future__ import annotations

import logging
import re
import shutil
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from pliant.errors import InputError
from pliant.serving.http.access.certificate import (
    DAY,
    Validity,
    check_certificate,
    show_certificate,
    validity,
)
from pliant.serving.http.access.metrics import CertificateMetrics
from tests.fixtures.certificate import certificate

EXPIRY = "pliant_tls_certificate_expiry_timestamp_seconds"


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


@pytest.mark.parametrize(
    ("days_left", "level"), [(20, None), (10, logging.WARNING), (-1, logging.ERROR), (40, logging.ERROR)]
)
def test_the_end_is_a_metric_and_what_is_wrong_is_logged(tmp_path, caplog, days_left, level):
    given, registry = certificate(tmp_path, 30.0), CollectorRegistry()
    end = validity(given.path).end
    show_certificate(given.path, CertificateMetrics(registry), end - days_left * DAY)
    assert [record.levelno for record in caplog.records] == ([] if level is None else [level])
    assert registry.get_sample_value(EXPIRY, {"source": "service"}) == end
