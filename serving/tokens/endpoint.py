"""The tokens service apart from HTTP: it predicts, lists and registers tasks, takes labels, and reports its status."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliant.outcomes.tracker import Answered
from pliant.serving.client import ANYBODY, Client
from pliant.serving.driver import Clock, Completed, Rejected
from pliant.serving.http.api_errors import api_error_of_drop
from pliant.serving.lifecycle.endpoint import LabelledEndpoint, described_devices
from pliant.serving.lifecycle.refresh import join_versions
from pliant.serving.loop.observe import Kind, Observation, Reading, Served, class_readings
from pliant.serving.loop.outcomes import Names, Outcomes
from pliant.serving.metrics import Metrics
from pliant.serving.request_context import is_copy
from pliant.serving.tokens.catalog import Catalog, Origin, TaskInfo
from pliant.serving.tokens.decoders import Decoders
from pliant.serving.tokens.registration import Origins, Registrar, TokensGeneration, TokensRefresher
from pliant.serving.tokens.settings import TokensSettings
from pliant.watch.binning import linear, logarithmic


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """A checked request to classify an image."""

    image: bytes  # the file
    task: str
    deadline: float  # seconds from arrival
    utility: float  # of an answer in time
    client: Client = ANYBODY
    id: str | None = None  # to report the label with; None: a new one; "": it is not remembered


class TokensEndpoint(LabelledEndpoint[TokensSettings, Catalog, TaskInfo]):
    """Predicts the classes of images."""

    def __init__(
        self,
        settings: TokensSettings,
        refresher: TokensRefresher,
        registrar: Registrar,
        origins: Origins,
        metrics: Metrics,
        clock: Clock,
        outcomes: Outcomes,
    ) -> None:
        super().__init__(settings, refresher, metrics, clock, outcomes)
        self._pictures = Pictures()
        self._registrar, self._origins = registrar, origins
        self._decoders = Decoders(settings.max_image_pixels)

    @property
    def largest_batch(self) -> int:
        """Return how many images the device runs at a time, at most."""
        return self._generations.present.catalog.knowledge().latency.batches[-1]

    async def predict(self, request: ImageRequest, arrived: float) -> dict[str, Any]:
        """Return the answer to a request; its deadline counts from `arrived`, on this endpoint's clock.

        Raises `ApiError` for overload and unknown tasks, `InputError` for an unusable image.
        """
        return await self.route_trial(partial(self._predict, request), arrived, request.deadline)

    async def _predict(self, request: ImageRequest, arrived: float) -> Served[dict[str, Any]]:
        self.handler(request.task)
        size = self._generations.chosen.catalog.backbone.image_size
        try:
            pixels = await self._decoders.decode(request.image, size, request.deadline - (self.now - arrived))
        except TimeoutError:
            self.metrics.dropped(request.task, "late", request.utility)
            raise api_error_of_drop(Rejected("late"), request.deadline) from None
        generation, payload = self._generations.chosen, (request.task, pixels)  # decoding may have taken a while
        deadline, client, utility = request.deadline, request.client, request.utility
        _, completed = await self.run_one(request.task, payload, deadline, arrived, client, utility)
        return self._served(request, completed, generation, pixels)

    def _served(
        self, request: ImageRequest, completed: Completed, generation: TokensGeneration, pixels: NDArray[np.uint8]
    ) -> Served[dict[str, Any]]:
        """Return the answer, with the versions that the output itself names: others may be served by now."""
        first, second, probabilities = completed.output
        task, tenant, key = request.task, request.client.tenant, (first, second)
        # Two releases may hold the same artifacts under other versions: the one that was asked names its own. What it does
        # not know has joined it since.
        origin, best = generation.catalog.origins.get(key) or self._origins[key], int(probabilities.argmax())
        versions = {**origin.versions, "profile": generation.catalog.profile_version}
        shares = [round(share, 6) for share in probabilities.tolist()]
        id = "" if is_copy() else os.urandom(16).hex() if request.id is None else request.id
        readings = class_readings(task, origin.classes, best, shares[best]) if self.drift.should_count() else ()
        observation = Observation(
            task=task,
            version=origin.versions["task"],
            outcome=completed.outcome,
            origin={f"{kind}_version": version for kind, version in versions.items()},
            measured={
                "queue_seconds": completed.queue_seconds,
                "request_seconds": request.deadline + completed.late_by,
            },
            utility=request.utility,
            label=origin.classes[best],
            confidence=shares[best],
            late=not completed.on_time,
            readings=readings and (*readings, *self._pictures.readings(task, pixels)),
            id=id,
            kind=self._observer.kind(
                (*key, origin.versions["task"], completed.setting, tenant),
                partial(kind_of, task, origin, completed.setting, tenant),
            ),
        )
        content = {
            "id": id,
            "task": task,
            "label": origin.classes[best],
            "probabilities": dict(zip(origin.classes, shares, strict=True)),
            "gamma": completed.setting,
            "batch_size": completed.batch,
            "queue_seconds": completed.queue_seconds,
            "run_seconds": completed.run_seconds,
            "on_time": completed.on_time,
            "versions": versions,
        }
        return Served(content, [self._observer.observe(observation, partial(kept, pixels))])

    async def refresh(self) -> dict[str, Any]:
        """Poll the registry now, and return the outcome, with the pins, which it leaves. Raises as `Refresher`'s poll."""
        outcome, pins = await super().refresh(), self._registrar.pins.to_dict()
        if pins:
            outcome["message"] += f"; pinned: {join_versions(pins)}"
        return {**outcome, "pins": pins}

    async def register(self, name: str, which: str | int | None, client: Client = ANYBODY) -> TaskInfo:
        """Serve another task of the registry, or another version of a task, and return its description.

        Raises as `Registrar.register`.
        """
        await self._registrar.register(self._refresher, name, which, client)
        return self._generations.present.handlers[name]

    def tasks(self) -> list[TaskInfo]:
        return list(self._generations.present.handlers.values())

    def status(self) -> dict[str, Any]:
        present = self._generations.present
        catalog, backbone = present.catalog, present.catalog.backbone
        return {
            **self.common_status(),
            "devices": described_devices(self.settings, present.driver),
            "policy": self.settings.policy,
            "gammas": list(self.settings.used(catalog.knowledge().latency.settings)),
            "points": {str(number): str(point) for number, point in sorted(catalog.profile.points.items())},
            "backbone": {"version": backbone.version, "digest": backbone.digest, "source": backbone.source},
            "profile": {
                "version": catalog.profile_version,
                "digest": catalog.profile_digest,
                "device": catalog.device,
                "precision": catalog.profile.precision,
            },
            "tasks": self.tasks(),
            "pins": self._registrar.pins.to_dict(),
            "outcomes": self.outcomes.to_dict(),
        }


NAMES = Names("operating_point", None)
EVERY = 4  # pictures, of which one is looked at: that takes some 30 microseconds, and up to 70 for 224 x 224
LINES = 64  # rows, and columns, that are looked at, or up to twice as many: all of 224 x 224 took 400 microseconds
BRIGHTNESS, SHARPNESS = Kind(linear(0, 255)), Kind(logarithmic(0.1, 100))


def kind_of(task: str, origin: Origin, setting: int, tenant: str) -> Answered:
    """Return what the answers to a tenant share that these artifacts gave in a launch with this setting."""
    point, promised = str(setting), origin.promised.get(setting)
    return Answered(
        task, origin.versions["task"], point, point, "", 0.0, promised, classes=origin.classes, tenant=tenant
    )


class Pictures:
    """Looks at one of a few pictures."""

    def __init__(self) -> None:
        self._number = count()

    def readings(self, task: str, pixels_HW3: NDArray[np.uint8]) -> tuple[Reading, ...]:
        """Return what drift detection counts of a picture; nothing of most."""
        if next(self._number) % EVERY:
            return ()
        brightness, sharpness = statistics(pixels_HW3)
        return (
            Reading(f"brightness of {task}", brightness, BRIGHTNESS),
            Reading(f"sharpness of {task}", sharpness, SHARPNESS),
        )


def statistics(pixels_HW3: NDArray[np.uint8]) -> tuple[float, float]:
    """Return the mean brightness (0 to 255) and the mean difference of neighbours, which blur lowers and noise raises.

    Both are of green. Of large pictures they are those of every second, third and so on row and column, whole ones: which
    pixels are neighbours does not depend on the size.
    """
    step = max(1, max(pixels_HW3.shape[:2]) // LINES)
    green_HW = pixels_HW3[..., 1]
    rows_hW, columns_Hw = green_HW[::step].astype(np.int16), green_HW[:, ::step].astype(np.int16)
    across = np.abs(np.diff(rows_hW, axis=1)).mean()
    down = np.abs(np.diff(columns_Hw, axis=0)).mean()
    return float(rows_hW.mean()), float((across + down) / 2)


def kept(pixels_HW3: NDArray[np.uint8]) -> tuple[str, bytes]:
    """Return form and bytes of a picture that is kept for its label: the pixels, without what else was in the file."""
    return " ".join([str(pixels_HW3.dtype), *map(str, pixels_HW3.shape)]), pixels_HW3.tobytes()
