"""What the stages' keys follow from besides code, and what is refused before anything is made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pliant.errors import InputError
from pliant.flows.bins import config as bins_config
from pliant.flows.bins.stages import load_streams
from pliant.flows.cascade import config as cascade_config
from pliant.flows.cascade import stages as cascade_stages
from pliant.flows.packing import config as packing_config
from pliant.flows.packing.stages import load_corpus
from pliant.flows.stage import StageResult
from pliant.flows.tokens import config as tokens_config
from pliant.flows.tokens import stages as tokens_stages
from pliant.progress import silent
from pliant.tokens.artifact import Backbone
from pliant.training.data import digits
from pliant.training.loading import POINTER
from tests.fixtures.cascade import tiny as tiny_cascade
from tests.fixtures.tokens import tiny as tiny_tokens
from tests.flows.stages import SYSTEMS


def keys_of(system: str, folder: Path, others: tuple[str, ...] = (), **changes: Any) -> dict[str, str]:
    """The keys of a system's stages by their folders; the results of stages in `others` have other digests."""
    keys: dict[str, str] = {}

    def run(stage, *args):
        key = stage.key(*args)
        name = key.rpartition("/")[0].partition("/")[2]
        keys[name] = key
        return StageResult(stage.kind, None, key, f"sha256:{name}{' anew' * (name in others)}")

    SYSTEMS[system](folder, run, **changes)
    return keys


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """A system's folder, and its keys in the tiny setting."""
    known: dict[str, tuple[Path, dict[str, str]]] = {}

    def before(system: str) -> tuple[Path, dict[str, str]]:
        if system not in known:
            folder = tmp_path_factory.mktemp(system)
            known[system] = folder, keys_of(system, folder)
        return known[system]

    return before


MEASURED = {"outputs-things-profiling", "outputs-things-test", "latencies-things"}
"""What follows from the levels of a cascade."""


def differing(one: dict[str, str], other: dict[str, str]) -> set[str]:
    return {name for name in one if one[name] != other[name]}


@pytest.mark.parametrize("system", SYSTEMS)
def test_equal_settings_give_equal_keys_and_no_two_stages_share_one(system, before):
    folder, keys = before(system)
    assert keys_of(system, folder) == keys
    assert len(set(keys.values())) == len(keys)


@pytest.mark.parametrize(
    ("system", "changes", "stages"),
    [
        ("tokens", {"foundation": {"images": 64}}, {"backbone"}),
        ("tokens", {"task": {"prompt_rate": 0.1}}, {"task-digit"}),
        ("tokens", {"latency": {"batches": [1, 4]}}, {"profile"}),
        ("tokens", {"latency": {"gammas": [-5, 0]}}, {"task-digit", "profile"}),  # where its accuracy is measured
        ("tokens", {"reference": {"urgent": [0.1, 1.0]}}, {"profile"}),  # the rate rule follows from the deadline
        ("tokens", {"measured": 5}, {"task-digit", "champion-digit"}),
        ("tokens", {"gate": {"seeds": 5}}, set()),
        ("cascade", {"distil": {"hidden": 16}}, {"bag-things", "exit1-things"}),
        ("cascade", {"latency": {"batches": [1, 4]}}, {"latencies-things"}),
        ("cascade", {"plan": {"drop": 0.02}}, {"plan-things"}),
        ("cascade", {"learn": {"rows": 150}}, set()),  # which texts are taken, their fingerprint says
        ("cascade", {"reference": {"seconds": 9.0}}, set()),
        ("bins", {"edges": {"most": 2}}, {"plan-things"}),
        ("bins", {"edges": {"least": 50}}, {"lengths-things", "plan-things"}),
        ("bins", {"latency": {"repeats": 2}}, {"latencies-things", "plan-things"}),
        ("bins", {"gate": {"workers": 3}}, set()),
        ("packing", {"lengths": {"temperature": 0.1}}, {"lengths-things"}),
        ("packing", {"memory": {"host_pages": 3}}, {"steps-things"}),
        ("packing", {"plan": {"tail": 9.0}}, {"plan-things", "replanned-things"}),
        ("packing", {"retrain": {"weight": 2.0}}, {"retrained-things"}),
    ],
)
def test_a_changed_setting_changes_the_keys_of_what_depends_on_it(system, changes, stages, before):
    folder, keys = before(system)
    assert differing(keys, keys_of(system, folder, **changes)) == stages


@pytest.mark.parametrize(
    ("system", "other", "stages"),
    [
        ("tokens", "backbone", {"task-digit", "profile"}),
        ("tokens", "task-digit", {"profile"}),
        ("cascade", "model-things-small", MEASURED),
        ("cascade", "model-things-large", {"lesson-things", "bag-things", "exit1-things", *MEASURED}),
        ("cascade", "lesson-things", {"bag-things", "exit1-things"}),
        ("cascade", "bag-things", MEASURED),
        ("cascade", "latencies-things", {"plan-things"}),
        ("bins", "encoder-things", {"lengths-things", "latencies-things", "plan-things"}),
        ("bins", "lengths-things", {"plan-things"}),
        ("packing", "lengths-things", {"predictor-things", "plan-things"}),
        ("packing", "steps-things", {"plan-things"}),
        ("packing", "observed-things-observed", {"retrained-things", "replanned-things"}),
    ],
)
def test_another_result_changes_the_keys_of_what_is_made_of_it(system, other, stages, before):
    folder, keys = before(system)
    assert differing(keys, keys_of(system, folder, others=(other,))) == stages


def test_other_data_and_another_name_change_the_task_and_other_data_alone_the_foundation():
    config, data = tokens_config.read(overrides=tiny_tokens.setting()), digits("digit")
    backbone = StageResult(Backbone, None, "tokens/backbone/x", "sha256:b")
    first = tokens_stages.FOUNDATION.key(config, data), tokens_stages.TASK.key(config, data, backbone)
    for other, same in ((replace(data, fingerprint="sha256:other"), False), (replace(data, name="numeral"), True)):
        assert (tokens_stages.FOUNDATION.key(config, other) == first[0]) is same
        assert tokens_stages.TASK.key(config, other, backbone) != first[1]


def test_the_order_of_tasks_changes_no_profile():
    from pliant.tokens.artifact import Profile, Task

    config, seen = tokens_config.read(overrides=tiny_tokens.setting()), []
    data = digits("digit")

    def run(stage, *args):
        if stage.kind is Profile:
            seen.append(stage.key(*args))
        name = args[1].name if stage.kind is Task else "x"
        return StageResult(stage.kind, None, name, f"sha256:{name}")

    loops = replace(data, name="loops")
    for tasks in ((data, loops), (loops, data)):
        tokens_stages.run_tasks(run, config, tokens_stages.TokensData(data, tasks, tasks))
    assert seen[0] == seen[1]


def test_models_in_files_are_known_by_their_content(tmp_path, before):
    """New weights under an old name once met the old model's cached result."""
    path, data = tmp_path / "model.safetensors", digits("digit")
    config = tokens_config.read(overrides=tiny_tokens.setting(backbone=f"file:vit_tiny_patch16_224:{path}"))
    folder, _ = before("cascade")
    tiny = cascade_config.read(overrides=tiny_cascade.setting(folder))
    level, [texts] = replace(tiny.levels[0], start=f"path:{tmp_path}"), cascade_stages.load_data(tiny)
    keys = set()
    for content in (b"one", b"two"):
        path.write_bytes(content)
        keys |= {tokens_stages.FOUNDATION.key(config, data), cascade_stages.LEVEL.key(tiny, level, texts)}
    assert len(keys) == 4


def texts_of(folder: Path) -> str:
    tiny_cascade.write_texts(folder)
    return f"json:{folder / 'things.jsonl'}"


@pytest.mark.parametrize(
    ("load", "data", "words"),
    [
        ("tokens", lambda _: ["digits:digit", "digit=digits:loops"], "digit, digit.*NAME=ADDRESS"),
        ("tokens", lambda _: [], "at least one task"),
        ("cascade", lambda folder: [texts_of(folder)] * 2, "things, things.*NAME=ADDRESS"),
        ("cascade", lambda _: [], "at least one task"),
    ],
)
def test_no_task_at_all_and_two_of_one_name_are_refused(load, data, words, tmp_path):
    read, stages = {"tokens": (tokens_config, tokens_stages), "cascade": (cascade_config, cascade_stages)}[load]
    with pytest.raises(InputError, match=words):
        stages.load_data(read.read(overrides={"data": data(tmp_path)}))


@pytest.mark.parametrize("system", ["cascade", "bins", "packing"])
def test_a_spoilt_model_is_refused_before_anything_is_trained(system, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(POINTER)
    (tmp_path / "config.json").write_text("{}")
    spoilt = f"path:{tmp_path}"
    levels = [{"name": "small", "start": "scratch"}, {"name": "large", "start": spoilt}]
    streams = [{"name": name, "encoder": spoilt} for name in ("one", "two")]
    load = {
        "cascade": lambda: cascade_stages.load_data(cascade_config.read(overrides={"levels": levels})),
        "bins": lambda: load_streams(bins_config.read(overrides={"streams": streams}), silent),
        "packing": lambda: load_corpus(packing_config.read(overrides={"predictor": spoilt})),
    }[system]
    with pytest.raises(InputError, match=r"model\.safetensors is a pointer of Git LFS"):
        load()
