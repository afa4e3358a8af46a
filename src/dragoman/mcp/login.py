"""A person logs in: a page is opened in a browser, which comes back here with a code (RFC 8252 7.3).

Only the answer to our own question counts: whoever else calls at the port, or calls with another state, is told so and
nothing happens.
"""

import asyncio
import html
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

from mcp.shared.auth import AuthorizationCodeResult

from dragoman.errors import DragomanError

READ_S, MAX_HEAD = 10.0, 16 * 1024


class LoginRefusedError(DragomanError):
    """The person or the server said no."""


class Login:
    """`show` and `hear` of the mcp package's provider, for as long as it is entered."""

    def __init__(self, port: int, say: Callable[[str], None], paste: Callable[[], str] | None = None) -> None:
        """`paste` asks for the address the browser ended at, where it cannot come back by itself."""
        self._port, self._say, self._paste = port, say, paste
        self._state = ""
        self._answer: asyncio.Future[AuthorizationCodeResult] | None = None
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "Login":
        self._answer = asyncio.get_running_loop().create_future()
        if self._paste is None:
            try:
                self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, limit=MAX_HEAD)
            except OSError as error:
                words = f"port {self._port} is taken: name another (oauth.redirect_port), or use --paste"
                raise LoginRefusedError(words) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        if self._answer is not None:
            self._answer.cancel()

    async def show(self, url: str) -> None:
        self._state = "".join(parse_qs(urlsplit(url).query).get("state", ()))
        self._say(url)

    async def hear(self) -> AuthorizationCodeResult:
        if self._answer is None:
            raise LoginRefusedError("nobody listens")
        if self._paste is not None:
            words = self._take(urlsplit((await asyncio.to_thread(self._paste)).strip()).query)
            if words:
                raise LoginRefusedError(words)
        return await self._answer

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(READ_S):
                head = await reader.readuntil(b"\r\n\r\n")
            method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
            place = urlsplit(target)
            wrong = self._take(place.query) if (method, place.path) == ("GET", "/callback") else "nothing is here"
            words = wrong or "You are logged in. This window can be closed."
            page = f"<!doctype html><meta charset=utf-8><title>dragoman</title><p>{html.escape(words)}".encode()
            writer.write(
                f"HTTP/1.1 {400 if wrong else 200} X\r\ncontent-type: text/html; charset=utf-8\r\n"
                f"content-length: {len(page)}\r\nconnection: close\r\ncache-control: no-store\r\n"
                f"content-security-policy: default-src 'none'\r\n\r\n".encode()
            )
            writer.write(page)
            await writer.drain()
        except (TimeoutError, OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()  # also when the login ended first

    def _take(self, query: str) -> str:
        """Why this is not the answer; nothing when it is."""
        said = {key: values[0] for key, values in parse_qs(query).items()}
        if self._answer is None or self._answer.done():
            return "this login is over"
        if not self._state or said.get("state") != self._state:
            return "this is not the answer to our question"
        if "error" in said:
            words = " ".join((said.get("error_description") or said["error"]).split())[:200]
            self._answer.set_exception(LoginRefusedError(f"the login was refused: {words}"))
            return words
        if not said.get("code"):
            return "there is no code in it"
        found = AuthorizationCodeResult(code=said["code"], state=said["state"], iss=said.get("iss"))
        self._answer.set_result(found)
        return ""
