"""What the commands of bins take beside the options that all systems have, and what `pliant init bins` writes."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import TYPE_CHECKING

from pliant.cli import options
from pliant.cli.init import AUTO, quoted
from pliant.progress import silent

if TYPE_CHECKING:
    from pliant.flows.bins.config import BinsFlowConfig

MODEL = "encoder to serve as it is: a folder, hub:NAME, cascade:TASK, or auto (a classifier is trained on the data)"
DATA = "texts as they come: a .csv, .json(l) or .parquet file with the columns text and label, hub:NAME, docstrings:package"


def train(parser: ArgumentParser) -> None:
    options.training(parser, "docstrings:TASK, parquet:PATH, csv:PATH, json:PATH, hub:NAME")
    parser.add_argument("--encoder", metavar="ADDRESS", help="encoder: embedded, path:FOLDER, hub:NAME or cascade:TASK")
    text = "where lengths of texts come from: data, journal:PATH or parquet:PATH; the first with enough lengths is used"
    parser.add_argument("--lengths", action="append", metavar="SOURCE", help=text)
    parser.add_argument("--slo", type=float, metavar="SECONDS", help="seconds from arrival to answer (default: 0.15)")


def simulate(parser: ArgumentParser) -> None:
    from pliant.bins.dispatch import DISPATCHES
    from pliant.bins.policies import POLICIES
    from pliant.comparison import described

    options.load(parser, "seconds, length")
    options.simulated_workers(parser)
    options.policy(parser, POLICIES | described("bins"), "default")
    text = "how a device is chosen for a request where each holds a single runtime (default: completion)"
    parser.add_argument("--dispatch", choices=DISPATCHES, help=text)
    text = "every device holds all runtimes, or a single one (default: as the champion was made for)"
    parser.add_argument("--placement", choices=("shared", "single"), help=text)


def content(model: str, data: str) -> str:
    from pliant.flows.bins.config import EMBEDDED

    encoder = EMBEDDED if model == AUTO else model
    return (
        f"[[streams]]\nencoder = {quoted(encoder)}\ndata = {quoted(data)}\n"
        "slo = 0.15 # seconds from arrival to answer\n# limit = 2000 # texts, for a first try on large data\n"
        "\n[gate]\n# below_linear = true # release a classifier also where a linear one is better\n"
    )


def check(config: BinsFlowConfig) -> None:
    from pliant.flows.bins import stages

    stages.load_streams(config, silent)
