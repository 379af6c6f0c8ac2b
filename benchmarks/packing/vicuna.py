"""A predictor that was really trained, for Vicuna's output lengths, whose file holds no prompts.

The file tells of each request how long the reference answer is and how long Vicuna's. So:
1. A predictor learns the reference answer's length from the prompt, on half of the Alpaca sample, and predicts the other
   half; then the halves change places. Nobody is predicted by who has seen it.
2. Each of Vicuna's rows borrows the prompt of an Alpaca row whose reference answer is as long (equal rank, ties at random).
3. On half of the rows Vicuna's length is related to the prediction; the other half alone is forecast, judged and served.
So a forecast knows of Vicuna's length what the predictor reads in a prompt about the reference, and nothing else: a
predictor trained on Vicuna's own answers would know more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import numpy as np

from benchmarks.packing import traces
from benchmarks.packing.forecasts import Foretold, foretold
from benchmarks.packing.traces import Floats, Ints
from benchmarks.places import SHARED
from pliant.errors import InputError
from pliant.packing.engine.model import PredictorModel
from pliant.packing.scheduling.forecast import MEDIAN
from pliant.progress import Progress, silent
from training.packing import predictor as packing_predictor
from training.packing.lengths import observed
from training.packing.predictor import PredictorConfig

ALPACA = SHARED / "text" / "alpaca_train.parquet"
CONTEXT = 2048  # of Vicuna and of the models that S3 was measured with
FOLDS = 2
SEED = 0

Predict = Callable[[Sequence[str]], Floats]
"""From prompts to [N, L] quantiles of the tokens."""
Train = Callable[[Sequence[str], Ints, Progress], Predict]
ENCODER = PredictorConfig(epochs=4, patience=1, max_length=64)
WAY = sha256(repr(ENCODER).encode()).hexdigest()[:8]
"""Names what `encoder` learns with: another configuration's predictions are not taken for its own."""


def encoder(prompts: Sequence[str], tokens: Ints, progress: Progress) -> Predict:
    """The project's own predictor, trained from nothing on these prompts alone."""
    predictor = packing_predictor.train(
        ENCODER, observed("alpaca", zip(prompts, tokens.tolist(), strict=True)), progress
    )
    model = PredictorModel.of(predictor)
    return lambda asked: np.array([one.tokens for one in model.predict(asked)])


@dataclass(frozen=True)
class Texts:
    """The Alpaca sample: prompts, and the characters of their reference answers."""

    prompts: tuple[str, ...]
    answers: Ints

    @property
    def fingerprint(self) -> str:
        content = "\0".join(self.prompts).encode() + self.answers.tobytes()
        return sha256(content).hexdigest()[:16]


def missing() -> str:
    """Why this cannot be made here; empty if it can."""
    if not ALPACA.exists():
        return f"needs {ALPACA.name} in ../shared/data/text, which is not part of the project"
    return traces.missing("vicuna")


def texts(path: Path = ALPACA) -> Texts:
    """Instruction and input, as one prompt. Raises `InputError` where the file is missing."""
    import pandas

    if not path.exists():
        raise InputError("data", path, "an existing file (the shared data sets are not part of the project)")
    table = pandas.read_parquet(path)
    both = zip(table["instruction"], table["input"].fillna(""), strict=True)
    answers = table["output"].str.len().to_numpy(np.int64)
    return Texts(tuple(f"{one}\n{two}".strip() for one, two in both), np.maximum(answers, 1))


def crossed(prompts: Sequence[str], tokens: Ints, train: Train, progress: Progress = silent) -> Floats:
    """[N, L] what was predicted for each prompt by a predictor that was trained without it."""
    order = np.random.default_rng(SEED).permutation(len(prompts))
    found: Floats | None = None
    for number, fold in enumerate(np.array_split(order, FOLDS)):
        rest = np.setdiff1d(order, fold)
        told = _shared(progress, number)
        predicted = train([prompts[i] for i in rest], tokens[rest], told)([prompts[i] for i in fold])
        found = np.empty((len(prompts), predicted.shape[1])) if found is None else found
        found[fold] = predicted
    assert found is not None
    return found


def _shared(progress: Progress, number: int) -> Progress:
    return lambda done, total: progress(number * total + done, FOLDS * total)


def cached(folder: Path, train: Train, name: str, progress: Progress = silent) -> Floats:
    """`crossed` for the Alpaca sample; kept in `folder` under the names of the data and of the way to train."""
    known = texts()
    path = _path(folder, known, name)
    if path.exists():
        with np.load(path) as kept:
            found: Floats = kept["quantiles"]
            return found
    found = crossed(known.prompts, tokens_of(known), train, progress)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, quantiles=found)
    return found


def is_kept(folder: Path, name: str) -> bool:
    """Whether `cached` has nothing to train."""
    return _path(folder, texts(), name).exists()


def _path(folder: Path, known: Texts, name: str) -> Path:
    return folder / "packing-vicuna" / f"{known.fingerprint}-{name}.npz"


def per_token(known: Texts) -> float:
    """Characters of a token, such that the answers of both files are equally long on average."""
    return float(known.answers.mean() / traces.lengths("vicuna").prompt.mean())


def tokens_of(known: Texts) -> Ints:
    """[N] of the reference answers."""
    found: Ints = np.ceil(known.answers / per_token(known)).astype(np.int64)
    return found


def joined(reference: Ints, answers: Ints, seed: int = SEED) -> Ints:
    """For each of Vicuna's rows, an Alpaca row whose reference answer has the same rank among its own."""
    rng = np.random.default_rng(seed)
    ours, theirs = (np.lexsort((rng.random(len(values)), values)) for values in (reference, answers))
    found = np.empty(len(reference), np.int64)
    found[ours] = theirs[np.arange(len(ours)) * len(theirs) // len(ours)]
    return found


def vicuna(quantiles_NL: Floats) -> Foretold:
    """Half of Vicuna's rows with forecasts that `quantiles_NL`, predicted for the Alpaca rows, allow."""
    known, recorded = texts(), traces.lengths("vicuna")
    rows = joined(recorded.prompt, known.answers)
    prompts = np.array([len(prompt) for prompt in known.prompts])[rows]
    requests = replace(recorded, prompt=np.ceil(prompts / per_token(known)).astype(np.int64))
    scores = np.log(quantiles_NL[rows, MEDIAN])
    fitted, kept = np.array_split(np.random.default_rng(SEED).permutation(len(rows)), 2)
    return foretold("vicuna, trained on prompts", scores, requests, np.sort(fitted), np.sort(kept), CONTEXT)
