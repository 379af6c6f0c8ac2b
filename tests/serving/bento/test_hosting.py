"""A hosted service starts by its settings, opens its door last, and is as ready and alive as its endpoint."""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace

import pytest
from starlette.middleware.cors import CORSMiddleware

from pliant import systems
from pliant.errors import InputError
from pliant.serving.bento import hosting
from pliant.serving.bento.hosting import HostedService, with_access
from pliant.serving.bins.settings import BinsSettings
from pliant.serving.http.access.access import AccessMiddleware
from pliant.serving.http.app import RequestIdMiddleware, UnknownPathMiddleware
from pliant.serving.request_context import FrontDoor


class Service:
    """A service of the system bins, all parts of which are fakes that note what is called."""

    def __init__(self, monkeypatch, refuses: str = "") -> None:
        self.calls, self.opened = [], {}
        self.metrics = SimpleNamespace(errored=lambda code: self.calls.append(("error", code)))
        self.endpoint = SimpleNamespace(metrics=self.metrics, front_door=FrontDoor(), ready=True, alive=True)
        self.access = SimpleNamespace(
            judge=lambda scope: f"judged {scope}", sender=lambda scope: f"the sender of {scope}"
        )
        door = SimpleNamespace(open=self.open)
        self.state = SimpleNamespace(door=door, shape_of="a shape of errors")
        parts = {
            "settings": SimpleNamespace(SETTINGS=BinsSettings),
            "assembly": SimpleNamespace(SERVED=self.served),
        }

        def part(stage, name):
            assert stage == "serving"
            return parts[name]

        def system(name):
            assert name == "bins"
            return SimpleNamespace(part=part)

        def check(settings):
            self.calls.append("check")
            if refuses:
                raise InputError("host", settings.host, refuses)

        monkeypatch.setattr(systems, "system", system)
        monkeypatch.setattr(hosting, "check_access", check)
        monkeypatch.setattr(hosting, "access_of", lambda settings: self.access)
        monkeypatch.setattr(hosting, "TenantMetrics", lambda: "counts by tenant")
        monkeypatch.setattr(hosting, "share_the_interpreter", lambda: self.calls.append("share"))
        monkeypatch.setattr(hosting, "freeze_gc", lambda: self.calls.append("freeze"))
        kind = type("Hosted", (HostedService,), {"SYSTEM": "bins", "APP": SimpleNamespace(state=self.state)})
        self.hosted = kind()

    def served(self, settings):
        return SimpleNamespace(assemble=lambda: self.assemble(settings))

    async def assemble(self, settings):
        self.calls.append("assemble")
        self.settings = settings
        return SimpleNamespace(endpoint=self.endpoint, stop=self.stop)

    async def stop(self):
        self.calls.append("stop")

    def open(self, count, front, judge):
        self.calls.append("open")
        self.opened = {"count": count, "front": front, "judge": judge}

    def start(self):
        asyncio.run(self.hosted.start())


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in [name for name in os.environ if name.startswith("PLIANT_")]:
        monkeypatch.delenv(name)


def test_it_starts_by_the_environments_settings_and_opens_the_door_once_every_model_has_run(monkeypatch):
    monkeypatch.setenv("PLIANT_MAX_TEXTS", "5")
    service = Service(monkeypatch)
    service.start()
    assert service.calls == ["check", "assemble", "open", "share", "freeze"]
    assert service.settings.max_texts == 5
    assert service.state.endpoint is service.endpoint
    gate = service.state.gate
    assert (gate.access, gate.metrics, gate.shape_of) == (service.access, "counts by tenant", "a shape of errors")
    gate.count("late")
    service.opened["count"]("full")
    assert service.calls[-2:] == [("error", "late"), ("error", "full")]
    assert service.opened["front"] is service.endpoint.front_door


def test_settings_that_are_refused_start_nothing_and_end_the_process_with_a_sentence(monkeypatch, caplog):
    service = Service(monkeypatch, refuses="one with keys")
    monkeypatch.setattr(hosting, "end_process", lambda status: service.calls.append(("end", status)))
    service.start()
    assert service.calls == ["check", ("end", 2)]
    assert [record.getMessage() for record in caplog.records] == ["host is 127.0.0.1, but must be one with keys"]


@pytest.mark.parametrize(
    ("origins", "answer"), [("", "judged a scope"), ("https://example.org", "the sender of a scope")]
)
def test_the_door_turns_strangers_away_itself_unless_pages_must_read_the_answer(monkeypatch, origins, answer):
    monkeypatch.setenv("PLIANT_CORS_ORIGINS", origins)
    service = Service(monkeypatch)
    service.start()
    assert service.opened["judge"]("a scope") == answer


@pytest.mark.parametrize("origins", ["", "https://a.example, https://b.example"])
def test_access_is_checked_around_all_and_pages_of_the_named_websites_alone_may_read_answers(monkeypatch, origins):
    monkeypatch.setenv("PLIANT_CORS_ORIGINS", origins)
    added = []
    service = SimpleNamespace(add_asgi_middleware=lambda kind, **options: added.append((kind, options)))
    state = SimpleNamespace()
    assert with_access(SimpleNamespace(state=state))(service) is service
    request_id, *cors, access, unknown_path = added
    assert request_id == (RequestIdMiddleware, {})
    assert access == (AccessMiddleware, {"state": state})
    assert unknown_path == (UnknownPathMiddleware, {"state": state})
    if not origins:
        assert cors == []
        return
    ((kind, options),) = cors
    assert kind is CORSMiddleware and list(options["allow_origins"]) == ["https://a.example", "https://b.example"]
    assert "allow_credentials" not in options and "authorization" in options["allow_headers"]
