"""TokenChecker: a signed token of an identity provider stands for a holder, as a key of ours does.

The provider's public keys are fetched once and kept. A token that names an unknown key makes us fetch them again, at
most once in ten seconds. While the provider is away we go on with the keys we have. PyJWT checks the signature and the
times.
"""

import asyncio
import hashlib
import json
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any
from urllib.parse import urlsplit

import jwt
from msgspec.structs import replace

from dragoman.accounts.grants import (
    LONGEST_NAME,
    NO_GRANT,
    Grant,
    Holder,
    check_grant,
    check_name,
    make_holder,
)
from dragoman.fetch import fetch
from dragoman.gateway.config.settings import OidcSettings
from dragoman.log_line import LogLine

log = logging.getLogger(__name__)
# No HMAC: a public key must never be taken for a shared secret. No `none`.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
FRESH_S = 600.0
AGAIN_S = 10.0  # the least time between two fetches because of an unknown key
LEEWAY_S = 30.0
FETCH_S = 5.0
PREPARE_S = 10.0  # a request waits at most this long for all documents
MOST_BYTES = 1024 * 1024
MOST_KNOWN = 10_000  # good tokens that are remembered
DISCOVERY = "/.well-known/openid-configuration"
# Errors that PyJWT raises after it has checked the signature.
_OF_CLAIMS = (
    jwt.ExpiredSignatureError,
    jwt.ImmatureSignatureError,
    jwt.InvalidAudienceError,
    jwt.InvalidIssuerError,
    jwt.MissingRequiredClaimError,
)
_SHAPE = re.compile(r"[A-Za-z0-9_-]{10,4096}\.[A-Za-z0-9_-]{10,8192}\.[A-Za-z0-9_-]{10,2048}")

Fetch = Callable[[str], bytes]


class TokenChecker:
    def __init__(
        self,
        settings: OidcSettings,
        find_team: Callable[[str], Grant | None],
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        fetch: Fetch | None = None,
    ) -> None:
        """`find_team`: returns the grant of a team, or None if there is no such team."""
        self._settings, self._find_team = settings, find_team
        self._clock, self._wall = clock, wall
        self._fetch = fetch or fetch_document
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched = self._tried = float("-inf")
        self._known: OrderedDict[bytes, tuple[Holder, float, Grant | None]] = OrderedDict()  # and its team
        self._fetching = asyncio.Lock()

    def take_keys(self, other: "TokenChecker") -> None:
        """After a reload: takes over the keys of the same provider."""
        if other._settings.issuer == self._settings.issuer and other._settings.jwks_url == self._settings.jwks_url:
            self._keys, self._fetched, self._tried = other._keys, other._fetched, other._tried

    def is_token(self, key: str) -> bool:
        return _SHAPE.fullmatch(key) is not None

    async def prepare(self, token: str) -> None:
        """Fetches the provider's keys, if this token needs newer ones."""
        if not self._needs_keys(token):
            return
        async with self._fetching:
            if self._needs_keys(token):
                await self._fetch_keys()

    async def _fetch_keys(self) -> None:
        try:
            async with asyncio.timeout(PREPARE_S):  # a provider that answers too slowly counts as away
                self._keys = await asyncio.to_thread(self._load)
            self._fetched = self._clock()
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, jwt.PyJWTError) as error:
            log.warning(LogLine("oidc_keys_not_read", {"why": f"{type(error).__name__}: {error}"[:200]}))
        finally:
            self._tried = self._clock()  # set when the fetch ends: requests that waited for it do not start another one

    def _needs_keys(self, token: str) -> bool:
        now = self._clock()
        if now - self._tried < AGAIN_S or hashlib.sha256(token.encode()).digest() in self._known:
            return False
        return now - self._fetched > FRESH_S or self._name_key(token) not in self._keys

    def _load(self) -> dict[str, jwt.PyJWK]:
        url = self._settings.jwks_url
        if not url:
            about = json.loads(self._fetch(self._settings.issuer.rstrip("/") + DISCOVERY))
            if about["issuer"] != self._settings.issuer:
                raise ValueError("the provider says that it is another issuer")
            url = check_url(about["jwks_uri"])
        rows = json.loads(self._fetch(url))["keys"]
        usable = [row for row in rows if row.get("use", "sig") == "sig" and row.get("kty") != "oct"]
        found = ((row["kid"], _read_key(row)) for row in usable if isinstance(row.get("kid"), str))
        keys = {name: key for name, key in found if key is not None}
        if usable and not keys:
            raise ValueError("none of the provider's keys is of a kind that is known")
        return keys

    def _name_key(self, token: str) -> str:
        try:
            return str(jwt.get_unverified_header(token).get("kid"))
        except jwt.PyJWTError:
            return ""

    def check(self, token: str) -> Holder | None:
        """The holder that a good token stands for."""
        if not self.is_token(token):
            return None
        digest = hashlib.sha256(token.encode()).digest()
        known = self._known.get(digest)
        if known is not None and self._wall() < known[1] and self._grant_of(known[0].team) == known[2]:
            return known[0]
        claims = self._decode(token)
        end = _read_end(claims["exp"]) if claims is not None else None
        holder = self._make_holder(claims) if claims is not None and end is not None else None
        if holder is not None and end is not None:
            self._known[digest] = (holder, end, self._grant_of(holder.team))
            if len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)
        return holder

    def _decode(self, token: str) -> dict[str, Any] | None:
        try:
            return self._read_claims(token)
        except (jwt.PyJWTError, ValueError, TypeError):
            return None

    def _read_claims(self, token: str) -> dict[str, Any] | None:
        """None: its key is not one of the provider's. The signature is checked before the claims."""
        key = self._keys.get(self._name_key(token))
        if key is None:
            return None
        settings = self._settings
        found: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=list(ALGORITHMS),
            audience=settings.audience,
            issuer=settings.issuer,
            leeway=LEEWAY_S,
            options={"require": ["exp", "iss", "aud", "sub"]},
        )
        return found

    def _make_holder(self, claims: Mapping[str, Any]) -> Holder | None:
        """The holder that the claims describe. None if a claim has the wrong form: then nothing is allowed."""
        settings = self._settings
        owner = hashlib.sha256(f"{claims['iss']}\0{claims['sub']}".encode()).hexdigest()[:16]
        name = claims.get(settings.name_claim, claims["sub"])
        team = claims.get(settings.team_claim, settings.team)
        if not isinstance(name, str) or not isinstance(team, str):
            return None
        try:
            grant, name, team = self._make_grant(claims), check_name(name[:LONGEST_NAME]), check_name(team)
        except ValueError:
            return None
        team_grant = self._grant_of(team)
        if team_grant is None:
            return None
        return make_holder(f"oidc-{owner}", name, grant, team=team, team_grant=team_grant)

    def _grant_of(self, team: str) -> Grant | None:
        """None for a team that does not exist: none of its limits would hold."""
        return self._find_team(team) if team else NO_GRANT

    def explain(self, token: str) -> str:
        """Why a token that the provider has signed is refused, for its owner; "" for any other token."""
        try:
            claims = self._read_claims(token) if self.is_token(token) else None
        except _OF_CLAIMS as error:
            return f"this token is refused: {error}"
        except (jwt.PyJWTError, ValueError, TypeError):
            return ""
        if claims is None:
            return ""
        try:
            self._make_grant(claims)
        except ValueError as error:
            return f"this token is refused: {error}"
        team = claims.get(self._settings.team_claim, self._settings.team)
        if not isinstance(team, str) or len(team) > LONGEST_NAME or self._grant_of(team) is not None:
            return ""
        return f"the team {team!r} of this token does not exist here: an admin of this gateway can make it"

    def _make_grant(self, claims: Mapping[str, Any]) -> Grant:
        grant = NO_GRANT
        if (models := claims.get(self._settings.models_claim)) is not None:
            words = models.split() if isinstance(models, str) else models
            if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
                raise ValueError("models: expected a list of texts")
            grant = replace(grant, models=tuple(words))
        if (budget := claims.get(self._settings.budget_claim)) is not None:
            grant = replace(grant, budget=str(budget))
        return check_grant(grant)


def _read_end(value: Any) -> float | None:
    """When a token ends. None: the provider signed a number that is no time."""
    try:
        end = float(value)
    except OverflowError:
        return None
    return end if isfinite(end) else None


def _read_key(row: dict[str, Any]) -> jwt.PyJWK | None:
    """A key of the provider. None if we do not know its type: such keys are skipped (RFC 7517, 5)."""
    try:
        return jwt.PyJWK(row)
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None


def check_url(url: str) -> str:
    """Only https, or this machine: otherwise an attacker in between could replace the keys."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost", "::1")):
        raise ValueError("expected https://...")
    return url


def fetch_document(url: str) -> bytes:
    return fetch(check_url(url), seconds=FETCH_S, most_bytes=MOST_BYTES, follow=check_url)
