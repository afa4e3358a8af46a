"""Gemini's model list, both ways. https://ai.google.dev/api/models (digest read 2026-11-15)"""

from collections.abc import Iterable
from typing import TypeVar

from msgspec import Struct

from dragoman.dialects.gemini.words import NAME
from dragoman.errors import DecodeError
from dragoman.fields import leftovers, need_object, take_text
from dragoman.jsontypes import JsonObject, kind_of
from dragoman.model.messages import Extras

T = TypeVar("T")

METHODS = ("generateContent", "streamGenerateContent", "countTokens")


class ListedModel(Struct, frozen=True, kw_only=True):
    """One entry of the list; None is "not said"."""

    id: str  # without `models/`
    title: str | None = None
    description: str | None = None
    max_input: int | None = None  # tokens
    max_output: int | None = None
    thinking: bool | None = None
    methods: tuple[str, ...] = METHODS
    extras: Extras = {}


def decode_model(entry: JsonObject) -> ListedModel:
    name = take_text(entry, "name")
    methods = entry.pop("supportedGenerationMethods", None)
    return ListedModel(
        id=name.removeprefix("models/"),
        title=_take(entry, "displayName", str),
        description=_take(entry, "description", str),
        max_input=_take(entry, "inputTokenLimit", int),
        max_output=_take(entry, "outputTokenLimit", int),
        thinking=_take(entry, "thinking", bool),
        methods=tuple(methods) if type(methods) is list else (),
        extras=leftovers(entry, NAME),
    )


def _take(entry: JsonObject, key: str, kind: type[T]) -> T | None:
    value = entry.get(key)
    if type(value) is not kind:
        return None
    del entry[key]
    return value


def encode_model(model: ListedModel) -> JsonObject:
    entry: JsonObject = {"name": f"models/{model.id}", "displayName": model.title or model.id}
    said = {
        "description": model.description,
        "inputTokenLimit": model.max_input,
        "outputTokenLimit": model.max_output,
        "supportedGenerationMethods": list(model.methods),
        "thinking": model.thinking,
    }
    entry |= {key: value for key, value in said.items() if value is not None}
    return entry | model.extras.get(NAME, {})


def decode_model_list(body: object) -> tuple[tuple[ListedModel, ...], str | None]:
    """The models of one page, and the token of the next."""
    page = need_object(body)
    entries = page.get("models") or []
    if type(entries) is not list:
        raise DecodeError(f"expected array, found {kind_of(entries)}", "models")
    token = page.get("nextPageToken")
    return tuple(decode_model(need_object(entry)) for entry in entries), token if type(token) is str and token else None


def encode_model_list(models: Iterable[ListedModel], next_page: str | None = None) -> JsonObject:
    body: JsonObject = {"models": [encode_model(model) for model in models]}
    return body if next_page is None else body | {"nextPageToken": next_page}
