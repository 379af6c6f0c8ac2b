"""The champion behind its real endpoint, for as long as a measurement lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

from benchmarks import endpoint
from benchmarks.load_generator import Example, examples
from benchmarks.tokens.replay import ADAPTIVE, FIXED, Endpoint
from flows import settings
from flows.tokens.publish import champion
from flows.tokens.stages import Bundle
from pliant.errors import RegistryError
from pliant.progress import Progress, silent
from serving.launch import Service
from training import data

POLICY_OF = {ADAPTIVE: "default", FIXED: "pets"}


@contextmanager
def serving(policy: str, port: int = 0, **options: Any) -> Iterator[Service]:
    """A ready service under a policy of tokens_replay or of Pliant."""
    with endpoint.serving("tokens", port, policy=POLICY_OF.get(policy, policy), **options) as service:
        yield service


@contextmanager
def address(policy: str) -> Iterator[str]:
    with serving(policy) as service:
        yield service.url


@contextmanager
def together(progress: Progress = silent) -> Iterator[Endpoint]:
    """The endpoints of ADAPTIVE and FIXED, started at the same time; a measurement asks one while the other is idle.

    Both schedule by the default policy: FIXED has one gamma to choose from, so that adaptation is all they differ in.
    """
    with ExitStack() as stack:
        services = {
            policy: stack.enter_context(endpoint.launched("tokens", policy="default", gamma=gamma))
            for policy, gamma in ((FIXED, 0), (ADAPTIVE, None))
        }
        for done, service in enumerate(services.values(), 1):
            service.wait_until_ready()
            progress(done, len(services))
        yield lambda policy: nullcontext(services[policy].url)


def live_bundle() -> Bundle:
    """The champion's artifacts. Raises `RegistryError` where there is none."""
    bundle = champion(settings.read())
    if bundle is None:
        raise RegistryError("the registry holds no champion of the tokens system: run `pliant train tokens` first")
    return bundle


def test_examples(bundle: Bundle) -> dict[str, list[Example]]:
    """Held-out images of every embedded task that the champion serves, as a client would send them."""
    pool = {}
    for task in bundle.tasks:
        if task.name in data.DIGIT_TASKS:
            loaded = data.digits(task.name)
            if loaded.fingerprint == task.data:
                pool[task.name] = examples(loaded, [int(i) for i in loaded.split.test])
    if not pool:
        raise RegistryError("the champion serves none of the embedded tasks, whose held-out images the replay needs")
    return pool
