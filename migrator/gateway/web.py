"""The gateway over HTTP, for applications in other languages: JSON in, JSON out.

    POST /v1/classes/Game/get        {"id": "2345"}
    POST /v1/classes/Game/append     {"id": "2345", "path": "rounds", "item": {"moves": ["q4"]}}
    GET  /v1/classes/Game            the phase, the primary, whether writes are stopped

A body is JSON as it is; what JSON has no kind for is its carrier, with a tag under ``tags`` by
its access path in the body (``{"id": "1", "set": {"secondPlayer": "Player:ann"}, "tags":
{"set.secondPlayer": "reference"}}``). Who writes by a driver of its own takes a lease, renews it,
and acknowledges the fence.
"""

from __future__ import annotations

import hashlib
import hmac
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import structlog
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from migrator.errors import DoesNotFit, MigratorError, Refused, Transient, Waiting
from migrator.gateway.aio import AsyncGateway
from migrator.gateway.changes import refuse_odd
from migrator.gateway.errors import Behind, Conflict, Rekeyed, Stopped
from migrator.gateway.found import ANY, Found
from migrator.model.json_text import native, raise_all, strict_json, to_json
from migrator.model.tags import lower
from migrator.model.value import Value
from migrator.state.gateways import SHORT, Gateways, Standing

log = structlog.get_logger("migrator.serve")

MOST = 64 * 1024 * 1024
"""Bytes of a body at most."""
LONGEST = 60.0
"""Seconds of a lease at most."""
_AWAY = "h"  # begins the names of leases that are held over HTTP, and of no other

Body = dict[str, Value]
Call = Callable[[AsyncGateway, Body], Awaitable[Mapping[str, Value]]]


class Bad(Exception):
    """What was sent is no call: 400."""


def application(gateways: Mapping[str, AsyncGateway], leases: Gateways, token: str) -> Starlette:
    """The service for some classes; ``token`` is what each request must bring."""
    service = _Service(gateways, leases, token.encode())
    one = "/v1/classes/{cls}"
    return Starlette(
        routes=[
            Route("/v1/classes", service.guarded(service.classes), methods=["GET"]),
            Route(one, service.guarded(service.standing), methods=["GET"]),
            Route(f"{one}/leases", service.guarded(service.enter), methods=["POST"]),
            Route(f"{one}/leases/{{lease}}", service.guarded(service.renew), methods=["PUT"]),
            Route(f"{one}/leases/{{lease}}", service.guarded(service.leave), methods=["DELETE"]),
            Route(
                f"{one}/leases/{{lease}}/acknowledge",
                service.guarded(service.acknowledge), methods=["POST"],
            ),
            Route(f"{one}/{{call}}", service.guarded(service.call), methods=["POST"]),
        ],
        exception_handlers={HTTPException: _not_a_call},
    )  # fmt: skip


class _Service:
    def __init__(
        self, gateways: Mapping[str, AsyncGateway], leases: Gateways, token: bytes
    ) -> None:
        self._gateways = gateways
        self._leases = leases
        self._token = token

    def guarded(
        self, answer: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Only with the token; every error as JSON."""

        async def guarded(request: Request) -> Response:
            if not self._may(request):
                return _told(401, "unauthorized", "the token is missing or wrong",
                             hint="send it:  Authorization: Bearer TOKEN",
                             headers={"WWW-Authenticate": "Bearer"})  # fmt: skip
            try:
                return await answer(request)
            except Bad as error:
                return _told(400, "bad request", str(error))
            except MigratorError as error:
                return _failed(error)
            except HTTPException:
                raise
            except Exception as error:
                # Not its text: a driver's may hold anything, a password included.
                log.exception("call failed", path=request.url.path)
                return _told(500, "failed", f"internal error: {type(error).__name__}")

        return guarded

    def _may(self, request: Request) -> bool:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        # In a time that does not tell how much of it was right.
        right = hmac.compare_digest(given.strip().encode(), self._token)
        return scheme.lower() == "bearer" and right

    def _gateway(self, request: Request) -> tuple[str, AsyncGateway]:
        cls = request.path_params["cls"]
        if cls not in self._gateways:
            known = ", ".join(self._gateways)
            raise HTTPException(404, f"class {cls} is not served here; known: {known}")
        return cls, self._gateways[cls]

    # ------------------------------------------------------------------ aggregates

    async def call(self, request: Request) -> Response:
        _, gateway = self._gateway(request)
        name = request.path_params["call"]
        if name not in CALLS:
            raise HTTPException(404, f"there is no call {name}; known: {', '.join(CALLS)}")
        wanted, do = CALLS[name]
        body = _checked(await _body(request), wanted)
        refuse_odd(body["id"], "id")
        return _json(200, await do(gateway, body))

    # ------------------------------------------------------------------ the phase, and leases

    async def classes(self, _: Request) -> Response:
        return _json(200, {"classes": list(self._gateways)})

    async def standing(self, request: Request) -> Response:
        cls, _ = self._gateway(request)
        return _json(200, _standing(cls, await run_in_threadpool(self._leases.standing, cls)))

    async def enter(self, request: Request) -> Response:
        cls, _ = self._gateway(request)
        body = _checked(await _body(request), {"seconds": False})
        lease, seconds = new_lease(cls), _seconds(body)

        def enter() -> Body:
            given = _bounded(seconds, self._leases.standing(cls))
            self._leases.enter(lease, cls, given, away=True)
            return self._granted(lease, cls, given)

        return _json(201, await run_in_threadpool(enter))

    async def renew(self, request: Request) -> Response:
        cls, _ = self._gateway(request)
        lease = _lease(request, cls)
        seconds = _seconds(_checked(await _body(request), {"seconds": False}))

        def renew() -> Body:
            given = _bounded(seconds, self._leases.standing(cls))
            if not self._leases.renew_away(lease, given):
                raise HTTPException(404, "this lease ran out, or was never given: take a new one")
            return self._granted(lease, cls, given)

        return _json(200, await run_in_threadpool(renew))

    def _granted(self, lease: str, cls: str, seconds: float) -> Body:
        """Look at the run only after the lease was announced, for so many seconds (R13), and say
        what was seen: its holder goes by no more than its row says, also where a swap ends."""
        found = self._leases.standing(cls)
        given = _bounded(seconds, found)
        if given < seconds:
            self._leases.renew_away(lease, given)
        self._leases.saw(lease, found)
        return {"lease": lease, "seconds": given, **_standing(cls, found)}

    async def acknowledge(self, request: Request) -> Response:
        cls, _ = self._gateway(request)
        lease = _lease(request, cls)
        body = _checked(await _body(request), {"attempt": True})

        def acknowledge() -> bool:
            found = self._leases.standing(cls)
            asked = type(body["attempt"]) is int and body["attempt"] == found.attempt
            return asked and self._leases.acknowledge(lease, found)

        if await run_in_threadpool(acknowledge):
            return _json(200, {"acknowledged": body["attempt"]})
        return _told(409, "conflict", "no fence of this attempt is up, or the lease is not there",
                     hint="renew the lease, and see where the run stands")  # fmt: skip

    async def leave(self, request: Request) -> Response:
        cls, _ = self._gateway(request)
        await run_in_threadpool(self._leases.leave, [_lease(request, cls)])
        return _json(200, {})


# ---------------------------------------------------------------------- the calls

_ID = {"id": True}
_WRITE = {"expected": False, "wait": False}


def _write(body: Body) -> dict[str, Any]:
    expected, wait = body.get("expected", ANY), body.get("wait", False)
    if expected is not ANY and expected is not None and type(expected) is not str:
        raise Bad("expected is a version, or null for none")
    if type(wait) is not bool:
        raise Bad("wait is true or false")
    return {"expected": expected, "wait": wait}


async def _get(gateway: AsyncGateway, body: Body) -> Mapping[str, Value]:
    found = await gateway.get(body["id"])
    return {"found": False} if found is None else {"found": True, **_aggregate(found)}


async def _get_entries(gateway: AsyncGateway, body: Body) -> Mapping[str, Value]:
    entries = await gateway.get_entries(body["id"], _texts(body, "paths"))
    return {"found": False} if entries is None else {"found": True, "entries": dict(entries)}


async def _put(gateway: AsyncGateway, body: Body) -> Mapping[str, Value]:
    expires = body.get("expires")
    if expires is not None and type(expires) is not int:
        raise Bad("expires is milliseconds since 1970, or null")
    value = _record(body, "value")
    done = await gateway.put(body["id"], value, expires=expires, **_write(body))
    return {"version": done.version}


async def _update(gateway: AsyncGateway, body: Body) -> Mapping[str, Value]:
    done = await gateway.update(
        body["id"], _record(body, "set"), remove=_texts(body, "remove"), **_write(body)
    )
    return _aggregate(done)


async def _append(gateway: AsyncGateway, body: Body) -> Mapping[str, Value]:
    path = body["path"]
    if type(path) is not str:
        raise Bad("path is an access path")
    return _aggregate(await gateway.append(body["id"], path, body["item"], **_write(body)))


async def _delete(gateway: AsyncGateway, body: Body) -> Mapping[str, Value]:
    await gateway.delete(body["id"], **_write(body))
    return {}


CALLS: dict[str, tuple[dict[str, bool], Call]] = {
    "get": (_ID, _get),
    "get_entries": ({**_ID, "paths": True}, _get_entries),
    "put": ({**_ID, "value": True, "expires": False, **_WRITE}, _put),
    "update": ({**_ID, "set": False, "remove": False, **_WRITE}, _update),
    "append": ({**_ID, "path": True, "item": True, **_WRITE}, _append),
    "delete": ({**_ID, **_WRITE}, _delete),
}
"""By name what a body may hold, each with whether it must, and what is done."""


def _aggregate(found: Found) -> Body:
    return {
        "id": found.id, "value": found.value, "expires": found.expires, "version": found.version,
    }  # fmt: skip


def _texts(body: Body, name: str) -> list[str]:
    given = body.get(name, [])
    if type(given) is not list or not all(type(item) is str for item in given):
        raise Bad(f"{name} is a list of access paths")
    return cast("list[str]", given)


def _record(body: Body, name: str) -> dict[str, Value]:
    given = body.get(name, {})
    if type(given) is not dict:
        raise Bad(f"{name} is an object")
    return given


def new_lease(cls: str) -> str:
    """A name that no other lease has, and that tells its class."""
    return _begins(cls) + uuid.uuid4().hex[8:]


def _begins(cls: str) -> str:
    return _AWAY + hashlib.sha256(cls.encode()).hexdigest()[:7]


def _lease(request: Request, cls: str) -> str:
    lease: str = request.path_params["lease"]
    if not lease.startswith(_begins(cls)):
        raise HTTPException(404, "there is no such lease: take a new one")
    return lease


def _bounded(seconds: float, found: Standing) -> float:
    """For how long a lease is given: not for long while the sides are being swapped."""
    return min(seconds, SHORT) if found.fence else seconds


def _seconds(body: Body) -> float:
    given = body.get("seconds", 15)
    if type(given) not in (int, float) or not 0 < given <= LONGEST:  # type: ignore[operator]
        raise Bad(f"seconds is a number, at most {LONGEST:g}")
    return float(given)  # type: ignore[arg-type]


def _standing(cls: str, found: Standing) -> Body:
    return {
        "cls": cls, "run": found.run, "revision": found.revision, "phase": found.phase.value,
        "primary": found.primary, "epoch": found.epoch, "attempt": found.attempt,
        "fence": found.fence, "stopped": found.stopped or found.at_rest, "live": found.live,
    }  # fmt: skip


# ---------------------------------------------------------------------- JSON, in and out


async def _body(request: Request) -> Body:
    """The body's values, their kinds put back. Raises Bad."""
    raw = bytearray()
    try:
        async for part in request.stream():
            raw += part
            if len(raw) > MOST:
                raise HTTPException(413, f"a body has at most {MOST:,} bytes")
    except ClientDisconnect:
        raise Bad("the request ended in the middle") from None
    if not raw:
        return {}
    try:
        body = strict_json(raw)
    except (ValueError, RecursionError) as error:
        raise Bad(f"the body is no JSON: {error}") from None
    if type(body) is not dict:
        raise Bad("the body is an object")
    try:
        return cast("Body", raise_all(body, body.pop("tags", {})))
    except ValueError as error:
        raise Bad(str(error)) from None


def _checked(body: Body, wanted: Mapping[str, bool]) -> Body:
    for name in body:
        if name not in wanted:
            raise Bad(f"there is no key {name!r}; known: {', '.join(wanted) or 'none'}")
    for name, must in wanted.items():
        if must and name not in body:
            raise Bad(f"{name} is missing")
    return body


def _json(status: int, told: Mapping[str, Value], headers: Mapping[str, str] = {}) -> Response:
    """An answer, with the tags of what JSON has no kind for."""
    tags: dict[str, str] = {}
    held = cast("Body", lower(dict(told), native, "", tags))
    data = to_json({**held, "tags": cast("Value", tags)} if tags else held)
    return Response(data, status, headers, "application/json")


def _told(
    status: int, error: str, what: str, *, where: str = "", hint: str = "",
    unknown: bool = False, headers: Mapping[str, str] = {},
) -> Response:  # fmt: skip
    told: Body = {"error": error, "what": what, "where": where, "hint": hint, "unknown": unknown}
    return _json(status, told, headers)


def _failed(error: MigratorError) -> Response:
    """An error as status and JSON; ``unknown`` is true where a write may have been carried out."""
    again = {"Retry-After": "1"}
    headers: dict[str, str]
    match error:
        case Conflict():
            status, word, headers = 409, "conflict", {}
        case Rekeyed():
            status, word, headers = 421, "rekeyed", {}
        case Stopped():
            status, word, headers = 503, "stopped", again
        case Behind():
            status, word, headers = 504, "behind", {}
        case Transient(unknown=unknown):
            status, word, headers = 503, "transient", {} if unknown else again
        case DoesNotFit():
            status, word, headers = 422, "does not fit", {}
        case Refused():
            status, word, headers = 422, "refused", {}
        case Waiting():
            status, word, headers = 503, "waiting", again
        case _:
            status, word, headers = 500, "failed", {}
    unknown = isinstance(error, Transient) and error.unknown
    return _told(status, word, error.what, where=error.where, hint=error.hint,
                 unknown=unknown, headers=headers)  # fmt: skip


async def _not_a_call(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = {404: "not found", 405: "no such method", 413: "too large"}
    return _told(error.status_code, words.get(error.status_code, "bad request"), error.detail,
                 headers=error.headers or {})  # fmt: skip
