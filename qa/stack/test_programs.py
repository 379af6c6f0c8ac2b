"""Where programs are looked for, and what this machine makes of the stack's configuration."""

from __future__ import annotations

import pytest

from pliant.benchmarks.harness import Skipped
from pliant.errors import PliantError
from qa.stack.programs import program
from qa.stack.proxy import configuration

TEXT = """
error_log /dev/stderr warn;
access_log /dev/stdout requests;
pid /tmp/nginx.pid;
ssl_certificate /run/secrets/tls_certificate;
listen 8443 ssl;
set $upstream tokens:3000;
"""


def test_a_program_is_what_its_variable_names_or_what_is_on_the_path_or_missing_with_the_package(monkeypatch, tmp_path):
    own = tmp_path / "nginx"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program("nginx") == str(own)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("NGINX", str(own))
    assert program("nginx") == str(own)
    monkeypatch.delenv("NGINX")
    monkeypatch.setattr("qa.stack.programs.FOLDERS", (str(tmp_path / "*"),))
    with pytest.raises(Skipped, match=r"nginx is not installed here .*nginx-light"):
        program("nginx")


def test_the_proxys_configuration_gets_the_ports_files_and_services_of_this_machine(tmp_path):
    files = {"tls_certificate": tmp_path / "c.pem"}
    text = configuration(TEXT, {"tokens": "127.0.0.1:7"}, {8443: 9}, files)
    for line in ("set $upstream 127.0.0.1:7;", "listen 127.0.0.1:9 ssl;", f"ssl_certificate {tmp_path / 'c.pem'};"):
        assert line in text
    assert f"pid {tmp_path}/nginx.pid;" in text and "/dev/std" not in text


@pytest.mark.parametrize("missing", ["tokens:3000", "8443", "/run/secrets/tls_certificate", " /tmp/", "/dev/stdout"])
def test_a_configuration_that_has_changed_is_noticed(missing, tmp_path):
    with pytest.raises(PliantError, match="has nothing like"):
        configuration(TEXT.replace(missing, "x"), {"tokens": "a:1"}, {8443: 9}, {"tls_certificate": tmp_path / "c.pem"})
