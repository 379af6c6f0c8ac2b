"""What the commands of tokens take beside the options that all systems have."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import Any

from pliant.cli import options

OVERRIDES = ("data", "upstream", "backbone", "device", "other_device", "limit")


def train(parser: ArgumentParser) -> None:
    options.training(parser, "digits:TASK, parquet:PATH, folder:PATH, hub:NAME")
    parser.add_argument("--upstream", metavar="ADDRESS", help="data set that the embedded backbone is trained on")
    parser.add_argument("--backbone", help="vision transformer: embedded, timm:ARCHITECTURE or file:ARCHITECTURE:PATH")


def run_flow(args: Namespace) -> dict[str, Any]:
    from pliant.flows.run import run_flow

    return run_flow("tokens", args.config, options.given(args, OVERRIDES), args.new_task)


def serve(parser: ArgumentParser) -> None:
    from pliant.tokens.policies import SERVED

    options.serving(parser)
    options.spare(parser)
    options.margin(parser)
    _policy(parser, SERVED)


def simulate(parser: ArgumentParser) -> None:
    from pliant.tokens.policies import CHOICES

    options.load(parser, "seconds", "; or a parquet file of requests each second")
    options.simulated_workers(parser)
    profiled = {name: choice.summary for name, choice in CHOICES.items() if not choice.variants}
    _policy(parser, profiled, "default")


def _policy(parser: ArgumentParser, policies: Mapping[str, str], default: str | None = None) -> None:
    options.policy(parser, policies, default)
    parser.add_argument(
        "--gamma", type=int, help="for policies with one gamma: tokens added to each image (below 0: merged)"
    )
