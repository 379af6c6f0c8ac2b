"""What may be learnt from: labels that may teach, with inputs that are kept, and always in the same split."""

from __future__ import annotations

import logging
import math
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pliant.flows.feedback import DAY, FeedbackConfig, Lesson, lessons, part_of, part_of_input, tenants
from pliant.outcomes.files import INPUTS, LABELS
from pliant.outcomes.labels import LabelRecord
from pliant.serving.loop.outcome_store import Inputs

NOW = 1000 * DAY
RECORD = LabelRecord("x", "digit", 1, "0", "0", "3", 0.5, {}, "8", False, "acme", "k", NOW - 10, NOW - 20)


def records(count: int, tenant: str = "acme", key: str = "k", start: int = 0) -> list[LabelRecord]:
    return [
        replace(RECORD, id=f"{tenant}-{n}", tenant=tenant, key=key, at=NOW - 500 + n)
        for n in range(start, start + count)
    ]


def write(folder: Path, labels: list[LabelRecord], kept: list[str] | None = None) -> FeedbackConfig:
    """Write labels and inputs as a service does; `kept`: ids of the inputs, None: of all labels."""
    folder.mkdir(exist_ok=True)
    with (folder / LABELS).open("a") as file:
        file.writelines(record.to_line() + "\n" for record in labels)
    inputs = Inputs(folder, DAY, lambda: NOW - 20)
    for id in dict.fromkeys(record.id for record in labels) if kept is None else kept:
        inputs.keep(id, "digit", "json", id.encode())
    inputs.write()
    inputs.close()
    return FeedbackConfig(str(folder), "root")


def taught(config: FeedbackConfig, task: str = "digit", **more) -> tuple[Lesson, ...]:
    return lessons(config, task, clock=lambda: NOW, **more)


def test_a_missing_folder_is_said_in_one_sentence_and_teaches_nothing(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "pliant"):
        assert taught(FeedbackConfig(str(tmp_path / "none"))) == ()
    assert [record.message for record in caplog.records] == [
        f"nothing is learnt from labels of digit: there is no folder {tmp_path / 'none'}"
    ]


def test_a_trusted_tenant_teaches_alone_in_the_order_of_its_labels(tmp_path):
    learnt = taught(write(tmp_path, records(50, "root")))
    assert [lesson.record for lesson in learnt] == records(50, "root")
    assert all(lesson.input.id == lesson.record.id and lesson.input.content for lesson in learnt)
    assert {lesson.part for lesson in learnt} == {"fit", "profiling", "test"}
    assert {replace(lesson, record=replace(lesson.record, weight=0.0)).part for lesson in learnt} == {"fit"}, "unasked"


def test_four_tenants_teach_together_and_three_do_not(tmp_path):
    three = [record for name in ("a", "b", "c") for record in records(20, name)]
    assert taught(write(tmp_path / "three", three)) == ()
    assert len(taught(write(tmp_path / "four", three + records(20, "d")))) == 80


@pytest.mark.parametrize(("tenant", "key"), [("", ""), ("acme", "")])
def test_clients_without_a_key_teach_nothing(tmp_path, tenant, key):
    assert taught(write(tmp_path, records(100, tenant, key))) == ()


def test_a_label_without_its_input_teaches_nothing_and_earns_its_tenant_no_share(tmp_path):
    """Whoever crowds the others' inputs out of the file does not teach in their place."""
    labels = [record for name in "abcd" for record in records(20, name)]
    config = write(tmp_path, labels, kept=[record.id for record in labels if record.tenant == "a"])
    assert taught(replace(config, least=1)) == ()


def test_what_the_flow_cannot_use_earns_its_tenant_no_share(tmp_path, caplog):
    config = write(tmp_path, [record for name in "abcd" for record in records(20, name)])
    with caplog.at_level(logging.WARNING, "pliant"):
        assert taught(replace(config, least=1), usable=lambda lesson: lesson.record.tenant == "a") == ()
    assert "cannot use them: 60" in caplog.text


def test_other_tasks_and_old_labels_are_left_out(tmp_path):
    labels = records(50, "root")
    old = [replace(record, id=f"old-{n}", at=NOW - 31 * DAY) for n, record in enumerate(labels)]
    other = [replace(record, id=f"other-{n}", task="loops") for n, record in enumerate(labels)]
    config = write(tmp_path, [*old, *labels, *other])
    assert [lesson.record for lesson in taught(config)] == labels
    assert len(taught(replace(config, days=32.0))) == 100


def test_of_too_many_every_tenants_newest_are_taken(tmp_path):
    """One that floods the service just before the flow runs has no more than its share."""
    labels = [record for name in "abcde" for record in records(20, name)]
    learnt = taught(replace(write(tmp_path, labels), most=50))
    assert Counter(lesson.record.tenant for lesson in learnt) == dict.fromkeys("abcde", 10)
    assert all(int(lesson.record.id[2:]) >= 10 for lesson in learnt)


def test_rows_that_hold_no_input_are_passed_over_with_a_count(tmp_path, caplog):
    config = write(tmp_path, records(52, "root"))
    with closing(sqlite3.connect(tmp_path / INPUTS)) as base, base:
        base.execute("UPDATE inputs SET content = 'text' WHERE id = 'root-0'")
        base.execute("UPDATE inputs SET form = x'00' WHERE id = 'root-1'")
    with caplog.at_level(logging.WARNING, "pliant"):
        assert len(taught(config)) == 50
    assert "as they are none: 2" in caplog.text


def test_answers_that_were_drawn_unequally_plan_and_judge_as_the_traffic_is(tmp_path):
    """Answers that are wrong more often are nine times as likely to be labelled: unweighted their accuracy is far off."""
    draw, labels = np.random.default_rng(1), []
    for name in ("root", "acme", "b", "c", "d"):
        for number, (unsure, chance) in enumerate(draw.random((1000, 2))):
            inclusion, correct = (0.9, draw.random() < 0.5) if unsure < 0.3 else (0.1, draw.random() < 0.95)
            if chance < inclusion:
                known = replace(RECORD, tenant=name, id=f"{name}{number}", correct=correct, weight=1 / inclusion)
                labels.append(
                    replace(known, at=NOW - 500 + number / 1000, label="8" if correct else "3", predicted="8")
                )
    learnt = taught(write(tmp_path, [*labels, replace(labels[-1], id="heavy", weight=1e6)]))
    right = [lesson.record.correct for lesson in learnt if lesson.record.weight]
    chance = 3 * math.sqrt(0.815 * 0.185 / len(right))
    assert len(right) > 300 and abs(np.mean(right) - 0.815) < chance
    assert abs(np.mean([record.correct for record in labels]) - 0.815) > 2 * chance
    assert all(part_of_input(lesson.input) == "fit" for lesson in learnt if not lesson.record.weight)


def test_of_an_id_that_was_chosen_twice_the_input_of_the_labelled_answer_is_taken(tmp_path):
    config = write(tmp_path, records(50, "root"))
    inputs = Inputs(tmp_path, DAY, lambda: NOW - 5)
    inputs.keep("root-0", "digit", "json", b"later")
    inputs.keep("root-0", "loops", "json", b"of another task")
    inputs.write()
    inputs.close()
    learnt = taught(config)
    assert len(learnt) == 50
    assert learnt[0].input.content == b"root-0"


def test_the_environment_says_who_is_trusted_unless_the_settings_do():
    environment = {"PLIANT_TRUSTED_LABELS": "acme, anonymous"}
    assert tenants(FeedbackConfig(), environment) == {"acme", ""}
    assert tenants(FeedbackConfig(trusted=""), environment) == set()
    assert tenants(FeedbackConfig(trusted="beta"), environment) == {"beta"}


def test_the_splits_of_some_names_never_change():
    """They are kept over all nights and versions: else a model would be tested on what a former one was trained with."""
    parts = ["fit", "fit", "profiling", "profiling", "fit", "profiling", "fit", "profiling"]
    assert [part_of(f"answer-{n}") for n in range(8)] == parts
