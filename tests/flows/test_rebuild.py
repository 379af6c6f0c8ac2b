"""A release is made again from what its run has kept: the digests are equal, or it is said why not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pliant.cli.main import main
from pliant.flows import settings
from pliant.flows.rebuild import EQUAL, TIMED, UNEXPLAINED, compare, rebuild
from pliant.flows.record import Record, StageRecord, inputs_of
from pliant.flows.release import open_registry
from pliant.flows.watch.triggered import WEEK
from pliant.registry.mlflow_switch import spent
from tests.flows.worlds import FLOWS

SEED, CODE = {"seed": 0, "data": "sha256:a"}, {"pliant.training.classifier": "c0de"}
ENCODER = StageRecord("bins/encoder", "e", SEED, {}, CODE, "abc", {"threads": 1, "torch": "2.8"})
PLAN = StageRecord("bins/plan", "p", {}, {"encoder": ["e"]}, CODE, "abc", {"threads": 1, "torch": "2.8"})


@pytest.mark.slow
@pytest.mark.parametrize("world", list(FLOWS), indirect=True)
def test_what_a_release_was_made_of_gives_the_same_digests_but_for_measured_seconds(world, run, capsys):
    run.unchanged()
    release = open_registry(settings.read(), world.system).release(world.system)
    rows = rebuild(settings.read(), world.system, release.number)
    assert {name for row in rows for name in row.models} == set(release.versions)
    timed = {row.folder for row in rows if row.why == TIMED}
    assert len(timed) == 1, "each system has a single stage whose result holds seconds"
    for row in rows:
        assert row.why in (EQUAL, TIMED) or set(row.why.removeprefix("it follows from ").split(", ")) <= timed, row
    first, again = (cost_of(world, name) for name in (release.run, run()[0]["run"]))
    assert first["seconds"] > sum(first[name] for name in parts(first)) > 0.1
    assert first["cpu_seconds"] > 0 and {*parts(again)} == {*parts(first)}
    assert 0 == sum(again[name] for name in parts(again)) < again["seconds"]
    assert spent(open_registry(settings.read(), world.system), WEEK) >= first["seconds"] + again["seconds"]
    assert main(["rebuild", world.system, "99"]) == 2 and "has no release 99" in capsys.readouterr().err


def cost_of(world, run: str) -> dict[str, float]:
    return open_registry(settings.read(), world.system).connect().get_run(run).data.metrics


def parts(cost: dict[str, float]) -> list[str]:
    """The metrics of stages."""
    return [name for name in cost if name.startswith("seconds/")]


@pytest.mark.slow
@pytest.mark.parametrize("world", ["cascade"], indirect=True)
def test_a_file_that_changed_is_named_and_one_that_is_gone_ends_it_with_a_sentence(world, place, capsys):
    (file,) = (each for each in place.iterdir() if each.suffix in (".jsonl", ".csv"))
    text = file.read_text()
    file.write_text("\n".join(text.splitlines()[:-3]) + "\n")
    assert main(["rebuild", "cascade", "1"]) == 0
    rows = rebuild(settings.read(), "cascade", 1)
    assert any(f"{file.name}: " in row.why and "settings.data: " in row.why for row in rows)
    file.unlink()
    assert main(["rebuild", "cascade", "1"]) == 2 and file.name in capsys.readouterr().err


def rows_of(*now: StageRecord, inputs=()) -> list[str]:
    record = Record("", {"a.csv": "f11e"}, (ENCODER, PLAN))
    return [row.why for row in compare(record, Record("", dict(inputs) or record.inputs, now), {"pliant-bins": "p"})]


def test_what_differs_without_a_reason_is_unexplained_and_what_follows_from_it_is_named():
    assert rows_of(ENCODER, PLAN) == [EQUAL, EQUAL]
    other = replace(ENCODER, digest="x")
    assert rows_of(other, replace(PLAN, digest="y")) == [UNEXPLAINED, "it follows from bins/encoder"]
    assert rows_of(other) == [UNEXPLAINED, "it follows from bins/encoder"]
    assert rows_of(ENCODER, replace(PLAN, digest="y")) == [EQUAL, UNEXPLAINED]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"settings": SEED | {"seed": 1}}, "settings.seed: 0 then, 1 now"),
        ({"machine": {"threads": 2, "torch": "2.8"}}, "machine.threads: 1 then, 2 now"),
        ({"machine": {"threads": 1, "torch": "2.9"}}, "machine.torch: 2.8 then, 2.9 now"),
        (
            {"code": {"pliant.training.classifier": "beef"}, "commit": "def"},
            "code.pliant.training.classifier: c0de then, beef now; commit: abc then, def now",
        ),
        ({"precision": "bfloat16"}, "precision:  then, bfloat16 now"),
    ],
)
def test_what_explains_a_difference_is_named_with_both_sides(changes, why):
    assert rows_of(replace(ENCODER, digest="x", **changes), PLAN) == [why, EQUAL]


def test_a_changed_file_is_named_with_both_digests():
    changed = replace(ENCODER, digest="x", settings=SEED | {"data": "sha256:b"})
    (why, _) = rows_of(changed, PLAN, inputs={"a.csv": "0123"}.items())
    assert why == "a.csv: f11e then, 0123 now; settings.data: sha256:a then, sha256:b now"
    assert rows_of(ENCODER, PLAN, inputs={"a.csv": "0123"}.items()) == [EQUAL, EQUAL]


def test_the_files_that_a_configuration_names_are_known_by_their_content(tmp_path):
    for file in (tmp_path / "a", tmp_path / "folder" / "b"):
        file.parent.mkdir(exist_ok=True)
        file.write_text("x")
    one = inputs_of({"data": [f"name=csv:{tmp_path}/a,{tmp_path}/gone"], "backbone": f"file:vit:{tmp_path}/folder"})
    assert sorted(one) == [f"{tmp_path}/a", f"{tmp_path}/folder/b"] and len(set(one.values())) == 1
    assert inputs_of({"device": f"other:{tmp_path}/a", "seed": 1}) == {}
