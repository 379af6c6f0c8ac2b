"""Tasks that do not follow the registry's alias, because an administrator has pinned them to a version."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from prometheus_client import CollectorRegistry

from pliant.registry.names import TOKENS_TASK
from pliant.serving.client import Client
from pliant.serving.monitoring.metric_list import register
from pliant.serving.tokens.metric_list import PINS

logger = logging.getLogger("pliant.serving")


class Pins:
    """The pinned version of each registered model that has one."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """`registry`: where they are counted."""
        (self._count,) = register(PINS, registry or CollectorRegistry()).values()
        self._versions: dict[str, int] = {}

    @property
    def versions(self) -> Mapping[str, int]:
        """Return the pinned version by registered model."""
        return self._versions

    def to_dict(self) -> dict[str, int]:
        """Return the pinned version by task."""
        return {model.removeprefix(TOKENS_TASK): version for model, version in sorted(self._versions.items())}

    def pin(self, model: str, version: int, client: Client) -> None:
        """Pin a model to a version."""
        self._versions[model] = version
        self._count.set(len(self._versions))
        logger.warning("%s is pinned to version %d by %s", model, version, _named(client))

    def take_off(self, model: str, why: str) -> None:
        """Let a model follow the alias again, if it is pinned."""
        if self._versions.pop(model, None) is not None:
            self._count.set(len(self._versions))
            logger.warning("%s is no longer pinned: %s", model, why)

    def take_off_by(self, model: str, client: Client) -> None:
        """Let a model follow the alias again, as an administrator wants."""
        self.take_off(model, f"taken off by {_named(client)}")


def _named(client: Client) -> str:
    return f"key {client.key} of {client.tenant}" if client.key else "an administrator without a key"
