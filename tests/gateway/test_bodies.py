"""Compressed bodies: read where they are good, counted while they are inflated, never more than they may become."""

import gzip
import json
import random
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dragoman.errors import DecodeError, UpstreamError
from dragoman.gateway import bodies
from dragoman.gateway.bodies import _find_zstd, inflate
from tests.gateway.house import House, open_house
from tests.gateway.web import post

zstd: Any = _find_zstd()
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstd.compress,
    " ZSTD ": zstd.compress,
    "identity": bytes,
}
CODED = ["gzip", "deflate", "zstd"]
LIMIT = 32 * 1024 * 1024
TEXT = json.dumps({"말": "안녕하세요", "n": list(range(5000))}, ensure_ascii=False).encode()


@pytest.mark.parametrize("encoding", PACKERS)
def test_a_compressed_body_is_read(encoding: str) -> None:
    assert inflate(PACKERS[encoding](TEXT), encoding, LIMIT) == TEXT


@pytest.mark.parametrize("encoding", CODED)
def test_several_frames_are_one_body(encoding: str) -> None:
    pack = PACKERS[encoding]
    assert inflate(pack(TEXT) + pack(b"more"), encoding, LIMIT) == TEXT + b"more"


@pytest.mark.parametrize("encoding", CODED)
@pytest.mark.parametrize("harm", ["cut", "cut early", "noise", "noise behind"])
def test_a_broken_body_is_the_clients_error(encoding: str, harm: str) -> None:
    data = PACKERS[encoding](TEXT)
    broken = {"cut": data[:-5], "cut early": data[:3], "noise": b"not at all", "noise behind": data + b"noise"}
    with pytest.raises(DecodeError, match="content-encoding"):
        inflate(broken[harm], encoding, LIMIT)


@pytest.mark.parametrize("encoding", CODED)
def test_a_bomb_does_not_go_off(encoding: str) -> None:
    bomb = PACKERS[encoding](bytes(64_000_000))
    tracemalloc.start()
    began = time.process_time()
    try:
        with pytest.raises(UpstreamError) as caught:
            inflate(bomb, encoding, LIMIT)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.failure.status == 413
    assert peak < 32_000_000, "no more than what may come out of so few bytes, and a copy of it"
    assert time.process_time() - began < 1


@pytest.mark.parametrize("encoding", CODED)
def test_many_small_frames_are_counted_together(encoding: str) -> None:
    bomb = PACKERS[encoding](bytes(900_000)) * 20
    with pytest.raises(UpstreamError) as caught:
        inflate(bomb, encoding, LIMIT)
    assert caught.value.failure.status == 413


@pytest.mark.parametrize("encoding", CODED)
@pytest.mark.parametrize(
    ("size", "limit", "good"),
    [(1024 * 1024, 2**25, True), (1024 * 1024 + 1, 2**25, False), (1000, 1000, True), (1001, 1000, False)],
    ids=["a megabyte is free", "over it the ratio counts", "the limit", "over the limit"],
)
def test_what_may_come_out_is_bounded_by_ratio_and_limit(encoding: str, size: int, limit: int, good: bool) -> None:
    data = PACKERS[encoding](bytes(size))
    if good:
        assert len(inflate(data, encoding, limit)) == size
    else:
        with pytest.raises(UpstreamError):
            inflate(data, encoding, limit)


def test_a_window_no_server_need_have_is_refused() -> None:
    packer = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 27})
    data = packer.compress(TEXT) + packer.flush()
    with pytest.raises(DecodeError):
        inflate(data, "zstd", LIMIT)


def test_without_the_package_zstd_is_415_and_says_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "_find_zstd", lambda: None)
    with pytest.raises(UpstreamError, match="gzip") as caught:
        inflate(zstd.compress(TEXT), "zstd", LIMIT)
    assert caught.value.failure.status == 415


HI = [{"role": "user", "content": "say hi"}]
DOORS: dict[str, Any] = {
    "/v1/responses": {"model": "demo", "input": "say hi"},  # FIELD-CASES 97: Codex Desktop
    "/v1/chat/completions": {"model": "demo", "messages": HI},
    "/v1/messages": {"model": "demo", "max_tokens": 9, "messages": HI},
    "/v1/messages/count_tokens": {"model": "demo", "messages": HI},
    "/v1beta/models/demo:generateContent": {"contents": [{"parts": [{"text": "say hi"}]}]},
    "/v1/embeddings": {"model": "demo", "input": "say hi"},
    "/api/chat": {"model": "demo", "messages": HI, "stream": False},
    "/api/show": {"model": "demo"},
    "/generate": {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "generate_content",
        "params": {"model": "demo", "messages": HI},
    },
}


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with open_house() as house:
        yield house


@pytest.mark.parametrize("path", DOORS)
@pytest.mark.parametrize("encoding", CODED)
def test_every_door_takes_it(path: str, encoding: str, house: House) -> None:
    plain = post(house.url, path, DOORS[path])
    got = post(house.url, path, PACKERS[encoding](json.dumps(DOORS[path]).encode()), {"content-encoding": encoding})
    assert (got.status, got.json.keys()) == (plain.status, plain.json.keys())
    assert not got.json.get("error")
    wrong = post(house.url, path, b"junk", {"content-encoding": encoding})
    assert wrong.status == (200 if path == "/generate" else 400)  # an answer of JSON-RPC, which says so in its body
    assert "content-encoding" in wrong.text
    assert post(house.url, path, b"junk", {"content-encoding": "br"}).status == 415


@pytest.mark.parametrize("encoding", CODED)
def test_empty_parts_cost_no_more_than_others(encoding: str) -> None:
    """30 MB of them took minutes: each copied all the rest."""
    empty = PACKERS[encoding](b"")
    bomb = empty * (30_000_000 // len(empty))
    began = time.process_time()
    with pytest.raises(DecodeError, match="more than 1000 parts"):
        inflate(bomb, encoding, LIMIT)
    assert time.process_time() - began < 2.0
    assert inflate(empty * 900 + PACKERS[encoding](TEXT), encoding, LIMIT) == TEXT


@pytest.mark.parametrize("encoding", CODED)
def test_a_body_larger_than_a_piece_is_whole(encoding: str) -> None:
    noise = random.Random(3).randbytes(300_000)  # noqa: S311  # does not compress
    assert inflate(PACKERS[encoding](noise) * 2, encoding, 10 * LIMIT) == noise * 2
