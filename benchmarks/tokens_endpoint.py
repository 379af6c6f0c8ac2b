"""The champion behind its real endpoint, for as long as a measurement lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.load_generator import Example, allow_many_connections, examples
from benchmarks.tokens_replay import ADAPTIVE, FIXED
from flows import servers, settings
from flows.tokens_publish import EXPERIMENT, champion
from flows.tokens_stages import Bundle
from pliant.errors import PliantError, RegistryError
from serving.launch import Service, launch
from serving.settings import Settings
from training import data

POLICY_OF = {ADAPTIVE: "default", FIXED: "pets"}


def service_settings(told: settings.Settings, **options: object) -> Settings:
    """The service's settings for this project's registry; `options` as in serving/settings.py."""
    threads: dict[str, object] = {"threads": 1}
    where = {"registry_uri": told.tracking_uri, "experiment": EXPERIMENT, "artifact_root": str(told.artifact_root)}
    return Settings(**{**where, **threads, **options})  # type: ignore[arg-type]


@contextmanager
def serving(policy: str, port: int = 0, **options: object) -> Iterator[Service]:
    """A ready service under a policy of tokens_replay or of Pliant; one that does not end cleanly is an error."""
    told = settings.read()
    settings.prepare(told)
    allow_many_connections()
    chosen = service_settings(told, policy=POLICY_OF.get(policy, policy), **options)
    port = servers.free_port(port)
    service = launch(chosen, told.home, port, told.home / "logs" / f"endpoint-{port}.log")
    try:
        service.wait_until_ready()
        yield service
    finally:
        status = service.stop()
    if status != 0:
        raise PliantError(f"the endpoint ended with status {status}; its log is {service.log}")


@contextmanager
def address(policy: str) -> Iterator[str]:
    with serving(policy) as service:
        yield service.url


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
