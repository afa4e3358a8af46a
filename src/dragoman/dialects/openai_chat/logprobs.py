"""OpenAI Chat Completions: log probabilities, both ways."""

from typing import Any

from dragoman.dialects.openai_chat.words import NAME
from dragoman.fields import OMIT, add_extras, leftovers, note_omitted
from dragoman.jsontypes import JsonObject
from dragoman.model.messages import TokenLogprob
from dragoman.notes import At, Notes


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
