"""Signatures a scripted provider hands out and wants back unharmed, as the real ones do.

They are a hash of what they stand for: another provider's, a made-up one, or one on a changed text is refused.
"""

import base64
import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

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


def seal_events(events: Iterable[Event], dialect: str) -> Iterator[Event]:
    """Thoughts sealed at Anthropic and in Responses; at Gemini the first call of a turn."""
    texts: dict[int, list[str]] = {}
    open_call: int | None = None
    calls = 0
    for event in events:
        if isinstance(event, PartStart):
            if isinstance(event.part, Reasoning) and dialect in ("anthropic", "openai_responses"):
                texts[event.index] = [event.part.text]
            elif isinstance(event.part, ToolCall) and dialect == "gemini":
                calls += 1
                if calls == 1:
                    open_call = event.index
                    texts[event.index] = [event.part.name]
        elif isinstance(event, PartDelta) and event.index in texts and event.index != open_call:
            texts[event.index].append(event.text)
        elif isinstance(event, PartEnd) and event.index in texts and event.seal is None:
            form = "encrypted" if dialect == "openai_responses" else "signature"
            value = sign(dialect, "".join(texts[event.index]))
            event = replace(event, seal=Seal(origin=dialect, value=value, form=form))
        yield event


def check_seals(body: dict[str, Any], dialect: str) -> list[str]:
    """What the vendor says to a signature that is not its own."""
    match dialect:
        case "anthropic":
            return [
                f"messages.{i}.content.{j}: Invalid `signature` in `thinking` block"
                for i, message in enumerate(objects(body.get("messages")))
                for j, block in enumerate(blocks(message.get("content")))
                if block.get("type") == "thinking"
                and block.get("signature") != sign(dialect, str(block.get("thinking", "")))
            ]
        case "openai_responses":
            return [
                f"The encrypted content for item {item.get('id', '')} could not be verified."
                for item in objects(body.get("input"))
                if item.get("type") == "reasoning"
                and item.get("encrypted_content") is not None
                and not is_ours(item["encrypted_content"], dialect)
            ]
        case "gemini":
            parts = [part for turn in objects(body.get("contents")) for part in objects(turn.get("parts"))]
            return [
                "Corrupted thought signature."
                for part in parts
                if part.get("thoughtSignature") not in (None, SENTINEL)
                and not is_ours(part["thoughtSignature"], dialect)
            ]
        case _:
            return []
