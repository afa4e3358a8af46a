"""An MCP server over HTTP and an authorization server, both ours and both scripted, on loopback."""

import base64
import hashlib
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

TOOL = {"name": "work", "description": "Does the work.", "inputSchema": {"type": "object", "properties": {}}}


@dataclass
class Seen:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    peer: tuple[str, int] = ("", 0)


@dataclass
class Said:
    status: int = 200
    body: Any = None
    headers: dict[str, str] | None = None


Script = Callable[[Seen], Said | None]


class Site:
    """Answers with the first of its scripts that has an answer, and remembers what it was asked."""

    def __init__(self, *scripts: Script) -> None:
        self.scripts = list(scripts)
        self.seen: list[Seen] = []
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                headers = {k.lower(): v for k, v in self.headers.items()}
                seen = Seen(self.command, self.path, headers, body, self.client_address)
                site.seen.append(seen)
                said = next((said for script in site.scripts if (said := script(seen)) is not None), Said(404))
                data = (
                    said.body if isinstance(said.body, bytes) else json.dumps(said.body).encode() if said.body else b""
                )
                self.send_response(said.status)
                for name, value in {"content-type": "application/json", **(said.headers or {})}.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = _serve

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def site(*scripts: Script) -> Iterator[Site]:
    made = Site(*scripts)
    try:
        yield made
    finally:
        made.close()


def mcp(seen: Seen) -> Said | None:
    """A server of one tool, as little of the protocol as there can be."""
    if urlsplit(seen.path).path.rstrip("/") != "/mcp":
        return None
    if seen.method != "POST":
        return Said(405)
    call = json.loads(seen.body)
    if "id" not in call:
        return Said(202)
    about = {"name": "ours", "version": "1"}
    results: dict[str, Any] = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about},
        "tools/list": {"tools": [TOOL]},
        "tools/call": {"content": [{"type": "text", "text": "done"}]},
    }
    found = results.get(call["method"])
    end = {"result": found} if found is not None else {"error": {"code": -32601, "message": "Method not found"}}
    return Said(200, {"jsonrpc": "2.0", "id": call["id"], **end})


def wants(check: Callable[[str], bool], metadata: str = "") -> Script:
    """A server that lets in only whose Authorization passes."""

    def script(seen: Seen) -> Said | None:
        if urlsplit(seen.path).path.rstrip("/") != "/mcp" or check(seen.headers.get("authorization", "")):
            return None
        return Said(401, None, {"www-authenticate": f'Bearer resource_metadata="{metadata}"' if metadata else "Bearer"})

    return script


class Authority:
    """Issues tokens: registration, authorization code with PKCE, client credentials, refresh."""

    def __init__(self) -> None:
        self.site = Site(self._serve)
        self.url = self.site.url
        self.clients: dict[str, Any] = {"fixed": {"client_secret": "s3cret-canary", "redirect_uris": None}}
        self.codes: dict[str, dict[str, str]] = {}
        self.valid: set[str] = set()
        self.refreshing: set[str] = set()
        self.expires_in: int | None = 3600
        self.refuse = ""  # what a person who does not want to gets
        self.grants: list[str] = []
        self._count = 0

    def accepts(self, header: str) -> bool:
        return header.removeprefix("Bearer ") in self.valid

    def protects(self, server: str) -> Script:
        """The page on which a server says whom to ask for a token."""

        def script(seen: Seen) -> Said | None:
            if not seen.path.startswith("/.well-known/oauth-protected-resource"):
                return None
            return Said(200, {"resource": f"{server}/mcp", "authorization_servers": [self.url]})

        return script

    def _serve(self, seen: Seen) -> Said | None:
        place = urlsplit(seen.path)
        match place.path:
            case "/.well-known/oauth-authorization-server":
                ends = {f"{name}_endpoint": f"{self.url}/{path}" for name, path in ENDPOINTS.items()}
                return Said(200, {"issuer": self.url, **ends, **ABILITIES})
            case "/register":
                body = json.loads(seen.body)
                self._count += 1
                self.clients[f"client{self._count}"] = body
                return Said(201, {**body, "client_id": f"client{self._count}", "token_endpoint_auth_method": "none"})
            case "/authorize":
                return self._authorize({key: values[0] for key, values in parse_qs(place.query).items()})
            case "/token":
                said = {key: values[0] for key, values in parse_qs(seen.body.decode()).items()}
                return self._token(said, seen.headers.get("authorization", ""))
            case _:
                return None

    def _authorize(self, said: dict[str, str]) -> Said:
        known = self.clients[said["client_id"]]
        assert known["redirect_uris"] is None or said["redirect_uri"] in known["redirect_uris"]
        assert said["code_challenge_method"] == "S256"
        self._count += 1
        code = f"code{self._count}"
        self.codes[code] = said
        back = {"error": self.refuse} if self.refuse else {"code": code, "iss": self.url}
        return Said(302, None, {"location": f"{said['redirect_uri']}?{urlencode({**back, 'state': said['state']})}"})

    def _token(self, said: dict[str, str], header: str) -> Said:
        self.grants.append(said["grant_type"])
        refused = Said(400, {"error": "invalid_grant", "error_description": f"{said} {header}"})
        match said["grant_type"]:
            case "authorization_code":
                asked = self.codes.pop(said["code"], None)
                digest = hashlib.sha256(said["code_verifier"].encode()).digest()
                proof = base64.urlsafe_b64encode(digest).decode().rstrip("=")
                if asked is None or proof != asked["code_challenge"] or said["redirect_uri"] != asked["redirect_uri"]:
                    return refused
            case "refresh_token":
                if said["refresh_token"] not in self.refreshing:
                    return refused
                self.refreshing.discard(said["refresh_token"])
            case "client_credentials":
                given = base64.b64decode(header.removeprefix("Basic ")).decode()
                if given != f"{quote('fixed')}:{quote('s3cret-canary')}":
                    return Said(401, {"error": "invalid_client", "error_description": unquote(given)})
            case _:
                return refused
        self._count += 1
        self.valid.add(f"token-canary-{self._count}")
        self.refreshing.add(f"refresh-canary-{self._count}")
        body: dict[str, Any] = {"access_token": f"token-canary-{self._count}", "token_type": "Bearer"}
        if said["grant_type"] != "client_credentials":
            body["refresh_token"] = f"refresh-canary-{self._count}"
        return Said(200, body | ({} if self.expires_in is None else {"expires_in": self.expires_in}))

    def close(self) -> None:
        self.site.close()


ENDPOINTS = {"authorization": "authorize", "token": "token", "registration": "register"}
ABILITIES = {
    "response_types_supported": ["code"],
    "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials"],
    "code_challenge_methods_supported": ["S256"],
    "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "client_secret_post"],
    "authorization_response_iss_parameter_supported": True,
}


@contextmanager
def authority() -> Iterator[Authority]:
    made = Authority()
    try:
        yield made
    finally:
        made.close()
