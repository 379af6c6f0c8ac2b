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

from pliant.benchmarks import places
from pliant.benchmarks.harness import Context, Measured, need
from pliant.benchmarks.packing import traces
from pliant.benchmarks.packing.traces import Floats, Foretold, Ints, foretold
from pliant.benchmarks.places import ALPACA, existing
from pliant.flows import settings
from pliant.packing.engine.model import PredictorModel
from pliant.packing.scheduling.forecast import MEDIAN
from pliant.progress import Progress, share, silent
from pliant.training.packing import predictor as packing_predictor
from pliant.training.packing.lengths import observed
from pliant.training.packing.predictor import PredictorConfig

CONTEXT = 2048  # of Vicuna and of the models that S3 was measured with
FOLDS = 2
SEED = 0

Predict = Callable[[Sequence[str]], Floats]
"""From prompts to [N, L] quantiles of the tokens."""
Train = Callable[[Sequence[str], Ints, Progress], Predict]
ENCODER = PredictorConfig(kind="encoder", epochs=4, patience=1, max_length=64)
WAY = sha256(repr(ENCODER).encode()).hexdigest()[:8]
"""Names what `encoder` learns with: another configuration's predictions are not taken for its own."""


def encoder(prompts: Sequence[str], tokens: Ints, progress: Progress) -> Predict:
    """Train the project's own predictor, from nothing on these prompts alone."""
    predictor = packing_predictor.train(
        ENCODER, observed("alpaca", zip(prompts, tokens.tolist(), strict=True)), progress
    )
    model = PredictorModel.of(predictor)
    return lambda unseen: np.array([forecast.tokens for forecast in model.predict(unseen)])


def missing() -> str:
    """Return why this cannot be made here; empty if it can."""
    return places.missing(ALPACA) or traces.missing("vicuna")


@dataclass(frozen=True)
class Texts:
    """The Alpaca sample: instruction and input as one prompt, and the characters of their reference answers."""

    prompts: tuple[str, ...]
    answers: Ints

    def cache(self, folder: Path, way: str) -> Path:
        """Return where predictions of this sample are kept."""
        content = "\0".join(self.prompts).encode() + self.answers.tobytes()
        return folder / "packing-vicuna" / f"{sha256(content).hexdigest()[:16]}-{way}.npz"


def texts(path: Path = ALPACA) -> Texts:
    """Return the sample. Raises `InputError` where the file is missing."""
    import pandas

    table = pandas.read_parquet(existing(path))
    prompts = (table["instruction"] + "\n" + table["input"].fillna("")).str.strip()
    answers = table["output"].str.len().to_numpy(np.int64)
    return Texts(tuple(prompts), np.maximum(answers, 1))


def crossed(prompts: Sequence[str], tokens: Ints, train: Train, progress: Progress = silent) -> Floats:
    """Return what was predicted [N, L] for each prompt by a predictor that was trained without it."""
    order = np.random.default_rng(SEED).permutation(len(prompts))
    folds, predicted = np.array_split(order, FOLDS), []
    for number, fold in enumerate(folds):
        rest = np.setdiff1d(order, fold)
        part = share(progress, 100 * number // FOLDS, 100 * (number + 1) // FOLDS)
        predicted.append(train([prompts[i] for i in rest], tokens[rest], part)([prompts[i] for i in fold]))
    return np.concatenate(predicted)[np.argsort(np.concatenate(folds))]


def forecasts(context: Context) -> Measured:
    """Train what `study` forecasts by, unless it is kept; nothing is judged."""
    need(missing())
    with context.stage("predictor for Vicuna's lengths") as progress:
        cached(progress=progress)
        progress(1, 1)
    return [], {}


def untrained() -> str:
    """Return why nothing can be forecast for Vicuna's requests; empty if it can."""
    trained = texts().cache(settings.read().home, WAY).exists()
    return "" if trained else "needs forecasts that are trained first: pliant bench packing --part forecasts"


def cached(folder: Path | None = None, progress: Progress = silent, train: Train = encoder, way: str = WAY) -> Floats:
    """Return `crossed` for the Alpaca sample; kept by the data and the `way` to train, in `folder` or PLIANT_HOME."""
    known = texts()
    path = known.cache(folder or settings.read().home, way)
    if path.exists():
        with np.load(path) as kept:
            stored: Floats = kept["quantiles"]
            return stored
    tokens = np.ceil(known.answers / per_token(known)).astype(np.int64)
    quantiles_NL = crossed(known.prompts, tokens, train, progress)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, quantiles=quantiles_NL)
    return quantiles_NL


def per_token(known: Texts) -> float:
    """Return the characters of a token, such that the answers of both files are equally long on average."""
    return float(known.answers.mean() / traces.lengths("vicuna").prompt.mean())


def joined(reference: Ints, answers: Ints, seed: int = SEED) -> Ints:
    """Return for each of Vicuna's rows an Alpaca row whose reference answer has the same rank among its own."""
    rng = np.random.default_rng(seed)
    ours, theirs = (np.lexsort((rng.random(len(values)), values)) for values in (reference, answers))
    rows = np.empty(len(reference), np.int64)
    rows[ours] = theirs[np.arange(len(ours)) * len(theirs) // len(ours)]
    return rows


def vicuna(quantiles_NL: Floats) -> Foretold:
    """Return half of Vicuna's rows with the forecasts that `quantiles_NL`, predicted for the Alpaca rows, allow."""
    known, recorded = texts(), traces.lengths("vicuna")
    rows = joined(recorded.prompt, known.answers)
    prompts = np.array([len(prompt) for prompt in known.prompts])[rows]
    requests = replace(recorded, prompt=np.ceil(prompts / per_token(known)).astype(np.int64))
    scores = np.log(quantiles_NL[rows, MEDIAN])
    fitted, kept = np.array_split(np.random.default_rng(SEED).permutation(len(rows)), 2)
    return foretold(scores, requests, np.sort(fitted), np.sort(kept), CONTEXT)
