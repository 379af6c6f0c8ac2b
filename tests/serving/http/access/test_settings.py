"""What is refused before a service starts: an open door, broken keys, certificates and addresses."""

from __future__ import annotations

import pytest

from pliant.errors import InputError
from pliant.serving.http.access.key_file import update_keys
from pliant.serving.http.access.settings import check_access
from pliant.serving.settings import Settings
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


def test_networks_of_proxies_are_accepted(tmp_path):
    check_access(Settings(home=tmp_path, trusted_proxies="10.0.0.7, 10.1.0.0/16,::1"))
