"""llm-comply, unmodified: its own cases of OpenAI's chats, against a live packing service.

    python qa/conformance/clients/comply_client.py http://127.0.0.1:3000 --model NAME

runs in an environment with `REQUIREMENTS` and nothing of Pliant. Each case prints a line of JSON: client, version, what it
did, ok and detail. The exit status is 1 if a case failed. Cases of `DEVIATIONS` are known to fail: they are left out, and
named.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from steps import arguments, take_steps

REQUIREMENTS: Mapping[str, tuple[str, ...]] = {"llm-comply": ("llm-comply==0.5.0",)}
"""The pinned requirements of each client."""
CASES = (
    "chat-basic-response",
    "chat-system-prompt",
    "chat-multi-turn",
    "chat-tool-calling",
    "chat-streaming-response",
    "chat-streaming-usage",
)
DEVIATIONS = {
    "chat-image-input": "the models read no pictures",
    "chat-error-handling": "a request may leave out `model`, as in vLLM",
    "chat-reasoning-summary": "it skips itself for models that are not OpenAI's",
}


def outcomes(url: str, model: str) -> dict[str, Any]:
    """Run the cases, and return what came of each by its name."""
    tool = str(Path(sys.executable).with_name("llm-comply"))
    options = ["--format", "openai-chat", "-u", f"{url.rstrip('/')}/v1", "-k", "none", "-m", model, "--timeout", "300"]
    command = [tool, *options, "--filter", ",".join(CASES), "--json"]
    output = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    assert output.stdout, output.stderr[-1000:]
    return {result["id"]: result for result in json.loads(output.stdout)["results"]}


def passed(results: Mapping[str, Any], case: str) -> object:
    result = results[case]
    assert result["status"] == "passed", result.get("errors", result)
    return "; ".join(result.get("warnings", []))


def main() -> int:
    """Run all cases, and return the exit status."""
    given = arguments("model")
    results = outcomes(given.url, given.model)
    return take_steps("llm-comply", {case: partial(passed, results, case) for case in CASES}, DEVIATIONS)


if __name__ == "__main__":
    raise SystemExit(main())
