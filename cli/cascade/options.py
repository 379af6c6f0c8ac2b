"""What the commands of cascade take beside the options that all systems have."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from pliant.cli import options

OVERRIDES = ("data", "device", "other_device", "limit")


def train(parser: ArgumentParser) -> None:
    options.training(parser, "docstrings:TASK, parquet:PATH, csv:PATH, json:PATH, hub:NAME")


def run_flow(args: Namespace) -> dict[str, Any]:
    from pliant.flows.run import run_flow

    return run_flow("cascade", args.config, options.given(args, OVERRIDES), args.new_task)


def serve(parser: ArgumentParser) -> None:
    options.serving(parser)
    options.spare(parser)
    options.margin(parser)
    options.workers(parser)
    text = "every worker runs every level, or each level has workers of its own (default: shared)"
    parser.add_argument("--placement", choices=("shared", "own"), help=text)


def simulate(parser: ArgumentParser) -> None:
    options.load(parser, "seconds")
    options.simulated_workers(parser)
    parser.add_argument(
        "--candidate", metavar="NAME", help="simulate this candidate alone (default: the best-known ones)"
    )
