"""The demo model: a deterministic "model" that needs no server, no key and no network.

It exists so that a newcomer, and every test, sees the whole of dragoman work. It understands nothing; it follows rules
that a reader can foresee. *The asked text* is the last text of the last user turn, without `<tag>…</tag>` blocks that
clients put in. Then, the first rule that applies:

1. Tools. With `tool_choice` required it calls. Otherwise (auto) it calls when tools are offered, the last user turn
   holds no tool results, and the asked text is no greeting and does not begin with what rule 4 or 5 answers. It calls
   the tools whose names the asked text holds, in that order; else, asked to read a file, one that can read it
   (demo_files.py); else the one whose name and description share most words with it; else the first. "both" or
   "parallel" makes it several calls: of the first two tools, or of one tool once per value. Arguments fit the tool's
   JSON Schema.
   Values come from the asked text: first what stands in quotes or backticks, then paths and capitalised words, and
   numbers for numbers.
2. Structured output (`json_schema`, `json`, or a JSON Schema in words): a value for the schema.
3. Tool results in the last user turn: it quotes them, and says which have failed.
4. "say X", "reply with X", "repeat X": X. "count to N": the numbers.
5. "what is my X?": what an earlier turn said in "my X is …"; "remember X" comes back the same way.
6. Anything else: a friendly sentence with the asked text in it, in Korean if that is Korean, and what pictures and
   documents it was shown.

It thinks aloud when reasoning is asked for, counts words as tokens, stops at stop sequences and at the output limit
(calls are never cut), and gives as many choices as asked. Equal requests get equal replies, ids included.
"""

import hashlib
import re
from collections.abc import Iterator
from typing import assert_never

import msgspec
from msgspec import Struct

from dragoman.demo.files import PATCH, PATCH_BEGIN, patch_with, read_with, wants_file
from dragoman.demo.patterns import sample_pattern
from dragoman.demo.sampler import Hints, sample
from dragoman.demo.texts import find_schema, strip_tags
from dragoman.jsontypes import Json, dump_json, dump_text
from dragoman.model.events import Event, PartDelta, PartEnd, PartStart, ReplyEnd, ReplyStart
from dragoman.model.fold import fold
from dragoman.model.messages import (
    Audio,
    Document,
    Image,
    Message,
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
from dragoman.model.reply import Finish, Reply, Usage
from dragoman.model.request import CustomTool, Request, Tool

MODELS = ("demo",)
MEDIA_TOKENS = 85  # what a picture, a document or a sound counts as
_MOST_CALLS = 4
_MOST_CHOICES = 16
_MOST_READ = 2000  # characters of a text that are looked at
_MOST_STRIPPED = 60_000  # characters in which tags are looked for: some dialects make one text of many
_MOST_QUOTED = 400  # characters of a result or a question that an answer repeats

_GREETINGS = re.compile(
    r"\s*(hi|hello|hey|greetings|good (morning|evening|afternoon)|thanks|thank you|안녕|안녕하세요|고마워|こんにちは)"
    r"( there| everyone| dragoman| you)?[\s!.,?~]*",
    re.I,
)
_QUOTED = re.compile(r"`([^`\n]+)`|\"([^\"\n]+)\"|“([^”\n]+)”|(?<!\w)'([^'\n]+)'(?!\w)")
_PATH = re.compile(r"(?<![\w/.~-])(?:[~.]{0,2}/)?[\w.-]+(?:/[\w.-]+)+/?|(?<![\w/.~-])/[\w.-]+|\b[\w-]+\.[a-z]{1,5}\b")
_NAME = re.compile(r"(?<![.!?] )(?<!^)\b[A-Z][\w-]+(?: [A-Z][\w-]+)*")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w])")
_SEVERAL = re.compile(r"\b(both|parallel|at once|simultaneously|each of)\b|동시에|둘 다|각각", re.I)
_SAY = re.compile(
    r"\b(?:say|repeat|echo|(?:reply|respond|answer)(?: only| just| exactly)* with)\b"
    r"(?: (?:only|just|exactly|the words?|the single word|this|after me))*\s*:?\s*(?P<what>[^\n]+)",
    re.I,
)
_COUNT = re.compile(r"\bcount (?:from (?P<low>\d+) )?(?:up )?to (?P<high>\d+)", re.I)
_ASKED_FACT = re.compile(
    r"\bwhat(?:'s| is| was) my (?P<what>[\w' -]+?)\s*\?|\b(?:do you )?know my (?P<also>[\w -]+)", re.I
)
_FACT = re.compile(r"\bmy (?P<what>[\w' -]+?) (?:is|was) (?P<value>[^.,!?\n]+)", re.I)
_ASKED_FACT_KO = re.compile(r"내 (?P<what>\w+?)(?:이|가|은|는)? (?:뭐|무엇|뭔|기억)")
_FACT_KO = re.compile(
    r"내 (?P<what>\w+?)(?:은|는|이|가) (?P<value>[^\s.,!?]+?)(?:이야|야|입니다|이에요|예요|이다|다)?(?:[\s.,!?]|$)"
)
_ASKED_MEMORY = re.compile(r"\b(?:what|which|recall|do you)\b.*\bremember\b|\brecall\b", re.I)
_MEMORY = re.compile(r"\bremember(?: that| this|:)?\s*:?\s+(?P<value>[^.!?\n]+)", re.I)
_SYSTEM_WORD = re.compile(
    r"\b(?:always|must|begin|start|end|include|say|reply|answer|respond)\b[^.\n]*?[`\"“'](?P<word>[^`\"”'\n]+)", re.I
)
_HANGUL = re.compile(r"[가-힣]")
_NAME_KO = re.compile(r"[가-힣]+?(?=(?:의|은|는|이|가|을|를|에서|에)?(?:[^가-힣]|$))")
_WORD = re.compile(r"\s*\S+|\s+\Z")
_STOP_WORDS = frozenset(
    re.split(" ", "a an the of to in for and or is are my me you it this that with use please get what how do")
)

_THOUGHTS = (
    "I was asked: “{asked}”",
    "I am the demo model, so I look for the rule that applies.",
    "The rule gives me what to say, and I check it once more before I answer.",
)
_THOUGHTS_OF_EFFORT = {"minimal": 1, "low": 1, "medium": 2}


def demo_reply(request: Request) -> Reply:
    """The whole answer."""
    reply = fold(demo_events(request))
    if not isinstance(reply, Reply):  # the demo model never fails
        raise TypeError(reply.message)
    return reply


def demo_events(request: Request) -> Iterator[Event]:
    """The answer word by word."""
    answers = [_answer(request, choice) for choice in range(min(max(request.choices or 1, 1), _MOST_CHOICES))]
    asked = count_tokens(request)
    yield ReplyStart(id=f"demo-{_digest(request)}", model=request.model, usage=Usage(input=asked))
    index = 0
    for choice, answer in enumerate(answers):
        for part in answer.parts:
            yield from _stream(part, index, choice, request)
            index += 1
    yield ReplyEnd(
        finishes=tuple(answer.finish for answer in answers),
        usage=Usage(
            input=asked,
            output=sum(answer.output for answer in answers),
            reasoning=sum(answer.reasoning for answer in answers) if thinks(request) else None,
        ),
    )


def count_tokens(request: Request) -> int:
    """How many "tokens" a request has: its words, and a flat sum for each picture, document or sound."""
    said = sum(_size(part) for message in request.messages for part in message.parts)
    offered = sum(len(dump_text(msgspec.to_builtins(tool)).split()) + 1 for tool in request.tools or ())
    return max(1, said + offered)


def demo_embedding(text: str, size: int = 8) -> tuple[float, ...]:
    """A unit vector that is always the same for the same text, and says nothing about its meaning."""
    raw: list[float] = []
    block = 0
    while len(raw) < size:
        raw.extend(byte / 127.5 - 1 for byte in hashlib.sha256(f"{block}:{text}".encode()).digest())
        block += 1
    length = sum(x * x for x in raw[:size]) ** 0.5 or 1.0
    return tuple(x / length for x in raw[:size])


def thinks(request: Request) -> bool:
    """Whether reasoning is asked for: switched on, or given an effort or a budget."""
    wish = request.reasoning
    if wish is None or wish.mode == "off" or wish.effort == "none" or wish.budget == 0:
        return False
    return wish.mode is not None or wish.effort is not None or wish.budget is not None


class _Answer(Struct, frozen=True, kw_only=True):
    """One choice, cut to what was allowed, with its counts."""

    parts: tuple[Part, ...]
    finish: Finish
    output: int
    reasoning: int


def _answer(request: Request, choice: int) -> _Answer:
    room = request.max_output
    thought = _think(request)
    thought_size = len(thought.split())
    if room is not None and thought_size >= room:
        cut = "".join(_WORD.findall(thought)[:room])
        parts = (Reasoning(text=cut),) if _shows(request) else ()
        return _Answer(parts=parts, finish=Finish(reason="length"), output=0, reasoning=room)
    parts_before: tuple[Part, ...] = (Reasoning(text=thought),) if thought and _shows(request) else ()
    calls = _calls(request, choice)
    if calls:
        size = sum(_size(call) for call in calls)
        parts_all = (*parts_before, *calls)
        return _Answer(parts=parts_all, finish=Finish(reason="tool_call"), output=size, reasoning=thought_size)
    said = _talk(request)
    if choice and request.output is None:
        said = f"{said} (This is answer {choice + 1}.)"
    text, finish = _cut(said, request.stop or (), None if room is None else room - thought_size)
    spoken = (Text(text=text),) if text else ()
    return _Answer(parts=(*parts_before, *spoken), finish=finish, output=len(text.split()), reasoning=thought_size)


def _cut(text: str, stops: tuple[str, ...], room: int | None) -> tuple[str, Finish]:
    """The text up to the first stop sequence or the last word there is room for."""
    finish = Finish(reason="stop")
    found = [(text.index(stop), stop) for stop in stops if stop and stop in text]
    if found:
        place, stop = min(found)
        text, finish = text[:place], Finish(reason="sequence", sequence=stop)
    words = _WORD.findall(text)
    if room is not None and len(text.split()) > room:
        text, finish = "".join(words[: max(room, 0)]), Finish(reason="length")
    return text, finish


def _think(request: Request) -> str:
    if not thinks(request):
        return ""
    effort = request.reasoning.effort if request.reasoning is not None else None
    count = _THOUGHTS_OF_EFFORT.get(effort or "medium", len(_THOUGHTS))
    return " ".join(_THOUGHTS[:count]).format(asked=_short(_asked(request)) or "nothing")


def _shows(request: Request) -> bool:
    return request.reasoning is None or request.reasoning.show is not False


# -- what was asked


def _last_turn(request: Request) -> list[Part]:
    """The parts of the user's messages behind the last one of the assistant."""
    parts: list[Part] = []
    for message in reversed(request.messages):
        if message.role == "assistant":
            break
        if message.role == "user":
            parts[:0] = message.parts
    return parts


def _texts(messages: tuple[Message, ...], *roles: str) -> list[str]:
    return [p.text for m in messages if m.role in roles for p in m.parts if isinstance(p, Text)]


def _asked(request: Request) -> str:
    for text in reversed(_texts(request.messages, "user")):
        plain = strip_tags(text[-_MOST_STRIPPED:], _MOST_READ)
        if plain:
            return plain
    return ""


def _results(request: Request) -> list[ToolResult]:
    return [part for part in _last_turn(request) if isinstance(part, ToolResult)]


# -- calling


def _calls(request: Request, choice: int) -> list[ToolCall]:
    wish = request.tool_choice
    mode = wish.mode if wish is not None else "auto"
    offered = [tool for tool in request.tools or () if isinstance(tool, Tool | CustomTool)]
    if wish is not None and wish.names is not None:
        offered = [tool for tool in offered if tool.name in wish.names]
    if not offered or mode == "none":
        return []
    asked = _asked(request)
    if mode == "auto" and (_results(request) or not asked or _GREETINGS.fullmatch(asked)):
        return []
    named = _named(offered, asked)
    if mode == "auto" and not named and _needs_no_tool(asked):
        return []
    path = wants_file(asked, _values(asked, offered))
    reading = read_with(named or offered, path) if path is not None else None
    if reading is not None and len(named) < 2 and not _SEVERAL.search(asked):
        tool, arguments = reading
        return [_call(request, choice, 0, tool, arguments)]
    chosen = _choose(offered, named, asked)
    if request.parallel_calls is False:
        chosen = chosen[:1]
    hints = _hints(asked, offered)
    return [_call(request, choice, place, tool, _arguments(tool, hints)) for place, tool in enumerate(chosen)]


def _needs_no_tool(asked: str) -> bool:
    return any(rule.match(asked) for rule in (_SAY, _COUNT, _ASKED_FACT))


def _call(request: Request, choice: int, place: int, tool: Tool | CustomTool, arguments: str) -> ToolCall:
    name = f"call_{_digest(request, choice, place)}"
    return ToolCall(id=name, name=tool.name, arguments=arguments, freeform=isinstance(tool, CustomTool))


def _named(offered: list[Tool | CustomTool], asked: str) -> list[Tool | CustomTool]:
    """The tools the text names, in its order."""
    found = sorted((place, i) for i, tool in enumerate(offered) if (place := _place_of(tool.name, asked)) is not None)
    return [offered[i] for _, i in found][:_MOST_CALLS]


def _choose(offered: list[Tool | CustomTool], chosen: list[Tool | CustomTool], asked: str) -> list[Tool | CustomTool]:
    if len(chosen) > 1:
        return chosen
    words = _words(asked)
    best = chosen[0] if chosen else max(offered, key=lambda tool: _likeness(tool, words))  # the first of equals
    if not _SEVERAL.search(asked):
        return [best]
    values = _values(asked, offered)
    if len(values) > 1:
        return [best] * min(len(values), _MOST_CALLS)
    others = [tool for tool in offered if tool is not best]
    return [best, *(others or [best])[:1]]


def _place_of(name: str, asked: str) -> int | None:
    """Where the text names a tool, as it is written or in plain words: get_weather, "get weather"."""
    spaced = re.sub(r"[_\-.]+|(?<=[a-z])(?=[A-Z])", " ", name)
    for form in (name, spaced):
        found = re.search(rf"(?<!\w){re.escape(form)}(?!\w)", asked, re.I)
        if found:
            return found.start()
    return None


def _likeness(tool: Tool | CustomTool, words: set[str]) -> int:
    return 3 * len(_words(tool.name) & words) + len(_words(tool.description or "") & words)


def _words(text: str) -> set[str]:
    spaced = re.sub(r"[_\W]+|(?<=[a-z])(?=[A-Z])", " ", text)
    return {word.lower() for word in spaced.split()} - _STOP_WORDS


def _values(asked: str, offered: list[Tool | CustomTool]) -> list[str]:
    """What the text offers as string arguments: quotes, then paths, then names."""
    quoted = [next(word for word in found.groups() if word) for found in _QUOTED.finditer(asked)]
    rest = _QUOTED.sub(" ", asked)
    paths = _PATH.findall(rest)
    names = _NAME.findall(_PATH.sub(" ", rest))
    if not names:
        names = _NAME_KO.findall(rest)[:1]
    tools = {tool.name for tool in offered}
    return [value for value in [*quoted, *paths, *names] if value not in tools]


def _hints(asked: str, offered: list[Tool | CustomTool]) -> Hints:
    numbers = tuple(float(number) for number in _NUMBER.findall(asked))
    return Hints(tuple(_values(asked, offered)), numbers, asked)


def _arguments(tool: Tool | CustomTool, hints: Hints) -> str:
    if isinstance(tool, Tool) and (patch := patch_with(tool)) is not None:
        return patch
    if isinstance(tool, Tool):
        schema = tool.parameters or {}
        made = sample({**schema, "type": "object"} if "type" not in schema else schema, hints)
        return dump_text(made if type(made) is dict else {})
    if tool.syntax == "regex" and tool.grammar:
        return sample_pattern(tool.grammar)
    if PATCH_BEGIN in (tool.grammar or ""):
        return PATCH
    return hints.next_text() or "hello"


# -- talking


def _talk(request: Request) -> str:
    wish = request.output
    asked = _asked(request)
    if wish is not None and wish.type == "json_schema":
        return dump_text(sample(wish.schema or {"type": "object"}, _hints(asked, [])))
    told = find_schema(_texts(request.messages, "system", "developer", "user"))
    if told is not None:
        return dump_text(sample(told, _hints(asked, [])))
    if wish is not None and wish.type == "json":
        return dump_text({"answer": _say(request, asked)})
    said = _say(request, asked)
    for text in _texts(request.messages, "system", "developer"):
        found = _SYSTEM_WORD.search(text) if len(text) < _MOST_READ else None  # a long one is a manual, not a wish
        if found and found["word"] not in said:
            said = f"{found['word']} {said}"
    return said


def _say(request: Request, asked: str) -> str:
    results = _results(request)
    if results:
        return _tell(request, results)
    told = _SAY.search(asked)
    if told:
        return _told(told["what"])
    count = _COUNT.search(asked)
    if count:
        low = int(count["low"] or 1)
        return " ".join(str(n) for n in range(low, min(int(count["high"]), low + 999) + 1))
    return _recall(request, asked) or _chat(request, asked)


def _told(what: str) -> str:
    quoted = _QUOTED.search(what)
    if quoted:
        return next(word for word in quoted.groups() if word)
    return re.split(r"(?<=[\w)])[.!?](?:\s|$)", what.strip())[0]


def _tell(request: Request, results: list[ToolResult]) -> str:
    names = {p.id: p.name for m in request.messages for p in m.parts if isinstance(p, ToolCall)}
    told = []
    for result in results:
        name = result.name or names.get(result.call_id) or "tool"
        words = " ".join(p.text for p in result.parts if isinstance(p, Text)).strip()
        seen = _seen(result.parts)
        said = " ".join(piece for piece in (_short(words), seen) if piece) or "nothing"
        told.append(f"The {name} tool {'failed' if result.failed else 'answered'}: {said}")
    return "\n".join(told)


def _recall(request: Request, asked: str) -> str | None:
    """A fact an earlier turn gave, if one is asked for."""
    earlier = [text[:_MOST_READ] for text in _texts(request.messages, "user", "system") if text.strip() != asked]
    for question, fact in ((_ASKED_FACT, _FACT), (_ASKED_FACT_KO, _FACT_KO)):
        found = question.search(asked)
        if found:
            what = next(word for word in found.groups() if word).strip().lower()
            for text in reversed(earlier):
                for known in fact.finditer(text):
                    if known["what"].strip().lower() == what:
                        value = known["value"].strip()
                        return f"내 기억으로는 {value}입니다." if fact is _FACT_KO else f"Your {what} is {value}."
    if _ASKED_MEMORY.search(asked):
        for text in reversed(earlier):
            known_to = _MEMORY.search(text)
            if known_to:
                return f"You asked me to remember {known_to['value'].strip()}."
    return None


def _chat(request: Request, asked: str) -> str:
    seen = _seen(tuple(_last_turn(request)))
    korean = bool(_HANGUL.search(asked))
    if _GREETINGS.fullmatch(asked) and not seen:
        if korean:
            return "안녕하세요! 저는 dragoman의 데모 모델입니다. 무엇을 도와드릴까요?"
        return "Hello! I am the demo model of dragoman. How can I help you?"
    if korean:
        tail = f" 보여 주신 것: {seen}" if seen else ""
        return f"“{_short(asked)}”라고 물으셨군요. 저는 dragoman의 데모 모델이라 항상 같은 대답을 드립니다.{tail}"
    if not asked:
        return seen or "You said nothing, so there is nothing to answer yet."
    answer = f"You asked: “{_short(asked)}” I am the demo model of dragoman, so I only repeat what I read."
    return f"{seen} {answer}" if seen else answer


def _seen(parts: tuple[Part, ...]) -> str:
    """What there was beside text."""
    kinds: dict[str, list[str]] = {}
    for part in parts:
        match part:
            case Image() | Document() | Audio() | Video():
                kinds.setdefault(type(part).__name__.lower(), []).append(part.media_type or "unknown type")
            case _:
                pass
    said = [
        f"{len(types)} {kind}{'s' if len(types) > 1 else ''} ({', '.join(dict.fromkeys(types))})"
        for kind, types in kinds.items()
    ]
    return f"I see {' and '.join(said)}." if said else ""


def _short(text: str) -> str:
    return text if len(text) <= _MOST_QUOTED else f"{text[:_MOST_QUOTED]}…"


# -- streaming and counting


def _stream(part: Part, index: int, choice: int, request: Request) -> Iterator[Event]:
    match part:
        case Text(text=text):
            yield PartStart(index=index, choice=choice, part=Text(text=""))
            for word in _WORD.findall(text):
                logprobs = (_logprob(word, request.top_logprobs or 0),) if request.logprobs else None
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


def _logprob(word: str, top: int) -> TokenLogprob:
    plain = TokenLogprob(token=word, logprob=-0.1, bytes=tuple(word.encode()), top=())
    return msgspec.structs.replace(plain, top=(msgspec.structs.replace(plain, top=None),)) if top else plain


def _size(part: Part) -> int:
    match part:
        case Text() | Refusal() | Reasoning():
            return len(part.text.split())
        case ToolCall():
            return 1 + len(part.arguments.split())
        case ToolResult():
            return sum(_size(inner) for inner in part.parts)
        case Document(text=str() as text):
            return len(text.split())
        case Image() | Document() | Audio() | Video():
            return MEDIA_TOKENS
        case Opaque():
            return 1
        case _:
            assert_never(part)


def _digest(request: Request, *more: Json) -> str:
    """The same for the same question, streamed or not."""
    told = [request.model, request.messages, request.tools, more]
    return hashlib.sha256(dump_json(msgspec.to_builtins(told))).hexdigest()[:20]
