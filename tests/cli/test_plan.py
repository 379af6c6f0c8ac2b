"""`pliant plan`: the least number of devices, by bisection, is what trying every number gives; and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from pliant import systems
from pliant.cli.main import main
from pliant.cli.plan import NEAR, as_served, changed, fares, least, took
from pliant.flows import settings
from pliant.flows.release import open_registry
from pliant.flows.tokens import reprofile
from pliant.progress import silent
from pliant.registry import codec
from pliant.registry.package import Package
from pliant.report import summarise
from tests.cli.test_journal import arrivals, written
from tests.cli.test_simulate import MAIL, publish_bins, publish_cascade, publish_packing, publish_tokens
from tests.fixtures.commands import columns, refused, shown
from tests.fixtures.light_mlflow import lay_database, light
from tests.fixtures.tokens.samples import tiny_profile

PUBLISH = {"tokens": publish_tokens, "bins": publish_bins, "cascade": publish_cascade, "packing": publish_packing}
LOADS = {
    "tokens": ("poisson:8000:0.5", "0.05"),
    "bins": ("poisson:1500:1", "0.05"),
    "cascade": ("poisson:4000:0.5", "0.05"),
    "packing": ("poisson:300:1", "1.0"),
}
COLUMNS = {"devices", "attainment", "worst", "utility", "per_second", "p50", "p99", "uses"}


def test_the_least_number_is_enough_as_are_the_next_and_where_more_are_never_worse_it_is_the_first():
    for enough in product((False, True), repeat=8):
        number = least(lambda count, enough=enough: enough[count - 1], len(enough))
        assert number is None or all(enough[number - 1 : number + NEAR]), enough
        if list(enough) == sorted(enough):
            assert number == (enough.index(True) + 1 if enough[-1] else None)


@pytest.mark.parametrize("system", PUBLISH)
def test_bisection_agrees_with_every_number_of_devices_and_the_json_and_the_picture_say_it(
    system, registry, tmp_path, capsys
):
    PUBLISH[system](registry)
    load, slo = LOADS[system]
    command = ["plan", system, "--load", load, "--slo", slo, "--attainment", "0.95", "--seeds", "2"]
    picture = tmp_path / "plan.png"
    assert main([*command, "--json", "--plot", str(picture)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert (printed["system"], printed["slo"], printed["attainment"], printed["seeds"]) == (system, float(slo), 0.95, 2)
    (given,) = printed["plans"]
    assert set(given["counts"][0]) == COLUMNS and 1.0 <= given["bears"] <= 4.0 and given["reason"] == ""
    (simulation,) = systems.system(system).part("cli", "simulate").simulations(settings.read(), load)
    draws = [simulation.draw(seed) for seed in (0, 1)]
    every = [fares(draws, count, 1.0, float(slo))["attainment"] for count in range(1, given["devices"] + NEAR + 1)]
    assert every[0] < 0.95 and [share >= 0.95 for share in every] == [False] * (len(every) - 1 - NEAR) + [True] * 3
    assert given["devices"] == len(every) - NEAR
    assert {row["devices"]: row["attainment"] for row in given["counts"]}[given["devices"]] == every[-1 - NEAR]
    assert main([*command, "--times", "3", "--most", str(given["devices"])]) == 1
    assert f"No number of devices up to {given['devices']} is enough: " in capsys.readouterr().out


def test_where_a_request_alone_takes_longer_than_its_slo_no_number_is_enough_and_that_is_why(registry, capsys):
    publish_bins(registry)
    assert main(["plan", "bins", "--load", "poisson:50:2", "--slo", "0.001", "--most", "4"]) == 1
    text = capsys.readouterr().out
    assert "No number of devices up to 4 is enough: alone on a device, " in text and "without haste one takes" in text


def test_a_journal_is_planned_for_as_it_came_and_any_load_in_less_time(registry, tmp_path, capsys, monkeypatch):
    publish_bins(registry)
    path = written(tmp_path / "journal.jsonl", arrivals("bins"))
    assert main(["plan", "bins", "--load", f"journal:{path}", "--times", "3", "--json"]) == 0
    assert [each["devices"] for each in json.loads(capsys.readouterr().out)["plans"]] == [1]
    (simulation,) = systems.system("bins").part("cli", "simulate").simulations(settings.read(), f"journal:{path}")
    requests, _ = simulation.draw(0)
    assert [request.arrival for request in requests] == pytest.approx([5 + id / 50 for id in range(30)])
    denser = changed(requests, 2.0, None)
    assert denser[-1].arrival == pytest.approx((5 + 29 / 50) / 2)
    assert [r.deadline - r.arrival for r in denser] == pytest.approx([2.0] * 30)
    sooner, play = as_served(simulation, 0.25, 0.0).draw(0)
    later, at_once = (summarise(played(sooner, 1)[0]).p50 for played in (play, simulation.draw(0)[1]))
    assert later == pytest.approx(at_once + 0.25)
    (expected, ten_ms), said = took(simulation, f"journal:{path}", simulation.device)
    assert ten_ms == pytest.approx([0.01] * 30)
    assert said == (f"Launches take what the journal's 30 took: {0.01 / expected[0]:.2f} x the profile.",)
    slower = as_served(simulation, 0.0, 0.004, (expected, 50 * expected)).draw(0)[1](requests, 1)[0]
    assert [each.request for each in slower] == requests
    assert min(each.answered - each.request.arrival for each in slower) == pytest.approx(0.004 + 50 * expected[0])
    newer = replace(simulation, published="2100-01-01T00:00:00+00:00")
    assert took(newer, f"journal:{path}", newer.device)[0] is None, "a journal of before the profile"
    assert took(simulation, f"journal:{path}", "another class")[0] is None, "a release of another class of device"
    simulate = ["simulate", "bins", "--load", f"journal:{path}"]
    rows = json.loads(shown([*simulate, "--json"], capsys))
    assert [row["requests"] for row in rows] == [30] * 4 and rows[0]["attainment"] == 1.0
    monkeypatch.setenv("COLUMNS", "40")
    assert columns(shown(simulate, capsys))["in time"] == ["100.0%"] * 4


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--slo", "0"], "--slo is 0.0, but must be seconds above 0"),
        (["--slo", "nan"], "--slo is nan"),
        (["--slo", "0.1", "--overhead", "0.2"], "--overhead is 0.2, but must be seconds from 0 up to --slo"),
        (["--times", "-1"], "--times is -1.0, but must be a number above 0"),
        (["--attainment", "1.5"], "--attainment is 1.5, but must be a share above 0, up to 1"),
        (["--most", "0"], "--most is 0, but must be at least 1"),
        (["--seeds", "0"], "--seeds is 0"),
        (["--seed", "-1"], "--seed is -1"),
        (["--plot", "plan.svg"], "--plot is plan.svg, but must be a name that ends in .png"),
        (["--plot", "nowhere/plan.png"], "in a folder that is there"),
        (["--load", "nonsense"], "load is nonsense"),
        (["--load", "journal:nowhere"], "nowhere"),
        (["--workers", "2"], "--workers is 2, but must be left out"),
    ],
)
def test_what_cannot_be_planned_is_refused_by_name(words, sentence, registry, capsys):
    publish_bins(registry)
    assert sentence in refused(["plan", "bins", *words], capsys)


def test_a_load_without_deadlines_needs_an_slo_and_a_system_without_a_champion_says_what_to_run(registry, capsys):
    for system in PUBLISH:
        assert f"run `pliant train {system}` first" in refused(["plan", system], capsys)
    publish_packing(registry)
    assert "--slo is not given" in refused(["plan", "packing", "--load", "poisson:20:1"], capsys)


def test_a_release_of_another_class_of_device_is_planned_for_as_well(here, capsys):
    lay_database(here / "mlruns" / "mlflow.db")
    registry = open_registry(settings.read(), "bins")
    with light(), registry.run("bins") as run:
        for name, scale in (("fast", 0.25), ("slow", 1.0)):
            codec.save(replace(MAIL, device_class=name, seconds=tuple(scale * s for s in MAIL.seconds)), here / name)
            package = Package("pliant-bins-mail", here / name, {"text": np.array(("a",))}, {"seconds": np.zeros(1)})
            registry.commit({"pliant-bins-mail": registry.publish(run, package).version}, run)
    assert main(["plan", "bins", "--load", "poisson:1500:1", "--attainment", "0.95", "--json"]) == 0
    plans = json.loads(capsys.readouterr().out)["plans"]
    assert [each["device"] for each in plans] == ["slow", "fast"] and plans[1]["devices"] < plans[0]["devices"]
    measured, http = plans[1]["warnings"]  # today, so nothing is said of its age
    assert measured.startswith("It was measured on fast, and this machine has cpu-") and "HTTP" in http


def test_a_profile_is_measured_anew_at_the_gammas_whose_accuracies_the_tasks_hold(registry, monkeypatch):
    publish_tokens(registry)
    seen = []
    monkeypatch.setattr(reprofile, "measure", lambda config, *_: seen.append(config.latency.gammas) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        reprofile.reprofile("cpu", 1, silent, True)
    assert seen == [tuple(tiny_profile("", "").latency.settings)]
