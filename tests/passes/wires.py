"""From a client's wire to a provider's, as a gateway goes it, and what the provider would say."""

from typing import Any

from dragoman.dialects import find_dialect
from dragoman.jsontypes import copy_json, dump_json, load_json
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.passes.prepare import legalise
from dragoman.passes.profile import Profile
from dragoman.testing.checkers import (
    check_anthropic,
    check_gemini,
    check_models,
    check_ollama,
    check_openai_chat,
    check_openai_responses,
)
from dragoman.upstream.profiles import profile_for
from dragoman.wire import WireRequest


def read(dialect: str, body: dict[str, Any], path: str = "") -> Request:
    return find_dialect(dialect).decode_request(WireRequest(body=copy_json(body), path=path), Notes())


def write(request: Request, profile: Profile, notes: Notes | None = None) -> dict[str, Any]:
    """The body a provider gets."""
    notes = Notes() if notes is None else notes
    dialect = find_dialect(profile.dialect)
    request = legalise(request, profile, notes)  # a gateway needs no other passes
    body: dict[str, Any] = load_json(dump_json(dialect.encode_request(request, notes).body))
    return body


def complain(body: dict[str, Any], profile: Profile, model: str) -> list[str]:
    """What the provider would say: nothing, if all is well."""
    return check_models(profile.kind, profile.dialect, body, model) + _complain(body, profile, model)


def _complain(body: dict[str, Any], profile: Profile, model: str) -> list[str]:
    match profile.dialect:
        case "anthropic":
            return check_anthropic(body)
        case "gemini":
            return check_gemini(body, model)
        case "ollama":
            return check_ollama(body)
        case "openai_responses":
            return check_openai_responses(body)
        case _:
            return check_openai_chat(body, "openai" if profile.kind in ("openai_chat", "azure") else profile.kind)


def send(request: Request, kind: str, model: str, notes: Notes | None = None) -> tuple[dict[str, Any], list[str]]:
    profile = profile_for(kind, model)
    body = write(request, profile, notes)
    return body, complain(body, profile, model)
