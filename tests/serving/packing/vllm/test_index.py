"""uv installs from where pip would, and no address gets out."""

from __future__ import annotations

import pytest

from serving.packing.vllm import index

LIST = """\
:env:.find-links='/wheels /more'
global.extra-index-url='\\nhttps://u:pw@one.example/simple\\nhttps://two.example/simple'
global.index-url='https://site.example/simple'
global.timeout='5'
global.broken='
install.index-url='https://user.example/a=b'
install.no_index='true'
download.index-url='https://other.example'
no line of settings
"""


def test_of_several_settings_that_counts_which_pip_would_use():
    assert index.parse(LIST) == {
        "extra-index-url": "\nhttps://u:pw@one.example/simple\nhttps://two.example/simple",
        "index-url": "https://user.example/a=b",
        "timeout": "5",
        "no-index": "true",
        "find-links": "/wheels /more",
    }


def test_they_become_variables_of_uv():
    settings = index.parse(LIST) | {"cert": "/c.pem", "trusted-host": "h1 h2", "proxy": "http://proxy:1"}
    assert index.uv_variables(settings, {}) == {
        "UV_DEFAULT_INDEX": "https://user.example/a=b",
        "UV_EXTRA_INDEX_URL": "https://u:pw@one.example/simple https://two.example/simple",
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_NO_INDEX": "1",
        "UV_HTTP_TIMEOUT": "5",
        "UV_INSECURE_HOST": "h1 h2",
        "SSL_CERT_FILE": "/c.pem",
        "HTTP_PROXY": "http://proxy:1",
        "HTTPS_PROXY": "http://proxy:1",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }
    assert index.uv_variables({"no-index": "false"}, {}) == {"UV_INDEX_STRATEGY": "unsafe-best-match"}


@pytest.mark.parametrize(
    ("present", "setting"),
    [
        ("UV_DEFAULT_INDEX", "index-url"),
        ("UV_INDEX_URL", "index-url"),
        ("UV_INDEX", "extra-index-url"),
        ("UV_FIND_LINKS", "find-links"),
        ("SSL_CERT_FILE", "cert"),
    ],
)
def test_what_the_user_has_set_for_uv_comes_first(present, setting):
    values = index.uv_variables({setting: "/place"}, {present: "/his"})
    assert values == {"UV_INDEX_STRATEGY": "unsafe-best-match"}


def test_the_settings_of_pip_are_read(monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert index.pip_settings()["find-links"] == str(tmp_path)


def test_without_pip_there_are_no_settings(monkeypatch):
    monkeypatch.setattr(index.sys, "executable", "/bin/false")
    assert index.pip_settings() == {}


def test_no_address_and_no_folder_of_packages_is_shown():
    variables = {"UV_FIND_LINKS": "/wheels,/more", "UV_EXTRA_INDEX_URL": "https://u:pw@one.example/simple"}
    text = "error: `https://u:pw@one.example/simple/torch/` and (http://else.example) and /wheels/torch.whl"
    shown = index.without_addresses(text, variables)
    assert shown == "error: `(an address)/torch/` and ((an address)) and (an address)/torch.whl"
