"""The clients that the runner knows: each with its script, its system, and what its script is called with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qa.conformance.environments import requirements_of

SCRIPTS = Path(__file__).with_name("clients")
VLLM = "vllm"
"""The client that is run from an environment of the user's."""


@dataclass(frozen=True, slots=True)
class Client:
    """A client's script against a system.

    `settings`: whether the script takes --client, --model, --tokenizer and so on; `by_name`: whether it takes the client's
    name; `arguments`: what else it takes; `hub_offline`: whether HF_HUB_OFFLINE is set, with which some clients refuse this
    machine's addresses or folders.
    """

    name: str
    script: str
    system: str
    settings: bool = True
    by_name: bool = False
    arguments: tuple[str, ...] = ()
    hub_offline: bool = True

    @property
    def path(self) -> Path:
        return SCRIPTS / self.script

    @property
    def requirements(self) -> tuple[str, ...]:
        return requirements_of(self.path)[self.name]


_TEI = "tei.py"
_TRITON = "tritonclient[http]"

CLIENTS: tuple[Client, ...] = (
    Client("openai", "openai_client.py", "packing", settings=False),
    Client("huggingface_hub", "hub_client.py", "packing", settings=False, hub_offline=False),
    Client("inspect-ai", "inspect_client.py", "packing"),
    Client("llm-comply", "comply_client.py", "packing"),
    Client("lm-eval", "lm_eval_client.py", "packing"),
    Client("guidellm", "load_generators.py", "packing"),
    Client("aiperf", "load_generators.py", "packing", hub_offline=False),
    Client(VLLM, "load_generators.py", "packing"),
    *(
        Client(name, _TEI, "bins", settings=False, by_name=True, hub_offline="huggingface" not in name)
        for name in requirements_of(SCRIPTS / _TEI)
    ),
    *(Client(_TRITON, "oip.py", system, settings=False) for system in ("bins", "cascade", "tokens")),
    *(
        Client("schemathesis", "schemathesis_client.py", system, settings=False, arguments=(system,))
        for system in ("packing", "bins", "cascade", "tokens")
    ),
)


def choose(words: Sequence[str]) -> list[Client]:
    """Return the clients that are named, by their name or their system's; all without words. Raises `ValueError`."""
    known = {word for client in CLIENTS for word in (client.name, client.system)}
    if unknown := [word for word in words if word not in known]:
        raise ValueError(f"client is {unknown[0]!r}, but must be one of {', '.join(sorted(known))}")
    return [client for client in CLIENTS if not words or {client.name, client.system} & set(words)]
