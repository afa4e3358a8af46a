"""The demo model: a deterministic "model" that needs no server, no key and no network.

With it, newcomers and tests can use all of dragoman without a provider. It understands nothing: it follows rules, so
that its answers can be predicted. *The question* is the last text of the last user turn, without the `<tag>…</tag>`
blocks that client programs add. The first rule that applies gives the answer:

1. Tools. If `tool_choice` is "required", it calls a tool. If it is "auto", it calls a tool unless one of these holds:
   there are no tools; the last user turn contains tool results; the question is a greeting; the question starts with
   something that rule 4 or 5 answers.
   It calls the tools that the question names, in that order. Otherwise, if it is asked to read a file, it calls a tool
   that can read one. Otherwise it calls the tool whose name and description share most words with the question.
   "both" or "parallel" in the question means several calls: one per value, or one of each of two tools.
   Arguments fit the tool's JSON Schema. Texts come from the question: first quoted ones, then paths, then capitalised
   words. Numbers come from the question too.
2. Structured output (`json_schema`, `json`, or a JSON Schema in the prompt): a value for the schema.
3. Tool results in the last user turn: it quotes them and says which ones failed.
4. "say X", "reply with X", "repeat X": X. "count to N": the numbers (with "line" after that, a line each).
5. "what is my X?": the value from an earlier "my X is …". "remember X" works the same way.
6. Anything else: a friendly sentence that repeats the question, in Korean if the question is Korean. It also counts the
   pictures and documents in the last user turn.

It writes reasoning if the request wants it, counts words as tokens, stops at stop sequences and at the output limit
(calls are never cut), and gives the wanted number of choices. Equal requests get equal replies, including the ids.
"""

import hashlib
import math
import re
from array import array
from collections.abc import Iterator
from sys import byteorder
from typing import assert_never

import msgspec
from msgspec import Struct

from dragoman.demo.prompt import (
    ASK_FACT,
    COUNT,
    MAX_READ_CHARS,
    QUOTED,
    SAY,
    digest_request,
    find_hints,
    find_last_parts,
    find_question,
    find_results,
    find_schema,
    find_texts,
    is_greeting,
)
from dragoman.demo.sampler import sample
from dragoman.demo.tool_calls import make_calls
from dragoman.jsontypes import dump_text
from dragoman.model.events import Event, PartDelta, PartEnd, PartStart, ReplyEnd, ReplyStart
from dragoman.model.messages import (
    Audio,
    Document,
    Image,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Text,
    TokenLogprob,
    ToolCall,
    ToolResult,
    Video,
)
from dragoman.model.reply import Finish, Usage
from dragoman.model.request import Request

MEDIA_TOKENS = 85  # for each picture, document or sound
_MAX_CHOICES = 16
_MAX_QUOTED_CHARS = 400  # of a result or a question that an answer repeats

_FACT = re.compile(r"\bmy (?P<what>[\w' -]+?) (?:is|was) (?P<value>[^.,!?\n]+)", re.I)
_ASK_FACT_KOREAN = re.compile(r"내 (?P<what>\w+?)(?:이|가|은|는)? (?:뭐|무엇|뭔|기억)")
_FACT_KOREAN = re.compile(
    r"내 (?P<what>\w+?)(?:은|는|이|가) (?P<value>[^\s.,!?]+?)(?:이야|야|입니다|이에요|예요|이다|다)?(?:[\s.,!?]|$)"
)
_ASK_MEMORY = re.compile(r"\b(?:what|which|recall|do you)\b.*\bremember\b|\brecall\b", re.I)
_MEMORY = re.compile(r"\bremember(?: that| this|:)?\s*:?\s+(?P<value>[^.!?\n]+)", re.I)
_DEMANDED_WORD = re.compile(
    r"\b(?:always|must|begin|start|end|include|say|reply|answer|respond)\b[^.\n]*?[`\"“'](?P<word>[^`\"”'\n]+)", re.I
)
_HANGUL = re.compile(r"[가-힣]")
_WORD = re.compile(r"\s*\S+|\s+\Z")

_THOUGHTS = (
    "I was asked: “{question}”",
    "I am the demo model, so I look for the rule that applies.",
    "The rule gives me what to say, and I check it once more before I answer.",
)
_THOUGHT_COUNTS = {"minimal": 1, "low": 1, "medium": 2}
_TONE_S = 0.14
_PAUSE_S = 0.04
_MAX_SPOKEN_WORDS = 400  # about a minute and a quarter
_AMPLITUDE = 9000
_LOWEST_HZ = 220.0
_SEMITONES = (0, 2, 4, 7, 9, 12, 14, 16)  # of a pentatonic scale, so that any order of words sounds pleasant


def demo_events(request: Request) -> Iterator[Event]:
    """The answer word by word."""
    answers = [_make_answer(request, choice) for choice in range(min(max(request.choices or 1, 1), _MAX_CHOICES))]
    input_tokens = count_tokens(request)
    yield ReplyStart(id=f"demo-{digest_request(request)}", model=request.model, usage=Usage(input=input_tokens))
    index = 0
    for choice, answer in enumerate(answers):
        for part in answer.parts:
            yield from _stream_part(part, index, choice, request)
            index += 1
    yield ReplyEnd(
        finishes=tuple(answer.finish for answer in answers),
        usage=Usage(
            input=input_tokens,
            output=sum(answer.output for answer in answers),
            reasoning=sum(answer.reasoning for answer in answers) if wants_reasoning(request) else None,
        ),
    )


def count_tokens(request: Request) -> int:
    """The number of "tokens" in a request: its words, and a fixed number for each picture, document or sound."""
    message_tokens = sum(_count_part_tokens(part) for message in request.messages for part in message.parts)
    tool_tokens = sum(len(dump_text(msgspec.to_builtins(tool)).split()) + 1 for tool in request.tools or ())
    return max(1, message_tokens + tool_tokens)


def demo_embedding(text: str, size: int = 8) -> tuple[float, ...]:
    """A unit vector. It is always the same for the same text and tells nothing about the meaning."""
    raw: list[float] = []
    block = 0
    while len(raw) < size:
        raw.extend(byte / 127.5 - 1 for byte in hashlib.sha256(f"{block}:{text}".encode()).digest())
        block += 1
    norm = sum(x * x for x in raw[:size]) ** 0.5 or 1.0
    return tuple(x / norm for x in raw[:size])


def demo_speech(text: str, rate_hz: int, voice: str | None = None) -> bytes:
    """Hums a tone for each word: samples of 16 bit, one channel. The letters give the pitch, and so does the voice.
    Equal texts sound equal."""
    samples = array("h")
    pause = array("h", bytes(2 * int(rate_hz * _PAUSE_S)))
    shift = sum((voice or "").lower().encode()) % 12
    for word in text.split(None, _MAX_SPOKEN_WORDS)[:_MAX_SPOKEN_WORDS]:
        semitone = _SEMITONES[sum(word.lower().encode()) % len(_SEMITONES)] + shift
        samples.extend(_make_tone(_LOWEST_HZ * 2 ** (semitone / 12), rate_hz))
        samples.extend(pause)
    if byteorder == "big":
        samples.byteswap()
    return samples.tobytes()


def _make_tone(pitch_hz: float, rate_hz: int) -> "array[int]":
    """Whole waves only, so that the tone starts and ends at zero and does not click."""
    period = round(rate_hz / pitch_hz)
    wave = [round(_AMPLITUDE * math.sin(2 * math.pi * position / period)) for position in range(period)]
    return array("h", wave) * round(rate_hz * _TONE_S / period)


class _Answer(Struct, frozen=True, kw_only=True):
    """One choice, cut to the output limit, with its token counts."""

    parts: tuple[Part, ...]
    finish: Finish
    output: int
    reasoning: int


def _make_answer(request: Request, choice: int) -> _Answer:
    limit = request.max_output
    reasoning = _write_reasoning(request)
    reasoning_tokens = len(reasoning.split())
    if limit is not None and reasoning_tokens >= limit:
        cut_reasoning = "".join(_WORD.findall(reasoning)[:limit])
        parts = (Reasoning(text=cut_reasoning),) if _shows_reasoning(request) else ()
        return _Answer(parts=parts, finish=Finish(reason="length"), output=0, reasoning=limit)
    shown: tuple[Part, ...] = (Reasoning(text=reasoning),) if reasoning and _shows_reasoning(request) else ()
    calls = make_calls(request, choice)
    if calls:
        size = sum(_count_part_tokens(call) for call in calls)
        finish = Finish(reason="tool_call")
        return _Answer(parts=(*shown, *calls), finish=finish, output=size, reasoning=reasoning_tokens)
    text = _write_text(request)
    if choice and request.output is None:
        text = f"{text} (This is answer {choice + 1}.)"
    text, finish = _cut_text(text, request.stop or (), None if limit is None else limit - reasoning_tokens)
    text_parts = (Text(text=text),) if text else ()
    return _Answer(parts=(*shown, *text_parts), finish=finish, output=len(text.split()), reasoning=reasoning_tokens)


def _cut_text(text: str, stops: tuple[str, ...], max_words: int | None) -> tuple[str, Finish]:
    """The text up to the first stop sequence or the last allowed word."""
    finish = Finish(reason="stop")
    found = [(text.index(stop), stop) for stop in stops if stop and stop in text]
    if found:
        position, stop = min(found)
        text, finish = text[:position], Finish(reason="sequence", sequence=stop)
    words = _WORD.findall(text)
    if max_words is not None and len(text.split()) > max_words:
        text, finish = "".join(words[: max(max_words, 0)]), Finish(reason="length")
    return text, finish


def wants_reasoning(request: Request) -> bool:
    """Whether the request switches reasoning on, or gives an effort or a budget for it."""
    setting = request.reasoning
    if setting is None or setting.mode == "off" or setting.effort == "none" or setting.budget == 0:
        return False
    return setting.mode is not None or setting.effort is not None or setting.budget is not None


def _write_reasoning(request: Request) -> str:
    if not wants_reasoning(request):
        return ""
    effort = request.reasoning.effort if request.reasoning is not None else None
    count = _THOUGHT_COUNTS.get(effort or "medium", len(_THOUGHTS))
    return " ".join(_THOUGHTS[:count]).format(question=_shorten(find_question(request)) or "nothing")


def _shows_reasoning(request: Request) -> bool:
    return request.reasoning is None or request.reasoning.show is not False


# -- answers in words


def _write_text(request: Request) -> str:
    output = request.output
    question = find_question(request)
    if output is not None and output.type == "json_schema":
        return dump_text(sample(output.schema or {"type": "object"}, find_hints(question, [])))
    schema = find_schema(find_texts(request.messages, "system", "developer", "user"))
    if schema is not None:
        return dump_text(sample(schema, find_hints(question, [])))
    if output is not None and output.type == "json":
        return dump_text({"answer": _answer_question(request, question)})
    answer = _answer_question(request, question)
    for text in find_texts(request.messages, "system", "developer"):
        found = _DEMANDED_WORD.search(text) if len(text) < MAX_READ_CHARS else None  # a long text is a manual
        if found and found["word"] not in answer:
            answer = f"{found['word']} {answer}"
    return answer


def _answer_question(request: Request, question: str) -> str:
    results = find_results(request)
    if results:
        return _report_results(request, results)
    command = SAY.search(question)
    if command:
        return _find_text_to_say(command["what"])
    count = COUNT.search(question)
    if count:
        low = int(count["low"] or 1)
        between = "\n" if count["lines"] else " "
        return between.join(str(n) for n in range(low, min(int(count["high"]), low + 999) + 1))
    return _recall_fact(request, question) or _repeat_question(request, question)


def _find_text_to_say(what: str) -> str:
    quoted = QUOTED.search(what)
    if quoted:
        return next(word for word in quoted.groups() if word)
    return re.split(r"(?<=[\w)])[.!?](?:\s|$)", what.strip())[0]


def _report_results(request: Request, results: list[ToolResult]) -> str:
    names = {p.id: p.name for m in request.messages for p in m.parts if isinstance(p, ToolCall)}
    lines = []
    for result in results:
        name = result.name or names.get(result.call_id) or "tool"
        text = " ".join(p.text for p in result.parts if isinstance(p, Text)).strip()
        media = _describe_media(result.parts)
        answer = " ".join(piece for piece in (_shorten(text), media) if piece) or "nothing"
        lines.append(f"The {name} tool {'failed' if result.failed else 'answered'}: {answer}")
    beside = _describe_media(tuple(find_last_parts(request)))  # some servers take pictures only behind results
    if beside:
        lines.append(beside)
    return "\n".join(lines)


def _recall_fact(request: Request, question: str) -> str | None:
    """A fact from an earlier turn, if the question asks for one."""
    texts = find_texts(request.messages, "user", "system")
    earlier = [text[:MAX_READ_CHARS] for text in texts if text.strip() != question]
    for ask_pattern, fact_pattern in ((ASK_FACT, _FACT), (_ASK_FACT_KOREAN, _FACT_KOREAN)):
        match = ask_pattern.search(question)
        if match:
            what = next(word for word in match.groups() if word).strip().lower()
            for text in reversed(earlier):
                for known in fact_pattern.finditer(text):
                    if known["what"].strip().lower() == what:
                        value = known["value"].strip()
                        korean = fact_pattern is _FACT_KOREAN
                        return f"내 기억으로는 {value}입니다." if korean else f"Your {what} is {value}."
    if _ASK_MEMORY.search(question):
        for text in reversed(earlier):
            remembered = _MEMORY.search(text)
            if remembered:
                return f"You asked me to remember {remembered['value'].strip()}."
    return None


def _repeat_question(request: Request, question: str) -> str:
    media = _describe_media(tuple(find_last_parts(request)))
    korean = bool(_HANGUL.search(question))
    if is_greeting(question) and not media:
        if korean:
            return "안녕하세요! 저는 dragoman의 데모 모델입니다. 무엇을 도와드릴까요?"
        return "Hello! I am the demo model of dragoman. How can I help you?"
    if korean:
        tail = f" 보여 주신 것: {media}" if media else ""
        return f"“{_shorten(question)}”라고 물으셨군요. 저는 dragoman의 데모 모델이라 항상 같은 대답을 드립니다.{tail}"
    if not question:
        return media or "You said nothing, so there is nothing to answer yet."
    answer = f"You asked: “{_shorten(question)}” I am the demo model of dragoman, so I only repeat what I read."
    return f"{media} {answer}" if media else answer


def _describe_media(parts: tuple[Part, ...]) -> str:
    """Counts the parts that are not text, in words."""
    kinds: dict[str, list[str]] = {}
    for part in parts:
        match part:
            case Image() | Document() | Audio() | Video():
                kinds.setdefault(type(part).__name__.lower(), []).append(part.media_type or "unknown type")
            case _:
                pass
    counted = [
        f"{len(types)} {kind}{'s' if len(types) > 1 else ''} ({', '.join(dict.fromkeys(types))})"
        for kind, types in kinds.items()
    ]
    return f"I see {' and '.join(counted)}." if counted else ""


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_QUOTED_CHARS else f"{text[:_MAX_QUOTED_CHARS]}…"


# -- streaming and counting


def _stream_part(part: Part, index: int, choice: int, request: Request) -> Iterator[Event]:
    match part:
        case Text(text=text):
            yield PartStart(index=index, choice=choice, part=Text(text=""))
            for word in _WORD.findall(text):
                logprobs = (_make_logprob(word, request.top_logprobs or 0),) if request.logprobs else None
                yield PartDelta(index=index, text=word, logprobs=logprobs)
        case Reasoning(text=text):
            yield PartStart(index=index, choice=choice, part=Reasoning(text=""))
            for word in _WORD.findall(text):
                yield PartDelta(index=index, text=word)
        case ToolCall(arguments=text):
            yield PartStart(index=index, choice=choice, part=msgspec.structs.replace(part, arguments=""))
            for start in range(0, len(text), 12):
                yield PartDelta(index=index, text=text[start : start + 12])
        case _:
            yield PartStart(index=index, choice=choice, part=part)
    yield PartEnd(index=index)


def _make_logprob(word: str, top_count: int) -> TokenLogprob:
    plain = TokenLogprob(token=word, logprob=-0.1, bytes=tuple(word.encode()), top=())
    return msgspec.structs.replace(plain, top=(msgspec.structs.replace(plain, top=None),)) if top_count else plain


def _count_part_tokens(part: Part) -> int:
    match part:
        case Text() | Refusal() | Reasoning():
            return len(part.text.split())
        case ToolCall():
            return 1 + len(part.arguments.split())
        case ToolResult():
            return sum(_count_part_tokens(inner) for inner in part.parts)
        case Document(text=str() as text):
            return len(text.split())
        case Image() | Document() | Audio() | Video():
            return MEDIA_TOKENS
        case Opaque():
            return 1
        case _:
            assert_never(part)
