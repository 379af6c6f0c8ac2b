"""`pliant keys`: one secret is shown once, and nothing else ever shows it."""

from __future__ import annotations

import pytest

from pliant.cli.main import main
from pliant.serving.http.access.keys import read_keys
from tests.fixtures.commands import refused, shown


def add(capsys, *words: str) -> str:
    assert main(["keys", "add", *words]) == 0
    output = capsys.readouterr()
    secret = output.out.strip()
    assert secret not in output.err and "shown this once" in output.err
    return secret


def test_a_key_is_printed_once_opens_the_service_and_is_never_listed(here, capsys):
    secret = add(capsys, "--tenant", "acme", "--weight", "2", "--rate", "10", "--max-waiting", "50")
    file = here / ".pliant" / "keys.json"
    client = read_keys(file).client(secret)
    assert (client.tenant, client.weight, client.roles) == ("acme", 2.0, {"use"})
    output = shown(["keys", "list"], capsys)
    assert secret.rpartition("_")[2] not in output + file.read_text()
    assert [line.split() for line in output.splitlines() if line.startswith("acme")] == [["acme", "2", "10", "50"]]
    assert client.key in output


def test_a_revoked_key_opens_nothing(here, capsys):
    secret = add(capsys, "--tenant", "acme", "--keys", "mine.json")
    keys = read_keys(here / "mine.json")
    assert "is revoked" in shown(["keys", "revoke", keys.client(secret).key, "--keys", "mine.json"], capsys)
    assert read_keys(here / "mine.json").client(secret) is None


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["list"], "must be a file that `pliant keys add` made"),
        (["revoke", "00000000"], "must be a file that `pliant keys add` made"),
        (["add", "--tenant", "no spaces"], "tenant is 'no spaces', but must be 1 to 64 letters"),
        (["add", "--tenant", "acme", "--weight", "0"], "weight is 0.0, but must be positive"),
        (["add", "--tenant", "acme", "--rate", "nan"], "rate is nan, but must be positive"),
        (["add", "--tenant", "acme", "--max-waiting", "0"], "max_waiting is 0, but must be a whole number from 1 on"),
        (["add", "--tenant", "acme", "--keys", "/dev/null/keys.json"], "must be a file that can be written"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_status_2(here, capsys, words, sentence):
    assert sentence in refused(["keys", *words], capsys)


def test_an_id_that_nobody_has_cannot_be_revoked(here, capsys):
    add(capsys, "--tenant", "acme")
    assert "id is 'zzzz', but must be the id of a key" in refused(["keys", "revoke", "zzzz"], capsys)
