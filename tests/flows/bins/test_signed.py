"""A flow with a key publishes what services that trust it alone take up; without the key it releases nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pliant.errors import SignatureError
from pliant.flows import settings
from pliant.flows.release import open_registry
from pliant.flows.run import run_connected
from pliant.registry.signing.signatures import signing
from tests.fixtures.bins.tiny import setting
from tests.fixtures.cascade.tiny import write_texts
from tests.fixtures.runs import Runs, place_in
from tests.registry.signing.keys import new_signer

pytestmark = pytest.mark.slow


@pytest.fixture
def place(tmp_path, prefect, monkeypatch) -> Iterator[Path]:
    """A working directory with texts, and environment with keys."""
    write_texts(tmp_path)
    new_signer(tmp_path / "keys")
    with place_in(tmp_path, prefect):
        monkeypatch.setenv("PLIANT_SIGNING_KEY", str(tmp_path / "keys" / "release.pem"))
        monkeypatch.setenv("PLIANT_TRUSTED_KEYS", str(tmp_path / "keys" / "release.pub.pem"))
        yield tmp_path


def test_what_a_flow_releases_is_signed_and_without_its_key_nothing_is_released(place, monkeypatch):
    runs = Runs(lambda **changes: run_connected("bins", None, setting(place, **{"other_device": True, **changes})))
    released, _ = runs()
    registry = open_registry(settings.read(), "bins")
    for name, version in released["versions"].items():
        registry.fetch(name, version)
    before = registry.release("bins")
    assert before.versions == released["versions"]
    monkeypatch.delenv("PLIANT_SIGNING_KEY")
    with pytest.raises(Exception, match=r"is refused: it is not signed, and the keys in .* are trusted alone"):
        runs(edges={"most": 2, "batches": [1, 2]})
    assert registry.release("bins") == before
    unchecked = open_registry(settings.read({"MLFLOW_TRACKING_URI": registry.tracking_uri}), "bins")
    ((name, version),) = set(unchecked.aliases("pliant-bins-", "challenger").items()) - set(before.versions.items())
    with pytest.raises(SignatureError):
        registry.fetch(name, version)
    assert signing(None, settings.read().trusted_keys).signer is None
