"""False labels: for answers of others, for guessed ids, and for own answers, which an administrator takes back."""

from __future__ import annotations

import contextlib
import http.client
import json
from functools import partial
from uuid import uuid4

import pytest

from qa import grounds
from qa.targets import bearer, make_keys, send, under_attack
from tests.fixtures.cascade.published import SURE

ASK = json.dumps({"task": "colours", "texts": [SURE], "deadline": 30.0}).encode()


def guess(url: str, key: str) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
        labels = [{"id": uuid4().hex, "label": "red"} for _ in range(100)]
        assert send(url, key, "POST", "/v1/outcomes", labels)[0] in (404, 429, 503)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A service, and the keys of two tenants and an administrator."""
    folder = tmp_path_factory.mktemp("attacked")
    keys = make_keys(folder / "keys.json", {"acme": "use", "evil": "use", "root": "admin"})
    with grounds.served("cascade", folder, keys_file=folder / "keys.json", home=folder) as service:
        yield service, keys


def test_labels_for_guessed_ids(served):
    service, keys = served
    headers = bearer(keys["acme"])
    attack = partial(guess, key=keys["evil"])
    under_attack(service, ("POST", "/v1/predict", ASK), [attack], "07 labels for guessed ids", headers=headers)
    assert send(service.url, keys["root"], "GET", "/v1/status")[1]["outcomes"] == []


def test_false_labels_count_for_own_answers_alone_and_are_taken_back(served):
    service, keys = served

    def ids(tenant: str) -> list[str]:
        answers = [send(service.url, keys[tenant], "POST", "/v1/predict", json.loads(ASK))[1] for _ in range(20)]
        return [answer["answers"][0]["id"] for answer in answers]

    for id in ids("acme"):
        assert send(service.url, keys["evil"], "POST", "/v1/outcomes", {"id": id, "label": "red"})[0] == 404
    assert send(service.url, keys["root"], "GET", "/v1/outcomes/alarms")[1]["alarms"] == []
    for id in ids("evil"):
        assert send(service.url, keys["evil"], "POST", "/v1/outcomes", {"id": id, "label": "red"})[0] == 200
    assert send(service.url, keys["evil"], "GET", "/v1/outcomes/alarms")[0] == 403
    alarms = send(service.url, keys["root"], "GET", "/v1/outcomes/alarms")[1]["alarms"]
    assert alarms  # one for each candidate that answered
    for alarm in alarms:
        assert list(alarm["labels_by_tenant"]) == ["evil"] and alarm["labels_by_tenant"]["evil"]["correct"] == 0
        path = f"/v1/outcomes/alarms/{alarm['id']}"
        assert send(service.url, keys["evil"], "DELETE", path)[0] == 403
        assert send(service.url, keys["root"], "DELETE", path)[1]["taken_back"]["tenant"] == "root"
    assert send(service.url, keys["root"], "GET", "/v1/status")[1]["outcomes"] == []
