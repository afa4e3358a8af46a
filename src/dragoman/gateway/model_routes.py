"""The models there are, in each dialect's own shape, aliases included (FIELD-CASES 89)."""

import hashlib
from datetime import UTC, datetime

from dragoman.errors import UpstreamError
from dragoman.gateway.conversation import no_model
from dragoman.gateway.http import HttpRequest, HttpResponse, json_response
from dragoman.gateway.non_chat import read_object
from dragoman.gateway.state import Gateway
from dragoman.jsontypes import JsonObject

OLLAMA_VERSION = "0.12.0"  # what its clients compare with the version a feature came in
CONTEXT = 131_072
OUTPUT = 32_768
GEMINI_VERBS = ["generateContent", "streamGenerateContent", "countTokens", "embedContent"]


async def serve_models(gateway: Gateway, http: HttpRequest, words: dict[str, str]) -> HttpResponse:
    """OpenAI's list; Anthropic's for who says its version, Google's for who brings its key."""
    if "anthropic-version" in http.headers:
        rows = [_anthropic(name, gateway) for name in gateway.now.models]
        ends = {"first_id": rows[0]["id"], "last_id": rows[-1]["id"]} if rows else {"first_id": None, "last_id": None}
        return json_response({"data": rows, "has_more": False, **ends})
    if "x-goog-api-key" in http.headers or "x-goog-api-client" in http.headers:
        return await serve_gemini_models(gateway, http, words)
    rows = [_openai(name, gateway) for name in gateway.now.models]
    more: JsonObject = {"models": []} if "client_version=" in http.query else {}  # Codex looks for its own table there
    return json_response({"object": "list", "data": rows, **more})


async def serve_model(gateway: Gateway, http: HttpRequest, words: dict[str, str]) -> HttpResponse:
    name = _known(gateway, words["model"])
    if "anthropic-version" in http.headers:
        return json_response(_anthropic(name, gateway))
    if "x-goog-api-key" in http.headers or "x-goog-api-client" in http.headers:
        return json_response(_gemini(name))
    return json_response(_openai(name, gateway))


async def serve_gemini_models(gateway: Gateway, http: HttpRequest, words: dict[str, str]) -> HttpResponse:
    return json_response({"models": [_gemini(name) for name in gateway.now.models]})


async def serve_gemini_model(gateway: Gateway, http: HttpRequest, words: dict[str, str]) -> HttpResponse:
    return json_response(_gemini(_known(gateway, words["model"])))


async def serve_tags(gateway: Gateway, http: HttpRequest, words: dict[str, str]) -> HttpResponse:
    return json_response({"models": [_ollama(name, gateway) for name in gateway.now.models]})


async def serve_running(gateway: Gateway, http: HttpRequest, words: dict[str, str]) -> HttpResponse:
    busy = {name for name, state in gateway.now.upstream_states.items() if state.admission.running}
    rows = []
    for name, upstream in gateway.now.models.items():
        if upstream in busy:
            row = _ollama(name, gateway)
            row.update({"expires_at": _date(gateway.wall() + 300), "size_vram": 0, "context_length": CONTEXT})
            rows.append(row)
    return json_response({"models": rows})


async def serve_show(gateway: Gateway, http: HttpRequest, words: dict[str, str]) -> HttpResponse:
    """With the capabilities that make its clients offer tools and pictures (CLIENTS 18)."""
    body = await read_object(gateway, http)
    asked = body.get("model") or body.get("name") or ""
    name = _known(gateway, asked if isinstance(asked, str) else "")
    family = _family(name)
    return json_response(
        {
            "license": "",
            "modelfile": f"# {name} behind dragoman\nFROM {name}",
            "parameters": "",
            "template": "{{ .Prompt }}",
            "details": _details(name),
            "model_info": {
                "general.architecture": family,
                "general.basename": name,
                f"{family}.context_length": CONTEXT,
                f"{family}.embedding_length": 4096,
            },
            "capabilities": ["completion", "tools", "vision", "thinking"],
            "modified_at": _date(gateway.started),
        }
    )


async def serve_version(gateway: Gateway, http: HttpRequest, words: dict[str, str]) -> HttpResponse:
    return json_response({"version": OLLAMA_VERSION})


def _known(gateway: Gateway, asked: str) -> str:
    plain = asked.removeprefix("models/")
    for name in (plain, plain.removesuffix(":latest")):
        if name in gateway.now.models:
            return name
    # an explicit upstream/model is served though it is not listed
    first = plain.partition("/")[0]
    if "/" in plain and first in gateway.now.upstream_states and gateway.now.targets(plain, lambda: 0.0):
        return plain
    raise UpstreamError(no_model(asked))


def _openai(name: str, gateway: Gateway) -> JsonObject:
    owner = gateway.now.models.get(name, "dragoman")
    return {"id": name, "object": "model", "created": int(gateway.started), "owned_by": owner}


def _anthropic(name: str, gateway: Gateway) -> JsonObject:
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": _date(gateway.started),
        "max_input_tokens": CONTEXT,
        "max_tokens": OUTPUT,
    }


def _gemini(name: str) -> JsonObject:
    return {
        "name": f"models/{name}",
        "version": "001",
        "displayName": name,
        "description": f"{name} behind dragoman",
        "inputTokenLimit": CONTEXT,
        "outputTokenLimit": OUTPUT,
        "supportedGenerationMethods": GEMINI_VERBS,
    }


def _ollama(name: str, gateway: Gateway) -> JsonObject:
    return {
        "name": name,
        "model": name,
        "modified_at": _date(gateway.started),
        "size": 0,
        "digest": hashlib.sha256(name.encode()).hexdigest(),  # its clients tell models apart by it
        "details": _details(name),
    }


def _details(name: str) -> JsonObject:
    family = _family(name)
    return {
        "parent_model": "",
        "format": "gguf",
        "family": family,
        "families": [family],
        "parameter_size": "",
        "quantization_level": "",
    }


def _family(name: str) -> str:
    return name.rpartition("/")[2].split("-")[0].split(":")[0] or "llama"


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
