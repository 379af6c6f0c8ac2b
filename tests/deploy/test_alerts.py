"""Alerts ask for metrics that there are, say what to do, and each has a case in which it fires and one in which it does not.

With promtool, which Debian's package `prometheus` has, the rules are also run over those cases.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from pliant import systems
from pliant.serving.monitoring.metric_list import all_metrics, samples_of
from tests.deploy.test_dashboards import ADDED, named
from tests.fixtures.places import ROOT
from tests.serving.monitoring.test_metric_list import registered

FOLDER = ROOT / "deploy" / "monitoring"
PROMTOOL = os.environ.get("PROMTOOL") or shutil.which("promtool")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is neither on PATH nor named by PROMTOOL (Debian: package prometheus)"
)


def read(name: str):
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


RULES = [rule for group in read("alerts.yaml")["groups"] for rule in group["rules"]]
CASES = read("alerts_test.yaml")["tests"]
METRICS = [metric for metrics in all_metrics().values() for metric in metrics]
ALERTS = [rule["alert"] for rule in RULES]


def promtool(*arguments: object) -> str:
    result = subprocess.run(
        [str(PROMTOOL), *map(str, arguments)], cwd=FOLDER, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.parametrize("rule", RULES, ids=ALERTS)
def test_an_alert_asks_for_metrics_and_labels_that_there_are(rule):
    known = {sample for metric in METRICS for sample in samples_of(metric)}
    assert named(rule["expr"]) <= known and (named(rule["expr"]) or "up{" in rule["expr"])
    used = set(re.findall(r"(\w+)(?:=~|!~|!=|=)\"", rule["expr"]))
    grouped = {label for group in re.findall(r"by \(([^)]*)\)", rule["expr"]) for label in group.split(", ")}
    of_metrics = {
        label for metric in METRICS if set(samples_of(metric)) & named(rule["expr"]) for label in metric.labels
    }
    assert used | grouped <= of_metrics | ADDED
    written = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    assert written <= grouped | ({"system", "instance", "job"} if not grouped else set())


@pytest.mark.parametrize("rule", RULES, ids=ALERTS)
def test_an_alert_says_how_bad_it_is_and_what_to_do(rule):
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert set(rule["annotations"]) == {"summary", "description", "runbook"}
    assert rule["annotations"]["description"].endswith(".")
    page, _, section = rule["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert section in [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not(alert):
    of_rules = [check for case in CASES for check in case.get("alert_rule_test", ()) if check["alertname"] == alert]
    samples = [
        sample["labels"]
        for case in CASES
        for check in case.get("promql_expr_test", ())
        if check["expr"] == 'ALERTS{alertstate="firing"}'
        for sample in check["exp_samples"]
    ]
    assert any(check["exp_alerts"] == [] for check in of_rules)
    assert any(f'alertname="{alert}"' in labels for labels in samples)


def test_the_scraper_adds_the_system_to_all_four():
    targets = read("targets.yaml")
    assert [target["labels"]["system"] for target in targets] == list(systems.names())
    (pliant,) = read("prometheus.yaml")["scrape_configs"]
    assert pliant["job_name"] == "pliant"
    (dropped,) = pliant["metric_relabel_configs"]
    assert dropped["action"] == "drop" and re.fullmatch(dropped["regex"], "bentoml_service_request_total")
    assert not any(re.fullmatch(dropped["regex"], sample) for metric in METRICS for sample in samples_of(metric))


@needs_promtool
def test_promtool_accepts_the_rules_and_they_fire_as_the_cases_say():
    promtool("check", "rules", "alerts.yaml")
    promtool("test", "rules", "alerts_test.yaml")


@needs_promtool
@pytest.mark.parametrize("marks", [[], ["#key ", "#tls "]], ids=["without keys", "with keys and TLS"])
def test_promtool_accepts_the_configuration(marks, tmp_path):
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
    counted: CollectorRegistry = registered(system, registry, tmp_path)
    for collector in counted._collector_to_names:
        if collector._labelnames:
            collector.labels(*["x"] * len(collector._labelnames))
    lines = [line for line in generate_latest(counted).decode().splitlines() if "_created" not in line]
    shown = ("\n".join(lines) + "\n").encode()
    result = subprocess.run([str(PROMTOOL), "check", "metrics"], input=shown, capture_output=True, timeout=60)
    assert (result.returncode, result.stdout + result.stderr) == (0, b"")
