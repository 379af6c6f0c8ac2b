"""lm-evaluation-harness, unmodified, against a live packing service, and against its own model of the same weights.

    python qa/conformance/clients/lm_eval_client.py http://127.0.0.1:3000 --model NAME --tokenizer FOLDER \\
        --folder SCRATCH --rows FILE --items 50

runs in an environment with `REQUIREMENTS` and nothing of Pliant. ROWS is a file of lines of JSON, each with `text` and
`label` (0 or 1), out of which it makes tasks. The log-likelihoods that it computes over HTTP, while others chat with the
same service, are compared with those of its backend `hf` on the weights in FOLDER. Each step prints a line of JSON: client,
version, what it did, ok and detail. The exit status is 1 if a step failed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from steps import arguments, take_steps

REQUIREMENTS: Mapping[str, tuple[str, ...]] = {
    "lm-eval": ("lm-eval[api,hf]==0.4.13", "torch==2.13.0", "transformers==5.23.0")
}
"""The pinned requirements of each client. torch: a release that has a build for CPUs."""
TOLERANCE = 1e-3  # of a log-likelihood
CHOICE, WRITE = "pliant_choice", "pliant_write"
WRITTEN = 5  # items of the generative task
CHATTERS = 2
LIMIT = 3600.0  # seconds of one run

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


@dataclass(frozen=True)
class Harness:
    """Where the service and the files are. `rows`: of the tasks; `items`: so many of them are compared."""

    url: str
    model: str
    tokenizer: str
    folder: Path
    rows: Path
    items: int

    def write_tasks(self) -> None:
        for name, task in TASKS.items():
            data = f"dataset_path: json\ndataset_kwargs:\n  data_files:\n    test: {self.rows}\ntest_split: test\n"
            (self.folder / f"{name}.yaml").write_text(f"task: {name}\n{data}{task}")

    def run(self, backend: str, arguments: str, task: str, items: int, *options: str) -> list[dict[str, object]]:
        """Run a task and return its samples in order. Raises `AssertionError` if it fails."""
        tool, output = str(Path(sys.executable).with_name("lm-eval")), self.folder / f"{backend}-{task}"
        what = ["--model", backend, "--model_args", arguments, "--tasks", task, "--limit", str(items), *options]
        where = ["--include_path", str(self.folder), "--output_path", str(output), "--log_samples"]
        ran = subprocess.run([tool, "run", *what, *where], capture_output=True, text=True, timeout=LIMIT, check=False)
        assert ran.returncode == 0, ran.stderr[-1500:]
        (path,) = output.rglob("samples_*.jsonl")
        samples = sorted(map(json.loads, path.read_text().splitlines()), key=lambda sample: sample["doc_id"])
        assert len(samples) == items, f"{len(samples)} samples instead of {items}"
        return samples

    def compare(self) -> object:
        """Compare all log-likelihoods, of both choices of each item. Returns the greatest difference."""
        served = f"model={self.model},base_url={self.url}/v1/completions,tokenizer={self.tokenizer}"
        with self.chatting() as chats:
            over_http = self.run("local-completions", f"{served},num_concurrent=4,max_length=1024", CHOICE, self.items)
        assert chats, "nobody chatted meanwhile"
        assert all(status == 200 for status in chats), chats
        local = f"pretrained={self.tokenizer},dtype=float32"
        by_itself = self.run("hf", local, CHOICE, self.items, "--device", "cpu", "--batch_size", "8")
        pairs = list(zip(likelihoods(over_http), likelihoods(by_itself), strict=True))
        apart = max(abs(a - b) for a, b in pairs)
        assert apart <= TOLERANCE, f"a log-likelihood differs by {apart:.2e} from that of the backend hf"
        accuracy = sum(bool(sample["acc"]) for sample in over_http) / len(over_http)
        return (
            f"{len(over_http)} items, {len(pairs)} log-likelihoods, greatest difference {apart:.1e}, accuracy "
            f"{accuracy:.3f}, beside {len(chats)} chats"
        )

    def write(self) -> object:
        served = f"model={self.model},base_url={self.url}/v1/chat/completions,num_concurrent=2"
        samples = self.run("local-chat-completions", served, WRITE, WRITTEN, "--apply_chat_template")
        texts = [sample["resps"][0][0] for sample in samples]  # type: ignore[index]
        assert all(isinstance(text, str) for text in texts) and any(texts), texts
        return f"{len(texts)} items"

    @contextmanager
    def chatting(self) -> Iterator[list[int]]:
        """Chat with the service in threads until the end; yields the statuses of the answers, as they come."""
        stopped, statuses = threading.Event(), list[int]()

        def chat() -> None:
            while not stopped.is_set():
                messages = [{"role": "user", "content": "Tell me a story."}]
                body = {"model": self.model, "messages": messages, "max_tokens": 32}
                address = f"{self.url}/v1/chat/completions"
                request = urllib.request.Request(
                    address, json.dumps(body).encode(), {"content-type": "application/json"}
                )
                try:
                    with urllib.request.urlopen(request, timeout=300) as response:
                        statuses.append(response.status)
                except urllib.error.HTTPError as error:
                    statuses.append(error.code)

        threads = [threading.Thread(target=chat) for _ in range(CHATTERS)]
        for thread in threads:
            thread.start()
        try:
            yield statuses
        finally:
            stopped.set()
            for thread in threads:
                thread.join()


def likelihoods(samples: list[dict[str, object]]) -> list[float]:
    return [float(resps[0][0]) for sample in samples for resps in sample["resps"]]  # type: ignore[attr-defined]


def main() -> int:
    """Take both steps, and return the exit status."""
    given = arguments("model", "tokenizer", "folder", "rows", items=50)
    harness = Harness(given.url, given.model, given.tokenizer, Path(given.folder), Path(given.rows), given.items)
    harness.write_tasks()
    steps = {
        f"local-completions: log-likelihoods of a task of two choices, against hf, within {TOLERANCE:g}": harness.compare,
        "local-chat-completions: a generative task": harness.write,
    }
    return take_steps("lm-eval", steps)


if __name__ == "__main__":
    raise SystemExit(main())
