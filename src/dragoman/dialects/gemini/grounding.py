"""Gemini generateContent: citations and logprobs, which are beside the content and not in it.

Spans count bytes of UTF-8 over all text of the answer, without the thoughts ("indices are UTF-8 bytes"; recorded
traffic never sets `partIndex`). If the metadata has more than url, title and span, it stays whole in the choice's
extras, and we write it back from there.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from msgspec.structs import replace

from dragoman.dialects.gemini.words import NAME
from dragoman.fields import add_extras, leftovers
from dragoman.jsontypes import JsonObject
from dragoman.model.messages import Citation, Extras, Part, Text, TokenLogprob
from dragoman.notes import At, Notes

METADATA = ("groundingMetadata", "citationMetadata")
SOURCES = ("web", "retrievedContext", "maps")  # kinds of groundingChunks that can be cited


class Cited(NamedTuple):
    """A citation, the number of its text, and its place for notes."""

    citation: Citation
    text: int
    at: At


# ---------------------------------------------------------------- decode


def take_citations(candidate: JsonObject, texts: Sequence[str]) -> list[Cited]:
    """The citations of a candidate's texts. The metadata is taken if it says nothing more; else it stays an extra."""
    grounding, recitation = (candidate.get(key) for key in METADATA)
    if not texts or (type(grounding) is not dict and type(recitation) is not dict):
        return []
    found: list[Cited] = []
    spans = _Spans(texts)
    if type(grounding) is dict:
        found.extend(_read_grounding(grounding, spans))
        if found and write_citations(found, texts, Notes()) == grounding:
            del candidate["groundingMetadata"]
    if type(recitation) is dict:
        for source in _objects(recitation.get("citations") or recitation.get("citationSources")):
            found.extend(_cite(source, spans.find(source)))
    return found


def _read_grounding(grounding: JsonObject, spans: "_Spans") -> Iterable[Cited]:
    chunks = grounding.get("groundingChunks")
    if type(chunks) is not list:
        return
    for support in _objects(grounding.get("groundingSupports")):
        place = spans.find(support["segment"]) if type(support.get("segment")) is dict else spans.whole()
        numbers = support.get("groundingChunkIndices")
        for number in numbers if type(numbers) is list else ():
            if type(number) is not int or not 0 <= number < len(chunks) or type(chunks[number]) is not dict:
                continue
            source = next((chunks[number][kind] for kind in SOURCES if type(chunks[number].get(kind)) is dict), None)
            if source is not None:
                yield from _cite(source, place)


def _objects(value: Any) -> list[JsonObject]:
    return [item for item in value if type(item) is dict] if type(value) is list else []


def _cite(source: JsonObject, place: tuple[int, int | None, int | None] | None) -> Iterable[Cited]:
    url, title, quote = (source.get(key) or None for key in ("uri", "title", "text"))
    if place is None or (url is None and title is None and quote is None):
        return
    if all(value is None or type(value) is str for value in (url, title, quote)):
        number, start, end = place
        yield Cited(Citation(url=url, title=title, quote=quote, start=start, end=end), number, ())


class _Spans:
    """Converts byte offsets over all texts into code points of one text."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = [text.encode() for text in texts]

    def whole(self) -> tuple[int, int | None, int | None] | None:
        """The place of a citation without a span: clear only if there is one text."""
        return (0, None, None) if len(self._texts) == 1 else None

    def find(self, segment: JsonObject) -> tuple[int, int | None, int | None] | None:
        start, end, text = segment.get("startIndex") or 0, segment.get("endIndex"), segment.get("text")
        if type(start) is not int or type(end) is not int:
            return self.whole() if end is None and start == 0 else None
        for number, data in enumerate(self._texts):
            if start < len(data):
                return self._locate(number, data, start, end, text)
            start, end = start - len(data), end - len(data)
        return None

    def _locate(
        self, number: int, data: bytes, start: int, end: int, text: object
    ) -> tuple[int, int | None, int | None] | None:
        """None if the span leaves the text, cuts a character, or differs from the text it names (seen in traffic)."""
        if not 0 <= start < end <= len(data):
            return None
        try:
            before, inside = data[:start].decode(), data[start:end].decode()
        except UnicodeDecodeError:
            return None
        if type(text) is str and text != inside:
            return None
        return number, len(before), len(before) + len(inside)


def cite_texts(parts: tuple[Part, ...], cited: list[Cited]) -> tuple[Part, ...]:
    """The parts with the citations of their texts."""
    if not cited:
        return parts
    done: list[Part] = []
    number = 0
    for part in parts:
        if isinstance(part, Text):
            own = tuple(item.citation for item in cited if item.text == number)
            number += 1
            part = replace(part, citations=own) if own else part
        done.append(part)
    return tuple(done)


def take_logprobs(candidate: JsonObject) -> tuple[TokenLogprob, ...] | None:
    """Take `logprobsResult` if we can write its tokens back unchanged. Else it stays an extra."""
    result = candidate.get("logprobsResult")
    if type(result) is not dict:
        return None
    chosen, top = result.get("chosenCandidates"), result.get("topCandidates")
    if type(chosen) is not list or (top is not None and (type(top) is not list or len(top) != len(chosen))):
        return None
    before = {key: result[key] for key in ("chosenCandidates", "topCandidates") if key in result}
    tokens: list[TokenLogprob] = []
    for i, item in enumerate(chosen):
        token = _read_token(item)
        others = None if top is None else _read_top(top[i])
        if token is None or (top is not None and others is None):
            return None
        tokens.append(token if others is None else replace(token, top=others))
    if write_logprobs(tokens, (), Notes()) != before:
        return None
    for key in before:
        del result[key]
    if not result:
        del candidate["logprobsResult"]
    return tuple(tokens)


def _read_token(item: object) -> TokenLogprob | None:
    if type(item) is not dict or type(item.get("token")) is not str:
        return None
    logprob = item.get("logProbability")
    if type(logprob) is not float and type(logprob) is not int:
        return None
    rest = {key: value for key, value in item.items() if key not in ("token", "logProbability")}
    return TokenLogprob(token=item["token"], logprob=logprob, extras=leftovers(rest, NAME))


def _read_top(item: object) -> tuple[TokenLogprob, ...] | None:
    if type(item) is not dict or type(item.get("candidates")) is not list:
        return None
    tokens = [_read_token(other) for other in item["candidates"]]
    return None if None in tokens else tuple(token for token in tokens if token is not None)


# ---------------------------------------------------------------- encode


def has_metadata(extras: Extras) -> bool:
    """Whether a choice has Google's own metadata, which includes its citations."""
    own = extras.get(NAME)
    return own is not None and any(type(own.get(key)) is dict for key in METADATA)


def write_citations(cited: Sequence[Cited], texts: Sequence[str], notes: Notes) -> JsonObject | None:
    """`groundingMetadata` for citations of any dialect. None if no citation can be written."""
    chunks: list[JsonObject] = []
    placed: list[tuple[JsonObject | None, int]] = []
    offsets = [0]
    for text in texts:
        offsets.append(offsets[-1] + len(text.encode()))
    _note_losses(cited, texts, notes)
    for item in cited:
        citation, at = item.citation, item.at
        if not _can_say(item, texts):
            continue
        if citation.quote is not None:
            notes.dropped((at, "quote"), "gemini does not quote its sources")
        if citation.extras:
            add_extras({}, citation.extras, NAME, at, notes)
        segment = _write_segment(item, texts, offsets, notes)
        web: JsonObject = {"uri": citation.url}
        if citation.title is not None:
            web["title"] = citation.title
        if {"web": web} not in chunks:
            chunks.append({"web": web})
        placed.append((segment, chunks.index({"web": web})))
    supports: list[JsonObject] = []
    for segment, group in groupby(placed, key=lambda pair: pair[0]):
        support: JsonObject = {} if segment is None else {"segment": segment}
        supports.append(support | {"groundingChunkIndices": [number for _, number in group]})
    return {"groundingChunks": chunks, "groundingSupports": supports} if chunks else None


def _can_say(item: Cited, texts: Sequence[str]) -> bool:
    return item.citation.url is not None and texts[item.text] != ""


def _note_losses(cited: Sequence[Cited], texts: Sequence[str], notes: Notes) -> None:
    why = "gemini cites pages by their address"
    for place, group in groupby(cited, key=lambda item: item.at[:1]):
        items = list(group)
        unsaid = [item for item in items if not _can_say(item, texts)]
        if unsaid and len(unsaid) == len(items) and place:
            notes.dropped(place[0], why)  # every citation of this text
            continue
        for item in unsaid:
            notes.dropped(item.at, why)


def _write_segment(item: Cited, texts: Sequence[str], offsets: list[int], notes: Notes) -> JsonObject | None:
    citation, text, at = item.citation, texts[item.text], item.at
    start, end = citation.start, citation.end
    if start is None or end is None or not 0 <= start < end <= len(text):
        if len(texts) == 1:
            for key, value in (("start", start), ("end", end)):
                if value is not None:
                    notes.dropped((at, key), "not a span of the text")
            return None
        start, end = 0, len(text)
        for key in ("start", "end"):
            notes.altered((at, key), "gemini cites a span of the text: all of it")
    before, inside = text[:start].encode(), text[start:end].encode()
    first = offsets[item.text] + len(before)
    segment: JsonObject = {"startIndex": first} if first else {}
    return segment | {"endIndex": first + len(inside), "text": text[start:end]}


def write_logprobs(tokens: Sequence[TokenLogprob], at: At, notes: Notes, first: int = 0) -> JsonObject:
    """Write `logprobsResult`. `first` is the position of the first token in its part."""
    chosen = [_write_token(token, (at, i), notes) for i, token in enumerate(tokens, start=first)]
    result: JsonObject = {"chosenCandidates": chosen}
    if any(token.top is not None for token in tokens):
        result["topCandidates"] = [_write_top(token, (at, i), notes) for i, token in enumerate(tokens, start=first)]
    return result


def _write_token(token: TokenLogprob, at: At, notes: Notes) -> JsonObject:
    body: JsonObject = {"token": token.token, "logProbability": token.logprob}
    if token.bytes is not None:
        notes.dropped((at, "bytes"), "gemini gives tokens as text")
    if token.extras:
        add_extras(body, token.extras, NAME, at, notes)
    return body


def _write_top(token: TokenLogprob, at: At, notes: Notes) -> JsonObject:
    inside: At = (at, "top")
    if token.top is None:
        notes.invented(inside, "gemini lists alternatives for all tokens or for none")
    others = token.top or ()
    for i, other in enumerate(others):
        if other.top is not None:
            notes.dropped(((inside, i), "top"), "gemini lists alternatives for the chosen tokens only")
    return {"candidates": [_write_token(other, (inside, i), notes) for i, other in enumerate(others)]}
