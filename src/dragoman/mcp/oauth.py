"""OAuth 2.1 for servers that need it, with the providers of the mcp package.
https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization (read 2026-11-16)

`dragoman mcp login` logs a person in: it shows a page for a browser, which comes back here with a code (RFC 8252 7.3).
A running gateway cannot show a page. It uses and renews the stored tokens, and says so if a login is needed. Each
server name and address has its own token file, which only the owner can read. Tokens go to that address only, and are
renewed at the authorization server that they came from.
"""

import asyncio
import hashlib
import html
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)

from dragoman.errors import DecodeError, DragomanError
from dragoman.jsontypes import JsonObject, dump_json, load_object
from dragoman.mcp.registry import write_atomically
from dragoman.mcp.spec import OAuth, ServerSpec

FOLDER = "mcp-tokens"
CLIENT_AUTH_METHODS = {"basic": "client_secret_basic", "post": "client_secret_post"}
ShowPage = Callable[[str], Awaitable[None]]
AwaitCode = Callable[[], Awaitable[AuthorizationCodeResult]]
READ_TIMEOUT_S, MAX_HEAD_BYTES = 10.0, 16 * 1024


class LoginNeededError(DragomanError):
    """A person has to log in first."""


class TokenFile:
    """TokenStorage of the mcp package. It also stores when a token expires and which server renews it."""

    def __init__(self, folder: Path, spec: ServerSpec) -> None:
        digest = hashlib.sha256((spec.url or "").encode()).hexdigest()[:16]
        self.path = folder / FOLDER / f"{spec.name}-{digest}.json"

    def read(self) -> JsonObject:
        try:
            return load_object(self.path.read_bytes())
        except (OSError, DecodeError):
            return {}

    def update(self, **changes: Any) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        values = {key: value for key, value in (self.read() | changes).items() if value is not None}
        write_atomically(self.path, dump_json(values))

    def forget(self) -> bool:
        """Deletes the file; False if there was none."""
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        return True

    def get(self, key: str, kind: Any) -> Any:
        """A value as an object of the mcp package; None if there is none, or if it is not readable."""
        try:
            return kind.model_validate(self.read()[key])
        except (KeyError, ValueError):
            return None

    async def get_tokens(self) -> OAuthToken | None:
        found: OAuthToken | None = self.get("tokens", OAuthToken)
        return found

    async def set_tokens(self, tokens: OAuthToken) -> None:
        expires_at = time.time() + tokens.expires_in if tokens.expires_in is not None else None
        self.update(tokens=_dump(tokens), expires_at=expires_at)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        found: OAuthClientInformationFull | None = self.get("client", OAuthClientInformationFull)
        return found

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.update(client=_dump(client_info))


def _dump(value: Any) -> JsonObject:
    body: JsonObject = value.model_dump(mode="json", exclude_none=True)
    return body


def make_auth(
    spec: ServerSpec, folder: Path, show_page: ShowPage | None = None, await_code: AwaitCode | None = None
) -> httpx2.Auth | None:
    """`show_page` and `await_code` reach a person who logs in. Stored tokens work without `oauth` in the entry."""
    tokens, url = TokenFile(folder, spec), spec.url or ""
    oauth = spec.oauth or (OAuth() if tokens.path.exists() else None)
    if oauth is None:
        return None
    if oauth.grant == "client_credentials":
        return ClientCredentialsOAuthProvider(
            url,
            tokens,
            oauth.client_id or "",
            oauth.client_secret or "",
            "client_secret_post" if oauth.client_auth == "post" else "client_secret_basic",
            scope=oauth.scope,
            issuer=oauth.issuer,
        )
    return _LoginProvider(spec.name, url, oauth, tokens, show_page, await_code)


def make_redirect_uri(oauth: OAuth) -> str:
    return f"http://127.0.0.1:{oauth.redirect_port}/callback"


class _LoginProvider(OAuthClientProvider):
    """The package's provider for logins, with stored tokens: after a restart it renews the token instead of asking
    again. Without a person to ask, it raises LoginNeededError."""

    def __init__(
        self,
        name: str,
        url: str,
        oauth: OAuth,
        tokens: TokenFile,
        show_page: ShowPage | None,
        await_code: AwaitCode | None,
    ) -> None:
        metadata: JsonObject = {
            "client_name": "dragoman",
            "redirect_uris": [make_redirect_uri(oauth)],
            "scope": oauth.scope,
        }
        super().__init__(url, OAuthClientMetadata.model_validate(metadata), tokens, show_page, await_code)
        self._name, self._tokens, self._oauth = name, tokens, oauth
        self._configured_client: OAuthClientInformationFull | None = None
        if oauth.client_id:
            metadata |= {"client_id": oauth.client_id, "client_secret": oauth.client_secret, "issuer": oauth.issuer}
            metadata["token_endpoint_auth_method"] = (
                CLIENT_AUTH_METHODS[oauth.client_auth] if oauth.client_secret else "none"
            )
            self._configured_client = OAuthClientInformationFull.model_validate(metadata)

    async def _initialize(self) -> None:
        await super()._initialize()
        context = self.context
        context.client_info = self._configured_client or context.client_info
        context.oauth_metadata = self._tokens.get("server", OAuthMetadata)
        context.protected_resource_metadata = self._tokens.get("resource", ProtectedResourceMetadata)
        if context.oauth_metadata is not None:  # else the place to renew is unknown until a 401 tells it
            context.token_expiry_time = self._tokens.read().get("expires_at")

    async def _perform_authorization(self) -> httpx2.Request:
        context = self.context
        issuer = str(context.oauth_metadata.issuer) if context.oauth_metadata is not None else ""
        if self._oauth.issuer and issuer.rstrip("/") != self._oauth.issuer.rstrip("/"):
            raise OAuthFlowError(
                f"the login page belongs to {issuer or 'an unknown server'}, not to the configured issuer"
            )
        self._tokens.update(
            server=_dump(context.oauth_metadata) if context.oauth_metadata else None,
            resource=_dump(context.protected_resource_metadata) if context.protected_resource_metadata else None,
        )
        if context.redirect_handler is not None:
            return await super()._perform_authorization()
        if context.can_refresh_token():
            return await self._refresh_token()
        raise LoginNeededError(f"it needs a login: dragoman mcp login {self._name}")

    async def _handle_token_response(self, response: httpx2.Response) -> None:
        old = self.context.current_tokens
        if response.status_code not in (200, 201):
            self.context.clear_tokens()
            login = "dragoman mcp login " + self._name
            raise LoginNeededError(f"the authorization server refused ({response.status_code}); log in again: {login}")
        await super()._handle_token_response(response)
        new = self.context.current_tokens
        if new is not None and new.refresh_token is None and old is not None and old.refresh_token:
            new.refresh_token = old.refresh_token  # RFC 6749 6: without a new one the old one stays valid
            await self._tokens.set_tokens(new)


# ---------------------------------------------------------------- a person logs in


class LoginRefusedError(DragomanError):
    """The person or the server refused the login."""


class BrowserLogin:
    """Handlers for the provider of the mcp package: shows the login page, and receives the code from the browser.

    Only the answer to our own request counts. Other callers at the port, or another state, get an error page.
    """

    def __init__(
        self, port: int, show_url: Callable[[str], None], ask_address: Callable[[], str] | None = None
    ) -> None:
        """`ask_address` asks for the address at which the browser ended, if the browser cannot reach this machine."""
        self._port, self._show_url, self._ask_address = port, show_url, ask_address
        self._state = ""
        self._answer: asyncio.Future[AuthorizationCodeResult] | None = None
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "BrowserLogin":
        self._answer = asyncio.get_running_loop().create_future()
        if self._ask_address is None:
            try:
                self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, limit=MAX_HEAD_BYTES)
            except OSError as error:
                message = f"port {self._port} is in use: choose another (oauth.redirect_port), or use --paste"
                raise LoginRefusedError(message) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        if self._answer is not None:
            self._answer.cancel()

    async def show_page(self, url: str) -> None:
        self._state = "".join(parse_qs(urlsplit(url).query).get("state", ()))
        self._show_url(url)

    async def await_code(self) -> AuthorizationCodeResult:
        if self._answer is None:
            raise LoginRefusedError("the login has not started")
        if self._ask_address is not None:
            problem = self._accept_answer(urlsplit((await asyncio.to_thread(self._ask_address)).strip()).query)
            if problem:
                raise LoginRefusedError(problem)
        return await self._answer

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
            method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
            address = urlsplit(target)
            problem = (
                self._accept_answer(address.query)
                if (method, address.path) == ("GET", "/callback")
                else "there is no such page"
            )
            message = problem or "You are logged in. This window can be closed."
            page = f"<!doctype html><meta charset=utf-8><title>dragoman</title><p>{html.escape(message)}".encode()
            writer.write(
                f"HTTP/1.1 {400 if problem else 200} X\r\ncontent-type: text/html; charset=utf-8\r\n"
                f"content-length: {len(page)}\r\nconnection: close\r\ncache-control: no-store\r\n"
                f"content-security-policy: default-src 'none'\r\n\r\n".encode()
            )
            writer.write(page)
            await writer.drain()
        except (TimeoutError, OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()  # also if the login ended first

    def _accept_answer(self, query: str) -> str:
        """Takes the answer of the authorization server. Returns what is wrong with it, or an empty text."""
        query_values = {key: values[0] for key, values in parse_qs(query).items()}
        if self._answer is None or self._answer.done():
            return "this login has already ended"
        if not self._state or query_values.get("state") != self._state:
            return "this is not the answer to our request"
        if "error" in query_values:
            message = " ".join((query_values.get("error_description") or query_values["error"]).split())[:200]
            self._answer.set_exception(LoginRefusedError(f"the login was refused: {message}"))
            return message
        if not query_values.get("code"):
            return "the answer has no code"
        found = AuthorizationCodeResult(
            code=query_values["code"], state=query_values["state"], iss=query_values.get("iss")
        )
        self._answer.set_result(found)
        return ""
