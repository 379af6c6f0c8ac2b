"""Runs the field's own clients, unmodified and offline, against live services, and prints what came of each.

    python -m qa.conformance.run [--only "openai lm-eval"] [--long] [--texts FILE.parquet]

Each client has a virtual environment of its own in PLIANT_HOME/conformance (.pliant by default), with pinned requirements;
what it writes lies there, too. PLIANT_SMOLLM2 names the folder of a language model that packing serves, instead of a tiny
one of random weights. The exit status is 1 if a client failed, or none could be run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pliant.benchmarks.places import ROOT, SHARED
from pliant.errors import PliantError
from qa.conformance.environments import NotInstalledError, python_of
from qa.conformance.services import MODELS, LiveService, live

SCRIPTS = Path(__file__).with_name("clients")
TEXTS = SHARED / "text" / "sst2_validation.parquet"
ITEMS, REQUESTS = {"quick": 50, "long": 500}, {"quick": 8, "long": 64}
LIMIT = 3600.0  # seconds of a client
VLLM = "vllm"
"""The client that is run from an environment of the user's."""
VLLM_PYTHON = "PLIANT_VLLM_PYTHON"
"""The environment variable that names the Python of an environment with vLLM."""
_NOWHERE = "http://127.0.0.1:9"  # the port of a service that discards: nothing listens there
_REFUSED = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"), _NOWHERE),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
    "HF_ENDPOINT": _NOWHERE,
    **dict.fromkeys(("HF_HUB_DISABLE_TELEMETRY", "DO_NOT_TRACK", "VLLM_NO_USAGE_STATS"), "1"),
}
_OFFLINE = dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"), "1")
_KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS")


@dataclass(frozen=True, slots=True)
class Client:
    """A client's script against a system, and the pinned requirements of the client.

    `hub_offline`: whether HF_HUB_OFFLINE is set, with which some clients refuse this machine's addresses or folders.
    """

    name: str
    script: str
    system: str
    pins: tuple[str, ...] = ()
    hub_offline: bool = True


_OPENAI, _HUB = ("openai==3.57.0",), ("huggingface_hub==2.4.0", "numpy")
_TORCH = "torch==2.13.0"  # a release that has a build for CPUs
_LANGCHAIN = ("langchain-openai==1.7.4", "tiktoken==0.14.0", "llama-index-core==0.14.25")
"""llama-index-core has a copy of cl100k_base's vocabulary, which tiktoken else downloads."""
_LANGCHAIN_HUB = ("--no-deps langchain-huggingface==1.2.3", "langchain-core==1.8.3", *_HUB)
"""It is installed alone, as it would bring torch."""
_LLAMA = "llama-index-embeddings-text-embeddings-inference"
_RERANK = "llama-index-postprocessor-tei-rerank"
_TRITON, _FUZZ = ("tritonclient[http]==2.73.0",), ("schemathesis==4.32.5",)
CLIENTS: tuple[Client, ...] = (
    Client("openai", "chats.py", "packing", _OPENAI),
    Client("huggingface_hub", "chats.py", "packing", _HUB, hub_offline=False),
    Client("inspect-ai", "chats.py", "packing", ("inspect-ai==0.3.285", *_OPENAI)),
    Client("llm-comply", "commands.py", "packing", ("llm-comply==0.5.0",)),
    Client("lm-eval", "commands.py", "packing", ("lm-eval[api,hf]==0.4.13", _TORCH, "transformers==5.23.0")),
    Client("guidellm", "commands.py", "packing", ("guidellm==0.8.1", _TORCH)),
    Client("aiperf", "commands.py", "packing", ("aiperf==0.13.0",), hub_offline=False),
    Client(VLLM, "commands.py", "packing"),
    Client("huggingface_hub", "tei.py", "bins", _HUB, hub_offline=False),
    Client("openai", "tei.py", "bins", _OPENAI),
    Client("langchain-openai", "tei.py", "bins", _LANGCHAIN),
    Client("langchain-huggingface", "tei.py", "bins", _LANGCHAIN_HUB, hub_offline=False),
    Client(_LLAMA, "tei.py", "bins", (f"{_LLAMA}==0.6.0",)),
    Client(_RERANK, "tei.py", "bins", (f"{_RERANK}==0.6.0",)),
    Client("cohere", "tei.py", "bins", ("cohere==7.3.1",)),
    *(Client("tritonclient[http]", "oip.py", system, _TRITON) for system in ("bins", "cascade", "tokens")),
    *(Client("schemathesis", "pages.py", system, _FUZZ) for system in MODELS),
)


def choose(words: Sequence[str]) -> list[Client]:
    """Return the clients that are named, by their name or their system's; all without words. Raises `ValueError`."""
    known = {word for client in CLIENTS for word in (client.name, client.system)}
    if unknown := [word for word in words if word not in known]:
        raise ValueError(f"client is {unknown[0]!r}, but must be one of {', '.join(sorted(known))}")
    return [client for client in CLIENTS if not words or {client.name, client.system} & set(words)]


PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"
WORDS = {True: "ok", False: FAILED, None: "left out"}
HEADINGS = ("client", "version", "against", "what it did", "result", "steps", "seconds")


@dataclass(frozen=True, slots=True)
class Row:
    """A client against a system. `steps`: what it did, whether that was right (None: left out), and details.

    `reason`: why it was not run, or why it failed besides its steps; else empty.
    """

    client: str
    version: str
    system: str
    steps: tuple[tuple[str, bool | None, str], ...]
    reason: str = ""
    installed: bool = True
    seconds: float = 0.0

    @property
    def taken(self) -> dict[str, bool]:
        return {did: ok for did, ok, _ in self.steps if ok is not None}

    @property
    def result(self) -> str:
        if not self.installed:
            return NOT_RUN
        return PASSED if self.taken and not self.reason and all(self.taken.values()) else FAILED


def show(rows: Sequence[Row]) -> None:
    """Print the rows as a table, and below it what failed, what was not run and what was left out."""
    table, console = Table(*HEADINGS), Console(width=160, markup=False)
    for row in rows:
        steps = f"{sum(row.taken.values())} of {len(row.taken)}"
        did = textwrap.shorten("; ".join(row.taken) or row.reason, 72)
        table.add_row(row.client, row.version or "-", row.system, did, row.result, steps, f"{row.seconds:.0f}")
    console.print(table)
    for row in rows:
        name, lines = f"{row.client} against {row.system}", [f"{row.result}: {row.reason}"] if row.reason else []
        lines += [f"{WORDS[ok]}: {did}: {detail}" for did, ok, detail in row.steps if not ok]
        for line in lines:
            console.print(f"{name}: {line}", soft_wrap=True)


def status(rows: Sequence[Row]) -> int:
    """Return the exit status: 1 if a client failed, or if none was run."""
    results = [row.result for row in rows]
    return int(FAILED in results or PASSED not in results)


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs clients. `folder`: of environments and of all that is written; `size`: quick or long."""

    folder: Path
    texts: Path
    size: str

    def run(self, clients: Sequence[Client]) -> Iterator[Row]:
        """Yield a row for each client, system by system. A service that does not start fails its clients."""
        for system in MODELS:
            installed = list[tuple[Client, Path]]()
            for client in clients:
                if client.system == system:
                    say(f"{client.name}: its environment")
                    try:
                        installed.append((client, self._python(client)))
                    except (NotInstalledError, PliantError) as error:
                        yield Row(client.name, "", client.system, (), str(error), installed=False)
            if not installed:
                continue
            say(f"{system}: starting its service")
            folder = empty(self.folder / "services" / system)
            try:
                with live(system, folder) as service:
                    for client, python in installed:
                        yield self.use(client, python, service)
            except PliantError as error:
                reason = f"the service of {system} did not start: {error}"
                yield from (Row(client.name, "", system, (), reason) for client, _ in installed)
            finally:
                # All but its log goes: a registry holds a model's weights several times.
                for path in folder.iterdir():
                    if path.is_dir():
                        shutil.rmtree(path, ignore_errors=True)
                    elif path.suffix != ".log":
                        path.unlink(missing_ok=True)

    def _python(self, client: Client) -> Path:
        if client.name != VLLM:
            return python_of(self.folder / simple(client.name), client.pins)
        if given := os.environ.get(VLLM_PYTHON):
            return Path(given)
        raise NotInstalledError(f"{VLLM_PYTHON} names no Python of an environment with vLLM")

    def use(self, client: Client, python: Path, service: LiveService) -> Row:
        """Run a client's script against a service, and return what came of it."""
        scratch = empty(self.folder / "runs" / f"{simple(client.name)}-{service.system}")
        say(f"{client.name}: against {service.system}")
        given = {"client": client.name, "system": client.system, "model": service.model, "folder": scratch}
        given |= {"tokenizer": service.model_folder, "items": ITEMS[self.size], "requests": REQUESTS[self.size]}
        if client.name == "lm-eval":
            given["rows"] = scratch / "rows.jsonl"
            write_rows(self.texts, scratch / "rows.jsonl", ITEMS[self.size])
        options = [word for name, value in given.items() for word in (f"--{name}", str(value))]
        started, errors = time.monotonic(), scratch / "stderr.log"
        command = [str(python), str(SCRIPTS / client.script), service.url, *options]
        output, status, reason = run_alone(command, variables(client, python, scratch), errors)
        lines = [line for line in map(read_line, output.splitlines()) if line]
        steps = tuple((str(line["did"]), line["ok"], str(line["detail"])) for line in lines)
        for did, ok, _ in steps:
            say(f"  {WORDS[ok]}  {did}")
        if not reason and (not steps or (status != 0 and all(ok is not False for _, ok, _ in steps))):
            reason = f"its script ended with status {status}; see {errors}"
        version = str(lines[-1]["version"]) if lines else ""
        return Row(client.name, version, service.system, steps, reason, seconds=time.monotonic() - started)


def run_alone(command: Sequence[str], environment: Mapping[str, str], errors: Path) -> tuple[str, int, str]:
    """Return what a command prints, its status, and why it was ended, if it was. Nothing that it started is left."""
    with errors.open("w") as file:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=errors.parent,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            start_new_session=True,
        )
        reason = ""
        try:
            output, _ = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            kill_group(process.pid)
            output, _ = process.communicate()
            reason = f"it made no end within {LIMIT:g} s"
        finally:
            kill_group(process.pid)  # processes that it left, and itself after Ctrl-C
    return output, process.returncode, reason


def variables(client: Client, python: Path, scratch: Path) -> dict[str, str]:
    """Return all environment variables of a client: none of Pliant's, no network, and a home in its scratch folder."""
    values = {name: value for name, value in os.environ.items() if name in _KEPT}
    values["PATH"] = os.pathsep.join(filter(None, (str(python.parent), values.get("PATH", ""))))
    values |= {"HOME": str(scratch), "HF_HOME": str(scratch / "hub"), "XDG_CACHE_HOME": str(scratch / "cache")}
    values |= {**_REFUSED, **(_OFFLINE if client.hub_offline else {})}
    return values | ({"VLLM_TARGET_DEVICE": "cpu"} if client.name == VLLM else {})


def read_line(line: str) -> dict[str, Any] | None:
    """Return a line of a client's script; None for what its libraries print."""
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) and {"client", "version", "did", "ok", "detail"} <= set(fields) else None


def write_rows(texts: Path, path: Path, count: int) -> None:
    """Write rows of `text` and `label`: real reviews where they are there, else sentences of the documentation.

    The labels of the latter mean nothing; log-likelihoods can be compared all the same.
    """
    import pandas

    if texts.is_file():
        rows = pandas.read_parquet(texts, columns=["text", "label"]).head(count).to_dict("records")
    else:
        words = " ".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").glob("*.md")))
        sentences = [text for text in re.split(r"(?<=\.)\s+", words) if text.isascii() and 20 < len(text) < 200]
        rows = [{"text": text, "label": number % 2} for number, text in enumerate(sentences[:count])]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def empty(folder: Path) -> Path:
    """Return the folder, made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def kill_group(leader: int) -> None:
    """End a process and all that it started, as far as they are there."""
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def simple(name: str) -> str:
    """Return the name of a client as that of a folder."""
    return re.sub(r"\W+", "-", name).strip("-")


def say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the clients, print the table, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names of clients or systems, with spaces between")
    parser.add_argument(
        "--long", action="store_true", help="500 log-likelihoods instead of 50, 64 requests instead of 8"
    )
    parser.add_argument("--texts", type=Path, default=TEXTS, help="Parquet file with text and label (0 or 1)")
    options = parser.parse_args(arguments)
    try:
        clients = choose(options.only.replace(",", " ").split())
    except ValueError as error:
        parser.error(str(error))
    folder = Path(os.environ.get("PLIANT_HOME") or ROOT / ".pliant").resolve() / "conformance"
    rows = list(Runner(folder, options.texts, "long" if options.long else "quick").run(clients))
    folder.mkdir(parents=True, exist_ok=True)
    results = [
        {
            **asdict(row),
            "steps": [dict(zip(("did", "ok", "detail"), step, strict=True)) for step in row.steps],
            "result": row.result,
        }
        for row in rows
    ]
    (folder / "results.json").write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    show(rows)
    return status(rows)


if __name__ == "__main__":
    raise SystemExit(main())
