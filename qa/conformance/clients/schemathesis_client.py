"""schemathesis, unmodified, against the OpenAPI pages of a running service, and TEI's own page against bins.

    python qa/conformance/clients/schemathesis_client.py http://127.0.0.1:3000 bins [--examples 2000] [--seed 0]

runs in an environment with `REQUIREMENTS` and nothing of Pliant. Each page is a step: schemathesis reads it, and sends what
the page allows and what it forbids. No answer may be a server error, but for declared shedding (fuzz_hooks.py), and each
must have a status, headers, a content type and a body that the page documents. A page gets at least so many examples. TEI's
page (tei_page.py) knows the answers to bodies that it allows, and only those are sent. A line of JSON is printed for each
step; the status is 1 if one failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from steps import Step, take_steps
from tei_page import page as tei_page

REQUIREMENTS: Mapping[str, tuple[str, ...]] = {"schemathesis": ("schemathesis==4.32.5",)}
"""The pinned requirements of each client."""
PAGES: Mapping[str, tuple[str, ...]] = {
    "packing": ("/v1/openapi.json", "/openapi.json"),
    "bins": ("/openapi.json",),
    "cascade": ("/v1/openapi.json", "/openapi.json"),
    "tokens": ("/v1/openapi.json", "/openapi.json"),
}
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_headers_conformance,response_schema_conformance,declared_shedding"
)
HERE = Path(__file__).parent
SETTINGS = """
[checks]
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 503]
"""
LIMIT_S = 1800.0
SHOWN = 1500  # characters of what schemathesis says of a failure


def run(location: str, base: str, served: str, count: int, more: Sequence[str]) -> str:
    """Have schemathesis send `count` examples or more of a page, and return what it did.

    Raises `AssertionError` with its report if an answer is wrong or if it sent fewer.
    """
    page = json.loads(Path(location).read_text() if Path(location).is_file() else fetch(location))
    bodies = sum("requestBody" in operation for path in page["paths"].values() for operation in path.values())
    with tempfile.TemporaryDirectory() as folder:
        report, settings = Path(folder) / "report.json", Path(folder) / "schemathesis.toml"
        settings.write_text(SETTINGS)
        command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(settings), "run", location]
        command += ["--url", base, "--checks", CHECKS, "--phases", "examples,coverage,fuzzing", "--continue-on-failure"]
        command += ["--max-examples", str(-(-count // max(1, bodies))), "--no-color", "--generation-database", "none"]
        command += ["--request-timeout", "120", "--suppress-health-check", "all"]  # a slow machine is no fault
        command += ["--report", "json", "--report-json-path", str(report), "--output-sanitize", "false", *more]
        variables = {**os.environ, "SCHEMATHESIS_HOOKS": "fuzz_hooks", "PYTHONPATH": str(HERE), "PLIANT_SERVED": served}
        process = subprocess.run(
            command, env=variables, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        if not report.is_file():
            raise AssertionError((process.stdout + process.stderr)[-SHOWN:])
        result = json.loads(report.read_text())
    sent = result["test_cases"]["generated"]
    assert process.returncode == 0 and result["complete"], failures(process.stdout)
    assert sent >= count, f"{sent} examples were sent, fewer than {count}"
    return f"{sent} examples of {sum(len(path) for path in page['paths'].values())} operations"


def failures(output: str) -> str:
    """Return what schemathesis says of failures, or else the end of its output."""
    _, _, behind = output.partition(" FAILURES =")
    return re.sub(r"\n\n+", "\n", behind)[:SHOWN] if behind else output[-SHOWN:]


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        content: bytes = answer.read()
    return content.decode()


def steps_of(url: str, system: str, count: int, seed: int, folder: Path) -> dict[str, Step]:
    """Return the steps against a service, by what they do."""
    more = ["--seed", str(seed)]
    steps: dict[str, Step] = {}
    for path in PAGES[system]:
        # The page at the root has a few routes beside those of /v1: fewer examples do, in proportion.
        wanted = count if path == PAGES[system][0] else count // 4
        base = url + path.removesuffix("/openapi.json")
        steps[f"send what {path} allows and forbids"] = partial(
            run, url + path, base, served(url, system), wanted, more
        )
    if system == "bins":
        page = folder / "tei.json"
        page.write_text(json.dumps(tei_page()))
        for stream in streams(url):
            what = f"send to {stream} what TEI's page allows"
            base = f"{url}/{stream}"
            steps[what] = partial(run, str(page), base, stream, count // 4, [*more, "--mode", "positive"])
    return steps


def served(url: str, system: str) -> str:
    """Return the name of a model, task or stream of a service."""
    if system == "bins":
        return streams(url)[0]
    kind = "models" if system == "packing" else "tasks"
    return str(json.loads(fetch(url + "/v1/status"))[kind][0]["name"])


def streams(url: str) -> list[str]:
    """Return the names of bins' streams."""
    return [stream["name"] for stream in json.loads(fetch(url + "/status"))["streams"]]


def main() -> int:
    """Take the steps, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="address of the service")
    parser.add_argument("system", choices=PAGES)
    parser.add_argument("--examples", type=int, default=2000, help="of the service's own page, at least")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = options.url.rstrip("/")
        steps = steps_of(url, options.system, options.examples, options.seed, Path(folder))
        return take_steps("schemathesis", steps)


if __name__ == "__main__":
    raise SystemExit(main())
