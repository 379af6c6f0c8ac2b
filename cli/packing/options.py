"""What the commands of packing take beside the options that all systems have."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from functools import partial
from typing import Any

from pliant.cli import options

OVERRIDES = ("data", "generator", "predictor", "precision", "device", "other_device", "limit")


def train(parser: ArgumentParser) -> None:
    options.training(parser, "prompts: docstrings, parquet:PATH, json:PATH")
    text = "train the champion's predictor further on observed lengths: FILE, or what `pliant serve --observe` kept"
    parser.add_argument("--observed", metavar="FILE", nargs="?", const="", help=text)
    parser.add_argument(
        "--generator", metavar="ADDRESS", help="model that writes texts: embedded, path:FOLDER or hub:NAME"
    )
    parser.add_argument(
        "--predictor", metavar="ADDRESS", help="encoder of its predictor: embedded, path:FOLDER or hub:NAME"
    )
    text = "of the generator's weights and cache: float32, bfloat16, float16 (on GPUs) or auto (default)"
    parser.add_argument("--precision", metavar="NAME", help=text)


def run_flow(args: Namespace) -> dict[str, Any]:
    from pliant.flows import settings
    from pliant.flows.run import run, run_flow, with_prefect

    if args.observed is None:
        return run_flow("packing", args.config, options.given(args, OVERRIDES), args.new_task)
    with with_prefect(settings.read()):
        from pliant.flows.packing.retrain import packing_retrain

        return run(partial(packing_retrain, args.observed or None), None, {})


def serve(parser: ArgumentParser) -> None:
    from pliant.packing.scheduling.policy import SERVED

    options.serving(parser)
    options.policy(parser, SERVED)
    from pliant.serving.packing.settings import ENGINES

    text = "what runs the model: pliant (default), or vllm, which docs/vllm.md says how to install"
    parser.add_argument("--engine", choices=ENGINES, help=text)
    text = "keep prompts and the lengths of their outputs, for `pliant train packing --observed`"
    parser.add_argument("--observe", action="store_true", default=None, help=text)
    text = "with --engine vllm: processes that share the model, each with its own GPU (default: 1)"
    parser.add_argument("--processes", type=int, metavar="N", help=text)


def simulate(parser: ArgumentParser) -> None:
    from pliant.packing.scheduling.policy import POLICIES

    options.load(parser, "seconds, prompt_tokens, output_tokens")
    options.policy(parser, POLICIES)
