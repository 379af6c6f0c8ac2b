"""Options that the commands of several systems have."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def device(parser: ArgumentParser, cpu: str | None = "cpu", threads: int | None = 1) -> None:
    """`cpu`, `threads`: the defaults; None where something else says what is taken without the option."""
    parser.add_argument("--device", default=cpu, help="cpu, cuda, cuda:1, ... (default: cpu)")
    parser.add_argument("--threads", type=int, default=threads, help="torch threads on CPU (default: 1)")


def training(parser: ArgumentParser, addresses: str) -> None:
    """`addresses`: of the data that a system can be trained on."""
    parser.add_argument("--config", help="TOML file (see docs/SYSTEM.md)")
    parser.add_argument("--data", action="append", metavar="[NAME=]ADDRESS", help=f"one a task: {addresses}")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ...")
    parser.add_argument("--limit", type=int, help="examples a task, for a first try")


def serving(parser: ArgumentParser) -> None:
    """Options without a default here: the environment (PLIANT_...) or the settings of the service have it."""
    parser.add_argument("--port", type=int, default=3000, help="on 127.0.0.1 (default: 3000)")
    device(parser, None, None)
    text = "between looks at the registry (30; 0: never)"
    parser.add_argument("--refresh", dest="refresh_seconds", type=float, metavar="SECONDS", help=text)
    text = "accept a profile of another class of device"
    parser.add_argument("--any-profile", action="store_true", default=None, help=text)
    parser.add_argument("--journal", type=Path, help="write every event and decision to this file")


def margin(parser: ArgumentParser) -> None:
    parser.add_argument("--margin", type=float, help="share of the time to a deadline kept for the way back (0.15)")


def workers(parser: ArgumentParser) -> None:
    parser.add_argument("--workers", type=int, help="devices, each a process of its own (1)")


def policy(parser: ArgumentParser, policies: Mapping[str, str], default: str | None = None) -> None:
    """`policies`: name -> what it does."""
    text = "; ".join(f"{name}: {what}" for name, what in policies.items())
    parser.add_argument("--policy", choices=tuple(policies), default=default, help=text)


def load(parser: ArgumentParser, columns: str, more: str = "") -> None:
    """`columns`: of a recorded trace. `more`: the kinds of load that this system has besides."""
    kinds = f"reference, poisson:RATE:SECONDS, bursty:RATE:SECONDS or trace:FILE (csv or parquet: {columns}){more}"
    parser.add_argument("--load", default="reference", help=kinds)
    parser.add_argument("--seed", type=int, default=0)


def given(args: Namespace, names: Sequence[str]) -> dict[str, Any]:
    """Return those of the options `names` that were given."""
    return {name: getattr(args, name) for name in names if getattr(args, name, None) is not None}
