"""Going back to the release before takes the generation that is still loaded; nothing is started for it."""

from __future__ import annotations

from tests.serving.lifecycle.refreshing import A, B, Registry, run


def released(*versions: int) -> Registry:
    registry = Registry()
    for version in versions:
        registry.commit(a=version, b=1)
    return registry


def test_a_rollback_serves_the_former_generation_at_once_and_so_does_the_way_forth():
    async def scenario(service):
        service.registry.commit(a=2, b=1)
        assert (await service.poll())[0] == "changed" and service.starts == 1
        second = service.generations.present
        service.registry.released.append(service.registry.released[0])  # the alias goes back
        service.registry.pointers = {A: 1, B: 1}
        assert await service.poll() == ("changed", f"now served: {A} version 1", {A: 1})
        assert service.generations.present is service.first and service.generations.standby is second
        assert service.starts == 1 and not second.driver.stopped
        assert service.refresher.release == 1
        service.registry.commit(a=2, b=1)
        assert (await service.poll())[0] == "changed"
        assert service.generations.present is second and service.starts == 1
        await service.generations.stop()
        assert service.first.driver.stopped and second.driver.stopped

    run(scenario, released(1), standby_seconds=60.0)
