"""How good a predictor of output lengths is, always beside what a constant prediction would give.

Knows no model but through what it says of prompts. Shape suffixes: R prompts, L levels.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau

from pliant.packing.artifact import BUCKETS, Predictor
from pliant.packing.engine.model import Forecast, PredictorModel
from pliant.packing.scheduling.forecast import LEVELS, MEDIAN, UPPER
from training.packing.lengths import LengthData

Floats = NDArray[np.float64]
NUMBERS = 64  # of a class, that are tried


def judge(predictor: Predictor, data: LengthData) -> dict[str, float]:
    """On these prompts:

    bucket_accuracy, majority_class   of the classes of length, and of the constant class that these prompts fit best
    tau                               Kendall's (b), of the predicted medians and the lengths
    pinball, constant_pinball         of the log lengths, mean over levels; of the training lengths' own quantiles
    majority_pinball                  of the majority class, told as that one of its numbers that fits these prompts best
    coverage_LEVEL                    share of outputs of at most that quantile
    over_0.9, under_0.9               tokens a prompt reserved too many and too few, at the quantile 0.9
    over_bucket, under_bucket         the same at the predicted class's bound
    over_constant, under_constant     the same at the training lengths' own quantile 0.9
    """
    said = PredictorModel.of(predictor).predict(data.prompts)
    quantile_RL = np.array([one.tokens for one in said])
    constant_RL = np.broadcast_to(np.maximum(predictor.marginal, 1.0), quantile_RL.shape)
    bound_R = np.array([one.bucket for one in said], float)
    return {
        **_classes(said, data, predictor.bucket_tokens),
        "tau": float(np.nan_to_num(kendalltau(quantile_RL[:, MEDIAN], data.tokens).statistic)),
        "pinball": pinball(quantile_RL, data.tokens),
        "constant_pinball": pinball(constant_RL, data.tokens),
        "majority_pinball": _majority_pinball(data.tokens, predictor.bucket_tokens),
        **{f"coverage_{level:g}": float(np.mean(data.tokens <= quantile_RL[:, k])) for k, level in enumerate(LEVELS)},
        **_reserved("0.9", quantile_RL[:, UPPER], data.tokens),
        **_reserved("bucket", bound_R, data.tokens),
        **_reserved("constant", constant_RL[:, UPPER], data.tokens),
    }


def pinball(quantile_RL: Floats, tokens_R: NDArray[np.int32]) -> float:
    """Mean over prompts and levels, of logs."""
    over_RL = np.log(tokens_R.astype(float))[:, None] - np.log(quantile_RL)
    level_L = np.array(LEVELS)
    return float(np.mean(np.maximum(level_L * over_RL, (level_L - 1) * over_RL)))


def _majority_pinball(tokens_R: NDArray[np.int32], width: int) -> float:
    """A class says no more than one number at every level; which one it is to be judged by is chosen in its favour."""
    majority = int(_shares(tokens_R, width).argmax())
    told_RL = np.ones((len(tokens_R), len(LEVELS)))
    numbers = np.unique(np.rint(np.geomspace(majority * width + 1, (majority + 1) * width, NUMBERS)))
    return min(pinball(told_RL * number, tokens_R) for number in numbers)


def _shares(tokens_R: NDArray[np.int32], width: int) -> Floats:
    """[K] of the classes."""
    counted: Floats = np.bincount(_class(tokens_R, width), minlength=BUCKETS) / len(tokens_R)
    return counted


def _class(tokens_R: NDArray[np.int32], width: int) -> NDArray[np.int32]:
    return np.minimum((tokens_R - 1) // width, BUCKETS - 1)


def _classes(said: list[Forecast], data: LengthData, width: int) -> dict[str, float]:
    told_R = np.array([one.bucket // width - 1 for one in said])
    right = float(np.mean(told_R == _class(data.tokens, width)))
    return {"bucket_accuracy": right, "majority_class": float(_shares(data.tokens, width).max())}


def _reserved(name: str, bound_R: Floats, tokens_R: NDArray[np.int32]) -> dict[str, float]:
    over_R = bound_R - tokens_R
    return {
        f"over_{name}": float(np.mean(np.maximum(over_R, 0))),
        f"under_{name}": float(np.mean(np.maximum(-over_R, 0))),
    }
