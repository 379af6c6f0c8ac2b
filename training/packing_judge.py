"""How good a predictor of output lengths is, always beside what a constant prediction would give.

Knows no model but through what it says of prompts. Shape suffixes: R prompts, L levels.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau

from pliant.packing.artifact import BUCKETS, Predictor
from pliant.packing.forecast import LEVELS, MEDIAN, UPPER
from pliant.packing.model import Forecast, PredictorModel
from training.packing_lengths import LengthData

Floats = NDArray[np.float64]


def judge(predictor: Predictor, data: LengthData) -> dict[str, float]:
    """On these prompts:

    bucket_accuracy, majority_class   of the classes of length, and of the constant class that these prompts fit best
    tau                               Kendall's (b), of the predicted medians and the lengths
    pinball, constant_pinball         of the log lengths, mean over levels; of the training lengths' own quantiles
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


def _classes(said: list[Forecast], data: LengthData, width: int) -> dict[str, float]:
    class_R = np.minimum((data.tokens - 1) // width, BUCKETS - 1)
    told_R = np.array([one.bucket // width - 1 for one in said])
    shares = np.bincount(class_R, minlength=BUCKETS) / len(class_R)
    return {"bucket_accuracy": float(np.mean(told_R == class_R)), "majority_class": float(shares.max())}


def _reserved(name: str, bound_R: Floats, tokens_R: NDArray[np.int32]) -> dict[str, float]:
    over_R = bound_R - tokens_R
    return {
        f"over_{name}": float(np.mean(np.maximum(over_R, 0))),
        f"under_{name}": float(np.mean(np.maximum(-over_R, 0))),
    }
