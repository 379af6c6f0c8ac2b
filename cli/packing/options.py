"""What the commands of packing take beside the options that all systems have, and what `pliant init packing` writes."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from functools import partial
from typing import TYPE_CHECKING, Any

from pliant.cli import options
from pliant.cli.init import AUTO, quoted

if TYPE_CHECKING:
    from pliant.flows.packing.config import PackingFlowConfig

MODEL = "generator to serve: a folder, hub:NAME, or auto (a small one is trained on docstrings)"
DATA = "prompts as they come: a .csv, .json(l) or .parquet file with a column prompt or text, hub:NAME, or docstrings"


def train(parser: ArgumentParser) -> None:
    options.training(parser, "prompts: docstrings, parquet:PATH, json:PATH")
    text = "train the champion's predictor further on observed lengths: FILE, or what `pliant serve --observe` kept"
    parser.add_argument("--observed", metavar="FILE", nargs="?", const="", help=text)
    text = "model that writes texts: embedded, path:FOLDER or hub:NAME"
    parser.add_argument("--generator", metavar="ADDRESS", help=text)
    text = "encoder of its predictor: embedded, path:FOLDER or hub:NAME"
    parser.add_argument("--predictor", metavar="ADDRESS", help=text)
    text = "of the generator's weights and cache: float32, bfloat16, float16 (on GPUs) or auto (default)"
    parser.add_argument("--precision", metavar="NAME", help=text)


def run_flow(args: Namespace) -> dict[str, Any]:
    from pliant.flows import settings
    from pliant.flows.run import run, with_prefect

    if args.observed is None:
        return options.run_flow(args)
    with with_prefect(settings.read()):
        from pliant.flows.packing.retrain import packing_retrain

        return run(partial(packing_retrain, args.observed or None), None, {})


def simulate(parser: ArgumentParser) -> None:
    from pliant.comparison import described
    from pliant.packing.scheduling.policy import POLICIES

    options.load(parser, "seconds, prompt_tokens, output_tokens")
    options.policy(parser, POLICIES | described("packing"))


def content(model: str, data: str) -> str:
    from pliant.flows.packing.config import EMBEDDED

    generator = EMBEDDED if model == AUTO else model
    return (
        f"generator = {quoted(generator)}\nprompts = {quoted(data)}\n"
        "\n[lengths]\nrequests = 300 # prompts that it answers to learn the lengths from; some thousands are better\n"
        '\n[predictor]\nkind = "linear" # fitted in seconds; best: also trains an encoder, and takes the better one\n'
    )


def check(config: PackingFlowConfig) -> None:
    import pliant.training.packing.prompts
    from pliant.flows.packing.config import CORPUS

    if config.prompts != CORPUS:
        pliant.training.packing.prompts.load(config.prompts)
