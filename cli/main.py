"""`pliant`: demo, train, profile, serve, simulate, bench. The only file that knows all folders.

Every failure that is a `PliantError` is one sentence on standard error and exit status 2; a bar that falls short is
exit status 1, and 3 where a bench had no time to measure all of them. Heavy imports wait until a command needs them.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pliant.errors import InputError, PliantError

if TYPE_CHECKING:
    from serving.launch import Service

WHAT = {  # the systems, for `--help`
    "tokens": "vision transformers that add or merge tokens with the load",
    "bins": "encoders of texts as statically shaped runtimes, one or more a length",
    "cascade": "text classifiers, small first, large when unsure",
    "packing": "generation of texts, packed into memory by predicted output lengths",
}
OVERRIDES = ("data", "upstream", "backbone", "encoder", "lengths", "slo", "generator", "predictor", "device", "limit")
Run = Callable[[argparse.Namespace], int | None]


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
    demo = commands.add_parser("demo", help="the whole way of every system: flow, registry, endpoint, replayed load")
    demo.add_argument("systems", nargs="*", metavar="SYSTEM", help=f"{', '.join(WHAT)}; without one, all")
    demo.add_argument(
        "--keep", action="store_true", help="leave MLflow, Prefect and the endpoints running until Ctrl-C"
    )
    demo.set_defaults(run=_demo)
    train = _command(commands, "train", "run the flow: train, profile, judge, publish", _train)
    profile = _command(commands, "profile", "measure the champion on this device and publish that", _profile)
    serve = _command(commands, "serve", "serve the champion over HTTP until interrupted", _serve)
    simulate = _command(commands, "simulate", "what would this load cost on the champion's profile?", _simulate)
    bench = _command(commands, "bench", "measure every bar and say whether it holds", _bench)
    for system in WHAT:
        _train_options(train[system], system)
        _device(profile[system])
        _serve_options(serve[system], system)
        _simulate_options(simulate[system], system)
        _bench_options(bench[system], system)
    return parser


def _command(commands: Any, name: str, text: str, run: Run) -> dict[str, argparse.ArgumentParser]:
    """A command with one parser a system, since each has options of its own."""
    systems = commands.add_parser(name, help=text).add_subparsers(dest="system", required=True, metavar="SYSTEM")
    made = {system: systems.add_parser(system, help=what, description=text) for system, what in WHAT.items()}
    for parser in made.values():
        parser.set_defaults(run=run)
    return made


def _device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, ... (default: cpu)")
    parser.add_argument("--threads", type=int, default=1, help="torch threads on CPU (default: 1)")


def _train_options(parser: argparse.ArgumentParser, system: str) -> None:
    addresses = {
        "tokens": "digits:TASK, parquet:PATH, folder:PATH, hub:NAME",
        "bins": "docstrings:TASK, parquet:PATH, csv:PATH, json:PATH, hub:NAME",
        "cascade": "docstrings:TASK, parquet:PATH, csv:PATH, json:PATH, hub:NAME",
        "packing": "prompts: docstrings, parquet:PATH, json:PATH",
    }
    parser.add_argument("--config", help="TOML file (see README, 'Your own data')")
    parser.add_argument("--data", action="append", metavar="[NAME=]ADDRESS", help=f"one a task: {addresses[system]}")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ...")
    parser.add_argument("--limit", type=int, help="examples a task, for a first try")
    if system == "bins":
        parser.add_argument("--encoder", metavar="ADDRESS", help="embedded, path:FOLDER, hub:NAME or cascade:TASK")
        parser.add_argument(
            "--lengths",
            action="append",
            metavar="SOURCE",
            help="where lengths are observed: data, journal:PATH or parquet:PATH; the first that tells of enough",
        )
        parser.add_argument("--slo", type=float, help="seconds from arrival to answer (0.15)")
    if system == "packing":
        text = "train its predictor further on what it got wrong in service (FILE, or what the service has written)"
        parser.add_argument("--observed", metavar="FILE", nargs="?", const="", help=text)
        parser.add_argument("--generator", metavar="ADDRESS", help="embedded, path:FOLDER or hub:NAME")
        parser.add_argument("--predictor", metavar="ADDRESS", help="its encoder: embedded, path:FOLDER or hub:NAME")
    if system == "tokens":
        parser.add_argument("--upstream", metavar="ADDRESS", help="data that the embedded backbone is trained on")
        parser.add_argument("--backbone", help="embedded, timm:ARCHITECTURE or file:ARCHITECTURE:PATH")
        text = "models of other sizes instead, which --policy infaas switches between"
        parser.add_argument("--variants", action="store_true", help=text)


def _serve_options(parser: argparse.ArgumentParser, system: str) -> None:
    parser.add_argument("--port", type=int, default=3000, help="on 127.0.0.1 (default: 3000)")
    parser.add_argument("--margin", type=float, help="share of the time to a deadline kept for the way back (0.15)")
    _device(parser)
    parser.add_argument("--refresh", type=float, metavar="SECONDS", help="between looks at the registry (30; 0: never)")
    parser.add_argument("--any-profile", action="store_true", help="accept a profile of another class of device")
    parser.add_argument("--journal", type=Path, help="append every event and decision to this file")
    if system == "tokens":
        _policy(parser)
        return
    if system == "packing":
        _packing_policy(parser)
        text = "keep prompts and lengths, to learn from"
        parser.add_argument("--observe", action="store_true", default=None, help=text)
        parser.add_argument("--processes", type=int, metavar="N", help="that share the model, one a GPU (1)")
        return
    parser.add_argument("--workers", type=int, help="devices, each a process of its own (1)")
    if system == "bins":
        _bins_policy(parser)
        _pool(parser)
        return
    parser.add_argument(
        "--placement",
        choices=("shared", "own"),
        help="every worker runs every level, or each level has its own (shared)",
    )


def _dispatch(parser: argparse.ArgumentParser) -> None:
    from pliant.bins.dispatch import DISPATCHES

    text = "which device serves a request where each holds one runtime (completion)"
    parser.add_argument("--dispatch", choices=DISPATCHES, help=text)


def _pool(parser: argparse.ArgumentParser) -> None:
    _dispatch(parser)
    text = "scale between so many and --workers with the tail of latencies (no scaling)"
    parser.add_argument("--least-workers", type=int, metavar="N", help=text)
    parser.add_argument(
        "--pool", choices=("processes", "ray"), help="devices of this machine, or Ray actors (processes)"
    )
    parser.add_argument("--ray-address", help="of a running cluster, HOST:PORT; without it one is started here")


def _policy(parser: argparse.ArgumentParser) -> None:
    from pliant.tokens.policies import POLICIES

    told = "; ".join(f"{name}: {text}" for name, text in POLICIES.items())
    parser.add_argument("--policy", choices=tuple(POLICIES), default="default", help=told)
    parser.add_argument("--gamma", type=int, help="for the policies that keep to one")


def _bins_policy(parser: argparse.ArgumentParser) -> None:
    from pliant.bins.policies import POLICIES

    told = "; ".join(f"{name}: {text}" for name, text in POLICIES.items())
    parser.add_argument("--policy", choices=tuple(POLICIES), help=told)


def _packing_policy(parser: argparse.ArgumentParser) -> None:
    from pliant.packing.scheduling.policy import POLICIES

    told = "; ".join(f"{name}: {text}" for name, text in POLICIES.items())
    parser.add_argument("--policy", choices=tuple(POLICIES), help=told)


def _simulate_options(parser: argparse.ArgumentParser, system: str) -> None:
    files = "" if system == "cascade" else ", or a parquet file (requests each second)"
    traces = {
        "bins": ", twitter-stable:RATE:SECONDS, twitter-bursty:RATE:SECONDS[:drift]",
        "packing": ", azure, sharegpt:RATE:SECONDS",
    }.get(system, "")
    parser.add_argument("--load", default="reference", help=f"reference, poisson:RATE:SECONDS{traces}{files}")
    parser.add_argument("--seed", type=int, default=0)
    if system == "packing":
        _packing_policy(parser)
        return
    parser.add_argument("--workers", type=int, default=1, help="devices (default: 1)")
    if system == "tokens":
        _policy(parser)
    elif system == "bins":
        _dispatch(parser)
        parser.add_argument("--placement", choices=("shared", "single"), help="runtimes a device holds: all, or one")
    else:
        parser.add_argument("--candidate", help="by name; without it all that are worth comparing")


def _bench_options(parser: argparse.ArgumentParser, system: str) -> None:
    parts = {
        "tokens": "planner, kernels, gpu, policies, house or live",
        "bins": "planner, dispatch, contest, scaling, batches, streams, live, fidelity, nodes, input or gpu",
        "cascade": "contest, alone, importance, control, input or load",
        "packing": "forecasts, study, published, predictor, engine, load or input",
    }
    parser.add_argument("--full", action="store_true", help="the long setting: every part, however long it takes")
    text = f"{parts[system]}; may be repeated (without it: all that ten minutes are enough for)"
    parser.add_argument("--part", action="append", default=[], help=text)


def _demo(told: argparse.Namespace) -> int:
    unknown = [system for system in told.systems if system not in WHAT]
    if unknown:
        raise InputError("SYSTEM", unknown[0], f"one of {', '.join(WHAT)}")
    from benchmarks.demo.run import demo

    return demo(told.systems, told.keep)


def _train(told: argparse.Namespace) -> None:
    from flows import run
    from flows.bins import run as bins_run
    from flows.cascade import run as cascade_run
    from flows.packing import run as packing_run
    from flows.tokens import run as tokens_run

    print(
        "The flow takes its own sizes, for good models; those of `pliant demo` are smaller.",
        file=sys.stderr,
        flush=True,
    )
    overrides = {name: getattr(told, name) for name in OVERRIDES if getattr(told, name, None) is not None}
    if told.system == "tokens":
        run.show(tokens_run.run_flow(told.config, overrides, told.variants))
    elif getattr(told, "observed", None) is not None:
        run.show(packing_run.run_retraining(Path(told.observed) if told.observed else None))
    else:
        system = {"bins": bins_run, "cascade": cascade_run, "packing": packing_run}[told.system]
        run.show(system.run_flow(told.config, overrides))


def _profile(told: argparse.Namespace) -> None:
    from flows import settings

    settings.prepare(settings.read())
    from flows.bins import reprofile as bins_reprofile
    from flows.cascade import reprofile as cascade_reprofile
    from flows.packing import reprofile as packing_reprofile
    from flows.progress import stage
    from flows.tokens import reprofile as tokens_reprofile

    reprofile = {
        "tokens": tokens_reprofile.reprofile,
        "bins": bins_reprofile.reprofile,
        "cascade": cascade_reprofile.reprofile,
        "packing": packing_reprofile.reprofile,
    }[told.system]
    with stage("latency profile") as progress:
        reprofile(told.device, told.threads, progress)


def _serve(told: argparse.Namespace) -> int:
    from cli.service import service_settings
    from flows import servers, settings
    from serving.launch import serve

    found = settings.read()
    settings.prepare(found)
    port = servers.free_port(told.port) if told.port == 0 else told.port
    options = service_settings(found, told.system, **_service_options(told))
    return serve(options, found.home, port, _show_start)


def _show_start(service: Service) -> None:
    """Show how long the service has been starting, and where it is when it is ready."""
    from flows.progress import stage

    with stage("endpoint"):
        service.wait_until_ready()
    print(f"Serving on {service.url} until Ctrl-C.", file=sys.stderr, flush=True)


def _service_options(told: argparse.Namespace) -> dict[str, Any]:
    names = (
        *("policy", "gamma", "margin", "device", "threads", "any_profile", "journal"),  # tokens, or both
        *("workers", "placement"),  # bins and cascade
        *("least_workers", "dispatch", "pool", "ray_address"),  # bins
        *("observe", "processes"),  # packing
    )
    options = {name: getattr(told, name) for name in names if getattr(told, name, None) is not None}
    return options if told.refresh is None else {**options, "refresh_seconds": told.refresh}


def _simulate(told: argparse.Namespace) -> None:
    if told.seed < 0:
        raise InputError("seed", told.seed, "at least 0")
    if told.system == "packing":
        from benchmarks.packing.simulate import simulate_load as simulate_packing

        simulate_packing(told.load, told.policy, told.seed)
        return
    if told.workers < 1:
        raise InputError("workers", told.workers, "at least 1")
    if told.system == "tokens":
        from benchmarks.tokens.simulate import simulate_load

        simulate_load(told.load, told.policy, told.gamma, told.workers, told.seed)
    elif told.system == "bins":
        from benchmarks.bins.simulate import simulate_load as simulate_bins

        simulate_bins(told.load, told.dispatch or "completion", told.placement, told.workers, told.seed)
    else:
        from benchmarks.cascade.simulate import simulate_load as simulate_cascade

        simulate_cascade(told.load, told.candidate, told.workers, told.seed)


def _bench(told: argparse.Namespace) -> int:
    from benchmarks.bins import bench as bins
    from benchmarks.cascade import bench as cascade
    from benchmarks.packing import bench as packing
    from benchmarks.tokens import bench as tokens

    benches = {"tokens": tokens.bench, "bins": bins.bench, "cascade": cascade.bench, "packing": packing.bench}
    return benches[told.system](told.full, told.part)
