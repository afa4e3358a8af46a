"""Each canonical field in each dialect, measured: encode a value that has it, decode it again, read the notes.

carried   it reads back the same, without a note
altered   it reads back changed, or a note says that it was changed
dropped   it does not read back
"""

from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeAlias

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from dragoman.conformance.probes import CALL, PAPER, PIXEL, RAIN, SCHEMA, SOUND, WEATHER, make_citation
from dragoman.convert import make_legal
from dragoman.dialects import find_dialect
from dragoman.failure import Failure
from dragoman.jsontypes import dump_json, load_json
from dragoman.model.events import Event
from dragoman.model.fold import fold, unfold
from dragoman.model.messages import (
    Audio,
    Cache,
    Citation,
    Document,
    Image,
    Message,
    Part,
    Reasoning,
    Refusal,
    Seal,
    Text,
    TokenLogprob,
    ToolCall,
    ToolResult,
    Video,
)
from dragoman.model.reply import Choice, Finish, FinishReason, Reply, Usage
from dragoman.model.request import CustomTool, OutputFormat, ReasoningSetting, Request, Tool, ToolChoice
from dragoman.notes import Note, Notes
from dragoman.wire import WireReply, WireRequest

Fate: TypeAlias = Literal["carried", "altered", "dropped"]


class Sample(Struct, frozen=True):
    """A value with one field set, and the field's path."""

    label: str
    value: Request | Reply
    where: str  # a JSON pointer


HELLO = Message(role="user", parts=(Text(text="Hello"),))
ASK = Request(model="some-model", max_output=1000, messages=(HELLO,))
ANSWER = Reply(
    id="reply_1",
    model="some-model",
    created=1_790_000_000,
    choices=(Choice(parts=(Text(text="Hello"),), finish=Finish(reason="stop")),),
    usage=Usage(input=20, output=10),
)
CACHE = Cache(ttl="1h")
LOGPROB = TokenLogprob(token="Hello", logprob=-0.5, bytes=tuple(b"Hello"))  # noqa: S106  # not a secret
FREE_TOOL = CustomTool(name="patch", description="Applies a patch", syntax="lark", grammar='start: "x"')
FREE_CALL = ToolCall(id="call_1", name="patch", arguments="*** Begin", freeform=True)


def samples(origin: str) -> Iterator[Sample]:
    """Every canonical field, with the seals of one dialect."""
    yield from _settings()
    yield from _tools()
    yield from _turns()
    yield from _request_parts(origin)
    yield from _reply_fields(origin)


def _settings() -> Iterator[Sample]:
    values: dict[str, Any] = {
        "model": "some-model",
        "stream": True,
        "max_output": 1000,
        "stop": ("END",),
        "choices": 2,
        "modalities": ("text", "audio"),
        "temperature": 0.5,
        "top_p": 0.5,
        "top_k": 40,
        "min_p": 0.25,
        "frequency_penalty": 0.5,
        "presence_penalty": 0.5,
        "seed": 7,
        "logprobs": True,
        "verbosity": "low",
        "user": "user-1",
        "metadata": {"ship": "Fram"},
        "service_tier": "auto",
        "store": False,
        "cache_key": "key",
        "cache": Cache(),
    }
    for name, value in values.items():
        yield Sample(name, replace(ASK, **{name: value}), f"/{name}")
    yield Sample("top_logprobs", replace(ASK, logprobs=True, top_logprobs=3), "/top_logprobs")
    for mode in ("on", "off", "auto"):
        setting = ReasoningSetting(mode=mode, budget=2000 if mode == "on" else None)
        yield Sample(f"reasoning.mode {mode}", replace(ASK, reasoning=setting), "/reasoning/mode")
    for name, value in {"effort": "high", "budget": 2000, "show": True}.items():
        setting = ReasoningSetting(mode="on" if name == "budget" else "auto", **{name: value})  # type: ignore[arg-type]
        yield Sample(f"reasoning.{name}", replace(ASK, reasoning=setting), f"/reasoning/{name}")
    yield Sample("output.type json", replace(ASK, output=OutputFormat(type="json")), "/output/type")
    shape = OutputFormat(type="json_schema", schema=SCHEMA, name="answer", description="An answer", strict=True)
    for name in ("schema", "name", "description", "strict"):
        yield Sample(f"output.{name}", replace(ASK, output=shape), f"/output/{name}")


def _tools() -> Iterator[Sample]:
    tool = Tool(name="weather", description="Tells it", parameters=SCHEMA, strict=True, cache=CACHE)
    for name in ("name", "description", "parameters", "strict", "cache"):
        yield Sample(f"tools[]<function>.{name}", replace(ASK, tools=(tool,)), f"/tools/0/{name}")
    for name in ("name", "description", "grammar"):
        yield Sample(f"tools[]<custom>.{name}", replace(ASK, tools=(FREE_TOOL,)), f"/tools/0/{name}")
    armed = replace(ASK, tools=(WEATHER,))
    for mode in ("auto", "none", "required"):
        choice = ToolChoice(mode=mode)
        yield Sample(f"tool_choice.mode {mode}", replace(armed, tool_choice=choice), "/tool_choice/mode")
    named = ToolChoice(mode="required", names=("weather",))
    yield Sample("tool_choice.names", replace(armed, tool_choice=named), "/tool_choice/names")
    for allowed in (True, False):
        request = replace(armed, tool_choice=ToolChoice(mode="auto"), parallel_calls=allowed)
        yield Sample(f"parallel_calls {str(allowed).lower()}", request, "/parallel_calls")


def _turns() -> Iterator[Sample]:
    words = (Text(text="Be brief."),)
    for role in ("system", "developer"):
        first = replace(ASK, messages=(Message(role=role, parts=words), HELLO))
        yield Sample(f"messages[] {role}, first", first, "/messages/0/role")
        talk = (HELLO, Message(role="assistant", parts=(Text(text="Hi"),)), HELLO)
        later = replace(ASK, messages=(*talk, Message(role=role, parts=words)))
        yield Sample(f"messages[] {role}, later", later, "/messages/3/role")
    for role in ("user", "assistant"):
        turns = (HELLO, Message(role=role, parts=words)) if role == "assistant" else (HELLO,)  # type: ignore[arg-type]
        yield Sample(f"messages[] {role}", replace(ASK, messages=turns), f"/messages/{len(turns) - 1}/role")


def _request_parts(origin: str) -> Iterator[Sample]:
    yield from _user_parts()
    yield from _assistant_parts(origin)
    yield from _results()


def _user_parts() -> Iterator[Sample]:
    user: list[tuple[Part, tuple[str, ...]]] = [
        (Text(text="Hello", cache=CACHE), ("text", "cache")),
        (
            Image(data=PIXEL, media_type="image/png", detail="high", cache=CACHE),
            ("data", "media_type", "detail", "cache"),
        ),
        (Image(url="https://example.org/fjord.png"), ("url",)),
        (Image(file_id="file_1"), ("file_id",)),
        (
            Document(data=PAPER, media_type="application/pdf", name="log.pdf", cache=CACHE),
            ("data", "media_type", "name"),
        ),
        (Document(text="Rain again.", media_type="text/plain"), ("text",)),
        (Document(url="https://example.org/log.pdf"), ("url",)),
        (Document(file_id="file_1"), ("file_id",)),
        (Audio(data=SOUND, media_type="audio/wav"), ("data", "media_type")),
        (Video(url="https://example.org/fjord.mp4", media_type="video/mp4"), ("url",)),
    ]
    for part, names in user:
        request = replace(ASK, messages=(Message(role="user", parts=(part,)),))
        yield from _of_part(part, names, request, "/messages/0/parts/0")


def _assistant_parts(origin: str) -> Iterator[Sample]:
    seal = Seal(origin=origin, value="c2VhbGVk", form=form) if (form := find_dialect(origin).seal_form) else None
    own: list[tuple[Part, tuple[str, ...]]] = [
        (replace(CALL, cache=CACHE), ("id", "name", "arguments", "cache")),
        (replace(CALL, seal=seal), ("seal",)),
        (FREE_CALL, ("freeform",)),
        (Reasoning(text="Let me see.", seal=seal), ("text", "seal")),
        (Refusal(text="No."), ("text",)),
    ]
    for part, names in own:
        call = part if isinstance(part, ToolCall) else CALL
        parts = (part,) if part is call else (part, call)
        answer = replace(RAIN, name=call.name, freeform=call.freeform)
        talk = (HELLO, Message(role="assistant", parts=parts), Message(role="user", parts=(answer,)))
        tools = (FREE_TOOL,) if call.freeform else (WEATHER,)
        request = replace(ASK, messages=talk, tools=tools)
        yield from _of_part(part, names, request, "/messages/1/parts/0")


def _results() -> Iterator[Sample]:
    picture = Image(data=PIXEL, media_type="image/png")
    results: list[tuple[ToolResult, str, str]] = [
        (RAIN, "call_id", "call_id"),
        (RAIN, "name", "name"),
        (RAIN, "parts[]<text>", "parts"),
        (replace(RAIN, parts=(Text(text="look"), picture)), "parts[]<image>", "parts/1/data"),
        (replace(RAIN, failed=True), "failed", "failed"),
        (replace(RAIN, cache=CACHE), "cache", "cache"),
    ]
    for result, label, inside in results:
        talk = (HELLO, Message(role="assistant", parts=(CALL,)), Message(role="user", parts=(result,)))
        request = replace(ASK, messages=talk, tools=(WEATHER,))
        yield Sample(f"parts[]<tool_result>.{label}", request, f"/messages/2/parts/0/{inside}")


def _of_part(part: Part, names: tuple[str, ...], value: Request | Reply, where: str) -> Iterator[Sample]:
    kind = part.__struct_config__.tag
    for name in names:
        if getattr(part, name) is None:
            continue  # a dialect without seals
        yield Sample(f"parts[]<{kind}>.{name}", value, f"{where}/{name}")


def _reply_fields(origin: str) -> Iterator[Sample]:
    for name in ("id", "model", "created"):
        yield Sample(f"{name}", ANSWER, f"/{name}")
    yield Sample("service_tier", replace(ANSWER, service_tier="default"), "/service_tier")
    two = replace(ANSWER, choices=ANSWER.choices * 2)
    yield Sample("choices[], a second", two, "/choices/1")
    seal = Seal(origin=origin, value="c2VhbGVk", form=form) if (form := find_dialect(origin).seal_form) else None
    cited = make_citation(origin, Citation(url="https://example.org/a", title="A"), "Hello", "hello")
    spoken: list[tuple[Part, tuple[str, ...]]] = [
        (Text(text="Hello"), ("text",)),
        (Text(text="Hello", logprobs=(LOGPROB,)), ("logprobs",)),
        (Refusal(text="No."), ("text",)),
        (Reasoning(text="Let me see.", seal=seal), ("text", "seal")),
        (CALL, ("id", "name", "arguments")),
        (FREE_CALL, ("freeform",)),
        (Image(data=PIXEL, media_type="image/png"), ("data",)),
        (Audio(id="audio_1", data=SOUND, transcript="Hello", media_type="audio/wav"), ("data", "transcript")),
    ]
    for part, names in spoken:
        parts = (part, Text(text="Hello")) if isinstance(part, Reasoning) else (part,)
        finish = Finish(reason="tool_call" if isinstance(part, ToolCall) else "stop")
        reply = replace(ANSWER, choices=(Choice(parts=parts, finish=finish),))
        yield from _of_part(part, names, reply, "/choices/0/parts/0")
    reply = replace(
        ANSWER, choices=(Choice(parts=(Text(text="Hello", citations=(cited,)),), finish=Finish(reason="stop")),)
    )
    for name in ("url", "title", "quote", "start", "end"):
        if getattr(cited, name) is not None:
            yield Sample(f"parts[]<text>.citations[].{name}", reply, f"/choices/0/parts/0/citations/0/{name}")
    yield from _ends()
    usage = Usage(input=20, cache_read=300, cache_write=50, output=10, reasoning=40, input_audio=5, output_audio=4)
    for name in ("input", "cache_read", "cache_write", "output", "reasoning", "input_audio", "output_audio"):
        yield Sample(f"usage.{name}", replace(ANSWER, usage=usage), f"/usage/{name}")


def _ends() -> Iterator[Sample]:
    reasons: tuple[FinishReason, ...] = (
        "stop",
        "sequence",
        "length",
        "context",
        "tool_call",
        "filter",
        "refusal",
        "pause",
    )
    for reason in reasons:
        parts: tuple[Part, ...] = (CALL,) if reason == "tool_call" else (Text(text="Hello"),)
        finish = Finish(reason=reason, sequence="END" if reason == "sequence" else None)
        reply = replace(ANSWER, choices=(Choice(parts=parts, finish=finish),))
        yield Sample(f"finish.reason {reason}", reply, "/choices/0/finish/reason")
        if reason == "sequence":
            yield Sample("finish.sequence", reply, "/choices/0/finish/sequence")
    explained = Choice(parts=(Text(text="Hello"),), finish=Finish(reason="refusal", message="Because."))
    yield Sample("finish.message", replace(ANSWER, choices=(explained,)), "/choices/0/finish/message")


# ---------------------------------------------------------------- measuring


def fate(sample: Sample, target: str, *, streamed_by: str | None = None) -> Fate:
    """Whether a dialect carries, alters or drops a sample's field. Streams come from a provider of another dialect."""
    notes = Notes()
    after: Request | Reply | Failure
    if isinstance(sample.value, Request):
        after = _ask(sample.value, target, notes)
    elif streamed_by is None:
        after = _answer(sample.value, target, notes)
    else:
        after = fold(_through(target, _through(streamed_by, unfold(sample.value), Notes()), notes))
    meant, found = _at(to_builtins(sample.value), sample.where), _at(to_builtins(after), sample.where)
    kinds = {note.kind for note in notes if _touches(note, sample.where)}
    if "dropped" in kinds or (found is None and "altered" not in kinds):
        return "dropped"
    return "carried" if _same(meant, found) and "altered" not in kinds else "altered"


def _ask(request: Request, target: str, notes: Notes) -> Request:
    there = find_dialect(target)
    sent = there.encode_request(make_legal(request, there, notes), notes)
    body = load_json(dump_json(sent.body))
    return there.decode_request(WireRequest(body=body, path=sent.path, headers=sent.headers), Notes())


def _answer(reply: Reply, target: str, notes: Notes) -> Reply:
    there = find_dialect(target)
    wire = there.encode_reply(reply, notes)
    return there.decode_reply(WireReply(body=load_json(dump_json(wire.body))), Notes())


def _through(dialect: str, events: Iterable[Event], notes: Notes) -> list[Event]:
    """Events written in a dialect and read again."""
    there = find_dialect(dialect)
    encoder, decoder = there.stream_encoder(notes), there.stream_decoder(Notes())
    wire = encoder.feed(events) + encoder.close()
    return [*decoder.feed(wire), *decoder.close()]


def _at(value: Any, where: str) -> Any:
    for step in where.split("/")[1:]:
        if isinstance(value, list | tuple):
            value = value[int(step)] if int(step) < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


def _touches(note: Note, where: str) -> bool:
    """Whether a note is about a place, a parent of it, or a child of it."""
    place = note.canonical
    return where == place or where.startswith(place + "/") or place.startswith(where + "/")


def _same(meant: Any, found: Any) -> bool:
    """Equal apart from extras. JSON text is compared as JSON."""
    if isinstance(meant, dict) and isinstance(found, dict):
        return all(_same(meant[key], found.get(key)) for key in meant if key != "extras")
    if isinstance(meant, list | tuple) and isinstance(found, list | tuple):
        return len(meant) == len(found) and all(map(_same, meant, found))
    return bool(meant == found)


class FateRow(Struct, frozen=True):
    label: str
    what: Literal["request", "reply", "stream"]
    fates: dict[str, Fate]  # by target


def measure_fields(dialect: str, targets: tuple[str, ...]) -> list[FateRow]:
    """The canonical fields that a dialect has, and what becomes of each in the others. A stream has a row only where
    it differs from the whole answer."""
    rows = []
    for sample in samples(dialect):
        if fate(sample, dialect) != "carried":
            continue
        fates = {target: fate(sample, target) for target in targets}
        if isinstance(sample.value, Request):
            rows.append(FateRow(sample.label, "request", fates))
            continue
        rows.append(FateRow(sample.label, "reply", fates))
        streamed = {target: fate(sample, target, streamed_by=dialect) for target in targets}
        if streamed != fates:
            rows.append(FateRow(sample.label, "stream", streamed))
    return rows
