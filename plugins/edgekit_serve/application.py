"""The routes of the server, and the connections of its requests."""

from __future__ import annotations

import asyncio
import html
import json
import os
import select
import socket
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

import uvicorn
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from python_multipart.multipart import parse_options_header
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from edgekit.errors import DISTRIBUTION, ArtifactError, EdgekitError
from edgekit.model.spec import Array
from edgekit_serve import forms, protocol
from edgekit_serve.models import LAST, QUEUE, REFUSED, REQUESTS, ROWS, STAGES, VERIFIED, Models, ServedModel
from edgekit_serve.process import STUCK, log
from edgekit_serve.protocol import ClientLeftError, NotReadyError, RefusedError, SlowClientError, TooLargeError

MEBIBYTE = 1 << 20
# Images at once: a full-size image takes more memory than a waiting input.
DECODING = 2
# Seconds; requests that arrived before the server is told to end are read within milliseconds.
DRAINING = 2.0
FORM = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "image": {"type": "string", "format": "binary", "description": "PNG, JPEG, WebP ..."},
                        "query": {"type": "string", "description": "Words that the model knows."},
                    },
                }
            }
        },
    }
}
INFERENCE = {"requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}}


@dataclass(frozen=True)
class Limits:
    """Limits of one client.

    Attributes:
        body: Bytes of a request.
        pixels: Pixels of an image.
        queue: Requests that may wait for an artifact.
        seconds: Time limit for a body to arrive, and for an answer.
    """

    body: int = 32 * MEBIBYTE
    pixels: int = 24_000_000
    queue: int = 64
    seconds: float = 30.0


def application(models: Models, limits: Limits, every: float = 2.0, live: Callable[[], None] = lambda: None) -> FastAPI:
    """Return the server's application.

    Args:
        models: The opened models.
        limits: Limits of requests.
        every: Seconds between checks for newer artifacts; 0 for none.
        live: Called every second while the server can answer.
    """
    state = _State(models, limits)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(_watch(state, live)), asyncio.create_task(_renew(state, every))]
        state.ready = True
        yield
        state.ready = False
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await models.close()

    app = FastAPI(
        title="edgekit", version=metadata.version(DISTRIBUTION), lifespan=lifespan, docs_url=None, redoc_url=None
    )
    app.get("/docs", include_in_schema=False)(lambda: HTMLResponse(_page_of_routes(app)))
    _add_health(app, state)
    _add_models(app, state)
    _add_inference(app, state)
    app.add_exception_handler(HTTPException, _no_route)
    return app


def _page_of_routes(app: FastAPI) -> str:
    """Return a page with the routes; it loads nothing from elsewhere, so that it works offline."""
    paths = app.openapi()["paths"]
    rows = [
        f"<tr><td>{method.upper()}</td><td><code>{html.escape(path)}</code></td><td>{html.escape(str(tags))}</td></tr>"
        for path, methods in paths.items()
        for method, facts in methods.items()
        for tags in [", ".join(facts.get("tags", []))]
    ]
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>edgekit</title>"
        "<style>body{font:16px system-ui;margin:2rem}td{padding:.2rem 1rem .2rem 0}</style>"
        f"<h1>edgekit {html.escape(app.version)}</h1><p>Full description: <a href='/openapi.json'>openapi.json</a></p>"
        f"<table>{''.join(rows)}</table></html>"
    )


async def _watch(state: _State, live: Callable[[], None]) -> None:
    """Give signs of life, and end the process if a run hangs, so that it is started again."""
    while True:
        live()
        if any(state.stuck(served, 2.0) for served in state.models):
            log("crash", reason="a run never ended")
            os._exit(STUCK)
        await asyncio.sleep(1.0)


async def _renew(state: _State, every: float) -> None:
    """Check for newer artifacts."""
    while every:
        await asyncio.sleep(every)
        try:
            await state.models.renew()
        # A failure here must not end the loop.
        except Exception as error:
            log("reload", outcome="failed", error=repr(error))


@dataclass
class _State:
    models: Models
    limits: Limits
    ready: bool = False
    decoding: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(DECODING))

    def find(self, name: str, target: str) -> ServedModel:
        if not self.ready:
            raise NotReadyError("the server is starting or stopping")
        return self.models.find(name, target)

    def stuck(self, served: ServedModel, times: float = 1.0) -> bool:
        """Return whether the current run takes longer than so many times the client's time limit."""
        started = served.batcher.started
        return started is not None and time.monotonic() - started > times * self.limits.seconds

    async def infer(self, served: ServedModel, request: Request, call: _Call) -> tuple[bytes, dict[str, str]]:
        """Answer a request of the protocol."""
        body, length = await self._body(request, call), request.headers.get(protocol.LENGTH_HEADER)
        # Parsing numbers in JSON takes longer than a run, so other requests are answered meanwhile.
        short = length is not None and protocol.SHORT.fullmatch(length)
        question = protocol.parse(body, length) if short else await asyncio.to_thread(protocol.parse, body, length)
        # A newer artifact may have replaced it while the body arrived.
        served = self.find(served.name, served.target)
        answers = await self._run(served, question.inputs, call)
        return protocol.render(question, served.manifest, answers)

    async def predict(self, served: ServedModel, request: Request, call: _Call) -> tuple[bytes, dict[str, str]]:
        """Answer a form."""
        form = await self._form(request, call)
        async with self.decoding:
            inputs, size = await asyncio.to_thread(
                forms.inputs_of, served.manifest, form, served.vocabulary, self.limits.pixels
            )
        # A newer artifact may have replaced it while the body arrived.
        served = self.find(served.name, served.target)
        answers = await self._run(served, inputs, call)
        record = forms.answer_of(served.manifest, answers, size)
        return json.dumps(record, allow_nan=False).encode(), {"Content-Type": "application/json"}

    async def _run(self, served: ServedModel, inputs: Mapping[str, Array], call: _Call) -> dict[str, Array]:
        # The place in the queue is taken when the body is there: slow senders must not lock others out.
        with served.place(self.limits.queue), QUEUE.labels(served.name, served.target).track_inprogress():
            start = time.monotonic()
            answers, seconds = await served.run(inputs, self.limits.seconds)
        call.stages |= {"queue": time.monotonic() - start - seconds, "run": seconds}
        call.rows = max((array.shape[0] for array in answers.values() if array.ndim), default=1)
        return answers

    async def _body(self, request: Request, call: _Call) -> bytes:
        start = time.monotonic()
        declared = request.headers.get("content-length", "0")
        if declared.isdigit() and int(declared) > self.limits.body:
            raise TooLargeError(f"the body has {declared} bytes. The limit is {self.limits.body}")
        parts, size = [], 0
        try:
            async with asyncio.timeout(self.limits.seconds):
                async for part in request.stream():
                    size += len(part)
                    if size > self.limits.body:
                        raise TooLargeError(f"the body has more than {self.limits.body} bytes")
                    parts.append(part)
        except TimeoutError as error:
            raise SlowClientError(f"the body did not arrive within {self.limits.seconds:g} s") from error
        call.stages["read"] = time.monotonic() - start
        return b"".join(parts)

    async def _form(self, request: Request, call: _Call) -> dict[str, bytes]:
        """Return the fields of a form."""
        body = await self._body(request, call)

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        kind, options = parse_options_header(request.headers.get("content-type", ""))
        plain = kind + b"".join(b"; boundary=" + options[b"boundary"] for _ in range(b"boundary" in options))
        # The only encoding is UTF-8.
        scope = dict(request.scope) | {"headers": [(b"content-type", plain)]}
        try:
            async with Request(scope, receive).form(max_files=8, max_fields=32, max_part_size=MEBIBYTE) as form:
                if not form:
                    raise RefusedError(
                        "the request is not a form. Send fields, for example curl -F image=@a.jpg -F query=red"
                    )
                if len(form.multi_items()) > len(form):
                    raise RefusedError("a field of the form occurs twice")
                return {
                    name: await value.read() if isinstance(value, UploadFile) else value.encode()
                    for name, value in form.multi_items()
                }
        except HTTPException as error:
            raise RefusedError(f"the form is malformed: {error.detail}") from error


@dataclass
class _Call:
    """The measurements of one request."""

    id: str
    stages: dict[str, float]
    rows: int = 0


Answer = Callable[[ServedModel, Request, _Call], Awaitable[tuple[bytes, dict[str, str]]]]


def _add_health(app: FastAPI, state: _State) -> None:
    async def live() -> Response:
        return JSONResponse({"live": True})

    async def ready() -> Response:
        is_ready = state.ready and not any(state.stuck(served) for served in state.models)
        return JSONResponse({"ready": is_ready}, 200 if is_ready else 503)

    async def metrics() -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    for prefix in ("", "/v2"):
        app.get(f"{prefix}/health/live", tags=["health"], name=f"live{prefix}")(live)
        app.get(f"{prefix}/health/ready", tags=["health"], name=f"ready{prefix}")(ready)
    app.get("/metrics", tags=["health"])(metrics)


def _add_models(app: FastAPI, state: _State) -> None:
    async def server() -> Response:
        extensions = ["binary_tensor_data", "model_repository", "statistics"]
        return JSONResponse({"name": "edgekit", "version": app.version, "extensions": extensions})

    async def model(name: str, target: str = "") -> Response:
        try:
            served = state.find(name, target)
        except RefusedError as error:
            return _refusal(error)
        return JSONResponse(
            protocol.metadata(served.manifest, state.models.versions(name)), headers=_answer_headers(served)
        )

    async def ready(name: str, target: str = "") -> Response:
        try:
            served = state.find(name, target)
        except RefusedError as error:
            return _refusal(error)
        stuck = state.stuck(served)
        return JSONResponse({"name": served.name, "ready": not stuck}, 503 if stuck else 200)

    async def repository() -> Response:
        names = ((name, target) for name in state.models.names() for target in state.models.versions(name))
        return JSONResponse([{"name": name, "version": target, "state": "READY"} for name, target in names])

    async def statistics(name: str = "", target: str = "") -> Response:
        try:
            known = [state.find(name, target)] if name else []
        except RefusedError as error:
            return _refusal(error)
        selected = known if target else [served for served in state.models if name in ("", served.name)]
        return JSONResponse({"model_stats": [protocol.statistics(served.name, served.target) for served in selected]})

    app.get("/v2", tags=["models"], name="server")(server)
    app.post("/v2/repository/index", tags=["models"], name="repository")(repository)
    for path in ("/v2/models/stats", "/v2/models/{name}/stats", "/v2/models/{name}/versions/{target}/stats"):
        app.get(path, tags=["models"], name="statistics")(statistics)
    for path in ("/v2/models/{name}", "/v2/models/{name}/versions/{target}"):
        app.get(path, tags=["models"], name="model")(model)
        app.get(f"{path}/ready", tags=["models"], name="model ready")(ready)


def _add_inference(app: FastAPI, state: _State) -> None:
    async def infer(request: Request, name: str, target: str = "") -> Response:
        return await _answer(state, request, name, target, state.infer)

    async def predict(request: Request, name: str = "", target: str = "") -> Response:
        return await _answer(state, request, name, target, state.predict)

    router = APIRouter(tags=["inference"], route_class=_DirectRoute)
    paths = ("/v2/models/{name}", "/v2/models/{name}/versions/{target}")
    for path in paths:
        router.post(f"{path}/infer", name="infer", openapi_extra=INFERENCE)(infer)
    for path in ("", *paths):
        router.post(f"{path}/predict", name="predict", openapi_extra=FORM)(predict)
    app.include_router(router)


class _DirectRoute(APIRoute):
    """A route that passes path and query unchecked to its function."""

    # FastAPI's checks of them take 0.1 ms.
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        names = {query_param.name for query_param in self.dependant.query_params}

        async def handle(request: Request) -> Response:
            words = {name: request.query_params[name] for name in names if name in request.query_params}
            response: Response = await self.endpoint(request, **words, **request.path_params)
            return response

        return handle


async def _answer(state: _State, request: Request, name: str, target: str, answer: Answer) -> Response:
    """Answer a request or refuse it; measure and log both."""
    start = time.monotonic()
    call = _Call(request.headers.get("x-request-id", "")[:100] or uuid.uuid4().hex, {})
    served = None
    try:
        served = state.find(name, target)
        body, headers = await answer(served, request, call)
        response = Response(body, 200, headers | _answer_headers(served))
    except ClientDisconnect:
        response = _refusal(ClientLeftError("the client left"))
    except EdgekitError as error:
        response = _refusal(error)
    # A bug of ours must not end the server.
    except Exception as error:
        log("fault", id=call.id, error=repr(error))
        response = _refusal(ArtifactError("the server failed; its log has the error"))
    response.headers["X-Request-Id"] = call.id
    spent = time.monotonic() - start
    call.stages["write"] = max(spent - sum(call.stages.values()), 0.0)
    # Logging happens after the answer is on its way.
    asyncio.get_running_loop().call_soon(_record, call, served, (name, target), response, spent)
    return response


def _record(call: _Call, served: ServedModel | None, names: tuple[str, str], response: Response, spent: float) -> None:
    """Measure and log a request."""
    labels = (served.name, served.target) if served else ("", "")
    REQUESTS.labels(*labels, str(response.status_code)).inc()
    if served is not None and response.status_code == 200:
        for stage, seconds in call.stages.items():
            STAGES.labels(*labels, stage).observe(max(seconds, 0.0))
        ROWS.labels(*labels).observe(call.rows)
        LAST.labels(*labels).set_to_current_time()
    elif served is not None:
        STAGES.labels(*labels, "failed").observe(spent)
    error_text = json.loads(bytes(response.body))["error"] if response.status_code != 200 else None
    model, target = (served.name, served.target) if served else (names[0][:80], names[1][:80])
    log(
        "request",
        id=call.id,
        model=model,
        target=target,
        code=response.status_code,
        ms=round(spent * 1e3, 2),
        rows=call.rows or None,
        error=error_text,
    )


def _answer_headers(served: ServedModel) -> dict[str, str]:
    """Return the headers of every answer, which describe its artifact."""
    verdict = VERIFIED if served.status == VERIFIED else f"{served.status}; allowed by --allow-unverified"
    return {"Edgekit-Target": served.target, "Edgekit-Verdict": verdict}


def _refusal(error: EdgekitError) -> Response:
    """Return an error in the protocol's form, one sentence; an artifact's error about the inputs is the client's."""
    status = error.status if isinstance(error, RefusedError) else 500 if isinstance(error, ArtifactError) else 400
    reason = error.reason if isinstance(error, RefusedError) else "failed" if status == 500 else "inputs"
    REFUSED.labels(reason).inc()
    headers = {"Content-Type": "application/json"} | ({"Retry-After": "1"} if status in (429, 503) else {})
    return Response(json.dumps({"error": str(error)}), status, headers)


async def _no_route(request: Request, error: Exception) -> Response:
    code = error.status_code if isinstance(error, HTTPException) else 500
    detail = error.detail if isinstance(error, HTTPException) else ""
    return JSONResponse(
        {"error": f"{request.method} {request.url.path[:200]}: {detail}; see /docs for the routes"}, code
    )


class Server(uvicorn.Server):
    """A server that reads and answers what the kernel has accepted for it before it ends."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the server; at most `DRAINING` seconds later than uvicorn does."""
        ends = time.monotonic() + DRAINING
        quiet = 0
        # A connection between its acceptance and its first request is seen at the next look.
        while quiet < 3 and time.monotonic() < ends:
            await asyncio.sleep(0.01)
            quiet = 0 if self._has_unread(sockets or []) else quiet + 1
        await super().shutdown(sockets)

    def _has_unread(self, listeners: list[socket.socket]) -> bool:
        """Return whether a client waits to be accepted, or an idle connection has a request to be read."""
        waiting = select.poll()
        for listener in listeners:
            waiting.register(listener, select.POLLIN)
        for client in self.server_state.connections:
            if isinstance(client, HttpToolsProtocol) and (client.cycle is None or client.cycle.response_complete):
                waiting.register(client.transport.get_extra_info("socket"), select.POLLIN)
        return bool(waiting.poll(0))
