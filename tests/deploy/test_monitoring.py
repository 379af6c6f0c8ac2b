"""Dashboards and the page of metrics are those of the list, alerts ask for metrics that there are and say what to do.

With promtool, which Debian's package `prometheus` has, the rules are also run over their cases.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess

import pytest
import yaml
from prometheus_client import generate_latest

from deploy.dashboards import DASHBOARDS, PAGE, DashboardQuery, dashboards, page, queries, rows
from pliant import systems
from pliant.serving.monitoring.metric_list import all_metrics, drawn_of, metrics_of, samples_of
from tests.fixtures.places import ROOT
from tests.serving.monitoring.test_metric_list import registered

FOLDER = ROOT / "deploy" / "monitoring"
PROMTOOL = os.environ.get("PROMTOOL") or shutil.which("promtool")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is neither on PATH nor named by PROMTOOL (Debian: package prometheus)"
)
ADDED = {"system", "instance", "job"}
"""Labels that prometheus.yaml adds."""
HIDDEN = {"packing": {"pliant_estimated_accuracy", "pliant_lowered_sequences"}}


def read(name: str):
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


RULES = [rule for group in read("alerts.yaml")["groups"] for rule in group["rules"]]
CASES = read("alerts_test.yaml")["tests"]
METRICS = [metric for metrics in all_metrics().values() for metric in metrics]
SAMPLES = {sample for metric in METRICS for sample in samples_of(metric)}


def named(expr: str) -> set[str]:
    return set(re.findall(r"\bpliant_\w+", expr))


def test_page_and_dashboards_are_those_that_the_list_gives_and_small():
    kept = {path.name: path.read_text(encoding="utf-8") for path in DASHBOARDS.iterdir()}
    assert kept == dashboards() and PAGE.read_text(encoding="utf-8") == page(), "run python -m deploy.dashboards"
    assert set(kept) == {f"{name}.json" for name in ("overview", *systems.names())}
    assert all(len(content.encode()) < 100_000 for content in kept.values())


@pytest.mark.parametrize("system", systems.names())
def test_the_page_and_the_dashboard_of_a_system_show_all_its_metrics_and_no_others(system):
    shown = set().union(*(named(query.expr) for query in queries() if query.dashboard == system))
    closed = set().union(*(named(expr) for row in rows(system).values() for panel in row for expr in panel.queries))
    metrics, drawn = metrics_of(system), drawn_of(system)
    assert {each.name for each in metrics} - {each.name for each in drawn} == HIDDEN.get(system, set())
    assert closed == {samples_of(metric)[0] for metric in drawn} and shown <= SAMPLES
    assert all(f"| `{metric.name}` |" in page() for metric in metrics)


def test_what_may_never_happen_is_zero_without_a_sample_and_what_needs_more_says_so():
    by_panel = {(query.dashboard, query.panel): query for query in queries()}
    assert by_panel["bins", "fallbacks in an hour"].expr.endswith("or vector(0)")
    assert by_panel["bins", "fallbacks in an hour"].after == ""
    assert by_panel["tokens", "calibration error"].after == "a label"
    expected = 'max(pliant_pins{system="tokens",instance=~".*"})'
    assert by_panel["tokens", "pins"] == DashboardQuery("tokens", "pins", expected, "")
    grown = 'sum by (task) (rate(pliant_engine_tokens{system="packing",instance=~".*"}[5m]))'
    assert by_panel["packing", "engine tokens per second"].expr == grown
    whole = 'sum by (system) (rate(pliant_outcomes_total{instance=~".*"}[5m]))'
    late = 'sum by (system) (rate(pliant_outcomes_total{instance=~".*",outcome=~"late"}[5m]))'
    assert by_panel["overview", "Late"].expr == f"({late} or 0 * {whole}) / {whole}"


def test_each_dashboard_asks_whether_it_is_well_marks_events_leads_on_and_keeps_the_rest_closed():
    for name, content in dashboards().items():
        board = json.loads(content)
        first, *shown = board["panels"]
        assert first["title"] == "Is it well?" and [panel["type"] for panel in shown[:7]] == ["stat"] * 6 + ["row"]
        assert all(len(panel["fieldConfig"]["defaults"]["thresholds"]["steps"]) > 1 for panel in shown[:6])
        heats = [panel["title"] for panel in shown if panel["type"] == "heatmap"]
        assert (name == "overview.json") == (heats == []) and all("seconds" in title for title in heats)
        closed = [panel for panel in shown if panel["type"] == "row" and panel["collapsed"]]
        assert (name == "overview.json") == (closed == []) and all(row["panels"] for row in closed)
        (marks,) = board["annotations"]["list"]
        assert named(marks["expr"]) == {"pliant_events_total"} and marks["titleFormat"] == "{{event}}"
        boxes = {each["name"]: each["query"] for each in board["templating"]["list"] if each["type"] == "textbox"}
        assert [link["url"] for link in board["links"] if link["type"] == "link"] == [f"${{{box}}}" for box in boxes]
        every = [*board["panels"], *(panel for row in closed for panel in row["panels"])]
        assert len({panel["id"] for panel in every}) == len(every)
        places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in board["panels"]]
        assert len(set(places)) == len(places)


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_an_alert_asks_for_what_there_is_says_what_to_do_and_has_cases_in_which_it_fires_and_does_not(rule):
    expr, notes = rule["expr"], rule["annotations"]
    assert named(expr) <= SAMPLES and (named(expr) or "up{" in expr)
    used = set(re.findall(r"(\w+)(?:=~|!~|!=|=)\"", expr))
    grouped = {label for group in re.findall(r"by \(([^)]*)\)", expr) for label in group.split(", ")}
    of_metrics = {label for metric in METRICS if set(samples_of(metric)) & named(expr) for label in metric.labels}
    assert used | grouped <= of_metrics | ADDED
    assert set(re.findall(r"\$labels\.(\w+)", notes["summary"])) <= (grouped or ADDED)
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert set(notes) == {"summary", "description", "runbook"} and notes["description"].endswith(".")
    path, _, section = notes["runbook"].partition("#")
    headings = re.findall(r"^#+ (.*)$", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
    assert section in [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
    checks = [check for case in CASES for check in case.get("alert_rule_test", ())]
    assert [] in [check["exp_alerts"] for check in checks if check["alertname"] == rule["alert"]]
    firing = [check for case in CASES for check in case.get("promql_expr_test", ()) if "firing" in check["expr"]]
    assert any(f'alertname="{rule["alert"]}"' in each["labels"] for check in firing for each in check["exp_samples"])


def test_the_scraper_adds_the_system_to_all_four():
    assert [target["labels"]["system"] for target in read("targets.yaml")] == list(systems.names())
    (pliant,) = read("prometheus.yaml")["scrape_configs"]
    assert pliant["job_name"] == "pliant"
    (dropped,) = pliant["metric_relabel_configs"]
    assert dropped["action"] == "drop" and re.fullmatch(dropped["regex"], "bentoml_service_request_total")
    assert not any(re.fullmatch(dropped["regex"], sample) for sample in SAMPLES)


def promtool(*arguments: object, shown: str | None = None) -> str:
    command = [str(PROMTOOL), *map(str, arguments)]
    result = subprocess.run(command, cwd=FOLDER, input=shown, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


@needs_promtool
@pytest.mark.parametrize("marks", [[], ["#key ", "#tls "]], ids=["without keys", "with keys and TLS"])
def test_promtool_accepts_the_configuration_and_the_rules_which_fire_as_the_cases_say(marks, tmp_path):
    promtool("check", "rules", "alerts.yaml")
    promtool("test", "rules", "alerts_test.yaml")
    for path in FOLDER.glob("*.yaml"):
        content = path.read_text(encoding="utf-8")
        for mark in marks:
            content = content.replace(f"    {mark}", "    ")
        (tmp_path / path.name).write_text(content, encoding="utf-8")
    for name in ("monitor.key", "ca.pem"):
        (tmp_path / name).write_text("", encoding="utf-8")
    promtool("check", "config", tmp_path / "prometheus.yaml")
    (pliant,) = yaml.safe_load((tmp_path / "prometheus.yaml").read_text(encoding="utf-8"))["scrape_configs"]
    assert (pliant.get("scheme"), "authorization" in pliant) == (("https", True) if marks else (None, False))


@needs_promtool
@pytest.mark.parametrize("system", systems.names())
def test_promtool_finds_nothing_wrong_with_what_a_service_shows(system, registry, tmp_path):
    counted = registered(system, registry, tmp_path)
    for collector in counted._collector_to_names:
        if collector._labelnames:
            collector.labels(*["x"] * len(collector._labelnames))
    lines = [line for line in generate_latest(counted).decode().splitlines() if "_created" not in line]
    assert promtool("check", "metrics", shown="\n".join(lines) + "\n") == ""
