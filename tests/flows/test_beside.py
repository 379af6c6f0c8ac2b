"""What is measured of both sides: how often chance refuses, and what surely falls."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import multinomial

from pliant.errors import RegistryError
from pliant.flows.beside import FLOOR, Answers, Beside, slices, tango, where_it_runs
from pliant.profiling.interleaved import Ratio


@pytest.mark.parametrize("rows", [5, 20, 100])
@pytest.mark.parametrize("level", [0.05, 0.05 / 18])
def test_a_loss_of_just_the_floor_is_taken_for_more_no_oftener_than_the_level_says(rows, level):
    """Exact, over all counts; the score test is known to exceed its level by little."""
    lost, gained = np.mgrid[: rows + 1, : rows + 1]
    possible = lost + gained <= rows
    counts = [(int(b), int(c)) for b, c in zip(lost[possible], gained[possible], strict=True)]
    sides = (answers(b, c, rows) for b, c in counts)
    refused = [tango(a.champion_R[:rows], a.challenger_R[:rows], FLOOR) > ndtri(1 - level) for a in sides]
    for other in (0.0, 0.02, 0.1, 0.4):
        drawn = multinomial(rows, [other + FLOOR, other, 1 - FLOOR - 2 * other])
        chance = sum(drawn.pmf([b, c, rows - b - c]) for (b, c), no in zip(counts, refused, strict=True) if no)
        assert chance <= 1.35 * level


def answers(lost: int, gained: int, rows: int, classes: tuple[str, ...] = ("a", "b")) -> Answers:
    """Rows of two classes: of the first the champion alone is right on `lost`, the challenger alone on `gained`."""
    places = np.arange(2 * rows)
    new_R = ~((gained <= places) & (places < gained + lost))
    return Answers(places >= gained, new_R, slices(places // rows, classes, ()))


def test_a_class_that_falls_is_named_however_well_the_others_do():
    fallen = answers(49, 0, 80, ("refund", "other"))
    assert fallen.fallen(0.01) == "the class refund: right in 31 of 80, the champion in 80"
    assert Beside(answers={"one": fallen, "two": answers(0, 0, 80)}).fallen(0.01).startswith("one: the class refund")
    assert answers(6, 2, 80).fallen(0.01) == answers(2, 0, 5).fallen(0.01) == ""


def test_a_tenant_and_a_declared_slice_have_floors_of_their_own():
    """What one tenant loses is spread evenly over the classes, and a fifth of all rows, of which others gain as many."""
    places = np.arange(500)
    old_R, new_R = places % 5 != 1, places % 5 != 0
    named_R = [(("the tenant acme",), ("the slice mobile", "the tenant bolt"), ())[min(n % 5, 2)] for n in places]
    both = Answers(old_R, new_R, slices(places // 250, ("a", "b"), named_R))
    assert both.worse(0.01) == ""
    assert both.fallen(0.01) == "the tenant acme: right in 0 of 100, the champion in 100"
    turned = Answers(new_R, old_R, both.slices)
    assert turned.fallen(0.01).count("right in 0 of 100, the champion in 100") == 2  # slice and tenant


@pytest.mark.parametrize(
    ("lost", "gained", "rows", "reason"),
    [
        (0, 0, 200, ""),
        (40, 4, 200, "points worse on 400 rows"),  # beyond chance
        (12, 4, 200, ""),  # two points, which chance explains, and surely less than five
        (3, 1, 20, "too few to rule out 5%"),  # chance explains them, but who knows
    ],
)
def test_within_chance_a_loss_passes_where_the_rows_rule_out_a_large_one(lost, gained, rows, reason):
    assert (reason in answers(lost, gained, rows).worse(0.01)) is True
    assert bool(answers(lost, gained, rows).worse(0.01)) is bool(reason)


def test_the_champions_profile_is_corrected_to_the_challengers_hour():
    slow = ((1.0, 3.0), (2.0, 6.0))  # the challenger's hour was three times as slow
    assert Beside(Ratio(1.5, 1.4, 1.6), slow).correction(0.01) == pytest.approx(2.0)
    assert Beside(Ratio(1.05, 1.0, 1.1), slow).correction(0.01) == pytest.approx(3.0), "no difference is shown"
    assert not Beside(why="gone").alike(10.0)


def test_a_champion_that_cannot_be_run_is_said_to_be_so():
    def gone() -> Beside:
        raise RegistryError("version 3 is deleted")

    assert "version 3 is deleted" in where_it_runs(gone).describe(0.01)
