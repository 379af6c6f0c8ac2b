"""What a flow keeps and what it removes: results of stages, compiled files of bins, what killed processes left."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pliant.bins.runtimes.cache import cache_folder
from pliant.flows import retention
from pliant.flows.bins import champions as bins
from pliant.flows.packing import champions as packing
from pliant.flows.retention import DAY, after_flow, remove, survey, unused_folders
from pliant.flows.settings import Settings
from pliant.packing.vllm import folder_of
from pliant.progress import silent
from pliant.registry.store import FolderStore
from pliant.settings import FlowSettings
from tests.fixtures.bins.tiny import some_bins
from tests.fixtures.registry import FolderRegistry
from tests.fixtures.tokens.samples import tiny_task

BINS, GENERATOR = "pliant-bins-things", "pliant-packing-generator-things"


@pytest.fixture
def place(tmp_path, monkeypatch) -> Settings:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    return Settings(tmp_path / "home", f"sqlite:///{tmp_path / 'none.db'}", tmp_path / "artifacts")


def stored(place: Settings, key: str, days: float) -> Path:
    """Save an artifact that was used so many days ago."""
    store = FolderStore(place.store)
    store.save(key, tiny_task("letters", ("a", "b"), "0" * 64))
    os.utime(store.path(key) / "digests.json", (time.time() - days * DAY,) * 2)
    return store.path(key)


def clean(place: Settings, keep: FlowSettings) -> list[str]:
    items = survey(place, keep, ["tokens"])
    assert remove(items, silent) == 0
    return [Path(item.what).name for item in items]


def test_results_that_have_not_been_used_for_long_go(place):
    old, used = stored(place, "tokens/old", 91), stored(place, "tokens/used", 91)
    FolderStore(place.store).touch("tokens/used")
    stored(place, "tokens/new", 89)
    assert clean(place, FlowSettings()) == ["old"]
    assert not old.exists() and used.is_dir()
    assert clean(place, FlowSettings()) == []


def test_beyond_the_size_limit_the_least_recently_used_go_but_nothing_of_today(place):
    for name, days in (("b", 3), ("a", 5), ("c", 2), ("today", 0.5)):
        stored(place, f"tokens/{name}", days)
    size = retention.size_of(place.store / "tokens" / "a") / retention.GIB
    assert clean(place, FlowSettings(store_gib=2.5 * size)) == ["a", "b"]
    assert clean(place, FlowSettings(store_gib=0)) == ["c"]


def test_compiled_files_stay_as_long_as_a_version_that_stays_needs_them(place, tmp_path):
    registry = FolderRegistry(tmp_path / "registry")
    first, second = (some_bins(files={f"onnx-{name}/model.onnx": "0" * 64}) for name in ("first", "second"))
    registry.publish(BINS, first)
    registry.publish(BINS, second)
    home = cache_folder(place.home, first.encoder, first.device_class)
    for name in ("onnx-first", "onnx-second", "onnx-third", "onnx-today"):
        (home / name).mkdir(parents=True)
        days = 0.5 if name.endswith("today") else 2
        os.utime(home / name, (time.time() - days * DAY,) * 2)
    assert [folder.name for folder in unused_folders(place, registry, "bins", bins, set())] == ["onnx-third"]
    going = {(BINS, "1")}
    assert [folder.name for folder in unused_folders(place, registry, "bins", bins, going)] == [
        "onnx-first",
        "onnx-third",
    ]


def test_models_for_vllm_stay_as_long_as_a_version_that_stays_is_theirs(place, tmp_path):
    assert list(unused_folders(place, FolderRegistry(tmp_path / "none"), "packing", packing, set())) == []
    registry, digests = FolderRegistry(tmp_path / "registry"), ["sha256:" + "0" * 64, "1" * 64]
    digests += [registry.publish(GENERATOR, tiny_task(name, ("a", "b"), "0" * 64)) for name in ("first", "second")]
    old, young, first, second = (folder_of(place.home, digest) for digest in digests)
    for folder in (old, young, first, second):
        folder.mkdir(parents=True)
        os.utime(folder, (time.time() - (0.5 if folder == young else 2) * DAY,) * 2)
    assert list(unused_folders(place, registry, "packing", packing, set())) == [old]
    assert set(unused_folders(place, registry, "packing", packing, {(GENERATOR, "1")})) == {old, first}


def test_a_registry_out_of_reach_keeps_everything_and_does_not_fail_the_flow(place, tmp_path, caplog):
    folder = stored(place, "tokens/old", 91)
    (tmp_path / "none.db").write_text("no database")
    after_flow(place, "tokens")
    assert folder.is_dir() and "nothing was cleaned up" in caplog.text


def test_what_cannot_be_removed_is_counted_and_named(place, caplog, monkeypatch):
    stored(place, "tokens/old", 91)
    stored(place, "tokens/older", 92)

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(retention.shutil, "rmtree", refuse)
    items = survey(place, FlowSettings(), ["tokens"])
    assert remove(items, silent) == 2
    assert "older could not be removed" in caplog.text and "Permission denied" in caplog.text
