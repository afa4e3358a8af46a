"""The one route table: path, method, dialect, and who may come in. A route without a class does not start."""

import re
from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from dragoman.errors import DragomanError

AccessClass: TypeAlias = Literal["public", "client", "admin"]
VERSION = r"/v1(?:beta|alpha|beta1|alpha1)?"


class Route(Struct, frozen=True, kw_only=True):
    method: str
    path: str  # plain, or a pattern with (?P<name>...) groups
    name: str  # the method of Gateway that serves it: serve_<name>
    dialect: str  # in which errors are said
    access: AccessClass


class Match(Struct, frozen=True):
    route: Route
    words: dict[str, str]


def _all(methods: str, path: str, name: str, dialect: str, access: AccessClass) -> list[Route]:
    return [Route(method=m, path=path, name=name, dialect=dialect, access=access) for m in methods.split()]


_GEMINI_MODEL = rf"{VERSION}/(?:projects/.+/)?(?P<kind>models|tunedModels)/(?P<model>[^?#]+)"

ROUTES: tuple[Route, ...] = (
    *_all("POST", "/v1/chat/completions", "chat", "openai_chat", "client"),
    *_all("POST", "/v1/responses", "responses", "openai_responses", "client"),
    *_all("GET", "/v1/responses", "websocket", "openai_responses", "client"),
    *_all("POST", "/v1/responses/compact", "compact", "openai_responses", "client"),
    *_all("POST", "/v1/responses/input_tokens", "count_responses", "openai_responses", "client"),
    *_all("GET", r"/v1/responses/(?P<id>[\w.-]+)/input_items", "stored_input", "openai_responses", "client"),
    *_all("POST", r"/v1/responses/(?P<id>[\w.-]+)/cancel", "stored_cancel", "openai_responses", "client"),
    *_all("GET", r"/v1/responses/(?P<id>[\w.-]+)", "stored", "openai_responses", "client"),
    *_all("DELETE", r"/v1/responses/(?P<id>[\w.-]+)", "forget", "openai_responses", "client"),
    *_all("POST", "/v1/messages", "messages", "anthropic", "client"),
    *_all("POST", "/v1/messages/count_tokens", "count_messages", "anthropic", "client"),
    *_all("POST", rf"{_GEMINI_MODEL}:(?P<verb>\w+)", "gemini", "gemini", "client"),
    *_all("POST", rf"{VERSION}/cachedContents", "cache_new", "gemini", "client"),
    *_all("GET", rf"{VERSION}/cachedContents", "caches", "gemini", "client"),
    *_all("GET", rf"{VERSION}/cachedContents/(?P<id>[\w.-]+)", "cache", "gemini", "client"),
    *_all("PATCH", rf"{VERSION}/cachedContents/(?P<id>[\w.-]+)", "cache_change", "gemini", "client"),
    *_all("DELETE", rf"{VERSION}/cachedContents/(?P<id>[\w.-]+)", "cache_end", "gemini", "client"),
    *_all("GET HEAD", "/v1/models", "models", "openai_chat", "client"),
    *_all("GET HEAD", r"/v1(?:beta|alpha|beta1|alpha1)/models", "gemini_models", "gemini", "client"),
    *_all("GET HEAD", r"/v1(?:beta|alpha|beta1|alpha1)/models/(?P<model>[^?#]+)", "gemini_model", "gemini", "client"),
    *_all("GET HEAD", r"/v1/models/(?P<model>[^?#]+)", "model", "openai_chat", "client"),
    *_all("POST", "/v1/embeddings", "embeddings", "openai_chat", "client"),
    *_all("POST", "/v1/audio/speech", "speech", "openai_chat", "client"),
    *_all("GET HEAD", "/", "root", "ollama", "public"),
    *_all("GET HEAD", "/api/version", "version", "ollama", "client"),
    *_all("GET HEAD", "/api/tags", "tags", "ollama", "client"),
    *_all("GET HEAD", "/api/ps", "running", "ollama", "client"),
    *_all("POST", "/api/show", "show", "ollama", "client"),
    *_all("POST", "/api/chat", "ollama", "ollama", "client"),
    *_all("POST", "/api/generate", "ollama", "ollama", "client"),
    *_all("POST", "/api/embed", "embed", "ollama", "client"),
    *_all("POST", "/api/embeddings", "embed_old", "ollama", "client"),
    *_all("POST", "/generate", "jsonrpc", "jsonrpc", "client"),
    *_all("POST", "/generate_with_mcp", "generate_with_mcp", "jsonrpc", "client"),
    *_all("POST", "/mcp/add", "mcp_add", "openai_chat", "admin"),
    *_all("DELETE", "/mcp/remove", "mcp_remove", "openai_chat", "admin"),
    *_all("GET", "/mcp/list", "mcp_list", "openai_chat", "admin"),
    *_all("GET HEAD", "/healthz", "alive", "openai_chat", "public"),
    *_all("GET HEAD", "/readyz", "ready", "openai_chat", "public"),
    *_all("GET HEAD", "/health", "health", "openai_chat", "public"),
    *_all("GET HEAD", "/metrics", "metrics", "openai_chat", "admin"),
    *_all("GET", "/xray", "xray_list", "openai_chat", "admin"),
    *_all("GET", r"/xray/(?P<id>[\w.-]+)", "xray", "openai_chat", "admin"),
)

# Clients that leave the version out still arrive (FIELD-CASES 85).
UNVERSIONED = ("chat", "responses", "messages", "embeddings", "models", "audio")


# What a client keeps of the server it was written for: OpenRouter, Google's and Groq's OpenAI doors, others' Anthropic.
PREFIXES: tuple[tuple[str, ...], ...] = (
    ("api", "v1"),
    ("v1beta", "openai"),
    ("openai", "v1"),
    ("openai",),
    ("anthropic",),
)


class Table:
    def __init__(self, routes: tuple[Route, ...] = ROUTES) -> None:
        self._plain: dict[tuple[str, str], Match] = {}
        self._patterns: list[tuple[re.Pattern[str], Route]] = []
        self._methods: dict[str, set[str]] = {}
        for route in routes:
            if route.access not in get_args(AccessClass):
                raise DragomanError(f"route {route.method} {route.path} does not say who may come in")
            if "(" in route.path:
                self._patterns.append((re.compile(route.path), route))
            else:
                self._plain[route.method, route.path] = Match(route, {})

    def find(self, method: str, path: str) -> Match | None:
        """The route a request means, or None. Odd spellings of a path are read as what they stand for."""
        found = self._plain.get((method, path))
        if found is not None:
            return found
        plain = plain_path(path)
        if plain is None:
            return None
        found = self._plain.get((method, plain))
        if found is not None:
            return found
        for pattern, route in self._patterns:
            if route.method == method and (match := pattern.fullmatch(plain)):
                return Match(route, match.groupdict())
        return None

    def methods(self, path: str) -> list[str]:
        """What may be done at a path; empty when there is nothing."""
        return [method for method in ("GET", "HEAD", "POST", "PATCH", "DELETE") if self.find(method, path)]


def plain_path(path: str) -> str | None:
    """No doubled or trailing slash, exactly one version; None for a path with `..` and the like."""
    steps = [step for step in path.split("/") if step]
    if any(step in (".", "..") or "\x00" in step or "\\" in step for step in steps):
        return None
    while len(steps) > 1 and steps[0] == steps[1] and re.fullmatch(VERSION[1:], steps[0]):
        del steps[0]
    for prefix in PREFIXES:
        if tuple(steps[: len(prefix)]) == prefix and steps[len(prefix) : len(prefix) + 1] not in ([], ["deployments"]):
            del steps[: len(prefix)]
            break
    if steps[:2] == ["openai", "deployments"] and len(steps) > 3:  # Azure's: the body names the model too
        del steps[:3]
    if steps and steps[0] in UNVERSIONED:
        steps.insert(0, "v1")
    return "/" + "/".join(steps)
