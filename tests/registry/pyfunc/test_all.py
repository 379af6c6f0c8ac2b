"""A stranger with MLflow, torch and timm, but without our packages, loads what was published and gets our answers."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import numpy as np
import pytest

from pliant.registry import codec
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.tokens.runtime import Payload, TokensRuntime
from tests.fixtures.foreign_process import ask, environment
from tests.fixtures.tokens.samples import random_images, tiny_profile
from tests.registry.conftest import BACKBONE, CLASSES, PROFILE, TASK, publish_all

pytestmark = pytest.mark.slow

STRANGER = """
images = np.load(sys.argv[2])
task = mlflow.pyfunc.load_model("models:/pliant-tokens-task-letters@champion")
answers = {str(gamma): task.predict(images, params={"gamma": gamma}).to_dict("list") for gamma in (-5, 0, 4)}
answers["default"] = task.predict(images).to_dict("list")
features = mlflow.pyfunc.load_model("models:/pliant-tokens-backbone@champion").predict(images)
asked = pd.DataFrame({"gamma": [-5, 8], "batch": [1, 3]})
seconds = mlflow.pyfunc.load_model("models:/pliant-tokens-profile@champion").predict(asked)["seconds"]
failed = []
for act in (
    lambda: task.predict(images, params={"gamma": 3}),
    lambda: task.predict(images[:, :8]),
    lambda: mlflow.pyfunc.load_model(task_uri, model_config={"backbone": "models:/pliant-tokens-backbone/99"}),
    lambda: mlflow.pyfunc.load_model(task_uri, model_config={"backbone": "models:/pliant-tokens-profile/1"}),
):
    task_uri = "models:/pliant-tokens-task-letters@champion"
    try:
        act()
    except Exception as error:
        failed.append(f"{type(error).__name__}: {error}")
told = {"answers": answers, "features": features.tolist(), "seconds": list(seconds), "failed": failed}
"""


def test_a_stranger_gets_the_runtimes_answers_from_a_database(registry, shelf, tmp_path):
    _check(_ask(registry.tracking_uri, tmp_path), shelf)


def test_a_stranger_gets_the_runtimes_answers_from_a_server(server, shelf, tmp_path):
    registry = MlflowRegistry(server, "pliant-tokens", tmp_path / "unused")
    publish_all(registry, shelf)
    assert registry.names("pliant-tokens-") == sorted([BACKBONE, TASK, PROFILE])
    assert registry.versions("pliant-tokens-") == dict.fromkeys([BACKBONE, PROFILE, TASK], 1)
    _check_downloads(registry, shelf)
    assert not (tmp_path / "unused").exists()
    _check(_ask(server, tmp_path), shelf)


def _check_downloads(registry, shelf):
    """What was fetched from a server lies here until it is discarded, or the registry's object goes."""
    first, published = registry.fetch(BACKBONE)
    second, _ = registry.fetch(BACKBONE)
    assert (published.digest, codec.digest(second)) == (shelf.digest, shelf.digest)
    registry.discard(first)
    assert not first.exists() and second.exists()
    registry.discard(shelf.folder)
    assert shelf.folder.exists()
    other = MlflowRegistry(registry.tracking_uri, "pliant-tokens", Path("unused"))
    third, _ = other.fetch(TASK)
    assert third.exists()
    del other
    assert not third.exists()


def _check(answers, shelf):
    images = random_images(5)
    runtime = TokensRuntime(shelf.backbone, shelf.digest, [shelf.task])
    payloads = [Payload("letters", image) for image in images]
    for gamma in (-5, 0, 4):
        _assert_same(answers["answers"][str(gamma)], runtime.run(gamma, payloads).probabilities)
    assert answers["answers"]["default"] == answers["answers"]["0"]
    head = shelf.task.heads[0]
    logits = np.asarray(answers["features"]) @ head.weight.T + head.bias
    odds = np.exp(logits - logits.max(1, keepdims=True))
    _assert_same(answers["answers"]["0"], odds / odds.sum(1, keepdims=True))
    table = tiny_profile(shelf.digest, "cpu").latency
    assert answers["seconds"] == pytest.approx([table.at(-5, 1), table.at(8, 3)])
    assert "site-packages" not in answers["pliant"] and Path(answers["pliant"]).parents[1].name == "code"
    wrong = (
        "gamma is 3, but must be",
        "shape",
        "could not be fetched",
        "another kind|another backbone|tokens-profile",
    )
    for sentence, words in zip(answers["failed"], wrong, strict=True):
        assert any(word in sentence for word in words.split("|")), sentence


def _assert_same(columns, rows, classes=CLASSES):
    assert list(columns) == list(classes)
    np.testing.assert_allclose(np.column_stack(list(columns.values())), np.stack(list(rows)), atol=1e-5)


def _ask(address, folder):
    np.save(folder / "images.npy", random_images(5))
    return ask(STRANGER, address, folder / "images.npy")


@pytest.fixture
def server(tmp_path_factory):
    """An MLflow server that keeps artifacts to itself, so that clients must upload and download."""
    folder = tmp_path_factory.mktemp("server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    store = [
        "--backend-store-uri",
        f"sqlite:///{folder / 'mlflow.db'}",
        "--artifacts-destination",
        str(folder / "files"),
    ]
    where = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command = [sys.executable, "-m", "mlflow", "server", "--serve-artifacts", *store, *where]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment(), stdout=log, stderr=log)
    try:
        _wait(f"http://127.0.0.1:{port}/health", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def _wait(address, process):
    end = time.monotonic() + 180
    while time.monotonic() < end and process.poll() is None:
        try:
            urlopen(address, timeout=10).close()
            return
        except (URLError, OSError):
            time.sleep(0.2)
    raise RuntimeError("the MLflow server did not start")
