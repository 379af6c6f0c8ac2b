"""Keys: made, recognised, kept without their secrets, and followed while a service runs."""

from __future__ import annotations

import json
import logging
import math
import os
import stat
import threading
from functools import partial

import pytest

from pliant.errors import InputError
from pliant.serving.http.access.keys import (
    LOOK_SECONDS,
    FollowedKeys,
    Key,
    Keys,
    Tenant,
    from_json,
    key_source,
    new_key,
    read_keys,
    update_keys,
)
from pliant.serving.settings import Settings

NO_LIMITS = Tenant()
AT = "2026-11-24T00:00:00Z"


def with_new(
    keys: Keys, tenant: str = "acme", roles=("use",), limits: Tenant = NO_LIMITS
) -> tuple[Keys, tuple[str, Key]]:
    secret, key = new_key(tenant, roles, AT, keys)
    return keys.with_key(key, limits), (secret, key)


def test_no_other_key_opens_anything():
    keys, (secret, key) = with_new(Keys())
    other, _ = new_key("acme", ("use",), AT, Keys())
    mixed = secret[:-64] + other[-64:]  # the id of one, the secret of the other
    flipped = secret[:-1] + ("0" if secret[-1] != "0" else "1")
    for wrong in (other, mixed, flipped, secret[:-1], secret + "0", secret.upper(), "", key.id, key.sha256, "\ud800"):
        assert keys.client(wrong) is None, wrong


def test_a_revoked_key_opens_nothing_and_stays_in_the_list():
    keys, (secret, key) = with_new(Keys())
    keys = keys.revoked(key.id, AT)
    assert keys.client(secret) is None
    assert keys.keys[key.id].revoked == AT
    assert keys.revoked(key.id, "later").keys[key.id].revoked == AT
    with pytest.raises(InputError, match="id of a key"):
        keys.revoked("ffffffff", AT)


@pytest.mark.parametrize(
    "document",
    [
        "",
        "[]",
        "{}",
        '{"keys": [{}]}',
        '{"keys": [], "tenants": {"a": {"weight": 0}}}',
        '{"keys": [], "tenants": {"a": {"rate": "fast"}}}',
        '{"keys": [], "tenants": {"a": {"max_waiting": 1.5}}}',
        '{"keys": [], "tenants": {"a\\n": {}}}',
        '{"keys": [{"id": "0000000a", "tenant": "t", "roles": ["root"], "sha256": "%s", "created": ""}]}' % ("0" * 64),
        '{"keys": [{"id": "0000000a", "tenant": "t", "roles": ["use"], "sha256": "pliant_a_b", "created": ""}]}',
        '{"keys": [%s, %s]}'
        % ((json.dumps({"id": "0000000a", "tenant": "t", "roles": ["use"], "sha256": "0" * 64, "created": ""}),) * 2),
    ],
)
def test_a_document_that_is_not_valid_is_refused_as_a_whole(document):
    with pytest.raises(InputError, match="the file is unusable"):
        from_json(document, "the file")


def test_the_file_can_be_read_by_its_owner_alone_and_nothing_else_is_left_beside_it(tmp_path):
    path = tmp_path / "deep" / "keys.json"
    before = os.umask(0)
    try:
        update_keys(path, with_new)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {entry.name for entry in path.parent.iterdir()} == {"keys.json", ".keys.json.lock"}


def test_two_writers_at_once_lose_no_key(tmp_path):
    path = tmp_path / "keys.json"
    threads = [threading.Thread(target=update_keys, args=(path, with_new)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_keys(path).keys) == 20


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        *((partial(Tenant, weight=value), "weight") for value in (0, -1, True, math.inf, math.nan, "1", None)),
        *((partial(Tenant, rate=value), "rate") for value in (0, math.inf, True)),
        *((partial(Tenant, max_waiting=value), "max_waiting") for value in (0, True, 1.5, "1")),
        *((partial(with_new, Keys(), name), "tenant") for name in ("", "-a", "a b", "a\n", "\u00e4", "0" * 65)),
        *((partial(with_new, Keys(), "acme", roles), "role|key") for roles in ((), ("root",), ("use", "root"))),
    ],
)
def test_limits_tenants_and_roles_that_cannot_be_meant_are_refused(entry, named):
    with pytest.raises(InputError, match=f"^({named}) is "):
        entry()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_running_service_follows_its_file(tmp_path, caplog):
    path, clock = tmp_path / "keys.json", Clock()
    first, _ = update_keys(path, with_new)
    source = FollowedKeys(path, clock)
    second, _ = update_keys(path, with_new)
    assert source().client(first) and not source().client(second)
    clock.now += LOOK_SECONDS * 0.99
    assert not source().client(second)
    clock.now += LOOK_SECONDS * 0.01
    with caplog.at_level(logging.INFO, "pliant.serving"):
        assert source().client(first) and source().client(second)
    assert caplog.messages == [f"the keys of {path} are in force: 2"]


def test_a_file_that_breaks_or_vanishes_leaves_the_former_keys_in_force_and_is_logged_once(tmp_path, caplog):
    path, clock = tmp_path / "keys.json", Clock()
    secret, _ = update_keys(path, with_new)
    source = FollowedKeys(path, clock)
    with caplog.at_level(logging.ERROR, "pliant.serving"):
        path.write_text('{"keys": 3}')
        for _ in range(3):
            clock.now += LOOK_SECONDS
            assert source().client(secret)
        assert ["the former keys stay in force" in record.message for record in caplog.records] == [True]
        path.unlink()
        clock.now += LOOK_SECONDS
        assert source().client(secret)
    assert len(caplog.records) == 2


def test_the_settings_say_where_the_keys_are(tmp_path):
    assert key_source(Settings(home=tmp_path)) is None
    secret, _ = update_keys(tmp_path / "keys.json", with_new)
    usual = key_source(Settings(home=tmp_path))
    assert usual is not None and usual().client(secret)
    other, _ = update_keys(tmp_path / "other.json", with_new)
    named = key_source(Settings(home=tmp_path, keys_file=tmp_path / "other.json"))
    assert named is not None and named().client(other) and not named().client(secret)
    fixed = key_source(Settings(keys=(tmp_path / "keys.json").read_text()))
    assert fixed is not None and fixed().client(secret)
    with pytest.raises(InputError, match="given without it"):
        key_source(Settings(keys="{}", keys_file=tmp_path / "other.json"))
    with pytest.raises(InputError, match="a file that `pliant keys add` made"):
        key_source(Settings(keys_file=tmp_path / "missing.json"))


def test_evidence_is_capped_where_several_tenants_may_only_use_the_service():
    keys, (only, _) = with_new(Keys())
    assert not keys.client(only).capped, "a tenant that is alone decides for itself"
    keys, (root, _) = with_new(keys, "root", ("admin",))
    assert not keys.client(only).capped and not keys.client(root).capped
    keys, (other, key) = with_new(keys, "other")
    assert keys.client(only).capped and keys.client(other).capped and not keys.client(root).capped
    assert not keys.revoked(key.id, AT).client(only).capped
