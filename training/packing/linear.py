"""Fits the linear predictor of output lengths: ridge on TF-IDF, for the log of the tokens and the classes of length.

Shape suffixes: R prompts, F features, K outputs.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, vstack
from tokenizers import Tokenizer

from pliant.packing.artifact import BUCKETS
from pliant.packing.engine.model import TOGETHER, LinearModel, cutting, tensors
from pliant.training.packing.lengths import LengthData
from pliant.training.starts import new_tokenizer

LENGTH = 512  # tokens that it reads of a prompt's end
TOKENS, PAIRS = 4000, 8192
STRENGTH = 0.3  # of ridge's penalty


def new(prompts: Iterable[str]) -> tuple[LinearModel, Tokenizer]:
    """Return a model that predicts nothing yet, with the inverse document frequencies of these prompts."""
    texts = list(prompts)
    tokenizer = cutting(new_tokenizer(texts, TOKENS), LENGTH)
    model = LinearModel(tokenizer.get_vocab_size(), PAIRS)
    torch.nn.init.zeros_(model.head.weight)
    torch.nn.init.zeros_(model.head.bias)
    having_F = np.asarray((_features(model, tokenizer, texts) > 0).sum(0)).ravel()
    model.idf.copy_(torch.from_numpy(np.log((1 + len(texts)) / (1 + having_F)) + 1))
    return model, tokenizer


def fit(model: LinearModel, tokenizer: Tokenizer, data: LengthData, weight_R: NDArray[np.float64], width: int) -> None:
    """Fit what the model leaves unexplained of the log lengths and classes: a new one from nothing, another one further.

    `width`: of a class, in tokens.
    """
    from sklearn.linear_model import Ridge

    feature_RF = _features(model, tokenizer, list(data.prompts))
    class_R = np.minimum((data.tokens - 1) // width, BUCKETS - 1)
    wanted_RK = np.column_stack([np.log(data.tokens), np.eye(BUCKETS)[class_R]])
    weight_KF, bias_K = model.head.weight.detach().numpy(), model.head.bias.detach().numpy()
    ridge = Ridge(STRENGTH).fit(feature_RF, wanted_RK - (feature_RF @ weight_KF.T + bias_K), sample_weight=weight_R)
    with torch.no_grad():
        model.head.weight.add_(torch.from_numpy(ridge.coef_).float())
        model.head.bias.add_(torch.from_numpy(ridge.intercept_).float())


@torch.no_grad()
def _features(model: LinearModel, tokenizer: Tokenizer, texts: list[str]) -> csr_matrix:
    """Return what the model's layer reads of the prompts [R, F]."""
    starts = range(0, len(texts), TOGETHER)
    batches = ([each.ids for each in tokenizer.encode_batch(texts[at : at + TOGETHER])] for at in starts)
    return vstack([csr_matrix(model.features(*tensors(ids)).numpy()) for ids in batches], format="csr")
