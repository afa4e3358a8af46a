"""The configuration file for the console: its text without secrets, a check, earlier versions, and a safe way to save.

A secret in the text is shown as `[kept:1a2b3c4d]`. A text with that word in it is saved with the secret, where the
secret was before. Programs that the gateway starts (MCP servers with a `command`) cannot be named here: an admin's
browser must not be able to start a program on the gateway's machine, or to send a key elsewhere (`moved_secrets.py`).
"""

import hmac
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from time import time
from typing import Any

import msgspec
from msgspec import Struct

from dragoman.errors import ConfigError
from dragoman.gateway.config.check import check_dots, check_text
from dragoman.gateway.config.moved_secrets import refuse_moved, refuse_new_places, refuse_programs
from dragoman.gateway.config.source import find_line, parse, read_text
from dragoman.log_line import KEY_LIKE

FOLDER = "config-history"
MOST_VERSIONS = 50
SHORTEST_SECRET = 6
_KEPT = re.compile(r"\[kept:([0-9a-f]{8})\]")
_SENSITIVE = re.compile(r"(?:^|_)(?:api_?keys?|keys?|secrets?|passwords?|tokens?|authorization|webhook)$", re.I)
_OPEN = ("client_key", "tls_key")  # names of files, so no secrets
_ALL_INSIDE = ("headers", "env")  # every value in these tables may be a secret
_PASSWORD = re.compile(r"://[^/@\s:]*:([^@\s]+)@")
_IN_QUERY = re.compile(r"[?&][\w-]*(?:key|token|secret|sig|password)[\w-]*=([^&\"'\s]+)", re.I)
_QUOTED = re.compile(r"""(?:key|secret|token|password)\w*["']?\s*[=:]\s*\[?\s*(["'])(.{6,}?)\1""", re.I)


class Version(Struct, frozen=True, kw_only=True):
    """One text that the file had."""

    number: int  # the time when it was first seen, in milliseconds
    who: str
    text: str


class ConfigBook:
    def __init__(
        self, source: Path, folder: Path | None, env: Mapping[str, str] | None = None, secret: bytes = b""
    ) -> None:
        """`secret` makes the words for secrets: without it, a short password could be guessed from its word."""
        self.source, self._secret = source, secret
        self._folder = None if folder is None else folder / FOLDER
        self._env = os.environ if env is None else env

    def read(self) -> str:
        return read_text(self.source)

    def check(self, text: str) -> None:
        """A ConfigError names the line that is wrong. Its words quote no secret and no variable."""
        whole = self.fill_in(text)
        try:
            check_text(whole, self._env)
        except ConfigError as error:
            line = find_line(whole, error.key) or _line_in(error.why)
            raise ConfigError(str(self.source), error.key, self._hide_in(error.why, whole), line) from error

    # ---------------------------------------------------------------- secrets

    def hide(self, text: str) -> str:
        return self._hide_in(text, text)

    def _hide_in(self, words: str, text: str) -> str:
        """The words without the secrets of a text."""
        for secret in sorted(self._find_secrets(text), key=len, reverse=True):
            words = words.replace(secret, f"[kept:{self._name(secret)}]")
        return words

    def fill_in(self, text: str) -> str:
        """Puts secrets back that are in the file now or were in it before."""
        if not _KEPT.search(text):
            return text
        texts = [version.text for version in self.versions()]
        with suppress(ConfigError):
            texts.append(self.read())
        known = {self._name(secret): secret for one in texts for secret in self._find_secrets(one)}
        return _KEPT.sub(lambda found: known.get(found[1], found[0]), text)

    def _name(self, secret: str) -> str:
        return hmac.digest(b"console:" + self._secret, secret.encode(), sha256).hex()[:8]

    def _find_secrets(self, text: str) -> set[str]:
        found = {*_PASSWORD.findall(text), *_IN_QUERY.findall(text), *KEY_LIKE.findall(text)}
        try:
            check_dots(text)
            found |= set(_walk(parse(text, self.source), hidden=False))
        except ConfigError:  # not valid TOML: hide texts in quotes behind the name of a secret key
            found |= {value for _, value in _QUOTED.findall(text)}
        return {word for word in found if len(word) >= SHORTEST_SECRET and "${" not in word}

    # ---------------------------------------------------------------- versions

    def versions(self) -> list[Version]:
        """The newest first."""
        if self._folder is None or not self._folder.is_dir():
            return []
        found: list[Version] = []
        for path in sorted(self._folder.glob("*.json"), reverse=True)[:MOST_VERSIONS]:
            with suppress(OSError, msgspec.DecodeError):
                found.append(msgspec.json.decode(path.read_bytes(), type=Version))
        return found

    def remember(self, who: str) -> None:
        """Keeps the text of the file, if the newest version is another one."""
        if self._folder is None:
            return
        with suppress(ConfigError, OSError):
            text, known = self.read(), self.versions()
            if known and known[0].text == text:
                return
            number = max(int(time() * 1000), known[0].number + 1 if known else 0)  # two in one millisecond are two
            version = Version(number=number, who=who, text=text)
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(self._folder / f"{version.number}.json", msgspec.json.encode(version))
            for old in sorted(self._folder.glob("*.json"))[:-MOST_VERSIONS]:
                old.unlink()

    # ---------------------------------------------------------------- saving

    def save(self, text: str, who: str, before: str) -> None:
        """Writes a good text. `before` is the digest of the text that was edited; a ConfigError if it is another one by
        now, or if the new one is not good."""
        old = self.read()
        if digest_text(old) != before:
            raise ConfigError(str(self.source), "", "the file has changed since it was opened: load it again")
        self.check(text)
        typed, text = text, self.fill_in(text)
        if _KEPT.search(text):
            raise ConfigError(str(self.source), "", "a [kept:...] word is unknown: write the secret itself")
        self._refuse_moved(old, typed, text)
        self.remember("file")
        self.write(text)
        self.remember(who)

    def _refuse_moved(self, old: str, typed: str, text: str) -> None:
        """`typed` is the text as it came, before the secrets were put back."""
        file, will = str(self.source), parse(text, self.source)
        refuse_programs(parse(old, self.source), will, file)
        before = [one for one in (old, *(version.text for version in self.versions())) if self._is_readable(one)]
        hidden = set().union(*[self._find_secrets(one) for one in (*before, text)])
        refuse_moved([parse(self.hide(one), self.source) for one in before], parse(typed, self.source), file)
        refuse_new_places([parse(one, self.source) for one in before], will, typed, hidden, file, self._env)

    def _is_readable(self, text: str) -> bool:
        try:
            check_dots(text)
            parse(text, self.source)
        except ConfigError:
            return False
        return True

    def write(self, text: str) -> None:
        _write(self.source, text.encode())


def _line_in(why: str) -> int | None:
    """The reader of TOML says `(at line 3, column 5)`."""
    match = re.search(r"line (\d+)", why)
    return int(match[1]) if match else None


def digest_text(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


def _walk(value: Any, *, hidden: bool) -> Iterator[str]:
    """Every text in a sensitive place."""
    match value:
        case str() if hidden:
            yield value
        case list():
            for item in value:
                yield from _walk(item, hidden=hidden)
        case dict():
            for name, item in value.items():
                secret = bool(_SENSITIVE.search(name)) and name not in _OPEN and not isinstance(item, dict)
                yield from _walk(item, hidden=hidden or secret or name in _ALL_INSIDE)
        case _:
            pass


def _write(path: Path, data: bytes) -> None:
    """Replaces the file at once, with the same permissions: readers never see half of it."""
    draft = path.with_name(f".{path.name}.new")
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(file, data)
        os.fsync(file)
    finally:
        os.close(file)
    draft.chmod(mode)
    os.replace(draft, path)
