"""`pliant`: demo, train, profile, serve, simulate, bench. The only file that knows all folders.

Every failure that is a `PliantError` is one sentence on standard error and exit status 2; a bar that falls short is
exit status 1. Heavy imports wait until a command needs them.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pliant.errors import InputError, PliantError

SYSTEMS = ("tokens",)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    told = parser.parse_args(arguments)
    # Like Ctrl-C: what was started on the way is ended on the way out.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return int(told.run(told) or 0)
    except PliantError as error:
        print(f"pliant: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("pliant: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pliant",
        description="Adaptive serving of transformers: train, profile, judge, serve, replay.",
        epilog="State lies in .pliant/ (PLIANT_HOME) and mlruns/ (MLFLOW_TRACKING_URI) of the working directory.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _demo_parser(commands.add_parser("demo", help="the whole way: flow, registry, endpoint, replayed load"))
    _train_parser(commands.add_parser("train", help="run the flow: train, profile, judge, publish"))
    _profile_parser(commands.add_parser("profile", help="measure the champion on this device and publish the profile"))
    _serve_parser(commands.add_parser("serve", help="serve the champion over HTTP until interrupted"))
    _simulate_parser(commands.add_parser("simulate", help="what would this load cost on the champion's profile?"))
    _bench_parser(commands.add_parser("bench", help="measure every bar and say whether it holds"))
    return parser


def _system(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("system", choices=SYSTEMS, help="which system")


def _demo_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--keep", action="store_true", help="leave MLflow, Prefect and the endpoint running until Ctrl-C"
    )
    parser.set_defaults(run=_demo)


def _train_parser(parser: argparse.ArgumentParser) -> None:
    _system(parser)
    parser.add_argument("--config", help="TOML file (see README, 'Your own data and backbone')")
    parser.add_argument(
        "--data",
        action="append",
        metavar="[NAME=]ADDRESS",
        help="one a task: digits:TASK, parquet:PATH, folder:PATH, hub:NAME",
    )
    parser.add_argument("--upstream", metavar="ADDRESS", help="data that the embedded backbone is trained on")
    parser.add_argument("--backbone", help="embedded, timm:ARCHITECTURE or file:ARCHITECTURE:PATH")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ...")
    parser.add_argument(
        "--variants", action="store_true", help="models of other sizes instead, which --policy infaas switches between"
    )
    parser.add_argument("--limit", type=int, help="images a task, for a first try")
    parser.set_defaults(run=_train)


def _profile_parser(parser: argparse.ArgumentParser) -> None:
    _system(parser)
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, ... (default: cpu)")
    parser.add_argument("--threads", type=int, default=1, help="torch threads on CPU (default: 1)")
    parser.set_defaults(run=_profile)


def _serve_parser(parser: argparse.ArgumentParser) -> None:
    _system(parser)
    parser.add_argument("--port", type=int, default=3000, help="on 127.0.0.1 (default: 3000)")
    _policy(parser)
    parser.add_argument("--margin", type=float, help="share of the time to a deadline kept for the way back (0.15)")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, ... (default: cpu)")
    parser.add_argument("--threads", type=int, default=1, help="torch threads on CPU (default: 1)")
    parser.add_argument("--refresh", type=float, metavar="SECONDS", help="between looks at the registry (30; 0: never)")
    parser.add_argument("--any-profile", action="store_true", help="accept a profile of another class of device")
    parser.add_argument("--journal", type=Path, help="append every event and decision to this file")
    parser.set_defaults(run=_serve)


def _policy(parser: argparse.ArgumentParser) -> None:
    from pliant.tokens.policies import POLICIES

    told = "; ".join(f"{name}: {text}" for name, text in POLICIES.items())
    parser.add_argument("--policy", choices=tuple(POLICIES), default="default", help=told)
    parser.add_argument("--gamma", type=int, help="for the policies that keep to one")


def _simulate_parser(parser: argparse.ArgumentParser) -> None:
    _system(parser)
    parser.add_argument(
        "--load", default="reference", help="reference, poisson:RATE:SECONDS or a parquet file (requests each second)"
    )
    _policy(parser)
    parser.add_argument("--workers", type=int, default=1, help="devices (default: 1)")
    parser.add_argument("--seed", type=int, default=0)
    parser.set_defaults(run=_simulate)


def _bench_parser(parser: argparse.ArgumentParser) -> None:
    _system(parser)
    parser.add_argument("--full", action="store_true", help="the long setting")
    parser.add_argument(
        "--part",
        action="append",
        default=[],
        help="planner, kernels, gpu, policies, house or live; may be repeated (all)",
    )
    parser.set_defaults(run=_bench)


def _demo(told: argparse.Namespace) -> int:
    from benchmarks.tokens_demo import demo

    return demo(told.keep)


def _train(told: argparse.Namespace) -> None:
    from flows.tokens_run import run_flow, show

    names = ("data", "upstream", "backbone", "device", "limit")
    overrides = {name: getattr(told, name) for name in names if getattr(told, name) is not None}
    show(run_flow(told.config, overrides, told.variants))


def _profile(told: argparse.Namespace) -> None:
    from flows import settings

    settings.prepare(settings.read())
    from flows.progress import stage
    from flows.tokens_reprofile import reprofile

    with stage("latency profile") as progress:
        reprofile(told.device, told.threads, progress)


def _serve(told: argparse.Namespace) -> int:
    from benchmarks.tokens_endpoint import service_settings
    from flows import settings
    from serving.launch import serve

    found = settings.read()
    settings.prepare(found)
    return serve(service_settings(found, **_service_options(told)), found.home, told.port)


def _service_options(told: argparse.Namespace) -> dict[str, Any]:
    names = ("policy", "gamma", "margin", "device", "threads", "any_profile", "journal")
    options = {name: getattr(told, name) for name in names if getattr(told, name) is not None}
    return options if told.refresh is None else {**options, "refresh_seconds": told.refresh}


def _simulate(told: argparse.Namespace) -> None:
    if told.workers < 1:
        raise InputError("workers", told.workers, "at least 1")
    if told.seed < 0:
        raise InputError("seed", told.seed, "at least 0")
    from benchmarks.tokens_simulate import simulate_load

    simulate_load(told.load, told.policy, told.gamma, told.workers, told.seed)


def _bench(told: argparse.Namespace) -> int:
    from benchmarks.tokens import bench

    return bench(told.full, told.part)


if __name__ == "__main__":
    os.environ.setdefault("DO_NOT_TRACK", "true")
    sys.exit(main())
