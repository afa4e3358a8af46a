"""Ollama: a pass that puts the parts of each turn into the order and number that a message allows."""

from msgspec.structs import replace

from dragoman.dialects.ollama.parts import RANKS
from dragoman.model.fold import merge_extras
from dragoman.model.messages import Document, Message, Part, Reasoning, Refusal, Text, ToolResult
from dragoman.model.request import Request
from dragoman.notes import ROOT, At, Notes

WHY = "an ollama message is thinking, text, images and calls, in this order, with one text: joined by line breaks"
Words = Text | Refusal | Document


def settle_turns(request: Request, notes: Notes) -> Request:
    """Sort each turn into thinking, one text, images, calls. Tool results keep their place: they are messages."""
    changed: dict[int, Message] = {}
    for i, message in enumerate(request.messages):
        if _is_settled(message.parts):  # fast path: ollama settled turn
            continue
        parts = _settle(message.parts, (((ROOT, "messages"), i), "parts"), notes)
        if parts is not message.parts:
            changed[i] = replace(message, parts=parts)
    if not changed:
        return request
    return replace(request, messages=tuple(changed.get(i, m) for i, m in enumerate(request.messages)))


def _is_settled(parts: tuple[Part, ...]) -> bool:
    """A fast check. True is certain; False only means that the slow check must decide."""
    last = -1
    for part in parts:
        kind = type(part)
        if kind is ToolResult:
            last = -1
            if not _is_settled(part.parts):  # type: ignore[union-attr]  # mypy does not narrow by `kind`
                return False
            continue
        rank = RANKS.get(kind, last)
        if rank < last or (rank == last and -1 < rank < 2):
            return False
        last = rank
    return True


def _settle(parts: tuple[Part, ...], at: At, notes: Notes) -> tuple[Part, ...]:
    settled: list[Part] = []
    run: list[Part] = []  # the parts of one message
    moved = False
    for i, part in enumerate(parts):
        if not isinstance(part, ToolResult):
            run.append(part)
            continue
        moved = _close(run, settled) or moved
        run = []
        inner = _settle(part.parts, ((at, i), "parts"), notes)
        settled.append(part if inner is part.parts else replace(part, parts=inner))
    moved = _close(run, settled) or moved
    if moved:
        notes.altered(at, WHY)
    elif all(a is b for a, b in zip(settled, parts, strict=True)):
        return parts
    return tuple(settled)


def _close(run: list[Part], settled: list[Part]) -> bool:
    """Append a run in order, and return whether that changed it."""
    thoughts: list[Reasoning] = []
    words: list[Words] = []
    others: list[Part] = []
    for part in run:
        if isinstance(part, Reasoning) and part.text:
            thoughts.append(part)
        elif isinstance(part, Words) and part.text:
            words.append(part)
        else:
            others.append(part)
    ranks = [RANKS[type(part)] for part in run if type(part) in RANKS]  # Ollama cannot express parts without a rank
    if len(thoughts) < 2 and len(words) < 2 and ranks == sorted(ranks):
        settled.extend(run)
        return False
    joined: list[Part] = []
    if thoughts:
        joined.append(thoughts[0] if len(thoughts) == 1 else _join_thoughts(thoughts))
    if words:
        joined.append(words[0] if len(words) == 1 else _join_words(words))
    settled.extend(sorted((*joined, *others), key=lambda part: RANKS.get(type(part), 4)))
    return True


def _join_thoughts(thoughts: list[Reasoning]) -> Reasoning:
    first = thoughts[0]
    for other in thoughts[1:]:
        first = Reasoning(
            text=f"{first.text}\n{other.text}",
            summary=first.summary or other.summary,
            seal=first.seal or other.seal,
            extras=merge_extras(first.extras, other.extras),
        )
    return first


def _join_words(words: list[Words]) -> Text:
    """Join texts. The joined text keeps their cache marks and citations, so that the encoder can note the loss."""
    texts = [part for part in words if isinstance(part, Text)]
    joined = Text(text="\n".join(part.text or "" for part in words))
    for part in words:
        joined = replace(joined, extras=merge_extras(joined.extras, part.extras))
    for text in texts:
        joined = replace(
            joined,
            citations=joined.citations + text.citations,
            logprobs=joined.logprobs if text.logprobs is None else (joined.logprobs or ()) + text.logprobs,
            seal=joined.seal or text.seal,
            cache=text.cache or joined.cache,
        )
    return joined
