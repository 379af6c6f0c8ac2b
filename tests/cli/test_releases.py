"""`pliant status`, `log`, `promote`, `rollback` and `allow` in front of a real registry in a file."""

from __future__ import annotations

import json
import os
import shutil
import socket

import pytest

from pliant.cli.main import main
from pliant.cli.watch import alarm_lines
from pliant.flows import settings
from pliant.flows.release import open_registry
from pliant.registry import codec
from pliant.registry.mlflow_client import DIGEST
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.package import Package
from pliant.registry.signing.signatures import SIGNATURE
from tests.fixtures.bins.tiny import some_bins
from tests.fixtures.commands import refused, shown
from tests.fixtures.light_mlflow import lay_database, light
from tests.fixtures.signing import new_signer

BINS = "pliant-bins-colours"


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A folder with a registry of three releases of bins, of which the third is served, and a challenger."""
    import numpy as np

    folder = tmp_path_factory.mktemp("published")
    runs = folder / "mlruns"
    lay_database(runs / "mlflow.db")
    registry = open_registry(settings.Settings(folder, f"sqlite:///{runs / 'mlflow.db'}", runs / "artifacts"), "bins")
    codec.save(some_bins(), folder / "bins")
    table = {"text": np.array(("a", "b"))}
    metrics = {"encoder_seconds": 9.0, "promised_share": 0.9, "kept_in_time": 0.98765}
    package = Package(BINS, folder / "bins", table, {"seconds": np.zeros(2)}, metrics=metrics)
    with light(), registry.run("bins") as run:
        for _ in range(3):
            registry.commit({BINS: registry.publish(run, package).version}, run, about="why")
        registry.propose({BINS: registry.publish(run, package).version}, run, "refused", "it is slower", "")
    return folder


@pytest.fixture
def place(here, published):
    """A working directory with that registry, where it lay before: artifacts are named by their place."""
    kept = published / "kept.db"
    database = published / "mlruns" / "mlflow.db"
    if not kept.exists():
        shutil.copy(database, kept)
    shutil.copy(kept, database)
    (here / "mlruns").symlink_to(published / "mlruns")
    return here


def served() -> int:
    return open_registry(settings.read(), "bins").release("bins").number


def test_status_says_what_is_served_since_when_what_waits_what_was_measured_and_the_last_runs(place, capsys):
    text = shown(["status", "bins"], capsys)
    assert text.startswith("bins: release 3 is served since 20") and f"  {BINS} version 3" in text
    assert f"  promised by {BINS}: promised_share 0.9\n  measured for {BINS}: kept_in_time 0.9877\n" in text
    assert "  release 4 (challenger, refused) since 20" in text and ": it is slower" in text
    assert "  release 2 (previous, left) since" in text and "  release 1 (left) since" in text
    assert "run bins, started 20" in text and ": finished after " in text


@pytest.mark.parametrize(("low", "said"), [(0.6, "80.0% (60.0% to 90.0%)"), (0.0, "too few answers")])
def test_an_accuracy_that_nobody_can_estimate_yet_is_no_figure(low, said):
    (line,) = alarm_lines({"alarms": (), "estimated_accuracy": {"t": {"accuracy": 0.8, "low": low, "high": 0.9}}})
    assert line == f"estimated accuracy of t, without labels: {said}"


def test_status_of_a_system_without_a_release_and_of_all_systems_says_so(place, here, capsys):
    text = shown(["status"], capsys)
    assert "tokens: nothing is served yet; `pliant train tokens` makes a first release" in text
    assert "bins: release 3 is served" in text
    values = json.loads(shown(["status", "bins", "packing", "--json"], capsys))
    assert values[0]["live"]["number"] == 3 and values[0]["aliases"]["challenger"] == 4
    assert values[1]["live"] is None
    assert not (here / "mlruns" / "another.db").exists()


def test_rollback_goes_back_one_and_again_one_and_promote_goes_forth(place, capsys):
    text = shown(["rollback", "bins", "--reason", "slow"], capsys)
    assert text.startswith("bins: release 2 is served from now on, instead of release 3.")
    assert f"  {BINS}: version 3 -> version 2" in text and served() == 2
    shown(["rollback", "bins"], capsys)
    assert served() == 1
    assert "replaced none: there is nothing to go back to" in refused(["rollback", "bins"], capsys)
    shown(["promote", "bins", "4"], capsys)
    assert served() == 4
    text = shown(["status", "bins"], capsys)
    assert "release 3 (taken back) since" in text and ": slow" in text
    assert ": promoted by hand\n" in text.partition("why: release 4 promoted, by ")[2]
    shown(["rollback", "bins", "--to", "1", "--reason", "wrong"], capsys)
    why = shown(["status", "bins"], capsys).partition("why: release 4 taken back, by ")[2]
    assert served() == 1 and ": wrong\n" in why
    open_registry(settings.read(), "bins").commit({BINS: 2})  # by nobody's decision: release 4's does not explain it
    assert "why: release 4" not in shown(["status", "bins"], capsys)
    lines = shown(["log", "bins"], capsys).splitlines()
    assert [line.split("  ")[1].split(", by ")[0] for line in lines] == [
        "release 3 taken back",
        "release 2 taken back",
        "release 4 promoted",
        "release 4 taken back",
    ]
    assert lines[0].endswith(": slow") and json.loads(shown(["log", "bins", "--json"], capsys))[2]["release"] == 4
    assert "is none that is kept out" in refused(["allow", "bins", "2"], capsys), "all releases are the same here"


def test_status_says_which_version_that_is_served_was_deleted(place, capsys):
    registry = open_registry(settings.read(), "bins")
    registry.connect().delete_model_version(BINS, "3")
    text = shown(["status"], capsys)
    assert "bins: release 3 is served" in text and f"  {BINS} version 3 is not in the registry any more" in text


@pytest.mark.parametrize(
    "words, message",
    [
        (["promote", "bins", "9"], "bins has no release 9; there are: 4, 3, 2, 1"),
        (["promote", "bins", "3"], "release 3 of bins is served already"),
        (["promote", "bins", "x"], "VERSION is 'x', but must be the number of a release"),
        (["promote", "tokens", "1"], "tokens has no release that is served: run `pliant train tokens` first"),
        (["promote", "sandwiches", "1"], "SYSTEM is sandwiches"),
        (["rollback", "bins", "--to", "4"], "--to is 4, but must be an earlier release than 3"),
        (["rollback", "bins", "--to", "0"], "--to is '0', but must be the number of a release"),
        (["rollback", "tokens"], "tokens has no release that is served"),
        (["status", "sandwiches"], "SYSTEM is sandwiches"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(words, message, place, capsys):
    assert message in refused(words, capsys)
    assert served() == 3


COMMANDS = (["status", "bins"], ["promote", "bins", "2"], ["rollback", "bins"], ["rollback", "bins", "--to", "1"])


@pytest.fixture
def nobody() -> str:
    """An address at which nobody answers."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_tracking_server_that_is_gone_is_one_sentence(words, here, nobody, capsys):
    os.environ["MLFLOW_TRACKING_URI"] = nobody
    sentence = refused(words, capsys)
    assert nobody in sentence and "Traceback" not in sentence


@pytest.mark.parametrize("words", COMMANDS[1:], ids=" ".join)
def test_a_registry_that_goes_before_the_commit_leaves_what_was_served(words, place, monkeypatch, capsys):
    connect = MlflowRegistry.connect

    def fail(*_arguments, **_more):
        from mlflow.exceptions import MlflowException

        raise MlflowException("the server is gone")

    def connected(self, create=False):
        client = connect(self, create)
        monkeypatch.setattr(client, "set_registered_model_alias", fail)
        return client

    with monkeypatch.context() as patch:
        patch.setattr(MlflowRegistry, "connect", connected)
        sentence = refused(words, capsys)
    assert "the server is gone" in sentence and "bins could not be released" in sentence
    assert served() == 3
    assert not (place / ".pliant" / "events.jsonl").exists(), "no event says what did not happen"


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
