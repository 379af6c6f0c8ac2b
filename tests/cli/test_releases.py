"""`pliant status`, `promote` and `rollback` in front of a real registry in a file."""

from __future__ import annotations

import json
import shutil

import pytest

from pliant.flows import settings
from pliant.flows.release import open_registry
from pliant.registry import codec
from pliant.registry.package import Package
from tests.fixtures.bins.tiny import some_bins
from tests.fixtures.commands import refused, shown

BINS = "pliant-bins-colours"


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A folder with a registry of three releases of bins, of which the third is served, and a challenger."""
    import numpy as np

    folder = tmp_path_factory.mktemp("published")
    runs = folder / "mlruns"
    runs.mkdir()
    registry = open_registry(settings.Settings(folder, f"sqlite:///{runs / 'mlflow.db'}", runs / "artifacts"), "bins")
    codec.save(some_bins(), folder / "bins")
    table = {"text": np.array(("a", "b"))}
    package = Package(BINS, folder / "bins", table, {"seconds": np.zeros(2)}, metrics={"kept_in_time": 0.98765})
    with registry.run("bins") as run:
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


def test_status_says_what_is_served_since_when_what_waits_what_was_promised_and_the_last_runs(place, capsys):
    text = shown(["status", "bins"], capsys)
    assert text.startswith("bins: release 3 is served since 20") and f"  {BINS} version 3" in text
    assert f"  promised by {BINS}: kept_in_time 0.9877" in text
    assert "  release 4 (challenger, refused) since 20" in text and ": it is slower" in text
    assert "  release 2 (previous, left) since" in text and "  release 1 (left) since" in text
    assert "run bins, started 20" in text and ": finished after " in text


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
    assert "release 3 (taken back) since" in text and ": slow" in text and "why: promoted by hand" in text
    shown(["rollback", "bins", "--to", "1"], capsys)
    assert served() == 1


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
