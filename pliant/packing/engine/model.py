"""Turns artifacts of generators and of length predictors into torch modules, and modules into weights.

Knows transformers' configurations and nothing of training, caches or scheduling.

Shape suffixes: B texts, N tokens, H width, L levels, K classes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.functional import softplus

from pliant.errors import ArtifactError
from pliant.packing.artifact import BUCKETS, Generator, Predictor
from pliant.packing.scheduling.forecast import QUANTILES, ordered

CHARACTERS = 12  # read of a prompt's end for each token that the predictor reads; tokens have fewer on average
TOGETHER = 64  # prompts in one forward pass


def weights(model: nn.Module) -> dict[str, NDArray[np.float32]]:
    """Return every parameter and persistent buffer as float32; tied ones once, under the first of their names."""
    seen: set[tuple[int, tuple[int, ...]]] = set()
    kept = {}
    for name, tensor in model.state_dict().items():
        mark = (tensor.data_ptr(), tuple(tensor.shape))
        if mark not in seen:
            kept[name] = tensor.detach().float().cpu().numpy().copy()
        seen.add(mark)
    return kept


def load_generator(generator: Generator, device: str = "cpu") -> Any:
    """Return the causal model with its weights, in evaluation mode. Raises `ArtifactError` if they do not fit it."""
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_config(
        _configuration(generator), attn_implementation="sdpa", dtype=torch.float32
    )
    fill(model, generator.weights, generator.name)
    model.generation_config.eos_token_id = list(generator.ends)
    if model.generation_config.pad_token_id is None:
        model.generation_config.pad_token_id = generator.ends[0]
    return model.eval().to(device)


def vocabulary(generator: Generator) -> int:
    """Return the number of token ids that the model knows, without loading it."""
    return int(_configuration(generator).get_text_config().vocab_size)


def _configuration(generator: Generator) -> Any:
    from transformers import AutoConfig

    return AutoConfig.for_model(**json.loads(generator.config))


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is predicted of one prompt's output."""

    tokens: tuple[float, ...]  # quantiles at QUANTILES, ascending
    bucket: int  # upper bound of the predicted class, in tokens


class LengthModel(nn.Module):
    """Predicts the quantiles of the log of an output's tokens, and its class of length (S3, section 3.1).

    Both heads read the mean of the last hidden states beside the largest input embedding in each dimension, which says
    what words occur in however long a prompt. With the hidden states alone, an encoder trained from scratch on 3,000
    prompts of Alpaca was no better than a constant after at most five epochs (rate 1e-3, one seed). With the mean
    embedding instead of the largest, the pinball loss on the embedded corpus was 6 and 10% higher (two seeds).
    """

    shift: Tensor

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder: Any = encoder
        width = 2 * encoder.config.hidden_size
        self.quantile, self.bucket = nn.Linear(width, len(QUANTILES)), nn.Linear(width, BUCKETS)
        self.register_buffer("shift", torch.zeros(len(QUANTILES)))  # added to the quantiles; set by calibration

    def forward(self, ids_BN: Tensor, mask_BN: Tensor) -> tuple[Tensor, Tensor]:
        """Return quantiles of log tokens [B, L], ascending before the shift, and logits [B, K].

        `mask_BN` is 1 for tokens and 0 for padding.
        """
        hidden_BNH = self.encoder(input_ids=ids_BN, attention_mask=mask_BN).last_hidden_state
        words_BNH = self.encoder.get_input_embeddings()(ids_BN)
        weight_BN1 = (mask_BN / mask_BN.sum(1, keepdim=True))[:, :, None]
        largest_BH = words_BNH.masked_fill(mask_BN[:, :, None] == 0, -torch.inf).amax(1)
        pooled_BH = torch.cat([(hidden_BNH * weight_BN1).sum(1), largest_BH], dim=1)
        raw_BL = self.quantile(pooled_BH)
        steps_BL = torch.cat([raw_BL[:, :1], softplus(raw_BL[:, 1:])], dim=1)
        return steps_BL.cumsum(1) + self.shift, self.bucket(pooled_BH)


def new_encoder(config: Mapping[str, Any]) -> Any:
    """Return an untrained encoder of transformers; `config` is the content of its config.json."""
    from transformers import AutoConfig, AutoModel

    configuration: Any = AutoConfig.for_model(**config)
    encoder: Any = AutoModel.from_config(configuration, attn_implementation="sdpa", dtype=torch.float32)
    return without_pooler(encoder)


def without_pooler(encoder: Any) -> Any:
    """Return the encoder without BERT's pooling of the first token, which nothing here reads."""
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None
    return encoder


@dataclass(frozen=True, slots=True)
class PredictorModel:
    """A length predictor, ready to run."""

    model: LengthModel
    tokenizer: Tokenizer  # keeps the last tokens of a long prompt
    characters: int  # read of the end of a prompt
    bucket_tokens: int  # width of a class of length

    @staticmethod
    def of(predictor: Predictor) -> PredictorModel:
        """Load a predictor on the CPU. Raises `ArtifactError` if its weights do not fit its configuration."""
        model = LengthModel(new_encoder(json.loads(predictor.config)))
        fill(model, predictor.weights, predictor.name)
        tokenizer = cutting(tokenizer_of(predictor.tokenizer), predictor.max_length)
        return PredictorModel(model.eval(), tokenizer, CHARACTERS * predictor.max_length, predictor.bucket_tokens)

    def predict(self, texts: Sequence[str]) -> list[Forecast]:
        """Return a forecast for each prompt, in order."""
        forecasts: list[Forecast] = []
        for start in range(0, len(texts), TOGETHER):
            log_BL, class_B = self._run([text[-self.characters :] for text in texts[start : start + TOGETHER]])
            forecasts += [self._forecast(*pair) for pair in zip(log_BL.tolist(), class_B.tolist(), strict=True)]
        return forecasts

    @torch.inference_mode()
    def _run(self, texts: list[str]) -> tuple[Tensor, Tensor]:
        logs_BL, logits_BK = self.model(*tensors([encoding.ids for encoding in self.tokenizer.encode_batch(texts)]))
        return logs_BL.exp(), logits_BK.argmax(1)

    def _forecast(self, tokens: list[float], bucket: int) -> Forecast:
        return Forecast(ordered(tokens, BUCKETS * self.bucket_tokens), (bucket + 1) * self.bucket_tokens)


def cutting(tokenizer: Tokenizer, length: int) -> Tokenizer:
    """Make the tokenizer keep the last `length` tokens of a longer text, and return it."""
    tokenizer.no_padding()
    tokenizer.enable_truncation(length, direction="left")
    return tokenizer


def tensors(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Return ids [B, N], padded behind with 0, and their mask. An empty row becomes one token 0."""
    longest = max(1, *(len(row) for row in rows))
    ids_BN, mask_BN = (
        torch.zeros(len(rows), longest, dtype=torch.long),
        torch.zeros(len(rows), longest, dtype=torch.long),
    )
    for at, row in enumerate(rows):
        ids_BN[at, : len(row)] = torch.tensor(row, dtype=torch.long)
        mask_BN[at, : max(1, len(row))] = 1
    return ids_BN, mask_BN


def fill(model: nn.Module, values: Mapping[str, NDArray[np.float32]], name: str) -> None:
    """Load weights into a model; tied ones need one of their names. Raises `ArtifactError` if they do not fit it."""
    tensors = {key: torch.from_numpy(np.array(array)) for key, array in values.items()}
    try:
        missing, unexpected = model.load_state_dict(tensors, strict=False)
    except RuntimeError as error:
        raise ArtifactError(f"the weights of {name} do not fit its configuration: {error}") from error
    state = model.state_dict()
    held = {state[key].data_ptr() for key in tensors if key in state}
    lacking = [key for key in missing if state[key].data_ptr() not in held]
    if lacking or unexpected:
        names = ", ".join([*lacking, *unexpected][:4])
        raise ArtifactError(f"the weights of {name} do not fit its configuration: {names}")


def tokenizer_of(text: str) -> Tokenizer:
    """Return the tokenizer of a tokenizer.json's content. Raises `ArtifactError` if it cannot be read."""
    try:
        return Tokenizer.from_str(text)
    except Exception as error:  # its reader raises nothing narrower
        raise ArtifactError(f"the tokenizer is no tokenizer.json that this version reads: {error}") from error
