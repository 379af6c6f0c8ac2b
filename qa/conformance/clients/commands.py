"""Commands of the field, unmodified, against a live packing service: llm-comply, lm-eval and three load generators."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import urllib.error
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from steps import Step, fetch, run

LIMIT = 3600.0  # seconds of one command


def command(line: str, ends_well: bool = True) -> str:
    """Run a command of this environment and return its output. Raises `AssertionError` if it fails."""
    tool, *options = line.split()
    words = [str(Path(sys.executable).with_name(tool)), *options]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert ran.returncode == 0 or not ends_well, f"status {ran.returncode}: {ran.stdout[-800:]} {ran.stderr[-800:]}"
    assert ran.stdout or ends_well, ran.stderr[-1000:]
    return ran.stdout


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


def comply(given: argparse.Namespace) -> dict[str, Step]:
    """llm-comply's own cases of OpenAI's chats. Those of `DEVIATIONS` are known to fail: they are left out, and named."""
    which = f"--filter {','.join(CASES)} -u {given.url}/v1 -k none -m {given.model}"
    output = command(f"llm-comply --format openai-chat {which} --timeout 300 --json", ends_well=False)
    results = {result["id"]: result for result in json.loads(output)["results"]}

    def passed(case: str) -> object:
        assert results[case]["status"] == "passed", results[case].get("errors", results[case])
        return "; ".join(results[case].get("warnings", []))

    return {case: partial(passed, case) for case in CASES}


TOLERANCE = 1e-3  # of a log-likelihood
CHOICE, WRITE = "pliant_choice", "pliant_write"
WRITTEN = 5  # items of the generative task
CHATTERS = 2

TASKS = {
    CHOICE: """
output_type: multiple_choice
doc_to_text: "Review: {{text}}\\nSentiment:"
doc_to_choice: ["negative", "positive"]
doc_to_target: label
metric_list:
  - metric: acc
""",
    WRITE: """
output_type: generate_until
doc_to_text: "Is this review positive or negative? {{text}}"
doc_to_target: "{{['negative', 'positive'][label]}}"
generation_kwargs:
  until: ["\\n\\n"]
  max_gen_toks: 16
  temperature: 0.0
metric_list:
  - metric: exact_match
""",
}


def harness(given: argparse.Namespace) -> dict[str, Step]:
    """lm-evaluation-harness, and its own model of the same weights.

    Out of a file of lines of JSON, each with `text` and `label` (0 or 1), it makes tasks. The log-likelihoods that it
    computes over HTTP, while others chat with the same service, are compared with those of its backend `hf`.
    """
    folder = Path(given.folder)
    for name, task in TASKS.items():
        data = f"dataset_path: json\ndataset_kwargs:\n  data_files:\n    test: {given.rows}\ntest_split: test\n"
        (folder / f"{name}.yaml").write_text(f"task: {name}\n{data}{task}")

    def samples_of(backend: str, arguments: str, task: str, items: int, options: str) -> list[dict[str, Any]]:
        """Run a task and return its samples in order."""
        output = folder / f"{backend}-{task}"
        what = f"--model {backend} --model_args {arguments} --tasks {task} --limit {items} {options}"
        command(f"lm-eval run {what} --include_path {folder} --output_path {output} --log_samples")
        (path,) = output.rglob("samples_*.jsonl")
        samples = sorted(map(json.loads, path.read_text().splitlines()), key=lambda sample: sample["doc_id"])
        assert len(samples) == items, f"{len(samples)} samples instead of {items}"
        return samples

    def likelihoods(samples: list[dict[str, Any]]) -> list[float]:
        return [float(resps[0][0]) for sample in samples for resps in sample["resps"]]

    def compare() -> object:
        """Compare all log-likelihoods, of both choices of each item. Returns the greatest difference."""
        served = f"model={given.model},base_url={given.url}/v1/completions,tokenizer={given.tokenizer}"
        with chatting(given.url, given.model) as chats:
            served += ",num_concurrent=4,max_length=1024"
            over_http = samples_of("local-completions", served, CHOICE, given.items, "")
        assert chats, "nobody chatted meanwhile"
        assert all(status == 200 for status in chats), chats
        local = f"pretrained={given.tokenizer},dtype=float32"
        by_itself = samples_of("hf", local, CHOICE, given.items, "--device cpu --batch_size 8")
        pairs = list(zip(likelihoods(over_http), likelihoods(by_itself), strict=True))
        apart = max(abs(a - b) for a, b in pairs)
        assert apart <= TOLERANCE, f"a log-likelihood differs by {apart:.2e} from that of the backend hf"
        accuracy = sum(bool(sample["acc"]) for sample in over_http) / len(over_http)
        return (
            f"{len(over_http)} items, {len(pairs)} log-likelihoods, greatest difference {apart:.1e}, accuracy "
            f"{accuracy:.3f}, beside {len(chats)} chats"
        )

    def write() -> object:
        served = f"model={given.model},base_url={given.url}/v1/chat/completions,num_concurrent=2"
        samples = samples_of("local-chat-completions", served, WRITE, WRITTEN, "--apply_chat_template")
        texts = [sample["resps"][0][0] for sample in samples]
        assert all(isinstance(text, str) for text in texts) and any(texts), texts
        return f"{len(texts)} items"

    what = f"local-completions: log-likelihoods of a task of two choices, against hf, within {TOLERANCE:g}"
    return {what: compare, "local-chat-completions: a generative task": write}


@contextmanager
def chatting(url: str, model: str) -> Iterator[list[int]]:
    """Chat with the service in threads until the end; yields the statuses of the answers, as they come."""
    stopped, statuses = threading.Event(), list[int]()
    body = {"model": model, "messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 32}

    def chat() -> None:
        while not stopped.is_set():
            try:
                fetch(f"{url}/v1/chat/completions", body)
                statuses.append(200)
            except urllib.error.HTTPError as error:
                statuses.append(error.code)

    with ThreadPoolExecutor(CHATTERS) as pool:
        chats = [pool.submit(chat) for _ in range(CHATTERS)]
        try:
            yield statuses
        finally:
            stopped.set()
        for each in chats:
            each.result()


PROMPT_TOKENS, OUTPUT_TOKENS = 32, 16
TEXTS, CHATS = "/v1/completions", "/v1/chat/completions"


def vllm_bench(given: argparse.Namespace, backend: str, endpoint: str) -> object:
    report = Path(given.folder) / f"{backend}.json"
    command(
        f"vllm bench serve --backend {backend} --endpoint {endpoint} --base-url {given.url} --model {given.model} "
        f"--tokenizer {given.tokenizer} --dataset-name random --random-input-len {PROMPT_TOKENS} --ignore-eos "
        f"--random-output-len {OUTPUT_TOKENS} --num-prompts {given.requests} --max-concurrency 4 --save-result "
        f"--save-detailed --result-dir {given.folder} --result-filename {report.name} --disable-tqdm"
    )
    figures = json.loads(report.read_text())
    assert (figures["completed"], figures["failed"]) == (given.requests, 0), figures.get("errors")
    assert figures["total_output_tokens"] == given.requests * OUTPUT_TOKENS, figures["total_output_tokens"]
    return f"{given.requests} requests, {figures['total_output_tokens']} tokens"


def guidellm(given: argparse.Namespace, path: str) -> object:
    report = Path(given.folder) / f"guidellm-{'chat' if 'chat' in path else 'text'}.json"
    command(
        f"guidellm run --backend kind=openai_http,target={given.url},model={given.model},request_format={path} "
        f"--tokenizer kind=hf_auto,model={given.tokenizer} --profile kind=concurrent,streams=2 "
        f"--constraint kind=max_requests,count={given.requests} "
        f"--data kind=synthetic_text,prompt_tokens={PROMPT_TOKENS},output_tokens={OUTPUT_TOKENS} "
        f"--output kind=json,path={report} --disable-console-interactive"
    )
    (benchmark,) = json.loads(report.read_text())["benchmarks"]
    totals = benchmark["metrics"]["request_totals"]
    assert (totals["successful"], totals["errored"]) == (given.requests, 0), benchmark["requests"]["errored"][:1]
    tokens = [answered["output_tokens"] for answered in benchmark["requests"]["successful"]]
    assert set(tokens) == {OUTPUT_TOKENS}, tokens
    return f"{given.requests} requests, {sum(tokens)} tokens"


def aiperf(given: argparse.Namespace, option: str = "") -> object:
    """Its own count of an output's tokens is held against the service's, which it reports as usage."""
    folder = Path(given.folder) / f"aiperf{option}"
    command(
        f"aiperf profile --model {given.model} --tokenizer {given.tokenizer} --url {given.url} --endpoint-type chat "
        f"{option} --request-count {given.requests} --num-dataset-entries {given.requests} --concurrency 2 "
        f"--prompt-input-tokens-mean {PROMPT_TOKENS} --prompt-output-tokens-mean {OUTPUT_TOKENS} "
        f"--extra-inputs ignore_eos:true --output-artifact-dir {folder} --ui none --no-gpu-telemetry --workers-max 1"
    )
    figures: dict[str, Any] = json.loads((folder / "profile_export_aiperf.json").read_text())
    assert figures["request_count"]["avg"] == given.requests and not figures["error_summary"], figures["error_summary"]
    assert not figures["was_cancelled"] and figures["usage_completion_tokens"]["avg"] == OUTPUT_TOKENS, figures
    return f"{given.requests} requests, {figures['total_usage_completion_tokens']['avg']:g} tokens"


GENERATORS: Mapping[str, Mapping[str, Callable[[argparse.Namespace], object]]] = {
    "vllm": {
        "bench serve, backend openai, random data": partial(vllm_bench, backend="openai", endpoint=TEXTS),
        "bench serve, backend openai-chat": partial(vllm_bench, backend="openai-chat", endpoint=CHATS),
    },
    "guidellm": {
        "text_completions, synthetic data": partial(guidellm, path=TEXTS),
        "chat_completions, synthetic data": partial(guidellm, path=CHATS),
    },
    "aiperf": {"profile chats": aiperf, "profile streamed chats": partial(aiperf, option="--streaming")},
}
"""Load generators. A run fails unless every request was answered in full, by the client's own report."""


def load(given: argparse.Namespace) -> Mapping[str, Step]:
    return {what: partial(run_of, given) for what, run_of in GENERATORS[given.client].items()}


CLIENTS = {"llm-comply": comply, "lm-eval": harness}

if __name__ == "__main__":
    left_out = DEVIATIONS if "llm-comply" in sys.argv else {}
    run(lambda given: CLIENTS.get(given.client, load)(given), left_out)
