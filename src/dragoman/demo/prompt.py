"""What a request asks of the demo model: the question of its last user turn, and the values in that question."""

import hashlib
import re
from collections.abc import Iterable, Sequence

import msgspec

from dragoman.answers.json_answers import JsonText
from dragoman.demo.sampler import Hints
from dragoman.errors import DecodeError
from dragoman.jsontypes import Json, JsonObject, dump_json, load_object
from dragoman.model.messages import Message, Part, Text, ToolCall, ToolResult
from dragoman.model.request import CustomTool, Request, Tool

MAX_READ_CHARS = 2000  # of one text
_MAX_TAGGED_CHARS = 60_000  # searched for tags: some dialects join many texts into one

_GREETING = re.compile(
    r"\s*(hi|hello|hey|greetings|good (morning|evening|afternoon)|thanks|thank you|안녕|안녕하세요|고마워|こんにちは)"
    r"( there| everyone| dragoman| you)?[\s!.,?~]*",
    re.I,
)
SAY = re.compile(
    r"\b(?:say|repeat|echo|(?:reply|respond|answer)(?: only| just| exactly)* with)\b"
    r"(?: (?:only|just|exactly|the words?|the single word|this|after me))*\s*:?\s*(?P<what>[^\n]+)",
    re.I,
)
COUNT = re.compile(r"\bcount (?:from (?P<low>\d+) )?(?:up )?to (?P<high>\d+)(?P<lines>.* line)?", re.I)
ASK_FACT = re.compile(
    r"\bwhat(?:'s| is| was) my (?P<what>[\w' -]+?)\s*\?|\b(?:do you )?know my (?P<also>[\w -]+)", re.I
)
QUOTED = re.compile(r"`([^`\n]+)`|\"([^\"\n]+)\"|“([^”\n]+)”|(?<!\w)'([^'\n]+)'(?!\w)")
_PATH = re.compile(r"(?<![\w/.~-])(?:[~.]{0,2}/)?[\w.-]+(?:/[\w.-]+)+/?|(?<![\w/.~-])/[\w.-]+|\b[\w-]+\.[a-z]{1,5}\b")
_NAME = re.compile(r"(?<![.!?] )(?<!^)\b[A-Z][\w-]+(?: [A-Z][\w-]+)*")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w])")
_KOREAN_NAME = re.compile(r"[가-힣]+?(?=(?:의|은|는|이|가|을|를|에서|에)?(?:[^가-힣]|$))")
_TAG = re.compile(r"<(/?)([\w-]+)[^<>]*>")
_LEFT_OVER = re.compile(r"\A[^<]*</[\w-]+>")  # the end of a block whose start was cut off
_ALL_QUOTED = re.compile(r"\"([^\"]*[^\"\s][^\"]* [^\"]*)\"")  # of more than one word
_SCHEMA = re.compile(r"It must match this JSON Schema:\s*")


def find_question(request: Request) -> str:
    """The last text of the user, without `<tag>…</tag>` blocks that client programs add."""
    for text in reversed(find_texts(request.messages, "user")):
        plain = strip_tags(text[-_MAX_TAGGED_CHARS:], MAX_READ_CHARS)
        if plain:
            return plain
    return ""


def find_last_parts(request: Request) -> list[Part]:
    """The parts of the user's messages after the last message of the assistant. What is only shown, without a word,
    goes with the results before it: some servers want a word of the assistant between them."""
    parts: list[Part] = []
    for message in reversed(request.messages):
        if message.role == "assistant":
            only_shown = bool(parts) and not any(isinstance(part, Text | ToolResult) for part in parts)
            if only_shown and not any(isinstance(part, ToolCall) for part in message.parts):
                continue
            break
        if message.role == "user":
            parts[:0] = message.parts
    return parts


def find_texts(messages: tuple[Message, ...], *roles: str) -> list[str]:
    return [p.text for m in messages if m.role in roles for p in m.parts if isinstance(p, Text)]


def find_results(request: Request) -> list[ToolResult]:
    return [part for part in find_last_parts(request) if isinstance(part, ToolResult)]


def is_greeting(question: str) -> bool:
    return _GREETING.fullmatch(question) is not None


def needs_no_tool(question: str) -> bool:
    """Whether the question starts with something that the model answers from its own rules."""
    return any(rule.match(question) for rule in (SAY, COUNT, ASK_FACT))


def strip_tags(text: str, max_chars: int) -> str:
    """The text without `<tag>…</tag>` blocks; of a long text only its end. Looks at each tag once."""
    tags = list(_TAG.finditer(text))
    ends = {tag[2]: tag.start() for tag in tags if tag[1]}  # where the last end tag of each name starts
    kept: list[str] = []
    copied_to, block_start, block_name = 0, 0, ""
    for tag in tags:
        if not block_name and not tag[1] and ends.get(tag[2], 0) > tag.start():
            block_start, block_name = tag.start(), tag[2]
        elif tag[1] and tag[2] == block_name:
            kept.append(text[copied_to:block_start])
            copied_to, block_name = tag.end(), ""
    kept.append(text[copied_to:])
    plain = _LEFT_OVER.sub("", "".join(kept)[-max_chars:]).strip()
    quoted = _ALL_QUOTED.fullmatch(plain)  # opencode puts the whole question in quotes
    return quoted[1] if quoted else plain


def find_schema(texts: Iterable[str]) -> JsonObject | None:
    """The JSON Schema that the answer must match, if it is asked for in the words of passes/emulate.py."""
    for text in texts:
        match = _SCHEMA.search(text)
        if match is not None:
            try:
                return load_object(JsonText().feed(text[match.end() :]))
            except DecodeError:
                continue
    return None


def find_values(question: str, tools: Sequence[Tool | CustomTool]) -> list[str]:
    """Values for string arguments: quoted texts, then paths, then capitalised names."""
    quoted = [next(word for word in found.groups() if word) for found in QUOTED.finditer(question)]
    unquoted = QUOTED.sub(" ", question)
    paths = _PATH.findall(unquoted)
    names = _NAME.findall(_PATH.sub(" ", unquoted))
    if not names:
        names = _KOREAN_NAME.findall(unquoted)[:1]
    tool_names = {tool.name for tool in tools}
    return [value for value in [*quoted, *paths, *names] if value not in tool_names]


def find_hints(question: str, tools: Sequence[Tool | CustomTool]) -> Hints:
    numbers = tuple(float(number) for number in _NUMBER.findall(question))
    return Hints(tuple(find_values(question, tools)), numbers, question)


def digest_request(request: Request, *more: Json) -> str:
    """A hash that is the same for the same question, streamed or not."""
    identity = [request.model, request.messages, request.tools, more]
    return hashlib.sha256(dump_json(msgspec.to_builtins(identity))).hexdigest()[:20]
