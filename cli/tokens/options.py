"""What the commands of tokens take beside the options that all systems have, and what `pliant init tokens` writes."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import TYPE_CHECKING

from pliant.cli import options
from pliant.cli.init import AUTO, quoted

if TYPE_CHECKING:
    from pliant.flows.tokens.config import TokensFlowConfig

MODEL = "vision transformer: timm:ARCHITECTURE, file:ARCHITECTURE:PATH, or auto (a small one is trained on the data)"
DATA = "labelled pictures: a folder with one folder a class, a .parquet file, hub:NAME, or digits:digit"


def train(parser: ArgumentParser) -> None:
    options.training(parser, "digits:TASK, parquet:PATH, folder:PATH, hub:NAME")
    parser.add_argument("--upstream", metavar="ADDRESS", help="data set that the embedded backbone is trained on")
    parser.add_argument("--backbone", help="vision transformer: embedded, timm:ARCHITECTURE or file:ARCHITECTURE:PATH")


def simulate(parser: ArgumentParser) -> None:
    from pliant.comparison import described
    from pliant.tokens.policies import CHOICES

    options.load(parser, "seconds")
    options.simulated_workers(parser)
    profiled = {name: choice.summary for name, choice in CHOICES.items() if not choice.variants}
    options.policy(parser, profiled | described("tokens"), "default")
    text = "setting to keep to: tokens added to each image (below 0: merged), or the number of an operating point"
    parser.add_argument("--gamma", type=int, help=text)


def content(model: str, data: str) -> str:
    backbone = "embedded" if model == AUTO else model
    return (
        f"data = [{quoted(data)}] # one address a task\nbackbone = {quoted(backbone)}\n"
        "# limit = 2000 # pictures a task, for a first try on large data\n"
        "\n[gate]\n# below_linear = true # release a task also where a linear model of its pixels is better\n"
    )


def check(config: TokensFlowConfig) -> None:
    from pliant.flows.tokens import stages

    stages.load_data(config)
