"""What further texts are for: to train, to distil, to plan and to judge with; and labels that people gave."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from pliant.errors import InputError
from pliant.flows.cascade.config import LearnConfig, read
from pliant.flows.cascade.feedback import PLANNED, bought, label_rows, planned_without_labels, texts_of
from pliant.flows.cascade.stages import LEVEL, load_data
from pliant.flows.feedback import DAY, FeedbackConfig, part_of_input
from pliant.labelling import Label
from pliant.outcomes.files import LABELS, read_inputs
from pliant.serving.loop.outcome_store import Inputs
from pliant.training.text_data import UNKNOWN
from tests.fixtures.cascade.lessons import TENANTS, changed_rows, record, write_outcomes
from tests.fixtures.cascade.tiny import setting, write_texts


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts")
    write_texts(path)
    write_texts(path, "pairs", pair=True)
    return path


@pytest.fixture(scope="module")
def data(folder):
    return load_data(read(overrides=setting(folder)))[0]


@pytest.fixture
def config(folder, tmp_path):
    """Of what a service leaves in `tmp_path`."""
    return replace(read(overrides=setting(folder)), feedback=FeedbackConfig(str(tmp_path)), learn=LearnConfig(rows=60))


def held(texts, part):
    """The texts of a part of what is held out, with their labels."""
    rows = getattr(texts.held.split, part)
    return {(texts.held.first[row], int(texts.held.labels[row])) for row in rows}


def parts_of(folder):
    """Text -> part, of all that is kept."""
    return {json.loads(each.content)[0]: part_of_input(each) for each in read_inputs(folder)}


def test_enough_labelled_texts_plan_and_judge_alone_and_train_only_where_a_setting_says_so(config, data, tmp_path):
    rows = changed_rows(200)
    parts = parts_of(write_outcomes(tmp_path, rows))
    known = {(text, data.classes.index(label)) for text, label in rows}
    plain, learnt = (
        texts_of(replace(config, learn=LearnConfig(rows=60, levels=levels)), data) for levels in (False, True)
    )
    assert plain.data is data and plain.unlabelled == learnt.unlabelled == ()
    assert held(plain, "test") == {each for each in known if parts[each[0]] == "test"} == held(learnt, "test")
    assert held(plain, "profiling") == {each for each in known if parts[each[0]] != "test"}
    assert (
        held(learnt, "profiling") == {each for each in known if parts[each[0]] == "profiling"}
        or len({text for text, part in parts.items() if part == "profiling"}) < 60
    )
    trained = {learnt.data.first[row] for row in learnt.data.split.fit[len(data.split.fit) :]}
    assert trained == {text for text, part in parts.items() if part == "fit"}
    for part in ("profiling", "test"):
        assert np.array_equal(getattr(learnt.data.split, part), getattr(data.split, part))


def test_each_text_of_the_test_has_the_slices_of_its_label(config, data, tmp_path):
    rows = changed_rows(200)
    write_outcomes(tmp_path, rows)
    of = {text: (f"the class {label}", f"the tenant {TENANTS[n % 4]}") for n, (text, label) in enumerate(rows)}
    texts = texts_of(config, data)
    assert texts.named == [of[texts.held.first[row]] for row in texts.held.split.test]
    mixed = texts_of(replace(config, learn=LearnConfig(rows=1000)), data)
    assert [bool(names) for names in mixed.named] == [mixed.held.first[row] in of for row in mixed.held.split.test]


def test_labels_count_whose_inputs_are_older_than_the_newest_and_plan_without_those_that_have_none(
    config, data, tmp_path
):
    rows = changed_rows(400)
    write_outcomes(tmp_path, [(text, label if number < 200 else None) for number, (text, label) in enumerate(rows)])
    few = replace(config, feedback=replace(config.feedback, most=200))
    texts, known = texts_of(few, data), {(text, data.classes.index(label)) for text, label in rows[:200]}
    assert held(texts, "profiling") | held(texts, "test") == known
    assert {text for text, _ in texts.unlabelled} == {text for text, _ in rows[200:]}


def test_too_few_of_them_join_the_texts_of_the_data_set(config, data, tmp_path):
    write_outcomes(tmp_path, changed_rows(48))
    texts = texts_of(replace(config, learn=LearnConfig(rows=1000)), data)
    for part in ("profiling", "test"):
        own = {(data.first[row], int(data.labels[row])) for row in getattr(data.split, part)}
        assert own < held(texts, part)
    assert (
        len(held(texts, "profiling")) + len(held(texts, "test"))
        == len(data.split.profiling) + len(data.split.test) + 48
    )


def test_texts_without_labels_are_distilled_from_or_planned_with_and_train_no_classifier(config, data, tmp_path):
    parts = parts_of(write_outcomes(tmp_path, [(text, None) for text, _ in changed_rows(300)]))
    texts = texts_of(config, data, (("an apple of the file", None),))
    assert texts.data is data
    assert set(texts.unlabelled) == {("an apple of the file", None)} | {
        (text, None) for text, part in parts.items() if part == "fit"
    }
    assert held(texts, "profiling") == {(text, UNKNOWN) for text, part in parts.items() if part != "fit"}
    assert held(texts, "test") == {(data.first[row], int(data.labels[row])) for row in data.split.test}
    few = texts_of(replace(config, learn=LearnConfig(rows=1000)), data)
    assert few.held is data and len(few.unlabelled) == len(parts)


def test_the_key_of_a_classifier_follows_from_no_text_that_is_not_trained_on(config, data, tmp_path):
    level = config.levels_of(config.tasks[0])[0]
    before = LEVEL.key(config, level, data)
    write_outcomes(tmp_path, changed_rows(200))
    assert LEVEL.key(config, level, texts_of(config, data).data) == before
    learning = replace(config, learn=LearnConfig(rows=60, levels=True))
    assert LEVEL.key(config, level, texts_of(learning, data).data) != before


def test_a_text_counts_once_and_none_that_the_data_set_has(config, data, tmp_path):
    """One text that was sent and labelled many times once proved a promise by itself."""
    rows = changed_rows(100)
    own = [(data.first[row].upper(), "tree") for row in (*data.split.fit[:20], *data.split.test[:5])]
    write_outcomes(tmp_path, [*rows, *((text.upper(), label) for text, label in rows), *own])
    texts = texts_of(config, data)
    planning, test = held(texts, "profiling"), held(texts, "test")
    assert len(planning) + len(test - {(data.first[r], int(data.labels[r])) for r in data.split.test}) == 100
    assert not {text for text, _ in planning} & {text for text, _ in test}


@pytest.mark.parametrize(
    ("texts", "form"),
    [
        (["an oak", "an elm"], "json"),
        ([], "json"),
        ([""], "json"),
        (["\ud800"], "json"),
        ([7], "json"),
        ("an oak", "json"),
        (["an oak"], "uint8 1 1 3"),
    ],
)
def test_what_is_no_text_of_the_task_is_left_out(config, data, tmp_path, texts, form):
    inputs = Inputs(tmp_path, 30 * DAY)
    inputs.keep("x", "things", form, json.dumps(texts).encode())
    inputs.write()
    inputs.close()
    assert texts_of(config, data).unlabelled == ()


def test_pairs_are_taken_by_a_task_of_pairs(config, folder, tmp_path):
    pairs = load_data(read(overrides={**setting(folder), "tasks": [{"data": f"json:{folder / 'pairs.jsonl'}"}]}))[0]
    inputs = Inputs(tmp_path, 30 * DAY)
    for number in range(200):
        inputs.keep(f"x{number}", pairs.name, "json", json.dumps(["an oak", f"an elm {number}"]).encode())
    inputs.write()
    inputs.close()
    texts = texts_of(config, pairs)
    assert {first for first, _ in texts.unlabelled} == {"an oak"} and len(texts.held.split.profiling) >= 60
    assert all(texts.held.second[row].startswith("an elm") for row in texts.held.split.profiling)


def test_what_is_old_or_of_another_task_or_of_no_service_teaches_nothing(config, data, tmp_path):
    write_outcomes(tmp_path, changed_rows(80))
    assert texts_of(config, replace(data, name="others")).held.first == data.first
    assert texts_of(replace(config, feedback=FeedbackConfig(str(tmp_path / "none"))), data).held is data
    assert texts_of(replace(config, feedback=FeedbackConfig(str(tmp_path), days=1e-9)), data).held is data


def test_enough_texts_of_a_file_plan_and_then_all_labelled_ones_but_the_test_train(config, data):
    more = [(f"an oak {number}", None) for number in range(200)]
    whole, left = planned_without_labels(config, data, more)
    assert len(whole.split.fit) == len(data.split.fit) + len(data.split.profiling)
    assert np.array_equal(whole.split.test, data.split.test)
    planning = {whole.first[row] for row in whole.split.profiling}
    assert 60 <= len(planning) <= PLANNED and planning | {text for text, _ in left} == {text for text, _ in more}
    assert (whole.labels[whole.split.profiling] == UNKNOWN).all()
    assert planned_without_labels(config, data, more[:20]) == (data, tuple(more[:20]))


def test_labels_that_people_gave_are_put_where_their_texts_are_planned_with(config, data):
    place = int(data.split.profiling[3])
    assert bought(
        data, [Label(data.first[place].upper(), None, "tree", "me"), Label("another", None, "tree", "me")]
    ) == ((3, data.classes.index("tree")),)
    with pytest.raises(InputError, match=r"labels/things\.jsonl is 'animal', but must be one of the classes: fruit"):
        bought(data, [Label("an oak", None, "animal", "me")])


def test_labels_alone_say_how_right_and_how_sure_the_levels_are_beside_what_is_promised(tmp_path):
    outcomes = write_outcomes(tmp_path, [("any", "fruit" if n % 4 else "tree") for n in range(80)], keep=False)
    several = [
        record(n, label, level="large", candidate="single", weight=weight)
        for label, weight, start in (("tree", 1.0, 100), ("fruit", 3.0, 120), ("tree", 0.0, 140))
        for n in range(start, start + 20)
    ]
    with (outcomes / LABELS).open("a") as file:
        file.writelines(each.to_line() + "\n" for each in several)
    config = FeedbackConfig(str(outcomes), ",".join(TENANTS))
    first, second = label_rows(config, {"things": {"default": 0.8}})
    assert (first["labels"], first["accuracy"], first["tenants"]) == (80, 0.75, len(TENANTS))
    assert (first["level"], first["confidence"], first["promised"]) == ("small", pytest.approx(0.9), 0.8)
    assert (second["labels"], second["candidate"], second["accuracy"]) == (40, "single", 0.75)
    assert math.isnan(second["promised"])
    assert label_rows(config, {"others": {}}) == label_rows(FeedbackConfig(str(tmp_path / "none")), {}) == []
