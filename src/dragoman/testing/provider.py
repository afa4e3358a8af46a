"""Scripted providers: servers on loopback that speak, refuse and fail like a vendor's server.

    async with Provider("anthropic") as provider:
        provider.next(faults.rate_limited(wait_s=1))
        provider.say("pong")
        ...  # send to provider.base_url
        assert provider.requests[0].headers["x-api-key"] == "k"

`serve` is the same for tests that are not async. Unless told what to say, a provider answers with the demo model.
"""

import asyncio
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

from aiohttp import web
from msgspec.structs import replace

from dragoman.demo.model import count_tokens, demo_events
from dragoman.dialects import USUAL, find_dialect
from dragoman.dialects.ollama.services import encode_shown
from dragoman.errors import DecodeError
from dragoman.jsontypes import copy_json, dump_json, load_json
from dragoman.model.events import Event, ReplyFailed
from dragoman.model.fold import fold, unfold
from dragoman.model.messages import Text
from dragoman.model.reply import Choice, Finish, Reply, Usage
from dragoman.model.request import ReasoningSetting, Request
from dragoman.notes import Notes
from dragoman.passes.profile import Profile
from dragoman.testing.faults import ScriptedFault
from dragoman.testing.oddities import add_vendor_ids, edit_frames, find_oddity
from dragoman.testing.refusals import VendorRefusal, refuse, refuse_key, refuse_model
from dragoman.testing.rules import check, warn
from dragoman.testing.seals import check_seals, hide_thoughts, seal_events
from dragoman.testing.sending import NO_FAULT, AnswerSender, Recorded, send_instead, send_refusal
from dragoman.testing.services import (
    StoredResponses,
    complain_gemini,
    complain_openai,
    describe_model,
    embed,
    list_models,
    speak_gemini,
    speak_openai,
)
from dragoman.upstream.profiles import find_kind, load_rows, profile_for
from dragoman.wire import WireRequest

ScriptedAnswer: TypeAlias = str | bytes | Reply | Iterable[Event]
DecodeRequest: TypeAlias = Callable[[WireRequest, Notes], Request]
Brain: TypeAlias = Callable[[Request], ScriptedAnswer]

_MODELS = {"openai": "gpt-4o", "anthropic": "claude-sonnet-4-6", "gemini": "gemini-2.5-flash", "ollama": "qwen3"}
SSE_TYPE = "text/event-stream"
_TALKS = ("conversation", "cached_conversation")
_ANY_SERVER = ("models", "model", "embeddings", "speech")  # every server serves these at OpenAI's paths


class Provider:
    """One server. `kind` is a row of profiles.toml (openai, groq, vllm, ...) or a dialect's name."""

    def __init__(
        self,
        kind: str,
        *,
        key: str | None = None,
        models: tuple[str, ...] | None = None,
        strict: bool = True,
        odd: bool = True,
        seals: bool = True,
        pace_s: float = 0.0,
        brain: Brain | None = None,
    ) -> None:
        rows = load_rows().kinds
        self.kind = kind if kind in rows else next((row.name for row in rows.values() if kind in row.dialects), kind)
        row = find_kind(self.kind)
        self.dialect = kind if kind in row.dialects else row.dialects[0]
        self.dialects = row.dialects
        self.auth = row.auth
        self.key = key
        self.models = models or (_MODELS.get(self.kind, f"{self.kind}-model"),)
        self.requests: list[Recorded] = []
        self.url = ""
        self._known = models  # None: any model but one called no-such-…
        self._strict, self._odd, self._seals, self._pace_s = strict, odd, seals, pace_s
        path = urlsplit(row.base_url).path.rstrip("/")
        self._prefix = "" if "{" in path else path
        self._brain = brain
        self._answers: deque[ScriptedAnswer] = deque()
        self._faults: deque[ScriptedFault] = deque()
        self._always: ScriptedFault | None = None
        self._stored = StoredResponses()
        self._runner: web.AppRunner | None = None

    # -- the script

    def next(self, fault: ScriptedFault, times: int = 1) -> None:
        """The next conversation request gets this fault. Several calls queue up, one fault for each request."""
        self._faults.extend([fault] * times)

    def always(self, fault: ScriptedFault | None) -> None:
        """Every request without a fault from `next` gets this one. None ends it."""
        self._always = fault

    def say(self, *answers: ScriptedAnswer) -> None:
        """The next answers, in order: text, a Reply, events, or the bytes of a whole body."""
        self._answers.extend(answers)

    def reset(self) -> None:
        """Forgets all faults, answers and requests."""
        self._answers.clear()
        self._faults.clear()
        self._always = None
        self.requests.clear()

    @property
    def base_url(self) -> str:
        """The address in the form that a configuration of this kind has."""
        return self.url + self._prefix

    @property
    def refusals(self) -> list[str]:
        """The message of every refusal so far. A correct client has none."""
        return [seen.refused for seen in self.requests if seen.refused is not None]

    @property
    def warnings(self) -> list[str]:
        """What the real server would have accepted silently and then dropped or misread."""
        return [words for seen in self.requests for words in seen.warnings]

    # -- running

    async def start(self, port: int = 0) -> "Provider":
        app = web.Application(client_max_size=256 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> "Provider":
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # -- serving

    async def _serve(self, http: web.Request) -> web.StreamResponse:
        body = await http.read()
        headers = {name.lower(): value for name, value in http.headers.items()}
        seen = Recorded(http.method, http.path_qs, headers, body)
        self.requests.append(seen)
        try:
            response = await self._answer(http, seen)
        except (asyncio.CancelledError, ConnectionError):
            seen.left = True
            raise
        seen.status = response.status
        seen.done = True
        return response

    async def _answer(self, http: web.Request, seen: Recorded) -> web.StreamResponse:
        dialect, what = self._route(http.path)
        fault = None
        if what in _TALKS:
            seen.dialect = dialect
            fault = self._faults.popleft() if self._faults else self._always
            seen.fault = fault.name if fault is not None else None
        if fault is not None:
            replaced = await send_instead(http, fault, self.kind, dialect)
            if replaced is not None:
                return replaced
        try:
            self._check_key(seen, dialect)
            return await self._respond(http, seen, dialect, what, fault)
        except _RefusedError as refused:
            seen.refused = refused.words
            return send_refusal(refused.refusal)

    def _route(self, path: str) -> tuple[str, str]:
        """The dialect and the operation of a path."""
        paths = [path, *(f"/v1{path.removeprefix(p)}" for p in (self._prefix, "/v1") if path.startswith(p))]
        for name in dict.fromkeys((*self.dialects, USUAL)):
            doors = [door for door in find_dialect(name).doors if name in self.dialects or door.serves in _ANY_SERVER]
            serves = next((d.serves for d in doors for spelled in paths if re.fullmatch(d.path, spelled)), None)
            if serves is not None:
                return (self.dialect if serves in ("models", "model") else name), serves
        return self.dialect, "models" if path.rstrip("/").endswith("/models") else ""

    def _check_key(self, seen: Recorded, dialect: str) -> None:
        headers = seen.headers
        needed = find_dialect(dialect).default_headers if self.kind == dialect else {}  # others do not demand them
        for name in needed:
            if name not in headers:
                raise self._refuse(dialect, 400, f"{name}: header is required")
        if self.key is None or self.auth == "none":
            return
        # each vendor's own header, and what its own clients send besides (anthropic 2.8 sends the key as a bearer)
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        own = "" if self.auth == "bearer" else headers.get(self.auth, "")
        query = parse_qs(urlsplit(seen.path).query).get("key", [""])[0]
        given = own or query or bearer
        if given == self.key:
            return
        refusal = refuse_key(self.kind, dialect, given)
        raise _RefusedError(refusal, "wrong key" if given else "no key")

    async def _respond(
        self, http: web.Request, seen: Recorded, dialect: str, what: str, fault: ScriptedFault | None
    ) -> web.StreamResponse:
        match what:
            case "models" | "model":
                listed = [(name, profile_for(self.kind, name, dialect)) for name in self.models]
                return _json(list_models(find_dialect(dialect), listed))
            case "version":
                return _json({"version": "0.12.6"})
            case "running":
                return _json({"models": []})
            case "stored" | "forget":
                return self._find_stored(seen, dialect, http.path.rpartition("/")[2])
            case "root":
                return web.Response(text="Ollama is running")
            case "conversation" | "cached_conversation" | "count" | "embeddings" | "speech" | "show":
                pass
            case _:
                raise self._refuse(dialect, 404, f"Unknown request URL: {seen.method} {http.path}", code="unknown_url")
        if seen.method != "POST":
            raise self._refuse(dialect, 405, "Method Not Allowed")
        return await self._respond_to_body(http, seen, dialect, what, fault)

    async def _respond_to_body(
        self, http: web.Request, seen: Recorded, dialect: str, what: str, fault: ScriptedFault | None
    ) -> web.StreamResponse:
        body = self._read(seen, dialect)
        model = str(body.get("model", "")) or http.path.rpartition(":")[0].rpartition("/")[2]
        self._check_model(dialect, model)
        match what:
            case "show":
                return _json(encode_shown(describe_model(model, profile_for(self.kind, model, dialect))))
            case "embeddings":
                return _json(embed(find_dialect(dialect), http.path, body))
            case "speech":
                if (words := complain_openai(body)) is not None:
                    raise self._refuse(dialect, 400, words)
                sound, kind = speak_openai(body)
                return web.Response(body=sound, content_type=kind)
            case "count":
                return _json(self._count(seen, dialect, body))
            case _ if "tts" in model and dialect == "gemini":
                if (words := complain_gemini(model, body)) is not None:
                    raise self._refuse(dialect, 400, words)
                return _json(speak_gemini(body))
            case _:
                return await self._talk(http, seen, dialect, body, model, fault)

    def _find_stored(self, seen: Recorded, dialect: str, name: str) -> web.Response:
        found = self._stored.find(name)
        if found is None:
            raise self._refuse(dialect, 404, f"Response with id '{name}' not found.")
        if seen.method == "DELETE":
            self._stored.forget(name)
            return _json({"id": name, "object": "response", "deleted": True})
        return _json(found)

    def _read(self, seen: Recorded, dialect: str) -> dict[str, Any]:
        try:
            body = seen.json
        except DecodeError:
            body = None
        if type(body) is not dict:
            raise self._refuse(dialect, 400, "We could not parse the JSON body of your request.")
        return body

    def _check_model(self, dialect: str, model: str) -> None:
        if self._known is None and not model.startswith("no-such"):
            return
        if self._known is not None and model.removesuffix(":latest") in self._known:
            return
        refusal, words = refuse_model(self.kind, dialect, model), f"no such model: {model}"
        raise _RefusedError(refusal, words)

    def _count(self, seen: Recorded, dialect: str, body: dict[str, Any]) -> Any:
        codec = find_dialect(dialect).counts
        if codec is None:
            raise self._refuse(dialect, 404, "there is no token count")
        return codec.encode_reply(count_tokens(self._decode(seen, dialect, body, codec.decode_request)))

    def _decode(
        self, seen: Recorded, dialect: str, body: dict[str, Any], decode: DecodeRequest | None = None
    ) -> Request:
        wire = WireRequest(body=copy_json(body), path=seen.path, headers=seen.headers)
        try:
            return (decode or find_dialect(dialect).decode_request)(wire, Notes())
        except DecodeError as error:
            raise self._refuse(dialect, 400, str(error)) from error

    # -- a conversation

    async def _talk(
        self,
        http: web.Request,
        seen: Recorded,
        dialect: str,
        body: dict[str, Any],
        model: str,
        fault: ScriptedFault | None,
    ) -> web.StreamResponse:
        stores = find_dialect(dialect).stores_replies
        if stores:
            body = self._stored.resume(body)
        if self._strict:
            seen.warnings = warn(self.kind, dialect, body, model)
            for complaint in check(self.kind, dialect, body, model):
                raise self._refuse(
                    dialect, complaint.status, complaint.message, code=complaint.code, param=complaint.param
                )
        if self._seals:
            for words in check_seals(body, self.kind, dialect):
                code = "invalid_encrypted_content" if stores else None
                raise self._refuse(dialect, 400, words, code=code)
        request = _think_unasked(self._decode(seen, dialect, body), profile_for(self.kind, model, dialect))
        scripted = self._answers.popleft() if self._answers else (self._brain or demo_events)(request)
        streamed = bool(request.stream)
        if isinstance(scripted, bytes):
            frames = cut_frames(scripted, dialect) if streamed else [scripted]
            return await self._write(http, seen, frames, streamed, fault)
        events = list(add_vendor_ids(_events(scripted, request, len(self.requests)), self.kind, dialect))
        if isinstance(events[0], ReplyFailed) and events[0].failure.status is not None:  # before the stream begins
            raise self._refuse(dialect, events[0].failure.status, events[0].failure.message)
        if self._seals:
            events = list(seal_events(hide_thoughts(events, body, self.kind, dialect), self.kind, dialect, body))
        if stores and not isinstance(events[-1], ReplyFailed):
            self._stored.keep(body, load_json(self._whole(dialect, events, request)))
        frames = self._stream(dialect, events, request) if streamed else [self._whole(dialect, events, request)]
        return await self._write(http, seen, frames, streamed, fault)

    async def _write(
        self, http: web.Request, seen: Recorded, frames: list[bytes], streamed: bool, fault: ScriptedFault | None
    ) -> web.StreamResponse:
        sender = AnswerSender(http, seen, self.kind, fault or NO_FAULT, self._pace_s)
        return await (sender.send_stream(frames) if streamed else sender.send_whole(frames[0]))

    def _whole(self, dialect: str, events: list[Event], request: Request) -> bytes:
        reply = fold(events)
        if not isinstance(reply, Reply):
            raise self._refuse(dialect, reply.status or 500, reply.message)
        body = find_dialect(dialect).encode_reply(reply, Notes(), request).body
        return dump_json(find_oddity(self.kind, dialect, self._odd).body(load_json(dump_json(body))))

    def _stream(self, dialect: str, events: list[Event], request: Request) -> list[bytes]:
        odd = find_oddity(self.kind, dialect, self._odd)
        if odd.usage:  # our encoder writes usage only if the request asks for it
            own = {**request.extras.get(dialect, {}), "stream_options": {"include_usage": True}}
            request = replace(request, extras={**request.extras, dialect: own})
        encoder = find_dialect(dialect).stream_encoder(Notes(), request)
        return edit_frames(cut_frames(encoder.feed(events) + encoder.close(), dialect), odd)

    def _refuse(self, dialect: str, status: int, message: str, **more: Any) -> "_RefusedError":
        return _RefusedError(refuse(self.kind, dialect, status, message, **more), message)


class _RefusedError(Exception):
    def __init__(self, refusal: VendorRefusal, words: str) -> None:
        super().__init__(words)
        self.refusal = refusal
        self.words = words


def _think_unasked(request: Request, profile: Profile) -> Request:
    """Turns thinking on for a model that thinks by default, if the request does not say anything about it."""
    thinking = profile.thinking
    if thinking is None or thinking.default != "on" or profile.is_off(request.extras):
        return request
    setting = request.reasoning
    if setting is None:
        return replace(request, reasoning=ReasoningSetting(mode="on")) if thinking.says == "switch" else request
    is_set = setting.mode or setting.effort or setting.budget is not None
    return request if is_set else replace(request, reasoning=replace(setting, mode="on"))


def _events(answer: str | Reply | Iterable[Event], request: Request, number: int) -> Iterable[Event]:
    if isinstance(answer, str):
        words = len(answer.split())
        answer = Reply(
            id=f"demo-scripted-{number}",
            model=request.model,
            choices=(Choice(parts=(Text(text=answer),), finish=Finish(reason="stop")),),
            usage=Usage(input=count_tokens(request), output=words),
        )
    return unfold(answer) if isinstance(answer, Reply) else answer


def cut_frames(data: bytes, dialect: str) -> list[bytes]:
    """A stream's bytes as frames, each with its end."""
    if data[:1] == b"[":
        return [data]
    end = b"\n" if find_dialect(dialect).media_type != SSE_TYPE else b"\r\n\r\n" if b"\r\n\r\n" in data else b"\n\n"
    return [frame + end for frame in data.split(end) if frame]


def _json(body: Any) -> web.Response:
    return web.Response(body=dump_json(body), content_type="application/json")


# -- for tests that are not async


@contextmanager
def serve(kind: str, **settings: Any) -> Iterator[Provider]:
    """A running provider in a thread of its own."""
    provider = Provider(kind, **settings)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name=f"provider {kind}", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(provider.start(), loop).result(10)
        yield provider
    finally:
        asyncio.run_coroutine_threadsafe(provider.stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
