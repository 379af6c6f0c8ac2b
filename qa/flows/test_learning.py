"""The real flow learns from reported pictures, once, and promotes what has learnt; strangers change nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pliant.flows import settings
from pliant.flows.release import TRAINING, open_registry
from pliant.flows.run import run_connected
from pliant.flows.tokens import config as tokens_config
from pliant.flows.tokens.champions import load_champion
from pliant.flows.tokens.stages import Bundle, load_data, with_lessons
from pliant.profiling.tokens.accuracy import accuracy
from pliant.tokens.runtime import TokensRuntime
from pliant.training.data import digits
from pliant.training.tokens.labelled import LabelledPicture, is_joined, join
from tests.fixtures.runs import Runs, place_in, versions
from tests.fixtures.tokens.reported import TRUSTED, blurred, report, report_blurred
from tests.fixtures.tokens.tiny import SETTING, setting

ALWAYS = ["gate", "publish"]
SHORT: dict[str, Any] = {
    # A net that has learnt enough to have something to lose by a blur: it gets 4 of 10 digits right, blurred ones 2 of 10.
    "foundation": {**SETTING["foundation"], "images": 4000, "learning_rate": 3e-3, "patch_dropout": 0.0},
    "task": {"gammas": [], "points": False},
    "latency": {"gammas": [0], "batches": [1, 2], "timer": {"warmup": 0, "least": 1, "most": 1}},
    "gate": {"seeds": 1},
}
FOLDER, STRANGERS = "outcomes", "strangers"
FEEDBACK = {"feedback": {"outcomes": FOLDER, "trusted": TRUSTED}}
LEARNING = ["task digit", "latency profile", "champion's digit", *ALWAYS]


@pytest.fixture(scope="module")
def run(tmp_path_factory, prefect) -> Iterator[Runs]:
    """Runs the flow in a place of its own, where a champion is live that has learnt from no label."""
    folder = tmp_path_factory.mktemp("learning")
    with place_in(folder, prefect):
        runs = Runs(lambda **changes: run_connected("tokens", None, setting(**SHORT | changes)))
        runs()
        yield runs


def share(bundle: Bundle, blur: bool) -> float:
    """Share of the digits held out from the first data that the champion gets right."""
    data = digits("digit")
    if blur:
        pictures = [
            LabelledPicture(blurred(data, int(row)), data.classes[data.labels[row]], "test") for row in data.split.test
        ]
        joined = join(data, pictures, 0.2)
        rows = np.unique(joined.split.test[joined.split.test >= len(data.images)])
    else:
        joined, rows = data, data.split.test
    runtime = TokensRuntime(bundle.backbone, bundle.tasks[0].backbone, bundle.tasks)
    return accuracy(runtime, "digit", joined, rows, 0, bundle.backbone.image_size)


def test_strangers_neither_train_nor_release_anything(run):
    data = digits("digit")
    report(Path(STRANGERS), [blurred(data, row) for row in range(90)], ["1"] * 90, ["stranger"])
    report(Path(STRANGERS), [blurred(data, row) for row in range(90)], ["1"] * 90, [""], key="")
    before = versions("tokens")
    released, stages = run(feedback={"outcomes": STRANGERS, "trusted": TRUSTED})
    assert stages == ALWAYS
    assert released["new"] == ()
    assert versions("tokens") == before


def test_reported_pictures_are_learnt_once_and_the_champion_is_compared_on_them(run):
    before, former = versions("tokens"), load_champion(settings.read())
    data = digits("digit")
    report_blurred(Path(FOLDER), data, data.split.profiling)
    released, stages = run(**FEEDBACK)
    assert stages == LEARNING
    assert released["promoted"], released["reason"]
    assert released["versions"]["pliant-tokens-backbone"] == before["pliant-tokens-backbone"]
    champion = load_champion(settings.read())
    assert is_joined(champion.tasks[0].data)
    assert share(champion, blur=True) > share(former, blur=True)

    client = open_registry(settings.read(), "tokens").connect()
    gate = json.loads(Path(client.download_artifacts(released["run"], "gate.json")).read_text())
    assert gate["champion"][0]["accuracy"] < former.tasks[0].test_accuracy[0], "measured on blurred pictures, too"
    version = client.get_model_version("pliant-tokens-task-digit", released["versions"]["pliant-tokens-task-digit"])
    labels = json.loads(version.tags[TRAINING])["labels"]
    assert sum(labels.values()) == len(data.split.profiling)

    again, stages = run(**FEEDBACK)
    assert stages == ALWAYS
    assert again["versions"] == released["versions"]


def test_a_retrained_task_that_is_worse_is_refused_with_a_sentence(run):
    """New labels came, and a head of five pictures is far below the champion's on the same pictures."""
    data = digits("digit")
    report_blurred(Path(FOLDER), data, data.split.fit[:30])
    before = versions("tokens")
    released, stages = run(**FEEDBACK, task={**SHORT["task"], "head_images": 5})
    assert stages == LEARNING
    assert not released["promoted"]
    assert "the tenant root: right in" in released["reason"]
    assert versions("tokens") == before
    _, stages = run(**FEEDBACK, task={**SHORT["task"], "head_images": 5})
    assert stages == ALWAYS, "the champion's accuracies on these pictures are cached"


def test_without_feedback_the_keys_are_as_ever(run):
    """The champion that learnt is measured on the rows of the data alone, and nothing is trained."""
    _, stages = run()
    assert stages == ["champion's digit", *ALWAYS]
    config = tokens_config.read(None, setting(**SHORT))
    (data,) = load_data(config)
    assert with_lessons(config.feedback, data, config.task.held_out) is data
    assert not is_joined(data.fingerprint)
