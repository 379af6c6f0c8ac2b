"""A model over several processes (`processes` of the settings): whether that can be, and the memory that it then has.

Knows settings and catalogs; what of it needs torch is asked of pliant/packing/engine/tensor_parallel.py, where a command
checks before it serves. An engine's process asks it again.
"""

from __future__ import annotations

from dataclasses import replace

from pliant.errors import InputError
from serving.packing.catalog import Catalog, ServedModel
from serving.packing.settings import PackingSettings


def check(settings: PackingSettings, catalog: Catalog) -> None:
    """Raises `InputError` where several engines would be on the devices that one engine's processes take."""
    count, names = settings.processes, sorted(catalog.models)
    if count > 1 and "," in settings.device:
        raise InputError("device", settings.device, f"one, cpu or cuda, where {count} processes share a model")
    if count > 1 and len(names) > 1:
        raise InputError(
            "processes", count, f"1 with {len(names)} models ({', '.join(names)}): they need the same devices"
        )


def check_here(settings: PackingSettings, catalog: Catalog) -> None:
    """With what this machine and the models themselves say. Raises `InputError`."""
    check(settings, catalog)
    if settings.processes > 1:
        from pliant.packing.engine import tensor_parallel

        for served in catalog.models.values():
            tensor_parallel.check(served.generator.config, settings.processes, settings.device)


def spread(settings: PackingSettings, served: ServedModel) -> ServedModel:
    """With the pages that the processes have room for together.

    The plan's are what one device holds. Each of several GPUs holds its share of every page, so that in as many bytes on
    each there are as many times the pages (and no more than all sequences at their longest fill). On CPU the processes
    share one main memory, and pages on the host do everywhere: the plan's.
    """
    memory = served.packing.memory
    if settings.processes == 1 or settings.device == "cpu":
        return served
    most = memory.need(served.generator.context) * memory.sequences
    pages = max(memory.pages, min(settings.processes * memory.pages, most))
    return replace(served, packing=replace(served.packing, memory=replace(memory, pages=pages)))
