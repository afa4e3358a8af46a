"""Tokens for servers that want OAuth 2.1, with the mcp package's own providers.
https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization (read 2026-11-16)

A running gateway has nobody to show a login page to: it uses and renews what `dragoman mcp login` has stored, and says
so when there is nothing. Tokens lie in a file of their own for each name and address, which only the owner reads; they
go to that address alone, and renewals to the authorization server they came from.
"""

import hashlib
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

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
from dragoman.mcp.registry import write_whole
from dragoman.mcp.spec import OAuth, ServerSpec

FOLDER = "mcp-tokens"
METHODS = {"basic": "client_secret_basic", "post": "client_secret_post"}
Show = Callable[[str], Awaitable[None]]
Hear = Callable[[], Awaitable[AuthorizationCodeResult]]


class LoginNeededError(DragomanError):
    """Somebody has to log in."""


class TokenFile:
    """TokenStorage of the mcp package, and what it forgets: when a token ends and who renews it."""

    def __init__(self, folder: Path, spec: ServerSpec) -> None:
        mark = hashlib.sha256((spec.url or "").encode()).hexdigest()[:16]
        self.path = folder / FOLDER / f"{spec.name}-{mark}.json"

    def read(self) -> JsonObject:
        try:
            return load_object(self.path.read_bytes())
        except (OSError, DecodeError):
            return {}

    def update(self, **news: Any) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        kept = {key: value for key, value in (self.read() | news).items() if value is not None}
        write_whole(self.path, dump_json(kept))

    def forget(self) -> bool:
        """False when there was nothing."""
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        return True

    def get(self, key: str, kind: Any) -> Any:
        """A value of the mcp package; None when there is none, or none it can read."""
        try:
            return kind.model_validate(self.read()[key])
        except (KeyError, ValueError):
            return None

    async def get_tokens(self) -> OAuthToken | None:
        found: OAuthToken | None = self.get("tokens", OAuthToken)
        return found

    async def set_tokens(self, tokens: OAuthToken) -> None:
        ends = time.time() + tokens.expires_in if tokens.expires_in is not None else None
        self.update(tokens=_dump(tokens), ends=ends)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        found: OAuthClientInformationFull | None = self.get("client", OAuthClientInformationFull)
        return found

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.update(client=_dump(client_info))


def _dump(value: Any) -> JsonObject:
    body: JsonObject = value.model_dump(mode="json", exclude_none=True)
    return body


def make_auth(spec: ServerSpec, folder: Path, show: Show | None = None, hear: Hear | None = None) -> httpx2.Auth | None:
    """`show` and `hear` are the person who logs in, if there is one. Who has logged in need not say `oauth` too."""
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
    return _Login(spec.name, url, oauth, tokens, show, hear)


def redirect_uri(oauth: OAuth) -> str:
    return f"http://127.0.0.1:{oauth.redirect_port}/callback"


class _Login(OAuthClientProvider):
    """The package's provider for people, with a memory: after a restart it renews instead of asking again, and asks
    nobody where there is nobody."""

    def __init__(
        self, name: str, url: str, oauth: OAuth, tokens: TokenFile, show: Show | None, hear: Hear | None
    ) -> None:
        about: JsonObject = {"client_name": "dragoman", "redirect_uris": [redirect_uri(oauth)], "scope": oauth.scope}
        super().__init__(url, OAuthClientMetadata.model_validate(about), tokens, show, hear)
        self._name, self._tokens, self._oauth = name, tokens, oauth
        self._fixed: OAuthClientInformationFull | None = None
        if oauth.client_id:
            about |= {"client_id": oauth.client_id, "client_secret": oauth.client_secret, "issuer": oauth.issuer}
            about["token_endpoint_auth_method"] = METHODS[oauth.client_auth] if oauth.client_secret else "none"
            self._fixed = OAuthClientInformationFull.model_validate(about)

    async def _initialize(self) -> None:
        await super()._initialize()
        context = self.context
        context.client_info = self._fixed or context.client_info
        context.oauth_metadata = self._tokens.get("server", OAuthMetadata)
        context.protected_resource_metadata = self._tokens.get("resource", ProtectedResourceMetadata)
        if context.oauth_metadata is not None:  # else nobody knows where to renew, and a 401 has to tell first
            context.token_expiry_time = self._tokens.read().get("ends")

    async def _perform_authorization(self) -> httpx2.Request:
        context = self.context
        issuer = str(context.oauth_metadata.issuer) if context.oauth_metadata is not None else ""
        if self._oauth.issuer and issuer.rstrip("/") != self._oauth.issuer.rstrip("/"):
            raise OAuthFlowError(f"the server sends us to {issuer or 'nobody'} to log in, and not to the issuer")
        self._tokens.update(
            server=_dump(context.oauth_metadata) if context.oauth_metadata else None,
            resource=_dump(context.protected_resource_metadata) if context.protected_resource_metadata else None,
        )
        if context.redirect_handler is not None:
            return await super()._perform_authorization()
        if context.can_refresh_token():
            return await self._refresh_token()
        raise LoginNeededError(f"it wants a login: dragoman mcp login {self._name}")

    async def _handle_token_response(self, response: httpx2.Response) -> None:
        before = self.context.current_tokens
        if response.status_code not in (200, 201):
            self.context.clear_tokens()
            words = "a new login: dragoman mcp login " + self._name
            raise LoginNeededError(f"the authorization server refuses ({response.status_code}); it wants {words}")
        await super()._handle_token_response(response)
        now = self.context.current_tokens
        if now is not None and now.refresh_token is None and before is not None and before.refresh_token:
            now.refresh_token = before.refresh_token  # RFC 6749 6: none said is the old one kept
            await self._tokens.set_tokens(now)
