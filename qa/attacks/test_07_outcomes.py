"""False labels: for answers of others, for guessed ids, and for own answers, which an administrator takes back."""

from __future__ import annotations

import contextlib
import http.client
import json
from functools import partial
from uuid import uuid4

import pytest

from qa.targets import under_attack
from serving.http.access.key_file import update_keys
from tests.fixtures.cascade.published import SURE, MlflowPublisher, publish_tiny, settings_for
from tests.fixtures.live import running
from tests.serving.http.access.test_keys import with_new

ASK = json.dumps({"task": "colours", "texts": [SURE], "deadline": 30.0}).encode()


def send(url: str, key: str, method: str, path: str, value: object = None):
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    connection.request(method, path, None if value is None else json.dumps(value).encode(), headers)
    response = connection.getresponse()
    status, content = response.status, json.loads(response.read())
    connection.close()
    return status, content


def guess(url: str, key: str) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
        labels = [{"id": uuid4().hex, "label": "red"} for _ in range(100)]
        assert send(url, key, "POST", "/v1/outcomes", labels)[0] in (404, 429, 503)


@pytest.fixture(scope="module")
def secrets(tmp_path_factory):
    file = tmp_path_factory.mktemp("keys") / "keys.json"
    roles = {"acme": "use", "evil": "use", "root": "admin"}
    return file, {
        tenant: update_keys(file, partial(with_new, tenant=tenant, roles=(role,)))[0] for tenant, role in roles.items()
    }


@pytest.fixture(scope="module")
def service(tmp_path_factory, secrets):
    folder = tmp_path_factory.mktemp("attacked")
    publish_tiny(MlflowPublisher(folder))
    with running(settings_for(folder, keys_file=secrets[0], home=folder), folder) as service:
        yield service


def test_labels_for_guessed_ids(service, secrets):
    keys = secrets[1]
    headers = {"authorization": f"Bearer {keys['acme']}"}
    attack = partial(guess, key=keys["evil"])
    under_attack(service, ("POST", "/v1/predict", ASK), [attack], "07 labels for guessed ids", headers=headers)
    assert send(service.url, keys["root"], "GET", "/v1/status")[1]["outcomes"] == []


def test_false_labels_count_for_own_answers_alone_and_are_taken_back(service, secrets):
    _, keys = secrets

    def ids(tenant: str) -> list[str]:
        answers = [send(service.url, keys[tenant], "POST", "/v1/predict", json.loads(ASK))[1] for _ in range(20)]
        return [answer["answers"][0]["id"] for answer in answers]

    for id in ids("acme"):
        assert send(service.url, keys["evil"], "POST", "/v1/outcomes", {"id": id, "label": "red"})[0] == 404
    assert send(service.url, keys["root"], "GET", "/v1/outcomes/alarms")[1]["alarms"] == []
    for id in ids("evil"):
        assert send(service.url, keys["evil"], "POST", "/v1/outcomes", {"id": id, "label": "red"})[0] == 200
    assert send(service.url, keys["evil"], "GET", "/v1/outcomes/alarms")[0] == 403
    (alarm,) = send(service.url, keys["root"], "GET", "/v1/outcomes/alarms")[1]["alarms"]
    assert list(alarm["labels_by_tenant"]) == ["evil"] and alarm["labels_by_tenant"]["evil"]["correct"] == 0
    path = f"/v1/outcomes/alarms/{alarm['id']}"
    assert send(service.url, keys["evil"], "DELETE", path)[0] == 403
    assert send(service.url, keys["root"], "DELETE", path)[1]["taken_back"]["tenant"] == "root"
    assert send(service.url, keys["root"], "GET", "/v1/status")[1]["outcomes"] == []
