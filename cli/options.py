"""Options that the commands of several systems have."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def device(parser: ArgumentParser, cpu: str | None = "cpu", threads: int | None = 1) -> None:
    """Add `--device` and `--threads` with the defaults `cpu` and `threads`; None: nothing is set without the option."""
    parser.add_argument("--device", default=cpu, help="cpu, cuda, cuda:1, ... (default: cpu)")
    parser.add_argument("--threads", type=int, default=threads, help="threads of PyTorch on a CPU (default: 1)")


def training(parser: ArgumentParser, addresses: str) -> None:
    """Add the options of every flow. `addresses`: forms of addresses of data that a system can be trained on."""
    parser.add_argument("--config", metavar="FILE", help="TOML file with the flow's settings (see docs/SYSTEM.md)")
    text = f"data set, once for each task: {addresses}"
    parser.add_argument("--data", action="append", metavar="[NAME=]ADDRESS", help=text)
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: cpu)")
    text = "take at most so many examples of each task, for a first try (default: all)"
    parser.add_argument("--limit", type=int, metavar="N", help=text)


def serving(parser: ArgumentParser) -> None:
    """Add the options of every service; their defaults are in the environment (PLIANT_...) or its settings."""
    parser.add_argument("--port", type=int, default=3000, help="port on 127.0.0.1; 0: any free one (default: 3000)")
    device(parser, None, None)
    text = "seconds between two looks for a new champion in the registry; 0: never look (default: 30)"
    parser.add_argument("--refresh", dest="refresh_seconds", type=float, metavar="SECONDS", help=text)
    text = "serve even where the champion was measured on another class of device"
    parser.add_argument("--any-profile", action="store_true", default=None, help=text)
    text = "device processes that stand by with their models loaded, for when one dies or hangs (default: 0)"
    parser.add_argument("--spare", type=int, metavar="N", help=text)
    text = "write every event and decision to FILE; the file of a former run is kept as FILE.1, FILE.2, ..."
    parser.add_argument("--journal", type=Path, metavar="FILE", help=text)


def margin(parser: ArgumentParser) -> None:
    text = "share of the time to a deadline that is kept for the way back to the client (default: 0.15)"
    parser.add_argument("--margin", type=float, metavar="SHARE", help=text)


def workers(parser: ArgumentParser) -> None:
    parser.add_argument("--workers", type=int, metavar="N", help="devices, each with its own process (default: 1)")


def simulated_workers(parser: ArgumentParser) -> None:
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="simulated devices (default: 1)")


def policy(parser: ArgumentParser, policies: Mapping[str, str], default: str | None = None) -> None:
    """Add `--policy`. `policies`: name -> what it does."""
    text = "; ".join(f"{name}: {what}" for name, what in policies.items())
    parser.add_argument("--policy", choices=tuple(policies), default=default, help=text)


def load(parser: ArgumentParser, columns: str, more: str = "") -> None:
    """Add `--load` and `--seed`. `columns`: of a recorded trace; `more`: kinds of load that this system has besides."""
    trace = f"trace:FILE (csv or parquet with the columns {columns})"
    kinds = f"reference, poisson:RATE:SECONDS, bursty:RATE:SECONDS or {trace}{more} (default: reference)"
    parser.add_argument("--load", default="reference", help=kinds)
    text = "equal seeds draw equal loads (default: 0)"
    parser.add_argument("--seed", type=int, default=0, metavar="N", help=text)


def given(args: Namespace, names: Sequence[str]) -> dict[str, Any]:
    """Return those of the options `names` that were given."""
    return {name: getattr(args, name) for name in names if getattr(args, name, None) is not None}
