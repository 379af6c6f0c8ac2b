"""`pliant sign` in front of a real registry in a file: a key is made, versions are signed, and checked by who trusts it."""

from __future__ import annotations

import pytest

from pliant.cli.main import main
from pliant.flows import settings
from pliant.flows.release import open_registry
from pliant.registry.mlflow_client import DIGEST
from pliant.registry.signing.signatures import SIGNATURE
from tests.cli.test_releases import BINS, place, published
from tests.fixtures.commands import refused, shown
from tests.fixtures.signing import new_signer

__all__ = ["place", "published"]  # fixtures


def ids(text: str) -> list[str]:
    """Return the versions that the printed lines begin with."""
    return [line.partition(":")[0].partition(",")[0] for line in text.splitlines() if line.startswith(BINS)]


def test_a_key_is_made_what_is_in_use_is_signed_with_it_and_then_all_checks_pass(place, capsys):
    output = shown(["sign", "--new-key", "release.pem"], capsys)
    assert output.startswith("Key ") and "release.pem is private, and release.pub.pem is public" in output
    trusted = ["--trusted", "release.pub.pem"]
    assert main(["sign", "--check", "bins", *trusted]) == 1
    text = capsys.readouterr().out
    assert text.endswith("bins: 0 of 3 versions are signed by a key in release.pub.pem.\n")
    assert text.count(": not signed") == 3
    text = shown(["sign", "bins", "--key", "release.pem"], capsys)
    assert ids(text) == [f"{BINS} version {number}" for number in (2, 3, 4)], (
        "champion, the one before, and the challenger"
    )
    assert "bins: 3 signed with key" in text and "0 were already." in text
    text = shown(["sign", "--check", "bins", *trusted], capsys)
    assert text.count("signed by release.pub.pem (key ") == 3
    assert main(["sign", "--check", "bins", "--all-versions", *trusted]) == 1
    assert "bins: 3 of 4 versions are signed" in capsys.readouterr().out
    text = shown(["sign", "bins", "--all-versions", "--key", "release.pem"], capsys)
    assert ids(text) == [f"{BINS} version 1"] and "1 signed with key" in text and "3 were already." in text
    shown(["sign", "--check", "bins", "--all-versions", *trusted], capsys)
    assert open_registry(settings.read(), "bins").release("bins").signed


def test_a_version_that_was_altered_after_it_was_signed_is_named_and_not_signed_again_and_the_others_are(place, capsys):
    shown(["sign", "--new-key", "release.pem"], capsys)
    registry, (signer, _) = open_registry(settings.read(), "bins"), new_signer(place / "stranger")
    client = registry.connect()
    shown(["sign", "bins", "--key", "release.pem"], capsys)
    client.set_model_version_tag(BINS, "3", DIGEST, "0" * 64)
    client.set_model_version_tag(BINS, "2", SIGNATURE + signer.id, signer.tags(BINS, "")[SIGNATURE + signer.id])
    assert main(["sign", "--check", "bins", "--trusted", "release.pub.pem"]) == 1
    text = capsys.readouterr().out
    assert f"{BINS} version 3: WRONG signature by key" in text
    assert f"; signed by key {signer.id}, which is not trusted" in text
    client.set_model_version_tag(BINS, "4", DIGEST, "1" * 64)
    assert main(["sign", "bins", "--all-versions", "--key", "release.pem"]) == 2
    output = capsys.readouterr()
    assert ids(output.out) == [f"{BINS} version 1"] and "2 could not be." in output.out
    assert output.err.count("it was altered after this key signed it") == 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["sign"], "SYSTEM is missing, but must be one of tokens, bins"),
        (["sign", "bin"], "bin"),
        (["sign", "bins"], "PLIANT_SIGNING_KEY is not set, but must be the file of a private key, or --key FILE"),
        (["sign", "--check", "bins"], "PLIANT_TRUSTED_KEYS is not set, but must be the public keys that you trust"),
        (["sign", "bins", "--key", "none.pem"], "--key is none.pem, but must be a file that can be read (No such file"),
        (["sign", "--check", "bins", "--trusted", "none"], "--trusted is none, but must be a file of public keys or a"),
        (["sign", "--new-key", "key.pem", "bins"], "--new-key is given with something else, but must be alone"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_whatever_is_missing_is_said_in_one_sentence(place, capsys, words, sentence):
    assert sentence in refused(words, capsys)
