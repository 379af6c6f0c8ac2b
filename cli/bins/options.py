"""What the commands of bins take beside the options that all systems have."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from cli import options

PARTS = "planner, dispatch, contest, scaling, batches, streams, live, fidelity, nodes, input or gpu"
OVERRIDES = ("data", "encoder", "lengths", "slo", "device", "limit")


def train(parser: ArgumentParser) -> None:
    options.training(parser, "docstrings:TASK, parquet:PATH, csv:PATH, json:PATH, hub:NAME")
    parser.add_argument("--encoder", metavar="ADDRESS", help="embedded, path:FOLDER, hub:NAME or cascade:TASK")
    text = "where lengths are observed: data, journal:PATH or parquet:PATH; the first that tells of enough"
    parser.add_argument("--lengths", action="append", metavar="SOURCE", help=text)
    parser.add_argument("--slo", type=float, help="seconds from arrival to answer (0.15)")


def run_flow(args: Namespace) -> dict[str, Any]:
    from flows.bins.run import run_flow

    return run_flow(args.config, options.given(args, OVERRIDES))


def serve(parser: ArgumentParser) -> None:
    from pliant.bins.policies import POLICIES

    options.serving(parser)
    options.margin(parser)
    options.workers(parser)
    options.policy(parser, POLICIES)
    _dispatch(parser)
    text = "scale between so many and --workers with the tail of latencies (no scaling)"
    parser.add_argument("--least-workers", type=int, metavar="N", help=text)
    text = "devices of this machine, or Ray actors (processes)"
    parser.add_argument("--pool", choices=("processes", "ray"), help=text)
    parser.add_argument("--ray-address", help="of a running cluster, HOST:PORT; without it one is started here")


def simulate(parser: ArgumentParser) -> None:
    options.load(parser, "seconds, length", "; or a parquet file of requests each second")
    parser.add_argument("--workers", type=int, default=1, help="devices (default: 1)")
    _dispatch(parser)
    parser.add_argument("--placement", choices=("shared", "single"), help="runtimes a device holds: all, or one")


def _dispatch(parser: ArgumentParser) -> None:
    from pliant.bins.dispatch import DISPATCHES

    text = "which device serves a request where each holds one runtime (completion)"
    parser.add_argument("--dispatch", choices=DISPATCHES, help=text)
