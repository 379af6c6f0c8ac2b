"""A model that several processes share (the setting `processes`): whether that is possible, and the memory it has then."""

from __future__ import annotations

from dataclasses import replace

from pliant.errors import InputError
from serving.packing.catalog import Catalog, ServedModel
from serving.packing.settings import PackingSettings
from serving.workers.devices import devices


def check(settings: PackingSettings, catalog: Catalog) -> None:
    """Raise `InputError` if several engines would need the same devices."""
    count, names = settings.processes, sorted(catalog.models)
    if count > 1 and "," in settings.device:
        raise InputError("device", settings.device, f"cpu or cuda, if {count} processes share a model")
    if count > 1 and len(names) > 1:
        raise InputError(
            "processes",
            count,
            f"1 if {len(names)} models are served ({', '.join(names)}), as they need the same devices",
        )


def check_here(settings: PackingSettings, catalog: Catalog) -> None:
    """Check also this machine's devices and the models themselves, which imports torch. Raises `InputError`."""
    check(settings, catalog)
    if settings.processes > 1:
        from pliant.packing.engine import tensor_parallel

        for served in catalog.models.values():
            tensor_parallel.check(served.generator.config, settings.processes, devices(settings)[0])


def spread(settings: PackingSettings, served: ServedModel) -> ServedModel:
    """Return the model with the number of pages that its processes have memory for.

    The plan counts the pages of one device. Each of N GPUs holds a share of every page, so the same bytes per GPU hold N
    times the pages (at most those that all sequences fill at their longest). Processes on the CPU share main memory, as
    swapped pages always do, so the plan's numbers stay.
    """
    memory = served.packing.memory
    if settings.processes == 1 or devices(settings) == ["cpu"]:
        return served
    max_pages = memory.need(served.generator.context) * memory.sequences
    pages = max(memory.pages, min(settings.processes * memory.pages, max_pages))
    return replace(served, packing=replace(served.packing, memory=replace(memory, pages=pages)))
