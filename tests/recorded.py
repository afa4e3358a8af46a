"""The recorded traffic of `shared/corpus`, read where it lies. Absent, the tests that need it skip and say so."""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dragoman.wire import WireReply, WireRequest


def corpus_root() -> Path | None:
    given = os.environ.get("DRAGOMAN_CORPUS")
    root = Path(given) if given else Path(__file__).parents[2] / "shared" / "corpus"
    return root if (root / "cases").is_dir() else None


needs_corpus = pytest.mark.skipif(
    corpus_root() is None, reason="no recorded traffic: set DRAGOMAN_CORPUS or put shared/corpus beside the project"
)


class Case(NamedTuple):
    name: str
    path: Path
    meta: dict[str, Any]

    @property
    def dialect(self) -> str:
        return str(self.meta["dialect"])

    def read(self, file: str) -> bytes | None:
        path = self.path / file
        return path.read_bytes() if path.exists() else None

    def request(self) -> WireRequest | None:
        data = self.read("request.json")
        if data is None:
            return None
        headers = {k.lower(): v for k, v in (self.meta.get("request_headers") or {}).items()}
        return WireRequest(body=json.loads(data), path=self.meta.get("url_path") or "", headers=headers)

    def reply(self) -> WireReply | None:
        data = self.read("reply.json")
        if data is None:
            return None
        headers = {k.lower(): v for k, v in (self.meta.get("response_headers") or {}).items()}
        return WireReply(body=json.loads(data), status=self.meta.get("status") or 200, headers=headers)

    def stream(self) -> bytes | None:
        for file in ("stream.sse", "stream.ndjson", "stream.json"):
            data = self.read(file)
            if data is not None:
                return data
        return None

    @property
    def failed(self) -> bool:
        return (self.meta.get("status") or 200) >= 400


@cache
def cases(dialect: str) -> tuple[Case, ...]:
    """All cases of a dialect, by name; none where there is no corpus."""
    root = corpus_root()
    if root is None:
        return ()
    folders = sorted((root / "cases" / dialect).iterdir())
    return tuple(Case(f.name, f, json.loads((f / "meta.json").read_bytes())) for f in folders)
