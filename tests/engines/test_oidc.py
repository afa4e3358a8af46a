"""Tokens of an identity provider: a real issuer on loopback. Its keys change, and it goes away."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from dragoman.accounts.grants import NO_GRANT, Grant
from dragoman.gateway.config.settings import OidcSettings
from dragoman.oidc import tokens
from dragoman.oidc.tokens import AGAIN_S, FRESH_S, TokenChecker, fetch_document
from tests.cli.test_serve import serving
from tests.gateway.web import post, send
from tests.raw_server import raw_server

BODY = {"model": "echo", "messages": [{"role": "user", "content": "hi"}]}


class Issuer:
    """Signs tokens and shows its public keys."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {}
        self.asked = 0
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked += 1
                rows = [
                    {**json.loads(algorithm(key).to_jwk(key.public_key())), "kid": kid, "use": "sig"}
                    for kid, key in issuer.keys.items()
                ]
                about = {"issuer": issuer.url, "jwks_uri": f"{issuer.url}/keys"}
                data = json.dumps(about if "well-known" in self.path else {"keys": rows}).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.rotate("one", rsa.generate_private_key(public_exponent=65537, key_size=2048))

    def rotate(self, kid: str, key: Any) -> None:
        self.keys = {kid: key}

    def sign(self, kid: str = "one", **claims: Any) -> str:
        key = self.keys[kid]
        usual = {"iss": self.url, "aud": "dragoman", "sub": "ada", "exp": time.time() + 600}
        name = "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256"
        said = {name: value for name, value in (usual | claims).items() if value is not None}
        token: str = jwt.encode(said, key, algorithm=name, headers={"kid": kid})
        return token


def algorithm(key: Any) -> Any:
    return jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    found = Issuer()
    yield found
    found.server.shutdown()
    found.server.server_close()


def ask(url: str, token: str, **more: Any) -> int:
    return post(url, "/v1/chat/completions", {**BODY, **more}, {"authorization": f"Bearer {token}"}).status


def test_tokens_open_the_gateway_as_keys_do(issuer: Issuer, tmp_path: Path) -> None:
    oidc = {"issuer": issuer.url, "audience": "dragoman"}
    teams = {"web": {"models": ["echo"]}}
    (tmp_path / "config.json").write_text(json.dumps({"demo": True, "oidc": oidc, "team": teams}))
    with serving(tmp_path) as running:
        good = issuer.sign()
        assert send(running.url, "GET", "/v1/models").status == 401, "a token is needed"
        assert ask(running.url, good) == 200
        assert issuer.asked == 2
        assert ask(running.url, good) == 200
        assert issuer.asked == 2, "the keys are kept"
        other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        forged = jwt.encode(jwt.decode(good, options={"verify_signature": False}), other, "RS256", {"kid": "one"})
        public = issuer.keys["one"].public_key().public_numbers().n.to_bytes(256, "big")
        confused = jwt.encode({"iss": issuer.url, "aud": "dragoman", "sub": "x", "exp": 9e9}, public, "HS256")
        bad = {
            "forged": forged,
            "another algorithm": confused,
            "unsigned": jwt.encode({"sub": "ada"}, "", "none"),
            "over": issuer.sign(exp=time.time() - 60),
            "for another": issuer.sign(aud="other"),
            "of another": issuer.sign(iss="https://other.test"),
            "without an end": issuer.sign(exp=None),
            "without a person": issuer.sign(sub=None),
            "models that are none": issuer.sign(models=[1]),
        }
        assert {name: ask(running.url, token) for name, token in bad.items()} == dict.fromkeys(bad, 401)
        assert ask(running.url, issuer.sign(models=["gpt-*"])) == 403
        assert ask(running.url, issuer.sign(team="web")) == 200
        assert ask(running.url, issuer.sign(team="web"), model="demo") == 403, (
            "what the team may not, its tokens may not"
        )
        assert send(running.url, "GET", "/metrics", headers={"authorization": f"Bearer {good}"}).status in (401, 403)


ODD_KEYS: list[dict[str, Any]] = [
    {"kty": "AKP", "alg": "ML-DSA-44", "pub": "x", "kid": "pq"},
    {"kty": "EC", "crv": "P-999", "x": "AA", "y": "AA", "kid": "curve"},
    {"kty": "RSA", "kid": "bare"},
    {"kty": "RSA", "n": "!", "e": 5, "kid": "wrong"},
    {"kid": "nothing"},
]


@pytest.mark.parametrize("odd", ODD_KEYS, ids=lambda odd: odd["kid"])
def test_a_key_of_an_unknown_kind_leaves_the_others_good(issuer: Issuer, odd: dict[str, Any]) -> None:
    """RFC 7517, 5: keys that are not understood should be ignored."""
    rows: list[dict[str, Any]] = [odd, *json.loads(fetch_document(f"{issuer.url}/keys"))["keys"]]
    settings = OidcSettings(issuer=issuer.url, audience="dragoman", jwks_url=f"{issuer.url}/keys")
    now = [0.0]
    checker = TokenChecker(
        settings, lambda team: NO_GRANT, clock=lambda: now[0], fetch=lambda url: json.dumps({"keys": rows}).encode()
    )
    token, later = issuer.sign(), issuer.sign(sub="bob")
    asyncio.run(checker.prepare(token))
    assert checker.check(token) is not None
    rows.pop()  # now there is none that is known: those from before hold
    now[0] += FRESH_S + 1
    asyncio.run(checker.prepare(later))
    assert checker.check(later) is not None


def test_a_new_key_is_fetched_and_old_ones_hold_while_the_provider_is_away(issuer: Issuer) -> None:
    now = [0.0]
    settings = OidcSettings(issuer=issuer.url, audience="dragoman")
    checker = TokenChecker(settings, lambda team: NO_GRANT, clock=lambda: now[0])

    def opens(token: str) -> bool:
        asyncio.run(checker.prepare(token))
        return checker.check(token) is not None

    first = issuer.sign()
    assert opens(first)
    issuer.rotate("two", ec.generate_private_key(ec.SECP256R1()))
    second = issuer.sign("two")
    assert not opens(second), "the keys were fetched a moment ago"
    now[0] += AGAIN_S
    assert opens(second)
    holder = checker.check(second)
    assert holder is not None
    assert holder == checker.check(first), "a person is the same with every token"
    issuer.server.shutdown()
    issuer.server.server_close()
    now[0] += FRESH_S + 1
    assert opens(issuer.sign("two", sub="bob")), "the provider is away: its keys hold"


def settings_of(issuer: Issuer) -> OidcSettings:
    return OidcSettings(issuer=issuer.url, audience="dragoman")


def test_a_team_that_changes_counts_for_tokens_that_are_known(issuer: Issuer) -> None:
    teams = {"web": Grant(models=("*",))}
    checker = TokenChecker(settings_of(issuer), lambda team: teams[team])
    token = issuer.sign(team="web")
    asyncio.run(checker.prepare(token))
    before = checker.check(token)
    assert before is not None
    assert before.may_use("gpt-x")
    teams["web"] = Grant(models=("other",))
    after = checker.check(token)
    assert after is not None
    assert not after.may_use("gpt-x")


def test_a_token_of_an_unknown_team_is_refused_with_the_reason(issuer: Issuer, tmp_path: Path) -> None:
    """Seen: a wrong letter in the claim was a way around all limits and budgets of the team."""
    oidc = {"issuer": issuer.url, "audience": "dragoman", "team": "everyone"}
    teams = {"web": {"rpm": 1}, "everyone": {"rpm": 1}}
    (tmp_path / "config.json").write_text(json.dumps({"demo": True, "oidc": oidc, "team": teams}))
    with serving(tmp_path) as running:
        lost = {"authorization": f"Bearer {issuer.sign(team='wbe')}"}
        refused = post(running.url, "/v1/chat/completions", BODY, lost)
        assert refused.status == 401
        assert "the team 'wbe' of this token does not exist here" in refused.text
        assert [ask(running.url, issuer.sign(team="web", sub=name)) for name in ("ada", "bob")] == [200, 429]
        assert [ask(running.url, issuer.sign(sub=name)) for name in ("ada", "bob")] == [200, 429], "the stated default"


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"exp": 1}, "Signature has expired"),
        ({"aud": "other"}, "Audience doesn't match"),
        ({"iss": "https://other.test"}, "Invalid issuer"),
        ({"exp": None}, 'Token is missing the "exp" claim'),
        ({"budget": "lots"}, "budget: expected a budget like '20 USD/month'"),
        ({"models": 7}, "models: expected a list of texts"),
    ],
    ids=str,
)
def test_the_owner_of_a_token_hears_why_it_is_refused(issuer: Issuer, claims: dict[str, Any], why: str) -> None:
    """All of these said "no valid key", to the person and in the log."""
    checker = TokenChecker(settings_of(issuer), lambda team: NO_GRANT)
    token = issuer.sign(**claims)
    asyncio.run(checker.prepare(token))
    assert checker.check(token) is None
    assert f"this token is refused: {why}" in checker.explain(token)


def test_a_token_that_another_has_signed_hears_nothing(issuer: Issuer) -> None:
    checker = TokenChecker(settings_of(issuer), lambda team: NO_GRANT)
    asyncio.run(checker.prepare(issuer.sign()))
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    forged = jwt.encode({"iss": issuer.url, "aud": "other", "sub": "x", "exp": 1}, other, "RS256", {"kid": "one"})
    assert [checker.explain(token) for token in (forged, f"{forged[:-9]}AAAAAAAAA", "a.b.c", "dk-x")] == [""] * 4


def test_a_team_that_is_deleted_closes_its_tokens_and_one_that_is_made_opens_them(issuer: Issuer) -> None:
    teams: dict[str, Grant] = {}
    checker = TokenChecker(settings_of(issuer), teams.get)
    token = issuer.sign(team="web")
    asyncio.run(checker.prepare(token))
    assert checker.check(token) is None
    teams["web"] = Grant(rpm=5)
    assert checker.check(token) is not None
    del teams["web"]
    assert checker.check(token) is None
    assert checker.check(issuer.sign()) is not None, "a token without a team needs none"


@pytest.mark.parametrize("claims", [{"sub": "\x1b[31mred"}, {"team": "a\nb"}, {"team": "x" * 101}, {"team": ["web"]}])
def test_a_claim_that_is_no_name_opens_nothing(issuer: Issuer, claims: dict[str, Any]) -> None:
    """Otherwise it would get into logs, metrics and the tables that a terminal shows."""
    checker = TokenChecker(settings_of(issuer), lambda team: NO_GRANT)
    token = issuer.sign(**claims)
    asyncio.run(checker.prepare(token))
    assert checker.check(token) is None
    assert checker.check(issuer.sign()) is not None


def test_those_that_wait_for_a_slow_provider_do_not_ask_it_again(issuer: Issuer) -> None:
    now, asked = [0.0], []

    def fetch(url: str) -> bytes:
        asked.append(url)
        now[0] += 2 * AGAIN_S
        raise TimeoutError

    checker = TokenChecker(settings_of(issuer), lambda team: NO_GRANT, clock=lambda: now[0], fetch=fetch)

    async def all_wait() -> None:
        await asyncio.gather(*[checker.prepare(issuer.sign(sub=f"s{i}")) for i in range(9)])

    asyncio.run(all_wait())
    assert len(asked) == 1


@pytest.mark.parametrize(
    "document",
    [b"[]", b"{}", b'{"keys": [1]}', b'{"keys": 1}', b'{"keys": [{"kid": "a"}]}', b"\xff", b"[" * 100_000],
)
def test_a_document_that_is_none_opens_nothing_and_breaks_nothing(issuer: Issuer, document: bytes) -> None:
    settings = OidcSettings(issuer=issuer.url, audience="dragoman", jwks_url=f"{issuer.url}/keys")
    checker = TokenChecker(settings, lambda team: NO_GRANT, fetch=lambda url: document)
    token = issuer.sign()
    asyncio.run(checker.prepare(token))
    assert checker.check(token) is None


@pytest.mark.parametrize("drips", [False, True])
@pytest.mark.parametrize(
    "answer", [b"\x00 what\r\n\r\n", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nff\r\na"]
)
def test_a_provider_that_speaks_no_http_opens_nothing_and_breaks_nothing(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch, answer: bytes, *, drips: bool
) -> None:
    """The thread that asks ends too: an event loop has few of them, and waits for them at its end."""
    monkeypatch.setattr(tokens, "FETCH_S", 0.2)
    with raw_server(answer, drips=drips) as server:
        settings = OidcSettings(issuer=issuer.url, audience="dragoman", jwks_url=f"{server.url}/keys")
        checker = TokenChecker(settings, lambda team: NO_GRANT)
        asyncio.run(checker.prepare(issuer.sign()))  # returns when its threads have ended
        assert checker.check(issuer.sign()) is None


@pytest.mark.parametrize("end", [10**400, float("inf"), float("nan"), "9" * 4000, -(10**400), True, [1], "x"])
def test_an_end_that_is_no_time_opens_nothing(issuer: Issuer, end: object) -> None:
    checker = TokenChecker(settings_of(issuer), lambda team: NO_GRANT)
    claims = {"iss": issuer.url, "aud": "dragoman", "sub": "ada", "exp": end}
    token = jwt.api_jws.encode(json.dumps(claims).encode(), issuer.keys["one"], "RS256", {"kid": "one"})
    asyncio.run(checker.prepare(token))
    assert checker.check(token) is None


def test_keys_are_not_fetched_where_others_could_change_them() -> None:
    for url in ("http://example.test/keys", "file:///etc/hostname", "ftp://example.test/keys"):
        with pytest.raises(ValueError, match="https"):
            fetch_document(url)
        moved = f"HTTP/1.1 302 x\r\nlocation: {url}\r\ncontent-length: 0\r\n\r\n".encode()
        with raw_server(moved) as server, pytest.raises(OSError, match=r"cannot be asked|answered 302"):
            fetch_document(server.url)
