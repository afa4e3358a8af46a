"""What a person asked, without what their program put around it."""

import re
from collections.abc import Iterable

from dragoman.errors import DecodeError
from dragoman.jsontypes import JsonObject, load_object
from dragoman.passes.json_answers import JsonText

_TAG = re.compile(r"<(/?)([\w-]+)[^<>]*>")
_LEFT_OVER = re.compile(r"\A[^<]*</[\w-]+>")  # the end of a block whose beginning was cut off

_QUOTED = re.compile(r"\"([^\"]*[^\"\s][^\"]* [^\"]*)\"")  # of more than one word


def strip_tags(text: str, most: int) -> str:
    """The text without `<tag>…</tag>` blocks; of a long one its end. One look at each tag, however many there are."""
    tags = list(_TAG.finditer(text))
    ends = {tag[2]: tag.start() for tag in tags if tag[1]}  # the last end of each
    kept: list[str] = []
    at, begin, name = 0, 0, ""
    for tag in tags:
        if not name and not tag[1] and ends.get(tag[2], 0) > tag.start():
            begin, name = tag.start(), tag[2]
        elif tag[1] and tag[2] == name:
            kept.append(text[at:begin])
            at, name = tag.end(), ""
    kept.append(text[at:])
    plain = _LEFT_OVER.sub("", "".join(kept)[-most:]).strip()
    whole = _QUOTED.fullmatch(plain)  # opencode quotes the question itself
    return whole[1] if whole else plain


_SCHEMA = re.compile(r"It must match this JSON Schema:\s*")


def find_schema(texts: Iterable[str]) -> JsonObject | None:
    """A JSON Schema that the answer shall match, asked for in the words of passes/emulate.py."""
    for text in texts:
        found = _SCHEMA.search(text)
        if found is not None:
            try:
                return load_object(JsonText().feed(text[found.end() :]))
            except DecodeError:
                continue
    return None
