"""schemathesis, unmodified, against the OpenAPI pages of a running service, and TEI's own page against bins.

Each page is a step: schemathesis reads it, and sends what the page allows and what it forbids. No answer may be a server
error, but for declared shedding, and each must have a status, headers, a content type and a body that the page documents. A
page gets at least so many examples. TEI's page (tei_page.py) knows the answers to bodies that it allows, and only those are
sent.

schemathesis loads this module, too: it has the check of shed requests, and brings bodies as far as a model. A page cannot
say which models a service has at the moment, or which pictures can be read. So of four examples that a page allows three get
names that are served and texts with something to read; the fourth stays as schemathesis drew it, as does all that a page
forbids. Only outputs of language models are kept short in each of them, as thousands of tokens take long.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import MutableMapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import schemathesis
from steps import Step, fetch, png, run
from tei_page import page as tei_page

SERVED = "PLIANT_SERVED"
"""The environment variable with a name that the service serves."""
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


def fuzz(location: str, base: str, served: str, count: int, more: Sequence[str]) -> str:
    """Have schemathesis send `count` examples or more of a page, and return what it did.

    Raises `AssertionError` with its report if an answer is wrong or if it sent fewer.
    """
    page = json.loads(Path(location).read_text()) if Path(location).is_file() else fetch(location)
    bodies = sum("requestBody" in operation for path in page["paths"].values() for operation in path.values())
    with tempfile.TemporaryDirectory() as folder:
        report, settings = Path(folder) / "report.json", Path(folder) / "schemathesis.toml"
        settings.write_text(SETTINGS)
        command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(settings), "run", location]
        command += ["--url", base, "--checks", CHECKS, "--phases", "examples,coverage,fuzzing", "--continue-on-failure"]
        command += ["--max-examples", str(-(-count // max(1, bodies))), "--no-color", "--generation-database", "none"]
        command += ["--request-timeout", "120", "--suppress-health-check", "all"]  # a slow machine is no fault
        command += ["--report", "json", "--report-json-path", str(report), "--output-sanitize", "false", *more]
        variables = {**os.environ, "SCHEMATHESIS_HOOKS": "pages", "PYTHONPATH": str(HERE), SERVED: served}
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


def steps_of(given: argparse.Namespace) -> dict[str, Step]:
    """Return the steps against a service, by what they do."""
    url, more, steps = given.url, ["--seed", str(given.seed)], dict[str, Step]()
    if given.system == "bins":
        streams = [stream["name"] for stream in fetch(f"{url}/status")["streams"]]
        served = streams[0]
    else:
        streams = []
        served = fetch(f"{url}/v1/status")["models" if given.system == "packing" else "tasks"][0]["name"]
    whole = f"{url}/openapi.json"
    steps["send what /openapi.json allows and forbids"] = partial(fuzz, whole, url, served, given.examples, more)
    for stream in streams:
        page = Path(given.folder, "tei.json")
        page.write_text(json.dumps(tei_page()))
        arguments = (str(page), f"{url}/{stream}", stream, given.examples // 4, [*more, "--mode", "positive"])
        steps[f"send to {stream} what TEI's page allows"] = partial(fuzz, *arguments)
    return steps


TEXT = "a small model reads every word"
DOTS = [bytes([32 * y] * 24) for y in range(8)]  # of a picture, 8 by 8 grey
LIMITS = {"n": 2, "best_of": 2, "max_tokens": 8, "max_completion_tokens": 8, "min_tokens": 4}
SECONDS = {"deadline": 5.0, "timeout": 5_000_000, "slo_ttft_ms": 5000.0, "slo_tpot_ms": 5000.0, "latency": 1.0}
IDS = 20  # below the smallest vocabulary


@schemathesis.check
def declared_shedding(ctx: Any, response: Any, case: Any) -> None:
    """Fail for a 503 that has no Retry-After, or whose sentence says nothing of a deadline or target."""
    if response.status_code != 503:
        return
    text = response.content.decode(errors="replace")
    assert "retry-after" in response.headers, f"503 without Retry-After: {text[:300]}"
    assert "deadline" in text or "target" in text, f"503 that is no shedding: {text[:300]}"


@schemathesis.hook
def before_call(ctx: Any, case: Any, kwargs: Any) -> None:
    """Repair an example that the page allows, three times of four, and limit the output of each."""
    if "completions" in case.path and isinstance(case.body, dict):
        _shorten(case.body)
    mode = case.meta.generation.mode if case.meta else None
    draw = random.Random(repr((case.path, case.path_parameters, case.body)))
    if mode is schemathesis.GenerationMode.NEGATIVE or draw.random() < 0.25:
        return
    for name in case.path_parameters or ():
        case.path_parameters[name] = "1" if name == "version" else os.environ[SERVED]
    for name in list(case.headers or ()):
        if name.lower() in ("x-pliant-deadline", "inference-header-content-length", "content-encoding"):
            del case.headers[name]
    if isinstance(case.body, dict):
        case.body = _readable(case.body)
        _repair(case.body, case.path, draw)


def _readable(value: Any) -> Any:
    """Return the value with whole numbers as such, and with a text for each one that nobody can see."""
    if isinstance(value, dict):
        return {name: _readable(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_readable(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return TEXT if isinstance(value, str) and not value.strip() else value


def _repair(body: MutableMapping[str, Any], path: str, draw: random.Random) -> None:
    for name in ("model", "task"):
        if name in body:
            body[name] = os.environ[SERVED]
    body.update({name: seconds for name, seconds in SECONDS.items() if name in body})
    if isinstance(body.get("parameters"), dict):
        body["parameters"].update({name: value for name, value in SECONDS.items() if name in body["parameters"]})
    if "completions" in path:
        _repair_completion(body)
    if path.endswith("/infer"):
        body["inputs"] = [_tensor(draw)]
        body.pop("outputs", None)
    if "image" in body:
        body["image"] = base64.b64encode(png(DOTS)).decode()
    if "texts" in body and "text" in body:
        del body["text"]
    if "messages" not in body:
        body.setdefault("prompt", TEXT)
    for name in ("prompt", "inputs", "input", "ids", "tokens"):
        if name in body:
            body[name] = _small_ids(body[name])


def _shorten(body: MutableMapping[str, Any]) -> None:
    if "max_completion_tokens" not in body:
        body.setdefault("max_tokens", LIMITS["max_tokens"])
    for name, most in LIMITS.items():
        if isinstance(body.get(name), int | float):
            body[name] = min(body[name], most)


def _repair_completion(body: MutableMapping[str, Any]) -> None:
    if body.get("stream") is not True:
        body.pop("stream_options", None)
    if "top_logprobs" in body:
        body["logprobs"] = True
    body.pop("best_of", None)
    body.pop("min_tokens", None)


def _small_ids(value: Any) -> Any:
    if isinstance(value, list):
        return [_small_ids(item) for item in value]
    return abs(value) % IDS if isinstance(value, int) and not isinstance(value, bool) else value


def _tensor(draw: random.Random) -> dict[str, Any]:
    count = draw.randint(1, 3)
    shape = draw.choice([[count], [count, 1]])
    if os.environ[SERVED] == "digits":
        return {
            "name": "image",
            "datatype": "BYTES",
            "shape": shape,
            "data": [base64.b64encode(png(DOTS)).decode()] * count,
        }
    return {"name": "text", "datatype": "BYTES", "shape": shape, "data": [TEXT] * count}


if __name__ == "__main__":
    run(steps_of)
