"""Plays one scenario once at one target. exchange.py writes and reads as for the gateway; this module sends and
judges."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from dragoman.conformance.runner_jsonrpc import JSONRPC, is_error
from dragoman.conformance.runner_targets import VerifyTarget
from dragoman.conformance.runner_wire import WireExchange, WireLine, WireRequestToSend
from dragoman.conformance.scenario import Expect, ReplyMode, Results, Scenario, ScenarioTurn, build_request, say_turn
from dragoman.conformance.scenario_checks import (
    NO_THOUGHT,
    ScenarioRequest,
    calls_of,
    check_events,
    check_failure,
    check_reply,
    text_of,
)
from dragoman.dialects import find_dialect
from dragoman.errors import DecodeError, LossError, UpstreamError
from dragoman.exchange import (
    MOST_CORRECTIONS,
    ClientRequest,
    UpstreamCall,
    make_destination,
    send_corrected,
    write_call,
    write_wire,
)
from dragoman.failure import Failure
from dragoman.framing.sse import SseDecoder
from dragoman.jsontypes import Json, JsonObject, dump_json, load_json
from dragoman.learner import add_lesson
from dragoman.model.events import Event, PartDelta, PartStart, ReplyFailed
from dragoman.model.fold import GrammarError, fold
from dragoman.model.messages import Image, Message, Part
from dragoman.model.reply import Reply, Usage
from dragoman.model.request import Request
from dragoman.notes import Note, Notes
from dragoman.upstream.profiles import find_known
from dragoman.upstream.read_reply import says_something
from dragoman.way_back import StreamReader, read_reply
from dragoman.wire import WireReply

ScenarioOutcome: TypeAlias = Literal["PASS", "FAIL", "SKIP"]
UNKNOWN_MODEL = "no-such-model-4711"
AGAIN = 2  # times a busy server is asked again
LONGEST_WAIT_S = 20.0
VENDORS = ("openai", "anthropic", "gemini")  # have an endpoint that counts tokens
# These may run any model, so their abilities are unknown.
ANY_MODEL = ("", "compatible", "llamacpp", "lmstudio", "vllm", "sglang", "gpustack", "litellm")
ONE_MODEL = ("llamacpp", "lmstudio", "vllm", "sglang")  # these often serve one model under any name


# What servers of text-only models say to a picture. The model cannot see, so this is a SKIP and not a FAIL.
_BLIND = re.compile(
    r"(image|vision|multimodal|picture).*(not support|unsupported|not enabled|no support)|not support.*image", re.I
)


_LEFT_OUT = re.compile(r'[^"]*a line of text takes its place')  # a part of a note


class Try(Struct, kw_only=True):
    """A scenario played once."""

    mode: ReplyMode
    outcome: ScenarioOutcome = "PASS"
    words: str = ""  # why it is not PASS
    exchanges: list[WireExchange] = []
    notes: list[Note] = []
    seconds: float = 0.0


class Skipped(Exception):  # not an error: its text is the reason for a SKIP
    """The target cannot be asked this."""


class PlayFailed(Exception):
    """The answer is wrong."""


class PlayedAnswer(Struct, kw_only=True):
    reply: Reply | Failure
    events: list[Event] = []


def _keep(call: UpstreamCall, reply: Reply) -> PlayedAnswer:
    return PlayedAnswer(reply=call.accept(reply))


class Player:
    """Plays one scenario in one mode."""

    def __init__(
        self,
        scenario: Scenario,
        target: VerifyTarget,
        mode: ReplyMode,
        line: WireLine,
        *,
        meaning: bool,
        timeout_s: float,
    ):
        self.scenario, self.target, self.mode, self.line = scenario, target, mode, line
        self.meaning, self.timeout_s = meaning, timeout_s
        self.dialect = JSONRPC if target.dialect == JSONRPC.name else find_dialect(target.dialect)
        self.model = UNKNOWN_MODEL if scenario.model == "unknown" else target.model
        self.learned: dict[str, object] = {}  # fields of the target's profile, from its refusals
        self.done = Try(mode=mode, exchanges=[], notes=[])

    async def play(self) -> Try:
        try:
            if self.target.skip:
                raise Skipped(self.target.skip)
            if self.scenario.key == "wrong" and self.target.key is None:
                raise Skipped("the server does not ask for a key")
            match self.scenario.kind:
                case "talk":
                    text = await self._talk()
                    if self.scenario.other_picture:
                        await self._show_other(text)
                case "cancel":
                    await self._cancel()
                case "count":
                    await self._count()
                case "models":
                    await self._models()
        except Skipped as reason:
            self.done.outcome, self.done.words = "SKIP", str(reason)
        except PlayFailed as reason:
            self.done.outcome, self.done.words = "FAIL", str(reason)
        except LossError as error:
            self.done.outcome, self.done.words = "SKIP", f"the request cannot be written: {error}"
        except Exception as error:  # an exception of ours fails this cell, not the run
            self.done.outcome, self.done.words = "FAIL", f"{type(error).__name__}: {error}"
        self.done.seconds = sum(exchange.seconds for exchange in self.done.exchanges)
        return self.done

    # -- conversations

    async def _talk(self, turns: Sequence[ScenarioTurn] | None = None) -> str:
        """The text of the last answer."""
        messages: tuple[Message, ...] = ()
        before: Usage | None = None
        text = ""
        ids: list[str] = []
        for number, turn in enumerate(turns if turns is not None else self.scenario.turn):
            messages = say_turn(turn, messages)
            reply = await self._turn(turn, messages, number, before)
            if reply is None:
                return text
            if self.dialect.reply_id_prefix and reply.id in ids:
                raise PlayFailed(f"two answers have the same id {reply.id!r}: clients take them for one")
            ids.append(reply.id)
            before, text = reply.usage, text_of(reply.choices[0])
            messages = (*messages, Message(role="assistant", parts=reply.choices[0].parts))
        return text

    async def _show_other(self, text: str) -> None:
        """Asks again with another picture: a model that cannot see and only guessed gives the same answer."""
        if self.line.offline:
            return  # a recording has no answer to this question
        turns = [_with_picture(turn, self.scenario.other_picture) for turn in self.scenario.turn]
        if await self._talk(turns) == text:
            raise Skipped("the answer to another picture is the same: the model did not see it")

    async def _turn(
        self, turn: ScenarioTurn, messages: tuple[Message, ...], number: int, before: Usage | None
    ) -> Reply | None:
        answer = await self._ask(messages)
        if isinstance(answer.reply, Failure):
            self._judge_failure(answer.reply, turn)
            return None
        if turn.expect.failure:
            self._took_it()
        asked = ScenarioRequest(
            expect=turn.expect,
            tools=self.scenario.offered,
            meaning=self.meaning,
            before=before,
            worded=any(note.kind == "altered" and note.canonical == "/output" for note in self.done.notes),
        )
        if not self.meaning and _stopped_short(answer.reply, turn.expect):
            raise Skipped("the model ended by itself, before the limit")
        if not self.meaning and number and _called_nothing(answer.reply, turn.expect):
            raise Skipped("the model called a tool at first, and then no more")
        complaints = check_reply(answer.reply, asked)
        if complaints == [NO_THOUGHT] and self._may_not_think():
            raise Skipped("it did not think; we do not know whether this model can")
        if self.mode == "streamed":
            complaints += check_events(answer.events, turn.expect)
        if complaints:
            place = f"turn {number + 1}: " if len(self.scenario.turn) > 1 else ""
            raise PlayFailed(place + "; ".join(complaints))
        return answer.reply

    def _judge_failure(self, failure: Failure, turn: ScenarioTurn) -> None:
        if turn.expect.failure:
            complaints = check_failure(failure, turn.expect)
            if complaints:
                raise PlayFailed("; ".join(complaints))
            return
        if failure.kind == "no_credit":
            raise Skipped(f"it says: {failure.message}")
        if self._shows_pictures() and _BLIND.search(failure.message):
            raise Skipped(f"it says: {failure.message}")
        status = f"{failure.status} " if failure.status is not None else ""
        raise PlayFailed(f"{status}{failure.kind}: {failure.message}")

    def _may_not_think(self) -> bool:
        """Whether the model may be one that does not think: a server that runs any model does not tell us."""
        known = find_known(self.target.kind, self.model, self.target.rows) if self.target.kind else None
        return self.target.kind in ANY_MODEL and (known is None or not known.thinking)

    def _shows_pictures(self) -> bool:
        shown = [
            *(turn.user for turn in self.scenario.turn),
            *(r for turn in self.scenario.turn for r in turn.results.values()),
        ]
        parts = [
            part
            for some in shown
            if not isinstance(some, str)
            for part in (some.parts if isinstance(some, Results) else some)
        ]
        return any(isinstance(part, Image) for part in parts)

    def _took_it(self) -> None:
        if self.scenario.model == "unknown" and (self.target.gateway or self.target.kind in ("", *ONE_MODEL)):
            raise Skipped("the server answers for any model name")
        what = "a model that does not exist" if self.scenario.model == "unknown" else "what it should refuse"
        raise PlayFailed(f"it took {what}" if self.scenario.key != "wrong" else "the server accepted a wrong key")

    async def _ask(self, messages: tuple[Message, ...]) -> PlayedAnswer:
        call = self._write_call(build_request(self.scenario, self.model, messages), stream=self.mode == "streamed")
        try:
            return await send_corrected(
                call, self._exchange, lambda sent, reply: PlayedAnswer(reply=sent.accept(reply))
            )
        except UpstreamError as error:
            return PlayedAnswer(reply=error.failure)

    def _write_call(self, request: Request, *, stream: bool) -> UpstreamCall:
        """The call as the gateway writes it. A server of an unknown kind is asked once, as nothing is learned."""
        profile = self.target.profile(self.model, self.learned)
        if self.target.gateway and self.scenario.unpaired:
            profile = replace(profile, pairing="keep")
        destination = make_destination(
            self.dialect,
            self.model,
            profile,
            upstream=self.target.name,
            native=False,
            stream_usage=self.target.stream_usage,
        )
        client_request = ClientRequest(dialect=find_dialect("canonical"), request=replace(request, stream=stream))
        corrections = MOST_CORRECTIONS if self.target.kind and not self.scenario.model else 0
        return write_call(client_request, destination, Notes(), stream=stream, corrections=corrections)

    async def _exchange(self, call: UpstreamCall) -> PlayedAnswer:
        """One call and its answer; an UpstreamError when it is refused, or when its answer is asked for once more."""
        self.learned = add_lesson(self.learned, call.learned)
        self.done.notes += [note for note in call.notes if note not in self.done.notes]
        lost = next((note for note in call.notes if self.scenario.is_about(note)), None)
        if lost is not None:
            raise Skipped(f"the target does not take it: {lost.why} ({lost.where})")
        answer = self._read(await self._send(call.path, call.body, call.headers), call)
        if isinstance(answer.reply, Failure) and not any(says_something(event) for event in answer.events):
            raise UpstreamError(answer.reply)
        return answer

    def _read(self, exchange: WireExchange, call: UpstreamCall | None = None) -> PlayedAnswer:
        """The answer as our own decoders read it. If they cannot read it, the server fails this scenario."""
        if exchange.failure is not None:
            return PlayedAnswer(reply=exchange.failure)
        try:
            if exchange.status >= 400 or (self.dialect is JSONRPC and is_error(_load(exchange.reply))):
                wire = WireReply(body=_load(exchange.reply), status=exchange.status, headers=exchange.headers)
                failure = self.dialect.decode_failure(wire)
                return PlayedAnswer(
                    reply=failure if self.dialect is JSONRPC else replace(failure, status=exchange.status)
                )
            if self.mode == "whole":
                wire = WireReply(body=load_json(exchange.reply), headers=exchange.headers)
                reply = read_reply(self.dialect, wire, Notes() if call is None else call.notes)
                return PlayedAnswer(reply=reply if call is None else call.take_reply(reply))
            reader = StreamReader(self.dialect, Notes()) if call is None else call.open_reader()
            return self._read_stream(exchange, reader)
        except DecodeError as error:
            raise PlayFailed(f"the answer cannot be read: {error}") from error
        except GrammarError as error:
            raise PlayFailed(f"the stream is out of order: {error}") from error

    def _read_stream(self, exchange: WireExchange, reader: StreamReader) -> PlayedAnswer:
        media_type = exchange.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != self.dialect.media_type and exchange.reply[:1] != b"[":
            raise PlayFailed(f"the stream is {media_type or 'of no type'}, expected {self.dialect.media_type}")
        events = [*reader.feed(exchange.reply), *reader.close()]
        return PlayedAnswer(reply=_fold(events), events=events)

    # -- scenarios that are no conversation

    async def _cancel(self) -> None:
        """Hangs up at the first word of a stream. The next question must be answered as usual."""
        first, *rest = self.scenario.turn
        decoder = self.dialect.stream_decoder(Notes())
        began: list[bool] = []

        def hang_up(piece: bytes) -> bool:
            if any(isinstance(e, PartDelta | PartStart) for e in decoder.feed(piece)):
                began.append(True)
            return bool(began)

        call = self._write_call(build_request(self.scenario, self.model, say_turn(first, ())), stream=True)
        self.done.notes += list(call.notes)
        exchange = await self._send(call.path, call.body, call.headers, hang_up)
        if exchange.failure is not None or exchange.status >= 400:
            answer = self._read(exchange)
            if isinstance(answer.reply, Failure):
                self._judge_failure(answer.reply, first)
        if not began and not self.line.offline:
            raise PlayFailed("the stream never began")
        await self._talk(rest)

    async def _count(self) -> None:
        request = build_request(self.scenario, self.model, say_turn(self.scenario.turn[0], ()))
        codec = self.dialect.counts
        if codec is None:
            raise Skipped(f"{self.dialect.title} has no token count")
        profile = self.target.profile(self.model)
        wire = write_wire(replace(request, max_output=None), profile, codec.encode_request, Notes())
        exchange = await self._send(wire.path, dump_json(wire.body), wire.headers)
        if exchange.status in (404, 405, 501) and self.target.kind not in VENDORS:
            raise Skipped("it has no token count")
        body = self._good(exchange)
        try:
            count = codec.decode_reply(body)
        except DecodeError:
            count = 0
        if count <= 0:
            raise PlayFailed(f"expected a number of tokens, found {_shown(body)}")

    async def _models(self) -> None:
        codec = self.dialect.models
        if codec is None:
            raise Skipped(f"{self.dialect.title} has no list of models")
        exchange = await self._send(codec.path, b"", self.dialect.default_headers, method="GET")
        if exchange.status in (404, 405, 501) and self.target.kind not in VENDORS:
            raise Skipped("it has no list of models")
        names = model_names(self._good(exchange))
        if not names:
            raise PlayFailed("it lists no models")
        if self.target.kind != "azure" and plain_name(self.model) not in {plain_name(name) for name in names}:
            raise PlayFailed(f"{self.model} is not among its {len(names)} models")

    def _good(self, exchange: WireExchange) -> JsonObject:
        if exchange.failure is not None or exchange.status >= 400:
            answer = self._read(exchange)
            if isinstance(answer.reply, Failure):
                raise PlayFailed(f"{answer.reply.kind}: {answer.reply.message}")
        body = load_json(exchange.reply)
        if type(body) is not dict:
            raise PlayFailed(f"expected an object, found {_shown(body)}")
        return body

    async def _send(
        self, path: str, body: bytes, headers: dict[str, str], hang_up: object = None, *, method: str = "POST"
    ) -> WireExchange:
        ask = WireRequestToSend(
            place=f"{self.scenario.name}-{self.mode}-{len(self.done.exchanges)}",
            path=path,
            body=body,
            method=method,
            headers=headers,
            wrong_key=self.scenario.key == "wrong",
            hang_up=hang_up if callable(hang_up) else None,
        )
        exchange = await self.line.send(self.target, ask, self.timeout_s)
        self._look_for_lost_pictures(exchange)
        for again in range(1, AGAIN + 1):
            wait = None if self._is_spent(exchange) else _busy_s(exchange)
            if wait is None or wait > LONGEST_WAIT_S or ask.wrong_key or self.line.offline:
                break
            await asyncio.sleep(wait * again)
            exchange = await self.line.send(self.target, ask, self.timeout_s)
        self.done.exchanges.append(exchange)
        if exchange.failure is not None and exchange.failure.code == "not_recorded":
            raise Skipped(exchange.failure.message)
        return exchange

    def _look_for_lost_pictures(self, exchange: WireExchange) -> None:
        """A gateway of ours says in a header when it replaced a picture by a line of text."""
        header = exchange.headers.get("x-dragoman-notes", "")
        if self._shows_pictures() and (match := _LEFT_OUT.search(header)):
            self.done.exchanges.append(exchange)
            raise Skipped(f"the gateway left the picture out: {match.group(0)}")

    def _is_spent(self, exchange: WireExchange) -> bool:
        """No credit is left: waiting does not help."""
        if exchange.status not in (402, 403, 429):
            return False
        wire = WireReply(body=_load(exchange.reply), status=exchange.status, headers=exchange.headers)
        return self.dialect.decode_failure(wire).kind == "no_credit"


def _with_picture(turn: ScenarioTurn, other: Mapping[str, str]) -> ScenarioTurn:
    """The same turn with another picture. Which words the answer has then is not judged."""

    def swap(parts: tuple[Part, ...]) -> tuple[Part, ...]:
        return tuple(replace(part, **other) if isinstance(part, Image) else part for part in parts)

    results = {
        name: result if isinstance(result, str) else replace(result, parts=swap(result.parts))
        for name, result in turn.results.items()
    }
    user = turn.user if isinstance(turn.user, str) else swap(turn.user)
    return replace(turn, user=user, results=results, expect=replace(turn.expect, says=(), says_any=()))


def _busy_s(exchange: WireExchange) -> float | None:
    """How long to wait for a server that is only busy; None for any other answer."""
    if exchange.failure is not None and exchange.failure.code == "upstream_disconnected" and not exchange.status:
        return 0.1  # it had just closed the connection we kept, as it may at any time (RFC 9112, 9.5)
    if exchange.status not in (429, 503, 529):
        return None
    header = exchange.headers.get("retry-after", "")
    return float(header) if header.isdigit() else 1.0


def _stopped_short(reply: Reply, expect: Expect) -> bool:
    """Whether the answer ended before the limit. That is no failure: a real model writes as much as it likes."""
    finish = reply.choices[0].finish if reply.choices else None
    return "length" in expect.finish and finish is not None and finish.reason == "stop"


def _called_nothing(reply: Reply, expect: Expect) -> bool:
    """Whether the model made no further call. That is no failure: a real model may choose."""
    return bool(expect.calls and reply.choices and not calls_of(reply.choices[0]))


def _fold(events: list[Event]) -> Reply | Failure:
    failed = next((event.failure for event in events if isinstance(event, ReplyFailed)), None)
    return failed if failed is not None else fold(events)


def _load(data: bytes) -> Json:
    """An error's body, which need not be JSON."""
    try:
        return load_json(data)
    except DecodeError:
        frames = SseDecoder().feed(data + b"\n\n") if data.startswith((b"data:", b"event:")) else []
        return load_json(frames[0].data) if frames else data.decode("utf-8", "replace")


def _shown(body: object) -> str:
    return dump_json(body).decode()[:200]


def model_names(body: JsonObject) -> list[str]:
    """The names in a list of any dialect."""
    rows = body.get("data", body.get("models"))
    if not isinstance(rows, list):
        return []
    names = [row.get("id") or row.get("name") or row.get("model") for row in rows if isinstance(row, dict)]
    return [name for name in names if isinstance(name, str)]


def plain_name(name: str) -> str:
    return name.removeprefix("models/").removesuffix(":latest")
