"""Anthropic Messages: citations, both ways."""

from dragoman.dialects.anthropic.words import NAME
from dragoman.fields import add_extras, leftovers, take_text_or_none
from dragoman.jsontypes import JsonObject
from dragoman.model.messages import Citation
from dragoman.notes import At, Notes


def decode_citation(citation: JsonObject) -> Citation:
    return Citation(
        url=take_text_or_none(citation, "url"),
        title=take_text_or_none(citation, "title"),
        quote=take_text_or_none(citation, "cited_text"),
        extras=leftovers(citation, NAME),
    )


def encode_citation(citation: Citation, at: At, notes: Notes) -> JsonObject | None:
    """Anthropic's types demand source indexes, which only its own citations have. A citation of another dialect becomes
    a web result."""
    if NAME not in citation.extras:
        if citation.url is None:
            notes.dropped(at, "anthropic cites a place in a source, and this names none")
            return None
        for key, value in (("start", citation.start), ("end", citation.end)):
            if value is not None:
                notes.dropped((at, key), "anthropic's citations have no span in the answer")
        if citation.quote is None:
            notes.invented((at, "quote"), "anthropic demands the quoted words: an empty text")
        notes.invented((at, "extras"), "anthropic demands a type and an index")
        body: JsonObject = {
            "type": "web_search_result_location",
            "url": citation.url,
            "title": citation.title,
            "cited_text": citation.quote or "",
            "encrypted_index": "",
        }
        add_extras(body, citation.extras, NAME, at, notes)
        return body
    body = {}
    if citation.url is not None:
        body["url"] = citation.url
    if citation.title is not None:
        body["title"] = citation.title
    if citation.quote is not None:
        body["cited_text"] = citation.quote
    add_extras(body, citation.extras, NAME, at, notes)
    return body
