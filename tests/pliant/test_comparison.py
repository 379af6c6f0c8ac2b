"""Policies side by side: what is compared is what was asked for, on the same requests, with no more than the core needs."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import pliant
from pliant import comparison
from pliant.errors import InputError
from pliant.protocol import Drop, Launch
from tests.fixtures.places import ROOT

LOAD = {"tokens": "bursty:600:2", "bins": "poisson:1000:1", "cascade": "poisson:100:1", "packing": "poisson:40:1"}
NAMES = {
    "tokens": ("default", "otas", "infaas", "tome"),
    "bins": ("default", "first-come", "arlo", "padding"),
    "cascade": ("default", "tabi", "single", "voting"),
    "packing": ("default", "s3", "paged"),
}
HEAVY = ("torch", "mlflow", "prefect", "bentoml", "transformers", "numba", "pandas", "pydantic", "scipy", "sklearn")


class Alone:
    def __init__(self, known):
        self.known = known

    def choose(self, waiting, now):
        return 0, waiting[:1]


@pytest.mark.parametrize("system", LOAD)
def test_all_systems_give_rows_of_one_shape_and_each_seed_the_same_requests_to_all(system):
    table = pliant.compare(NAMES[system], LOAD[system], seeds=2, system=system)
    columns = ["policy", "seed", "requests", "attainment", "utility", "of_bound", "goodput", "p50", "p99"]
    assert list(table.columns) == columns and len(table) == 2 * len(NAMES[system])
    assert (table.groupby("seed").requests.nunique() == 1).all() and table.requests.nunique() == 2
    assert table.attainment.between(0, 1).all() and (table.utility > 0).all() and (table.p50 <= table.p99).all()
    again = pliant.compare(NAMES[system], LOAD[system], seeds=1, system=system)
    assert again.equals(table[table.seed == 0].reset_index(drop=True))


def test_an_own_policy_is_worth_what_the_same_one_of_ours_is_and_nothing_beats_the_bound():
    few = np.arange(40) / 20  # every request alone on the device, at gamma 0 under both
    table = pliant.compare({"mine": Alone, "pets": "pets", "default": "default"}, few, seeds=1).set_index("policy")
    assert table.attainment["mine"] == table.attainment["pets"] == 1
    assert table.utility["mine"] == pytest.approx(table.utility["pets"]) and (table.of_bound <= 1).all()


def test_a_choosing_scheduler_drops_what_is_late_and_refuses_a_choice_that_does_not_wait():
    late = [pliant.Request(i, 0.0, 0.5, "t") for i in range(2)]
    journal = pliant.simulate(comparison.Choosing(Alone(None)), late, lambda launch: (0.6, finished(launch)))
    actions = [action for entry in journal for action in entry.actions]
    assert [a.requests for a in actions if isinstance(a, Launch)] == [(0,)]
    assert [a for a in actions if isinstance(a, Drop)] == [Drop(1, "late")]
    for wrong in ((0, []), (0, late[:1] * 2), (0, [pliant.Request(9, 0.0, 1.0, "t")])):
        policy = Alone(None)
        policy.choose = lambda waiting, now, wrong=wrong: wrong
        with pytest.raises(InputError, match="choose"):
            pliant.simulate(comparison.Choosing(policy), late, lambda launch: (0.1, finished(launch)))


def finished(launch):
    return comparison.Finished(launch.id, 0.6)


@pytest.mark.parametrize(
    ("policies", "trace", "system"),
    [
        (["none"], "poisson:9:9", "tokens"),
        (["none"], "poisson:9:9", "bins"),
        (["none"], "poisson:9:9", "cascade"),
        (["none"], "poisson:9:9", "packing"),
        (["default"], "poisson:9:9", "wings"),
        (["default"], [], "tokens"),
        (["default"], "sometimes", "tokens"),
        ({"mine": lambda known: 1}, "poisson:9:9", "tokens"),
        ({"mine": lambda known: 1}, "poisson:9:9", "cascade"),
    ],
)
def test_what_cannot_be_compared_is_refused_by_name(policies, trace, system):
    with pytest.raises(InputError):
        pliant.compare(policies, trace, 1, system)


def test_installed_policies_are_known_by_name_to_compare_and_to_simulate(tmp_path):
    (tmp_path / "mine.py").write_text("class P:\n def __init__(s, k): pass\n def choose(s, w, n): return 0, w[:1]\n")
    (tmp_path / "mine-1.dist-info").mkdir()
    (tmp_path / "mine-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (tmp_path / "mine-1.dist-info" / "entry_points.txt").write_text("[pliant.policies]\ntokens.mine = mine:P\n")
    code = "import pliant; print(pliant.compare(['mine'], 'poisson:20:1', 1))"
    help = "from pliant.cli.main import main; main()"
    for arguments in (["-c", code], ["-c", help, "simulate", "tokens", "--help"]):
        path = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]; {arguments[1]}"
        done = subprocess.run([sys.executable, "-c", path, *arguments[2:]], capture_output=True, text=True, check=True)
        assert "mine" in done.stdout


@pytest.mark.parametrize("name", LOAD)
def test_the_notebooks_run_in_seconds_with_no_more_than_the_core(name):
    absent = [each for each in HEAVY if name != "cascade" or each not in ("scipy", "sklearn", "torch", "pandas")]
    code = f"import sys, runpy; sys.modules.update(dict.fromkeys({absent}))\nrunpy.run_path(sys.argv[1])"
    notebook = ROOT / "examples" / "notebooks" / f"{name}.py"
    assert len(notebook.read_text(encoding="utf-8").splitlines()) < 40
    command = [sys.executable, "-c", code, str(notebook)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, timeout=60)
    assert "mine" in done.stdout and "default" in done.stdout
