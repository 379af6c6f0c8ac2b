"""Options that the commands of several systems have."""

from __future__ import annotations

from argparse import Action, ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

DEVICE = "auto (the GPU where there is one, else the CPU), cpu, cuda, cuda:1, ... (default: auto)"


def device(parser: ArgumentParser, name: str | None = "auto", threads: int | None = 1) -> None:
    """Add `--device` and `--threads` with the defaults `name` and `threads`; None: nothing is set without the option."""
    parser.add_argument("--device", default=name, help=DEVICE)
    parser.add_argument("--threads", type=int, default=threads, help="threads of PyTorch on a CPU (default: 1)")


OTHER_DEVICE = "replace the champion also where it was measured on another class of device"


def profiling(parser: ArgumentParser) -> None:
    """Add the options of `pliant profile`."""
    device(parser)
    parser.add_argument("--other-device", action="store_true", help=OTHER_DEVICE)


def training(parser: ArgumentParser, addresses: str) -> None:
    """Add the options of every flow. `addresses`: forms of addresses of data that a system can be trained on."""
    parser.add_argument("--config", metavar="FILE", help="TOML file with the flow's settings (see docs/SYSTEM.md)")
    text = f"data set, once for each task: {addresses}"
    parser.add_argument("--data", action="append", metavar="[NAME=]ADDRESS", help=text)
    parser.add_argument("--device", help=DEVICE)
    parser.add_argument("--other-device", action="store_true", default=None, help=OTHER_DEVICE)
    text = "take at most so many examples of each task, for a first try (default: all)"
    parser.add_argument("--limit", type=int, metavar="N", help=text)
    text = "allow a task that the live release lacks (one that FILE names is allowed anyway)"
    parser.add_argument("--new-task", action="store_true", help=text)


def spare(parser: ArgumentParser) -> None:
    text = "device processes that stand by with their models loaded, for when one dies or hangs (default: 0)"
    parser.add_argument("--spare", type=int, metavar="N", help=text)


def serving(parser: ArgumentParser) -> None:
    """Add the options of every service; their defaults are in the environment (PLIANT_...) or its settings."""
    parser.add_argument("--port", type=int, default=3000, help="port of the address; 0: any free one (default: 3000)")
    access(parser)
    device(parser, None, None)
    text = "seconds between two looks for a new champion in the registry; 0: never look (default: 30)"
    parser.add_argument("--refresh", dest="refresh_seconds", type=float, metavar="SECONDS", help=text)
    text = (
        "seconds that the former champion's models stay loaded after a new one took over, so that a rollback takes effect "
        "at once; 0: none, which saves their memory (default: 600)"
    )
    parser.add_argument("--standby", dest="standby_seconds", type=float, metavar="SECONDS", help=text)
    text = "serve even where the champion was measured on another class of device"
    parser.add_argument("--any-profile", action="store_true", default=None, help=text)
    text = "write every event and decision to FILE; the file of a former run is kept as FILE.1, FILE.2, ..."
    parser.add_argument("--journal", type=Path, metavar="FILE", help=text)


def access(parser: ArgumentParser) -> None:
    """Add the options that say who may call a service (docs/operations.md)."""
    text = "address to listen on; without keys only this machine's own, unless --open is given (default: 127.0.0.1)"
    parser.add_argument("--host", metavar="ADDRESS", help=text)
    text = "let other machines call the service without a key"
    parser.add_argument("--open", action="store_true", default=None, help=text)
    keys_file(parser)
    text = "PEM file with the certificate chain, for HTTPS"
    parser.add_argument("--tls-cert", type=Path, metavar="FILE", help=text)
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="PEM file with the private key of the certificate")
    text = "further name by which clients call the service; may be repeated"
    parser.add_argument("--allowed-host", dest="allowed_hosts", action=Listed, metavar="NAME", help=text)
    text = "address or network of a proxy whose X-Forwarded-For and -Proto count; may be repeated"
    parser.add_argument("--trusted-proxy", dest="trusted_proxies", action=Listed, metavar="ADDRESS", help=text)
    text = "website whose pages may call the service, such as https://app.example.org; may be repeated"
    parser.add_argument("--cors-origin", dest="cors_origins", action=Listed, metavar="ORIGIN", help=text)


def keys_file(parser: ArgumentParser) -> None:
    text = "file of keys (default: PLIANT_KEYS_FILE, or else keys.json in PLIANT_HOME)"
    parser.add_argument("--keys", dest="keys_file", type=Path, metavar="FILE", help=text)


class Listed(Action):
    """Joins the values of an option that is repeated by commas."""

    def __call__(self, _parser: object, namespace: Namespace, value: Any, _option: str | None = None) -> None:
        former = getattr(namespace, self.dest)
        setattr(namespace, self.dest, f"{former},{value}" if former else value)


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
