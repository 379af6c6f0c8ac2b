"""What is refused before a service starts: an open door, broken keys, certificates and addresses."""

from __future__ import annotations

import logging
import shutil

import pytest
from cryptography import x509
from prometheus_client import CollectorRegistry

from pliant.errors import InputError
from pliant.serving.http.access.access import DAY, check_access, check_certificate, show_certificate
from pliant.serving.http.access.keys import update_keys
from pliant.serving.settings import Settings
from tests.fixtures.certificate import certificate
from tests.serving.http.access.test_keys import with_new


def test_without_keys_only_this_machines_own_addresses_are_served(tmp_path):
    for host in ("127.0.0.1", "localhost", "::1"):
        check_access(Settings(home=tmp_path, host=host))
    for host in ("0.0.0.0", "10.0.0.7", "::"):
        with pytest.raises(InputError, match="pliant keys add --tenant NAME`, or say --open"):
            check_access(Settings(home=tmp_path, host=host))
        check_access(Settings(home=tmp_path, host=host, open=True))
    update_keys(tmp_path / "keys.json", with_new)
    check_access(Settings(home=tmp_path, host="0.0.0.0"))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"host": "evil.example"}, "host is 'evil.example', but must be an address"),
        ({"trusted_proxies": "10.0.0.7,proxy"}, "trusted proxy is 'proxy', but must be an address or a network"),
        ({"tls_cert": "cert.pem"}, "tls_cert is cert.pem, but must be given together with tls_key"),
        ({"tls_cert": "cert.pem", "tls_key": "key.pem"}, "No such file"),
        ({"keys": "{"}, "PLIANT_KEYS is unusable"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused_with_a_sentence(tmp_path, settings, sentence):
    with pytest.raises(InputError, match=sentence):
        check_access(Settings(home=tmp_path, **settings))


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
def test_files_that_are_no_certificate_with_its_key_are_refused(tmp_path, break_, sentence):
    own, other = certificate(tmp_path / "own"), certificate(tmp_path / "other")
    break_(own, other)
    with pytest.raises(InputError, match=sentence):
        check_certificate(own.path, own.key)


@pytest.mark.parametrize(
    ("days_left", "level", "said"),
    [
        (20, None, ""),
        (14.001, None, ""),
        (13.999, logging.WARNING, "in 14 days"),
        (10, logging.WARNING, "in 10 days"),
        (0, logging.ERROR, "has expired on"),
        (40, logging.ERROR, "is not valid before"),
    ],
)
def test_the_end_is_a_metric_and_what_is_wrong_is_logged(tmp_path, caplog, days_left, level, said):
    given, registry = certificate(tmp_path, 30.0), CollectorRegistry()
    end = x509.load_pem_x509_certificate(given.path.read_bytes()).not_valid_after_utc.timestamp()
    show_certificate(given.path, registry, end - days_left * DAY)
    assert [record.levelno for record in caplog.records] == ([] if level is None else [level])
    assert said in caplog.text
    assert registry.get_sample_value(EXPIRY, {"source": "service"}) == end
