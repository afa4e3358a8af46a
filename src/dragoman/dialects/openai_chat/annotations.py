"""OpenAI Chat Completions: annotations of a reply's text, both ways."""

from dragoman.dialects.openai_chat.parts import add_outer, keep_inner
from dragoman.dialects.openai_chat.words import NAME
from dragoman.fields import leftovers, note_spelling
from dragoman.jsontypes import JsonObject
from dragoman.model.messages import Citation, Text
from dragoman.notes import At, Notes

DEMANDED = {"title": str, "start_index": int, "end_index": int}


def decode_annotation(annotation: JsonObject) -> Citation:
    """A `url_citation` spans a piece of the answer; what is none stays whole among the extras."""
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
    """A text's citations; `offset` is where it begins in the whole answer."""
    encoded = []
    for i, citation in enumerate(part.citations):
        annotation = encode_annotation(citation, offset, offset + len(part.text), ((at, "citations"), i), notes)
        if annotation is not None:
            encoded.append(annotation)
    if part.citations and not encoded:
        notes.dropped((at, "citations"), "none of them can be said")
    return encoded


def encode_annotation(citation: Citation, offset: int, end: int, at: At, notes: Notes) -> JsonObject | None:
    """`offset` and `end` are the span of the text it stands on: that of a citation that names none."""
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
