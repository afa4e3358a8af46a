"""The audit log: who changed what."""

import asyncio
from typing import TYPE_CHECKING

from dragoman.gateway.http import HttpRequest

if TYPE_CHECKING:
    from dragoman.gateway.state import Gateway


def name_admin(http: HttpRequest) -> str:
    """The name of an admin's key, with its id: two keys may have one name."""
    name = http.holder.name if http.holder is not None else ""
    return f"{name} ({http.key_id})" if name and http.key_id else name or http.key_id or "local"


async def note_change(gateway: "Gateway", http: HttpRequest, what: str, subject: str, after: object = None) -> None:
    """Writes an entry into the audit log, if there is a store."""
    store = gateway.now.access.keys.store
    if store is not None:
        await asyncio.to_thread(store.note, name_admin(http), what, subject, None, after)
