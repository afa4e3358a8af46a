"""OpenAI Chat Completions: citations and log probabilities, both ways."""

from typing import Any

from dragoman.dialects.openai_chat.parts import add_outer, keep_inner
from dragoman.dialects.openai_chat.words import NAME
from dragoman.fields import OMIT, add_extras, leftovers, note_omitted, note_spelling
from dragoman.jsontypes import JsonObject
from dragoman.model.messages import Citation, Text, TokenLogprob
from dragoman.notes import At, Notes

DEMANDED = {"title": str, "start_index": int, "end_index": int}


def decode_annotation(annotation: JsonObject) -> Citation:
    """A `url_citation` covers a span of the answer. Any other annotation stays whole in the extras."""
    inner = annotation.get("url_citation")
    if annotation.get("type") != "url_citation" or type(inner) is not dict:
        return Citation(extras={NAME: annotation})
    if type(inner.get("url")) is not str:
        return Citation(extras={NAME: annotation})
    del annotation["type"], annotation["url_citation"]
    absent = [key for key, kind in DEMANDED.items() if type(inner.get(key)) is not kind]
    if absent:
        note_spelling(annotation, "absent", absent)
    url, title, start, end = (inner.pop(key) if key not in absent else None for key in ("url", *DEMANDED))
    keep_inner(annotation, "url_citation", inner)
    return Citation(url=url, title=title, start=start, end=end, extras=leftovers(annotation, NAME))


def encode_annotations(part: Text, offset: int, at: At, notes: Notes) -> list[JsonObject]:
    """Encode a text's citations. `offset` is where the text begins in the whole answer."""
    encoded = []
    for i, citation in enumerate(part.citations):
        annotation = encode_annotation(citation, offset, offset + len(part.text), ((at, "citations"), i), notes)
        if annotation is not None:
            encoded.append(annotation)
    if part.citations and not encoded:
        notes.dropped((at, "citations"), "openai_chat has no form for any of them")
    return encoded


def encode_annotation(citation: Citation, offset: int, end: int, at: At, notes: Notes) -> JsonObject | None:
    """`offset` and `end` are the span of the cited text. A citation without a span of its own gets this one."""
    if citation.url is None:
        own = citation.extras.get(NAME)
        if own is None or "type" not in own:
            notes.dropped(at, "openai_chat cites a url, and this names none")
            return None
        return own
    if citation.quote is not None:
        notes.dropped((at, "quote"), "openai_chat's annotations do not quote their source")
    inner: JsonObject = {"url": citation.url, "title": citation.title or ""}
    absent = citation.extras.get(NAME, {}).get("~absent", ())
    if citation.title is None and "title" not in absent:
        notes.invented((at, "title"), "openai_chat demands a title")
    for key, value, whole in (("start", citation.start, 0), ("end", citation.end, end - offset)):
        if value is None and f"{key}_index" not in absent:
            notes.invented((at, key), "openai_chat cites for a span of the answer: the whole text")
        inner[f"{key}_index"] = offset + (whole if value is None else value)
    for key in absent:
        inner.pop(key, None)
    annotation: JsonObject = {"type": "url_citation", "url_citation": inner}
    add_outer(annotation, citation.extras, "url_citation", at, notes)
    return annotation


# ---------------------------------------------------------------- logprobs


def decode_logprobs(given: object) -> tuple[TokenLogprob, ...] | None:
    """A list of tokens, or None if it is anything else."""
    if not isinstance(given, list) or not all(_is_token(token) for token in given):
        return None
    return tuple(_decode_token(token, inner=False) for token in given)


def _is_token(token: Any) -> bool:
    return type(token) is dict and type(token.get("token")) is str and type(token.get("logprob")) in (int, float)


def _decode_token(token: JsonObject, *, inner: bool) -> TokenLogprob:
    note_omitted(token, dict(token), *(("bytes",) if inner else ("bytes", "top_logprobs")))
    text, logprob = token.pop("token"), token.pop("logprob")
    number = token.get("bytes")
    if type(number) is list:
        del token["bytes"]
    given = token.get("top_logprobs")
    top = None
    if isinstance(given, list) and all(_is_token(other) for other in given):
        del token["top_logprobs"]
        top = tuple(_decode_token(other, inner=True) for other in given)
    return TokenLogprob(
        token=text,
        logprob=logprob,
        bytes=tuple(number) if type(number) is list else None,
        top=top,
        extras=leftovers(token, NAME),
    )


def encode_logprobs(tokens: tuple[TokenLogprob, ...], at: At, notes: Notes) -> list[JsonObject]:
    return [_encode_token(token, (at, i), notes) for i, token in enumerate(tokens)]


def _encode_token(token: TokenLogprob, at: At, notes: Notes, *, inner: bool = False) -> JsonObject:
    body: JsonObject = {
        "token": token.token,
        "logprob": token.logprob,
        "bytes": list(token.bytes) if token.bytes is not None else None,
    }
    if token.top is not None:
        body["top_logprobs"] = [
            _encode_token(other, ((at, "top"), i), notes, inner=True) for i, other in enumerate(token.top)
        ]
    elif not inner and "top_logprobs" not in token.extras.get(NAME, {}).get(OMIT, ()):
        body["top_logprobs"] = []
        notes.invented((at, "top"), "openai_chat demands a list")
    if token.extras:
        add_extras(body, token.extras, NAME, at, notes)
    return body
