"""`pliant keys`: makes, lists and revokes the keys that open a service. A running service notices within a second."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pliant.cli import options

COLUMNS = ("id", "tenant", "roles", "created", "revoked")
TENANT_COLUMNS = ("tenant", "weight", "requests/s", "waiting")


def command(commands: Any) -> None:
    """Add the command to those of `pliant`."""
    text = "make, list and revoke the keys that clients of a service send"
    parsers = commands.add_parser("keys", help=text).add_subparsers(required=True, metavar="ACTION")
    parser = parsers.add_parser("add", help="make a key and print it; it is not shown again")
    parser.add_argument("--tenant", required=True, metavar="NAME", help="tenant that the key belongs to")
    text = "use: requests; monitor: status and metrics; admin: all (default: use); may be repeated"
    parser.add_argument("--role", action="append", choices=("use", "admin", "monitor"), help=text)
    text = "the tenant's share of the devices relative to other tenants' (default: as it is, at first 1)"
    parser.add_argument("--weight", type=float, metavar="W", help=text)
    text = "requests a second of the tenant (default: as it is, at first without limit)"
    parser.add_argument("--rate", type=float, metavar="R", help=text)
    text = "requests of the tenant that may wait for their answer (default: as it is, at first without limit)"
    parser.add_argument("--max-waiting", type=int, metavar="N", help=text)
    options.keys_file(parser)
    parser.set_defaults(run=_add)
    listing = parsers.add_parser("list", help="list keys and tenants, without any secret")
    options.keys_file(listing)
    listing.set_defaults(run=_list)
    revoking = parsers.add_parser("revoke", help="revoke a key")
    revoking.add_argument("id", help="id of the key, as `pliant keys list` shows it")
    options.keys_file(revoking)
    revoking.set_defaults(run=_revoke)


def _add(args: Namespace) -> None:
    from pliant.serving.http.access.keys import Key, Keys, new_key, update_keys

    def add(keys: Keys) -> tuple[Keys, tuple[str, Key]]:
        secret, key = new_key(args.tenant, args.role or ("use",), _now(), keys)
        limits = options.given(args, ("weight", "rate", "max_waiting"))
        return keys.with_key(key, replace(keys.tenant(args.tenant), **limits)), (secret, key)

    path = _path(args)
    secret, key = update_keys(path, add)
    print(secret)
    note = f"Key {key.id} of {key.tenant} is in {path}. It is shown this once: keep it where its client finds it."
    print(note, file=sys.stderr)


def _list(args: Namespace) -> None:
    from pliant.serving.http.access.keys import read_keys

    keys = read_keys(_path(args))
    entries = sorted(keys.keys.values(), key=lambda key: (key.created, key.id))
    _table(COLUMNS, [(key.id, key.tenant, " ".join(key.roles), key.created, key.revoked or "") for key in entries])
    print()
    names = sorted({key.tenant for key in entries} | set(keys.tenants))
    tenants = [(name, keys.tenant(name)) for name in names]
    _table(
        TENANT_COLUMNS,
        [(name, f"{t.weight:g}", f"{t.rate:g}" if t.rate else "", str(t.max_waiting or "")) for name, t in tenants],
    )


def _revoke(args: Namespace) -> None:
    from pliant.serving.http.access.keys import read_keys, update_keys

    path = _path(args)
    read_keys(path)  # a file that is missing is an error here, not one without keys
    update_keys(path, lambda keys: (keys.revoked(args.id, _now()), None))
    print(f"Key {args.id} is revoked: running services refuse it within a second.")


def _path(args: Namespace) -> Path:
    """Return the file of keys that the command works on."""
    from pliant.flows import settings
    from pliant.serving.http.access.keys import FILE

    given = args.keys_file or os.environ.get("PLIANT_KEYS_FILE")
    return Path(given) if given else settings.read().home / FILE


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[index]) for row in [columns, *rows]) for index in range(len(columns))]
    for row in [columns, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
