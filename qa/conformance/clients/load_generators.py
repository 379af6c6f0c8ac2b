"""The field's load generators, unmodified, against a live packing service: vllm bench serve, guidellm and aiperf.

    python qa/conformance/clients/load_generators.py http://127.0.0.1:3000 --client guidellm --model NAME \\
        --tokenizer FOLDER --folder SCRATCH

runs in an environment with `REQUIREMENTS` of the client and nothing of Pliant. Each run prints a line of JSON: client,
version, what it did, ok and detail. The exit status is 1 if one failed. A run fails unless every request was answered in
full, by the client's own report.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from steps import arguments, take_steps

REQUIREMENTS: Mapping[str, tuple[str, ...]] = {
    "guidellm": ("guidellm==0.8.1", "torch==2.13.0"),
    "aiperf": ("aiperf==0.13.0",),
}
"""The pinned requirements of each client. torch: a release that has a build for CPUs. vLLM has an environment of Pliant's
(docs/vllm.md)."""
PROMPT_TOKENS, OUTPUT_TOKENS = 32, 16
LIMIT = 1800.0  # seconds of one run


@dataclass(frozen=True)
class Load:
    """Where to send how many requests. `tokenizer`: a folder; `folder`: of reports."""

    url: str
    model: str
    tokenizer: str
    folder: Path
    requests: int


def run(tool: str, *options: str) -> str:
    """Run a command of this environment and return its output. Raises `AssertionError` if it fails."""
    command = [str(Path(sys.executable).with_name(tool)), *options]
    output = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert output.returncode == 0, f"status {output.returncode}: {output.stdout[-800:]} {output.stderr[-800:]}"
    return output.stdout


def vllm_bench(load: Load, backend: str, endpoint: str) -> object:
    report = load.folder / f"{backend}.json"
    where = ("--backend", backend, "--endpoint", endpoint, "--base-url", load.url)
    model = ("--model", load.model, "--tokenizer", load.tokenizer)
    data = ("--dataset-name", "random", "--random-input-len", str(PROMPT_TOKENS), "--ignore-eos")
    sizes = ("--random-output-len", str(OUTPUT_TOKENS), "--num-prompts", str(load.requests), "--max-concurrency", "4")
    kept = ("--save-result", "--save-detailed", "--result-dir", str(load.folder), "--result-filename", report.name)
    run("vllm", "bench", "serve", *where, *model, *data, *sizes, *kept, "--disable-tqdm")
    figures = json.loads(report.read_text())
    assert (figures["completed"], figures["failed"]) == (load.requests, 0), figures.get("errors")
    assert figures["total_output_tokens"] == load.requests * OUTPUT_TOKENS, figures["total_output_tokens"]
    return f"{load.requests} requests, {figures['total_output_tokens']} tokens"


def guidellm(load: Load, path: str) -> object:
    report = load.folder / f"guidellm-{path.rsplit('/', 1)[-1]}-{'chat' if 'chat' in path else 'text'}.json"
    run(
        "guidellm",
        "run",
        *("--backend", f"kind=openai_http,target={load.url},model={load.model},request_format={path}"),
        *("--tokenizer", f"kind=hf_auto,model={load.tokenizer}"),
        *("--profile", "kind=concurrent,streams=2"),
        *("--constraint", f"kind=max_requests,count={load.requests}"),
        *("--data", f"kind=synthetic_text,prompt_tokens={PROMPT_TOKENS},output_tokens={OUTPUT_TOKENS}"),
        *("--output", f"kind=json,path={report}", "--disable-console-interactive"),
    )
    (benchmark,) = json.loads(report.read_text())["benchmarks"]
    totals = benchmark["metrics"]["request_totals"]
    assert (totals["successful"], totals["errored"]) == (load.requests, 0), benchmark["requests"]["errored"][:1]
    tokens = [answered["output_tokens"] for answered in benchmark["requests"]["successful"]]
    assert set(tokens) == {OUTPUT_TOKENS}, tokens
    return f"{load.requests} requests, {sum(tokens)} tokens"


def aiperf(load: Load, *options: str) -> object:
    """Its own count of an output's tokens is held against the service's, which it reports as usage."""
    folder = load.folder / ("aiperf-stream" if "--streaming" in options else "aiperf-whole")
    run(
        "aiperf",
        "profile",
        *("--model", load.model, "--tokenizer", load.tokenizer, "--url", load.url, "--endpoint-type", "chat", *options),
        *("--request-count", str(load.requests), "--num-dataset-entries", str(load.requests), "--concurrency", "2"),
        *("--prompt-input-tokens-mean", str(PROMPT_TOKENS), "--prompt-output-tokens-mean", str(OUTPUT_TOKENS)),
        *("--extra-inputs", "ignore_eos:true", "--output-artifact-dir", str(folder), "--ui", "none"),
        *("--no-gpu-telemetry", "--workers-max", "1"),
    )
    figures: dict[str, Any] = json.loads((folder / "profile_export_aiperf.json").read_text())
    assert figures["request_count"]["avg"] == load.requests and not figures["error_summary"], figures["error_summary"]
    assert not figures["was_cancelled"] and figures["usage_completion_tokens"]["avg"] == OUTPUT_TOKENS, figures
    return f"{load.requests} requests, {figures['total_usage_completion_tokens']['avg']:g} tokens"


def runs(client: str, load: Load) -> Mapping[str, Any]:
    """Return the runs of a client by what they do."""
    if client == "vllm":
        return {
            "bench serve, backend openai, random data": partial(vllm_bench, load, "openai", "/v1/completions"),
            "bench serve, backend openai-chat": partial(vllm_bench, load, "openai-chat", "/v1/chat/completions"),
        }
    if client == "guidellm":
        return {
            "text_completions, synthetic data": partial(guidellm, load, "/v1/completions"),
            "chat_completions, synthetic data": partial(guidellm, load, "/v1/chat/completions"),
        }
    return {
        "profile chats": partial(aiperf, load),
        "profile streamed chats": partial(aiperf, load, "--streaming"),
    }


def main() -> int:
    """Run one client, and return the exit status."""
    given = arguments("client", "model", "tokenizer", "folder", requests=8)
    load = Load(given.url, given.model, given.tokenizer, Path(given.folder), given.requests)
    return take_steps(given.client, runs(given.client, load))


if __name__ == "__main__":
    raise SystemExit(main())
