"""No secret of an address gets into a message, a log, a traceback or an answer, however the registry fails."""

from __future__ import annotations

import logging
import traceback

import pytest

from pliant.errors import RegistryError
from pliant.registry.mlflow_store import MlflowRegistry
from tests.fixtures.bins.in_process import serving
from tests.fixtures.bins.published import publish_tiny
from tests.fixtures.registry import FolderRegistry
from tests.fixtures.secret_registries import SECRETS, WAYS, failing


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


@pytest.mark.parametrize("way", WAYS)
def test_a_registry_that_fails_shows_no_secret_in_message_traceback_log_or_answer(way, tmp_path, caplog):
    shown = []
    with failing(way) as address:
        registry = MlflowRegistry(address, "e", tmp_path)
        calls = (
            registry.names,
            registry.identity,
            lambda: registry.version("pliant-bins-x"),
            lambda: registry.commit({"pliant-bins-x": 1}),
            lambda: registry.run("x").__enter__(),
        )
        for call in calls:
            with pytest.raises(RegistryError) as caught:
                call()
            shown += [str(caught.value), repr(caught.value), *traceback.format_exception(caught.value)]
            logging.getLogger("pliant.test").error("failed", exc_info=caught.value)
        shown.append(_of_a_service(registry, tmp_path))
    shown.append(caplog.text)
    assert all(len(text) > 10 for text in shown)
    for secret in SECRETS:
        assert not [text for text in shown if secret in text]


def _of_a_service(broken: MlflowRegistry, folder) -> str:
    """Return what a service says whose registry fails while it runs."""
    registry = FolderRegistry(folder / "models")
    publish_tiny(registry, "colours")
    with serving(registry) as service:
        registry.identity = broken.identity
        answers = [service.call("POST", "/refresh"), service.call("GET", "/status"), service.call("GET", "/metrics")]
        assert answers[0].status_code == 503
        assert answers[1].json()["refresh"]["outcome"] == "failed"
    return "".join(answer.text for answer in answers)
