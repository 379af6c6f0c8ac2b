"""What a predictor would have said of a trace's outputs: forecasts fitted on some rows, used on others.

A predictor is known here by one score a request (more: longer). `Conditional` turns scores into quantiles of the output's
tokens, as the rows that it was fitted on had them. Where nothing but a prompt's length is recorded, that is the score.
Shapes: N requests, L levels, B bins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pliant.benchmarks.packing.traces import Floats, Ints, Lengths
from pliant.errors import InputError
from pliant.packing.artifact import BUCKETS
from pliant.packing.scheduling.forecast import QUANTILES

BINS = 20


@dataclass(frozen=True)
class Foretold:
    """Requests with what was said of them before they ran."""

    lengths: Lengths
    forecasts_NL: Floats  # tokens
    buckets: Ints  # [N] upper bound of the predicted class, tokens
    context: int  # tokens of a prompt and its output together
    limit: int  # tokens of an output, as clients ask for it


@dataclass(frozen=True)
class Conditional:
    """Quantiles and class of the output's tokens, given a score: linear between the bins' centres."""

    centres: Floats  # [B] ascending
    logs_BL: Floats
    buckets: Ints  # [B] commonest class, as its upper bound in tokens
    edges: Floats  # [B - 1] between the bins

    @staticmethod
    def fit(scores: Floats, tokens: Ints, width: int) -> Conditional:
        """Fit bins with equally many rows each; `width` tokens have the classes."""
        bins = np.array_split(np.argsort(scores, kind="stable"), BINS)
        centres = np.array([scores[rows].mean() for rows in bins])
        logs = np.array([np.log(np.quantile(tokens[rows], QUANTILES)) for rows in bins])
        classes = [np.bincount(classes_of(tokens[rows], width)).argmax() for rows in bins]
        edges = np.array([scores[rows[0]] for rows in bins[1:]])
        return Conditional(centres, logs, (np.array(classes) + 1) * width, edges)

    def forecasts(self, scores: Floats) -> Floats:
        """Return tokens [N, L]."""
        columns = [np.interp(scores, self.centres, column) for column in self.logs_BL.T]
        tokens: Floats = np.exp(np.stack(columns, axis=1))
        return tokens

    def classes(self, scores: Floats) -> Ints:
        """Return upper bounds [N] in tokens."""
        return self.buckets[np.searchsorted(self.edges, scores, side="right")]


def classes_of(tokens: Ints, width: int) -> Ints:
    """Return the number [N] of the class that an output belongs to: the first holds up to `width` tokens."""
    return np.minimum((tokens - 1) // width, BUCKETS - 1)


def foretold(scores: Floats, of: Lengths, fitted: Ints, kept: Ints, context: int, limit: int = 0) -> Foretold:
    """Forecast the rows `kept` by quantiles fitted on the rows `fitted`. Without a `limit` the context is it.

    Classes are equal parts of the longest output (S3, section 3.1).
    """
    limit = limit or context
    width = -(-limit // BUCKETS)
    conditional = Conditional.fit(scores[fitted], of.output[fitted], width)
    forecasts, buckets = conditional.forecasts(scores[kept]), conditional.classes(scores[kept])
    return Foretold(of.part(kept), forecasts, buckets, context, limit)


def by_prompt(of: Lengths, context: int, share: float = 0.5) -> Foretold:
    """Forecast by nothing but the prompt's tokens, fitted on the first `share` of the recording, for the rest of it.

    Clients are taken to ask for at most the trace's longest output. Raises `InputError` where too few requests fit.
    """
    fits = of.part(of.prompt + of.output <= context)
    if len(fits.prompt) < 2 * BINS:
        raise InputError("context", context, f"one that holds at least {2 * BINS} requests of {of.name}")
    rows = np.arange(len(fits.prompt))
    cut = int(share * len(rows))
    scores = fits.prompt + 1e-3 * np.random.default_rng(0).random(len(rows))  # equal prompts: in no order
    limit = int(fits.output.max())
    return foretold(scores, fits, rows[:cut], rows[cut:], context, limit)
