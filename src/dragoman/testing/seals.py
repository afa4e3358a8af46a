"""Signatures that a scripted provider gives out and wants back unchanged, like the real ones.

A signature is a hash of its text. One from another provider, an invented one, or one on a changed text is refused.
"""

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dragoman.model.events import Event, PartDelta, PartEnd, PartStart
from dragoman.model.messages import Reasoning, Seal, ToolCall
from dragoman.testing.checkers.shared import blocks, objects

SENTINEL = "skip_thought_signature_validator"  # Google documents this value for calls whose signature is lost
# The same value in base64, as Google's clients send it, and an older value that pydantic-ai sends.
SENTINELS = (SENTINEL, "context_engineering_is_the_way_to_go")


def sign(dialect: str, text: str) -> str:
    """Base64, because Google's clients decode it."""
    return base64.b64encode(f"{dialect} {hashlib.sha256(text.encode()).hexdigest()}".encode()).decode()


def _standard(value: object) -> str:
    """Google's clients write base64 in the alphabet for URLs."""
    return str(value).translate(str.maketrans("-_", "+/"))


def is_ours(value: object, dialect: str) -> bool:
    try:
        plain = base64.b64decode(_standard(value))
    except ValueError:
        return False
    return plain.startswith(f"{dialect} ".encode())


def _complain_anthropic(body: dict[str, Any], dialect: str) -> list[str]:
    found = []
    for i, message in enumerate(objects(body.get("messages"))):
        for j, block in enumerate(blocks(message.get("content"))):
            at, kind = f"messages.{i}.content.{j}", block.get("type")
            if kind == "thinking" and block.get("signature") != sign(dialect, str(block.get("thinking", ""))):
                found.append(f"{at}: Invalid `signature` in `thinking` block")
            elif kind == "redacted_thinking" and not is_ours(block.get("data"), dialect):
                found.append(f"{at}: Invalid `data` in `redacted_thinking` block")
    return found


def _complain_responses(body: dict[str, Any], dialect: str) -> list[str]:
    found = []
    for item in objects(body.get("input")):
        name, sealed = item.get("id", ""), item.get("encrypted_content")
        if item.get("type") != "reasoning":
            continue
        if sealed is not None and not is_ours(sealed, dialect):
            found.append(f"The encrypted content for item {name} could not be verified.")
        elif sealed is None and body.get("store") is False:
            found.append(
                f"Item with id '{name}' not found. Items are not persisted when `store` is set to false. "
                "Try again with `store` set to true, or remove this item from your input."
            )
    return found


def _complain_gemini(body: dict[str, Any], dialect: str) -> list[str]:
    parts = [part for turn in objects(body.get("contents")) for part in objects(turn.get("parts"))]
    return ["Corrupted thought signature." for part in parts if _is_corrupted(part, dialect)]


def _is_corrupted(part: dict[str, Any], dialect: str) -> bool:
    value, call = part.get("thoughtSignature"), part.get("functionCall")
    if value is None or _is_sentinel(value):
        return False
    if isinstance(call, dict):
        return _standard(value) != sign(dialect, str(call.get("name")))
    return not is_ours(value, dialect)


def _is_sentinel(value: object) -> bool:
    return value in SENTINELS or any(_standard(value) == base64.b64encode(w.encode()).decode() for w in SENTINELS)


def _complain_openrouter(body: dict[str, Any], dialect: str) -> list[str]:
    """OpenRouter passes signed details on to the vendor behind it. Google wants them back with every call."""
    found = []
    demanded = str(body.get("model")).startswith(("google/gemini-3", "google/gemini-4"))
    for message in objects(body.get("messages")):
        details = objects(message.get("reasoning_details"))
        if demanded and message.get("role") == "assistant" and message.get("tool_calls") and not details:
            name = message["tool_calls"][0]["function"]["name"]
            found.append(
                f"Provider returned error: Function call is missing a thought_signature in functionCall parts. `{name}`"
            )
        if any(not _is_own_detail(detail, dialect) for detail in details):
            found.append("Provider returned error: Invalid `signature` in `thinking` block")
    return found


def _is_own_detail(detail: dict[str, Any], dialect: str) -> bool:
    if detail.get("type") == "reasoning.encrypted":
        return _is_sentinel(detail.get("data")) or is_ours(detail.get("data"), dialect)
    return bool(detail.get("signature") == sign(dialect, str(detail.get("text", ""))))


class Sealing(Struct, frozen=True):
    """What a vendor signs, in which form, and its error for a foreign signature."""

    what: type[Reasoning] | type[ToolCall]  # every thought, or the first call of a turn
    form: str
    complain: Callable[[dict[str, Any], str], list[str]]


SEALINGS = {  # by kind of server; a kind that is not listed uses the row of its dialect
    "anthropic": Sealing(Reasoning, "signature", _complain_anthropic),
    "openai_responses": Sealing(Reasoning, "encrypted", _complain_responses),
    "gemini": Sealing(ToolCall, "signature", _complain_gemini),
    "openrouter": Sealing(Reasoning, "signature", _complain_openrouter),
}
INCLUDE = "reasoning.encrypted_content"


def _find_sealing(kind: str, dialect: str) -> Sealing | None:
    return SEALINGS.get(kind if dialect == "openai_chat" else dialect)


def hide_thoughts(events: Iterable[Event], body: dict[str, Any], kind: str, dialect: str) -> Iterator[Event]:
    """Removes thoughts that the request did not ask to see. OpenAI sends an empty item, Google sends none."""
    if dialect == "openai_responses" and kind in ("openai", "azure"):
        shown = bool((body.get("reasoning") or {}).get("summary"))
    elif dialect == "gemini":
        config = (body.get("generationConfig") or {}).get("thinkingConfig") or {}
        shown = config.get("includeThoughts", config.get("include_thoughts")) is True
    else:
        shown = True
    return iter(events) if shown else _hide(events, whole=dialect == "gemini")


def _hide(events: Iterable[Event], *, whole: bool) -> Iterator[Event]:
    hidden: set[int] = set()
    for event in events:
        if isinstance(event, PartStart) and isinstance(event.part, Reasoning):
            hidden.add(event.index)
            if not whole:
                yield replace(event, part=replace(event.part, text=""))
        elif isinstance(event, PartDelta) and event.index in hidden:
            continue
        elif not (whole and isinstance(event, PartEnd) and event.index in hidden):
            yield event


def seal_events(events: Iterable[Event], kind: str, dialect: str, body: dict[str, Any]) -> Iterator[Event]:
    sealing = _find_sealing(kind, dialect)
    if sealing is None or (dialect == "openai_responses" and INCLUDE not in (body.get("include") or ())):
        return iter(events)  # OpenAI keeps its own state, unless a client asks for it
    return _seal(events, dialect, sealing)


def _seal(events: Iterable[Event], dialect: str, sealing: Sealing) -> Iterator[Event]:
    texts: dict[int, list[str]] = {}  # the texts of the parts that get a signature
    sealed_call = False
    for event in events:
        if isinstance(event, PartStart) and isinstance(event.part, sealing.what) and not sealed_call:
            part = event.part
            sealed_call = isinstance(part, ToolCall)
            texts[event.index] = [part.name if isinstance(part, ToolCall) else part.text]
            if dialect == "openai_chat":
                detail = {dialect: {"~detail": "reasoning.text", "~index": 0, "format": "anthropic-claude-v1"}}
                event = replace(event, part=replace(part, extras=detail))
        elif isinstance(event, PartDelta) and event.index in texts and not sealed_call:
            texts[event.index].append(event.text)
        elif isinstance(event, PartEnd) and event.index in texts and event.seal is None:
            value = sign(dialect, "".join(texts[event.index]))
            event = replace(event, seal=Seal(origin=dialect, value=value, form=sealing.form))
        yield event


def check_seals(body: dict[str, Any], kind: str, dialect: str) -> list[str]:
    """The vendor's errors for signatures that are not its own."""
    sealing = _find_sealing(kind, dialect)
    return [] if sealing is None else sealing.complain(body, dialect)
