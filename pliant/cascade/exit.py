"""A head on the first layers of a classifier in plain numpy, which says what an exit computes. Knows no torch.

Shape suffixes: R texts, D width of the trunk, K outputs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

from pliant.cascade.artifact import Exit


def exit_logits(head: Exit, feature_RD: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return [R, K] the outputs for features [R, 2 D]: the mean and then the maximum over a text's tokens."""
    hidden_RH = feature_RD @ head.into.T + head.into_bias
    hidden_RH = hidden_RH / 2 * (1 + erf(hidden_RH / np.sqrt(np.float32(2))))
    output_RK: NDArray[np.float32] = hidden_RH @ head.out.T + head.out_bias
    return output_RK
