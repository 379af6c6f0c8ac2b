"""What the commands of bins take beside the options that all systems have."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from pliant.cli import options

OVERRIDES = ("data", "encoder", "lengths", "slo", "device", "other_device", "limit")


def train(parser: ArgumentParser) -> None:
    options.training(parser, "docstrings:TASK, parquet:PATH, csv:PATH, json:PATH, hub:NAME")
    parser.add_argument("--encoder", metavar="ADDRESS", help="encoder: embedded, path:FOLDER, hub:NAME or cascade:TASK")
    text = "where lengths of texts come from: data, journal:PATH or parquet:PATH; the first with enough lengths is used"
    parser.add_argument("--lengths", action="append", metavar="SOURCE", help=text)
    parser.add_argument("--slo", type=float, metavar="SECONDS", help="seconds from arrival to answer (default: 0.15)")


def run_flow(args: Namespace) -> dict[str, Any]:
    from pliant.flows.run import run_flow

    return run_flow("bins", args.config, options.given(args, OVERRIDES), args.new_task)


def serve(parser: ArgumentParser) -> None:
    from pliant.bins.policies import POLICIES

    options.serving(parser)
    options.spare(parser)
    options.margin(parser)
    options.workers(parser)
    options.policy(parser, POLICIES)
    _dispatch(parser)
    text = "use fewer devices at low load, from N up to --workers (default: always all of them)"
    parser.add_argument("--least-workers", type=int, metavar="N", help=text)
    text = "where the devices are: processes of this machine, or actors of a Ray cluster (default: processes)"
    parser.add_argument("--pool", choices=("processes", "ray"), help=text)
    text = "of the running Ray cluster that this machine belongs to (default: one is started on this machine)"
    parser.add_argument("--ray-address", metavar="HOST:PORT", help=text)


def simulate(parser: ArgumentParser) -> None:
    options.load(parser, "seconds, length", "; or a parquet file of requests each second")
    options.simulated_workers(parser)
    _dispatch(parser)
    text = "every device holds all runtimes, or a single one (default: as the champion was made for)"
    parser.add_argument("--placement", choices=("shared", "single"), help=text)


def _dispatch(parser: ArgumentParser) -> None:
    from pliant.bins.dispatch import DISPATCHES

    text = "how a device is chosen for a request where each holds a single runtime (default: completion)"
    parser.add_argument("--dispatch", choices=DISPATCHES, help=text)
