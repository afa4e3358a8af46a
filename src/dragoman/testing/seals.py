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

SENTINEL = "skip_thought_signature_validator"  # Google documents it for calls whose signature is lost


def sign(dialect: str, text: str) -> str:
    """Base64, because Google's clients decode it."""
    return base64.b64encode(f"{dialect} {hashlib.sha256(text.encode()).hexdigest()}".encode()).decode()


def is_ours(value: object, dialect: str) -> bool:
    try:
        plain = base64.b64decode(str(value).translate(str.maketrans("-_", "+/")))
    except ValueError:
        return False
    return plain.startswith(f"{dialect} ".encode())


def _complain_anthropic(body: dict[str, Any], dialect: str) -> list[str]:
    return [
        f"messages.{i}.content.{j}: Invalid `signature` in `thinking` block"
        for i, message in enumerate(objects(body.get("messages")))
        for j, block in enumerate(blocks(message.get("content")))
        if block.get("type") == "thinking" and block.get("signature") != sign(dialect, str(block.get("thinking", "")))
    ]


def _complain_responses(body: dict[str, Any], dialect: str) -> list[str]:
    return [
        f"The encrypted content for item {item.get('id', '')} could not be verified."
        for item in objects(body.get("input"))
        if item.get("type") == "reasoning"
        and item.get("encrypted_content") is not None
        and not is_ours(item["encrypted_content"], dialect)
    ]


def _complain_gemini(body: dict[str, Any], dialect: str) -> list[str]:
    parts = [part for turn in objects(body.get("contents")) for part in objects(turn.get("parts"))]
    return [
        "Corrupted thought signature."
        for part in parts
        if part.get("thoughtSignature") not in (None, SENTINEL) and not is_ours(part["thoughtSignature"], dialect)
    ]


class Sealing(Struct, frozen=True):
    """What a vendor signs, in which form, and its error for a foreign signature."""

    what: type[Reasoning] | type[ToolCall]  # every thought, or the first call of a turn
    form: str
    complain: Callable[[dict[str, Any], str], list[str]]


SEALINGS = {
    "anthropic": Sealing(Reasoning, "signature", _complain_anthropic),
    "openai_responses": Sealing(Reasoning, "encrypted", _complain_responses),
    "gemini": Sealing(ToolCall, "signature", _complain_gemini),
}


def seal_events(events: Iterable[Event], dialect: str) -> Iterator[Event]:
    sealing = SEALINGS.get(dialect)
    return iter(events) if sealing is None else _seal(events, dialect, sealing)


def _seal(events: Iterable[Event], dialect: str, sealing: Sealing) -> Iterator[Event]:
    texts: dict[int, list[str]] = {}  # of the parts to seal
    sealed_call = False
    for event in events:
        if isinstance(event, PartStart) and isinstance(event.part, sealing.what) and not sealed_call:
            part = event.part
            sealed_call = isinstance(part, ToolCall)
            texts[event.index] = [part.name if isinstance(part, ToolCall) else part.text]
        elif isinstance(event, PartDelta) and event.index in texts and not sealed_call:
            texts[event.index].append(event.text)
        elif isinstance(event, PartEnd) and event.index in texts and event.seal is None:
            value = sign(dialect, "".join(texts[event.index]))
            event = replace(event, seal=Seal(origin=dialect, value=value, form=sealing.form))
        yield event


def check_seals(body: dict[str, Any], dialect: str) -> list[str]:
    """The vendor's errors for signatures that are not its own."""
    sealing = SEALINGS.get(dialect)
    return [] if sealing is None else sealing.complain(body, dialect)
