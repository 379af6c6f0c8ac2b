"""What the commands of tokens take beside the options that all systems have."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from cli import options

OVERRIDES = ("data", "upstream", "backbone", "device", "other_device", "limit")


def train(parser: ArgumentParser) -> None:
    options.training(parser, "digits:TASK, parquet:PATH, folder:PATH, hub:NAME")
    parser.add_argument("--upstream", metavar="ADDRESS", help="data set that the embedded backbone is trained on")
    parser.add_argument("--backbone", help="vision transformer: embedded, timm:ARCHITECTURE or file:ARCHITECTURE:PATH")
    text = "train models of several sizes instead, between which --policy infaas chooses"
    parser.add_argument("--variants", action="store_true", help=text)


def run_flow(args: Namespace) -> dict[str, Any]:
    from flows.tokens.run import run_flow

    return run_flow(args.config, options.given(args, OVERRIDES), args.variants, args.new_task)


def serve(parser: ArgumentParser) -> None:
    options.serving(parser)
    options.spare(parser)
    options.margin(parser)
    _policy(parser, None)


def simulate(parser: ArgumentParser) -> None:
    options.load(parser, "seconds", "; or a parquet file of requests each second")
    options.simulated_workers(parser)
    _policy(parser)


def _policy(parser: ArgumentParser, default: str | None = "default") -> None:
    from pliant.tokens.policies import POLICIES

    options.policy(parser, POLICIES, default)
    parser.add_argument(
        "--gamma", type=int, help="for policies with one gamma: tokens added to each image (below 0: merged)"
    )
