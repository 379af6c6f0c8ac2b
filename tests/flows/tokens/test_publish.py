"""What the pages of the registry say of a tokens profile and of a task: what a service chooses from, with its seconds."""

from __future__ import annotations

from pliant.flows.tokens.publish import card, profile_package
from pliant.registry.releases import COLUMN
from tests.fixtures.tokens.samples import profile_with_points, tiny_task, with_points


def test_seconds_are_of_all_that_a_service_chooses_from_and_a_gamma_below_0_is_not_offered(tmp_path):
    profile, task = profile_with_points("d", "cpu"), with_points(tiny_task("loops", ("a", "b"), "d"))
    seconds = profile_package(profile, tmp_path).metrics
    names = ["gamma 0", "gamma 2", "gamma 4", "gamma 8", "point 101", "point 102"]
    assert list(seconds) == [f"seconds.{name}.batch{batch}" for batch in (16, 1) for name in names]
    assert seconds["seconds.point 101.batch1"] == seconds["seconds.gamma 0.batch1"] / 2 == profile.latency.at(101, 1)
    lines = card(task, profile, ()).splitlines()
    cells = [line.strip("| ").split(COLUMN) for line in lines[2:]]
    offered = {what.partition(":")[0]: said for what, *_, said in cells}
    assert offered["gamma 0"] == offered["point 101"] == "yes" and offered["gamma -15"] == "only by its number"
