"""Measures how good a predictor of output lengths is, always compared with a constant prediction.

Shape suffixes: R prompts, L quantiles, K classes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau

from pliant.packing.artifact import BUCKETS, Predictor
from pliant.packing.engine.model import Forecast, PredictorModel
from pliant.packing.scheduling.forecast import MEDIAN, QUANTILES, UPPER
from pliant.training.packing.lengths import LengthData

Floats = NDArray[np.float64]
NUMBERS = 64  # lengths of a class to try


def judge(predictor: Predictor, data: LengthData) -> dict[str, float]:
    """Return the figures of a predictor on these prompts:

    bucket_accuracy, majority_class   accuracy of the predicted classes of length, and of the most frequent class
    tau                               Kendall's tau-b of the predicted medians and the lengths
    pinball, constant_pinball         mean loss of the log quantiles, and of the training lengths' own quantiles
    majority_pinball                  loss of the one length of the most frequent class that fits these prompts best
    coverage_LEVEL                    share of outputs of at most that quantile
    over_0.9, under_0.9               tokens a prompt reserved too many and too few, at the quantile 0.9
    over_bucket, under_bucket         the same at the predicted class's bound
    over_constant, under_constant     the same at the training lengths' own quantile 0.9
    """
    forecasts = PredictorModel.of(predictor).predict(data.prompts)
    quantile_RL = np.array([forecast.tokens for forecast in forecasts])
    constant_RL = np.broadcast_to(np.maximum(predictor.marginal, 1.0), quantile_RL.shape)
    bound_R = np.array([forecast.bucket for forecast in forecasts], float)
    return {
        **_classes(forecasts, data, predictor.bucket_tokens),
        "tau": float(np.nan_to_num(kendalltau(quantile_RL[:, MEDIAN], data.tokens).statistic)),
        "pinball": pinball(quantile_RL, data.tokens),
        "constant_pinball": pinball(constant_RL, data.tokens),
        "majority_pinball": _majority_pinball(data.tokens, predictor.bucket_tokens),
        **{
            f"coverage_{level:g}": float(np.mean(data.tokens <= quantile_RL[:, k])) for k, level in enumerate(QUANTILES)
        },
        **_reserved("0.9", quantile_RL[:, UPPER], data.tokens),
        **_reserved("bucket", bound_R, data.tokens),
        **_reserved("constant", constant_RL[:, UPPER], data.tokens),
    }


def pinball(quantile_RL: Floats, tokens_R: NDArray[np.int32]) -> float:
    """Return the pinball loss of the log lengths, averaged over prompts and quantiles."""
    over_RL = np.log(tokens_R.astype(float))[:, None] - np.log(quantile_RL)
    level_L = np.array(QUANTILES)
    return float(np.mean(np.maximum(level_L * over_RL, (level_L - 1) * over_RL)))


def _majority_pinball(tokens_R: NDArray[np.int32], width: int) -> float:
    """Return the loss of one length for all prompts and quantiles: the best one of the most frequent class."""
    majority = int(_shares(tokens_R, width).argmax())
    ones_RL = np.ones((len(tokens_R), len(QUANTILES)))
    numbers = np.unique(np.rint(np.geomspace(majority * width + 1, (majority + 1) * width, NUMBERS)))
    return min(pinball(ones_RL * number, tokens_R) for number in numbers)


def _shares(tokens_R: NDArray[np.int32], width: int) -> Floats:
    counted: Floats = np.bincount(_class(tokens_R, width), minlength=BUCKETS) / len(tokens_R)
    return counted


def _class(tokens_R: NDArray[np.int32], width: int) -> NDArray[np.int32]:
    return np.minimum((tokens_R - 1) // width, BUCKETS - 1)


def _classes(forecasts: list[Forecast], data: LengthData, width: int) -> dict[str, float]:
    class_R = np.array([forecast.bucket // width - 1 for forecast in forecasts])
    right = float(np.mean(class_R == _class(data.tokens, width)))
    return {"bucket_accuracy": right, "majority_class": float(_shares(data.tokens, width).max())}


def _reserved(name: str, bound_R: Floats, tokens_R: NDArray[np.int32]) -> dict[str, float]:
    over_R = bound_R - tokens_R
    return {
        f"over_{name}": float(np.mean(np.maximum(over_R, 0))),
        f"under_{name}": float(np.mean(np.maximum(-over_R, 0))),
    }
