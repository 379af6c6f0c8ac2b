"""Judges a request by its head, before any route: the name of the service, the key, its role, and what its tenant may use.

A page of any website can let its own name point to 127.0.0.1 (DNS rebinding), and then read what a service on the visitor's
machine answers. Its requests name that website in their Host header, so only known names are answered. BentoML's own routes,
such as /metrics, are judged too. What a service is started with, its certificate included, is checked here, too.
"""

from __future__ import annotations

import collections
import logging
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, lru_cache
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

from cryptography import x509
from prometheus_client import REGISTRY, CollectorRegistry
from starlette.datastructures import State
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pliant.errors import InputError
from pliant.serving.client import ANYBODY, Client
from pliant.serving.http.access.keys import KeySource, Tenant, key_source
from pliant.serving.http.api_errors import ApiError, ErrorShape
from pliant.serving.http.bodies import check_type
from pliant.serving.monitoring.metric_list import ACCESS, CERTIFICATE, register
from pliant.serving.request_context import EVIDENCE, TENANT
from pliant.serving.settings import Settings

CLIENT = "pliant.client"
"""Key of an ASGI scope: whom the middleware has let in."""
_OPEN_PATHS = frozenset(
    ("/livez", "/readyz", "/healthz", "/health", "/v2/health/live", "/v2/health/ready", "/v1/label", "/")
)
"""The last two are pages without content: they ask for the key, as a browser sends none for a page."""
_SIGNED_PATHS = frozenset(("/registry-events", "/v1/registry-events"))
"""Paths whose requests are signed instead (serving/http/app.py)."""
MONITOR_PATHS = frozenset(("/metrics", "/status", "/v1/status"))
ANY_NAME = "*"
_LOCAL = "localhost"
CACHED = 64  # Host headers whose judgement is kept, as the same few come again and again


class KnownHosts:
    """The names of one service. `bound` is the address that it listens on, `allowed` are further names.

    `*` allows every name, `*.example.org` every name below. A service that listens on all addresses may be called by any
    address: only names can be rebound.
    """

    def __init__(self, bound: str, allowed: Iterable[str] = ()) -> None:
        names = [name.lower() for name in allowed]
        self._any = ANY_NAME in names
        self._suffixes = tuple(name[1:] for name in names if name.startswith("*."))
        self._names = frozenset((_LOCAL, bound.lower(), *names))
        self._any_address = is_wildcard(bound)
        self.knows = lru_cache(CACHED)(self._knows)
        """Whether the value of a Host header, with or without a port, is a name of this service."""

    def _knows(self, header: str) -> bool:
        bare = header.partition(":")[0].lower().removesuffix(".")
        name = header[1:].partition("]")[0] if header.startswith("[") else bare
        if name in self._names or self._any:
            return bool(name)
        return is_loopback(name) or (self._any_address and is_address(name)) or name.endswith(self._suffixes)


@lru_cache(CACHED)
def is_loopback(host: str) -> bool:
    """Whether an address, or the name localhost, reaches this machine alone."""
    return host == _LOCAL or (is_address(host) and ip_address(host).is_loopback)


def is_wildcard(host: str) -> bool:
    """Whether the address stands for all addresses of the machine."""
    return is_address(host) and ip_address(host).is_unspecified


def is_address(host: str) -> bool:
    """Whether this is an address of IP rather than a name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def is_open(scope: Mapping[str, Any]) -> bool:
    """Whether everybody may ask for this, under any name: whether the process is sound, a page that holds nothing, or what
    carries a signature.
    """
    if scope.get("method") == "POST":
        return scope.get("path") in _SIGNED_PATHS
    return scope.get("path") in _OPEN_PATHS and scope.get("method") in ("GET", "HEAD")


def client_of(request: Request) -> Client:
    """Return the client of a request."""
    client: Client = request.scope.get(CLIENT, ANYBODY)
    return client


def check_admin(request: Request, what: str) -> Client:
    """Return the client of a request that administers. `what` it does completes the sentence "this key may not".

    Raises `ApiError`: 403 without the role, 415 unless the body is announced as JSON. A page of any website may send other
    types to a service on the visitor's machine without asking first (CORS).
    """
    client = client_of(request)
    if "admin" not in client.roles:
        raise ApiError(403, "forbidden", f"this key may not {what}: that needs the role admin")
    if request.method not in ("GET", "HEAD"):
        check_type(request, ("application/json",), "application/json, also without a body")
    return client


class Access:
    """Who may call one service. Without a `source` of keys everybody on this machine may, and others if it `is_open`."""

    def __init__(self, hosts: KnownHosts, source: KeySource | None = None, is_open: bool = False) -> None:
        self._hosts, self._source, self._is_open = hosts, source, is_open

    def judge(self, scope: Mapping[str, Any]) -> Client:
        """Return the client of an HTTP request, by its ASGI scope.

        Raises `ApiError`: 421 for an unknown Host, 401 without a valid key, 403 for a key that may not use the path, and
        for another machine where there are no keys.
        """
        if is_open(scope):
            return ANYBODY
        host = authorization = None
        for name, value in scope["headers"]:
            if name == b"host":
                host = b"" if host is not None else value  # two of them: none is known
            elif name == b"authorization":
                authorization = b"" if authorization is not None else value
        if host is None or not self._hosts.knows(host.decode("latin-1")):
            message = "the Host header names another service; allow further names with --allowed-host NAME"
            raise ApiError(421, "unknown_host", message, "host")
        if self._source is None:
            address = scope.get("client")
            if self._is_open or (address and is_loopback(address[0])):
                return ANYBODY
            message = (
                "this service has no keys, so only its own machine may call it; make keys, or start it with --open"
            )
            raise ApiError(403, "no_keys", message)
        scheme, _, key = (authorization or b"").partition(b" ")
        client = self._source().client(key.strip().decode("latin-1") if scheme.lower() == b"bearer" else "")
        if client is None:
            message, challenge = "a key is missing: send it in the header Authorization, as `Bearer KEY`", "Bearer"
            if authorization is not None:
                message = "the key in the header Authorization is unknown or revoked, or the header is not `Bearer KEY`"
                challenge = 'Bearer error="invalid_token"'
            raise ApiError(401, "unauthorized", message, "authorization", headers={"www-authenticate": challenge})
        role = "monitor" if scope["path"] in MONITOR_PATHS else "use"
        if role not in client.roles:
            raise ApiError(403, "forbidden", f"this key may not use this path: that needs the role {role}")
        return client

    def sender(self, scope: Mapping[str, Any]) -> Client | None:
        """Return as `judge` does, but None for a request that it would turn away."""
        try:
            return self.judge(scope)
        except ApiError:
            return None

    def tenant(self, name: str) -> Tenant:
        """Return the limits of a tenant."""
        return self._source().tenant(name) if self._source else Tenant()


class TokenBucket:
    """Lets `rate` things a second pass, and as many as come in one second (at least one) at once."""

    def __init__(self, rate: float, burst: float | None = None) -> None:
        self.rate = rate
        self._burst = max(1.0, rate) if burst is None else burst
        self._left = self._burst
        self._last: float | None = None

    def take(self, now: float, count: float = 1.0) -> float:
        """Let `count` pass and return 0, or return the seconds until as many may pass."""
        if self._last is not None:
            self._left = min(self._burst, self._left + (now - self._last) * self.rate)
        self._last = now
        if self._left >= count:
            self._left -= count
            return 0.0
        return (min(count, self._burst) - self._left) / self.rate


class TenantLimits:
    """Counts the requests of each tenant."""

    def __init__(self) -> None:
        self._buckets: dict[str, TokenBucket] = {}
        self.waiting: collections.Counter[str] = collections.Counter()

    def enter(self, name: str, tenant: Tenant, now: float) -> None:
        """Take in a request, until it is taken from `waiting`. Raises `ApiError` (429) beyond the tenant's limits."""
        waiting = self.waiting[name]
        if tenant.max_waiting is not None and waiting >= tenant.max_waiting:
            message = f"of this key's tenant {waiting} requests wait for their answers, and no more may"
            raise ApiError(429, "too_many_waiting", message)
        if tenant.rate is not None:
            bucket = self._buckets.get(name)
            if bucket is None or bucket.rate != tenant.rate:
                bucket = self._buckets[name] = TokenBucket(tenant.rate)
            if seconds := bucket.take(now):
                message = f"this key's tenant may send {tenant.rate:g} requests a second"
                raise ApiError(429, "rate_limited", message, retry_after=seconds)
        self.waiting[name] += 1


class TenantMetrics:
    """The metrics of each tenant, by its name (and status, or code). Each is looked up once: a request writes four times."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self.arrivals, self.answers, self.refusals, self.waiting = (
            cache(each.labels) for each in register(ACCESS, registry).values()
        )


@dataclass(frozen=True, slots=True)
class Gate:
    """What the middleware of one service needs. `count` counts errors by code; `shape_of` gives a path's error shape.

    `trusted`: tenants whose evidence is not capped, besides those of `Client.capped`.
    """

    access: Access
    metrics: TenantMetrics
    shape_of: Callable[[str], ErrorShape]
    count: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    limits: TenantLimits = field(default_factory=TenantLimits)
    trusted: frozenset[str] = frozenset()

    def enter(self, scope: Scope) -> str:
        """Take in a request, note whose it is, and return its tenant. Raises `ApiError`."""
        scope[CLIENT] = client = self.access.judge(scope)
        tenant = client.tenant
        TENANT.set(tenant)
        EVIDENCE.set(tenant if client.capped and tenant not in self.trusted else "")
        self.metrics.arrivals(tenant).inc()
        try:
            self.limits.enter(tenant, self.access.tenant(tenant), self.clock())
        except ApiError as error:
            self.metrics.refusals(tenant, error.code).inc()
            raise
        self.metrics.waiting(tenant).set(self.limits.waiting[tenant])
        return tenant


class AccessMiddleware:
    """Answers requests that may not pass, and notes in the scope of the others whose they are.

    `state.gate` must be there before the first request: without it every request fails.
    """

    def __init__(self, app: ASGIApp, state: State) -> None:
        self._app, self._state = app, state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or is_open(scope):
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError("only HTTP is let in")
        gate: Gate = self._state.gate
        try:
            tenant = gate.enter(scope)
        except ApiError as error:
            gate.count(error.code)
            await gate.shape_of(scope["path"])(error)(scope, receive, send)
            return

        async def count_and_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                gate.metrics.answers(tenant, str(message["status"])).inc()
            await send(message)

        try:
            await self._app(scope, receive, count_and_send)
        finally:
            gate.limits.waiting[tenant] -= 1
            gate.metrics.waiting(tenant).set(gate.limits.waiting[tenant])


DAY = 86_400.0  # seconds
WARN_DAYS = 14.0  # before a certificate's end; deploy/monitoring/alerts.yaml has the same
RENEW = "replace its file and that of its key, and start the service again"

logger = logging.getLogger("pliant.serving")


def check_access(settings: Settings) -> None:
    """Raise `InputError` for keys, a certificate or addresses that are not valid, and for an open door that nobody wants."""
    if settings.host != "localhost" and not is_address(settings.host):
        limit = "an address of this machine, such as 127.0.0.1, 0.0.0.0 or ::1, or localhost"
        raise InputError("host", repr(settings.host), limit)
    for proxy in names(settings.trusted_proxies):
        try:
            ip_network(proxy, strict=False)
        except ValueError:
            limit = "an address or a network, such as 10.0.0.7 or 10.0.0.0/24"
            raise InputError("trusted proxy", repr(proxy), limit) from None
    check_certificate(settings.tls_cert, settings.tls_key)
    if key_source(settings) is None and not settings.open and not is_loopback(settings.host):
        limit = "an address of this machine alone, such as 127.0.0.1, as the service has no keys: make some with "
        raise InputError("host", settings.host, f"{limit}`pliant keys add --tenant NAME`, or say --open")


def access_of(settings: Settings) -> Access:
    """Return who may call a service. Raises `InputError` for keys that are not valid."""
    hosts = KnownHosts(settings.host, names(settings.allowed_hosts))
    return Access(hosts, key_source(settings), settings.open)


def names(text: str) -> list[str]:
    """Return the names of a list that is separated by commas."""
    return [name for part in text.split(",") if (name := part.strip())]


def check_certificate(certificate: Path | None, key: Path | None) -> None:
    """Raise `InputError` unless there is neither, or both are files that fit together. It may have expired."""
    if certificate is None and key is None:
        return
    if certificate is None or key is None:
        raise InputError("tls_cert", certificate or "missing", "given together with tls_key")
    for name, path in (("tls_cert", certificate), ("tls_key", key)):
        try:
            Path(path).read_bytes()
        except OSError as error:
            raise InputError(name, path, f"a file in PEM that can be read ({error.strerror})") from None
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key, lambda: "")  # else OpenSSL asks for a password in the terminal
    except ssl.SSLError as error:
        unfit = error.reason in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH")
        reason = "they do not fit together" if unfit else "one of them is no PEM, or has a password"
        raise InputError("tls_cert", certificate, f"a certificate in PEM, and {key} its key ({reason})") from None


def show_certificate(path: Path, registry: CollectorRegistry = REGISTRY, now: float | None = None) -> None:
    """Show in a metric when the certificate (the first of its file) expires, and log what is wrong with it, or soon will be.

    `now`: seconds since 1970, by default the present time. Raises `InputError` for a file that holds none.
    """
    now = time.time() if now is None else now
    try:
        first = x509.load_pem_x509_certificates(path.read_bytes())[0]
    except (OSError, ValueError) as error:
        raise InputError("tls_cert", path, f"a certificate in PEM ({error})") from None
    begin, end = first.not_valid_before_utc.timestamp(), first.not_valid_after_utc.timestamp()
    (expiry,) = register(CERTIFICATE, registry).values()
    expiry.labels("service").set(end)
    if now < begin:
        logger.error("the certificate %s is not valid before %s: clients refuse it until then", path, _day(begin))
    elif now >= end:
        logger.error("the certificate %s has expired on %s, and clients refuse it: %s", path, _day(end), RENEW)
    elif end - now < WARN_DAYS * DAY:
        days = (end - now) / DAY
        logger.warning("the certificate %s expires on %s, in %.0f days: %s", path, _day(end), days, RENEW)


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
