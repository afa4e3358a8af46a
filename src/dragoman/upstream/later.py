"""LateTransport: the transport, loaded when it is first needed or there is time: a server listens before it is."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from dragoman.upstream.spec import Caps, Timeouts

if TYPE_CHECKING:
    from dragoman.upstream.transport import Opened, Transport

USUAL = Caps()


class LateTransport:
    def __init__(self) -> None:
        self._made: Transport | None = None

    def load(self) -> "Transport":
        if self._made is None:
            from dragoman.upstream.transport import Transport

            self._made = Transport()
        return self._made

    async def open(
        self,
        url: str,
        headers: dict[str, str],
        body: bytes,
        *,
        timeouts: Timeouts,
        head_s: float,
        on_sent: Callable[[], None],
        method: str = "POST",
        caps: Caps = USUAL,
    ) -> "Opened":
        made = self._made or self.load()
        return await made.open(
            url, headers, body, timeouts=timeouts, head_s=head_s, on_sent=on_sent, method=method, caps=caps
        )

    async def close(self) -> None:
        if self._made is not None:
            await self._made.close()
