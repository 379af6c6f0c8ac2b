"""The champion behind its real endpoint, for as long as a measurement lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from pliant.benchmarks import endpoint
from pliant.benchmarks.load_generator import Example, examples
from pliant.benchmarks.tokens.replay import ADAPTIVE, FIXED, Endpoint
from pliant.errors import RegistryError
from pliant.flows import settings
from pliant.flows.tokens.champions import load_champion
from pliant.flows.tokens.stages import Bundle
from pliant.progress import Progress, silent
from pliant.training import data
from pliant.training.tokens.labelled import original

POLICY_OF = {ADAPTIVE: "default", FIXED: "pets"}


def address(policy: str, **options: Any) -> AbstractContextManager[str]:
    """Give the address of a ready service under a policy of replay.py or of Pliant."""
    return endpoint.serving("tokens", policy=POLICY_OF.get(policy, policy), **options)


@contextmanager
def together(progress: Progress = silent) -> Iterator[Endpoint]:
    """Start the endpoints of ADAPTIVE and FIXED at the same time; a measurement uses one while the other is idle.

    Both schedule by the default policy: FIXED has one gamma to choose from, so that adaptation is all they differ in.
    """
    options = {policy: {"policy": "default", "gamma": gamma} for policy, gamma in ((FIXED, 0), (ADAPTIVE, None))}
    with endpoint.serving_each("tokens", options, progress) as addresses:
        yield lambda policy: nullcontext(addresses[policy])


def live_bundle() -> Bundle:
    """Return the champion's artifacts. Raises `RegistryError` where there is none."""
    bundle = load_champion(settings.read())
    if bundle is None:
        raise RegistryError("the registry holds no champion of the tokens system: run `pliant train tokens` first")
    return bundle


def test_examples(bundle: Bundle) -> dict[str, list[Example]]:
    """Return held-out images of every embedded task that the champion serves, as a client would send them."""
    pool = {}
    for task in bundle.tasks:
        if task.name in data.DIGIT_TASKS:
            loaded = data.digits(task.name)
            if loaded.fingerprint == original(task.data):
                pool[task.name] = examples(loaded, [int(i) for i in loaded.split.test])
    if not pool:
        raise RegistryError("the champion serves none of the embedded tasks, whose held-out images the replay needs")
    return pool
