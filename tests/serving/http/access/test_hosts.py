"""Names under which a service may be called."""

from __future__ import annotations

import pytest

from pliant.serving.http.access.hosts import KnownHosts


@pytest.mark.parametrize(
    "header",
    [
        "",
        "evil.example",
        "evil.example:3000",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "xlocalhost",
        "[",
        "]",
        "10.0.0.8",
        "[fe80::1]",
        "localhost@evil.example",
        "evil.example#localhost",
        " localhost",
        "0x7f.1",
    ],
)
def test_other_names_are_unknown(header):
    assert not KnownHosts("127.0.0.1", ["api.example.org"]).knows(header)


def test_the_bound_address_and_allowed_names_are_known():
    hosts = KnownHosts("10.0.0.7", ["API.example.org", "*.inner.example"])
    for header in ("10.0.0.7:80", "api.example.org", "API.EXAMPLE.ORG.:443", "a.inner.example", "b.a.inner.example:1"):
        assert hosts.knows(header)
    for header in ("10.0.0.8", "example.org", "inner.example", "xinner.example"):
        assert not hosts.knows(header)


def test_on_all_addresses_any_address_is_known_but_no_name():
    hosts = KnownHosts("0.0.0.0")
    assert hosts.knows("192.168.1.5:3000") and hosts.knows("[2001:db8::1]:3000")
    assert not hosts.knows("evil.example") and not hosts.knows("192.168.1.5.evil.example")
    assert KnownHosts("0.0.0.0", ["*"]).knows("anything")
