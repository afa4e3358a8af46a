"""What a Responses server keeps of earlier answers, so that `previous_response_id` goes on from them."""

from typing import Any

_MOST = 1000


class StoredResponses:
    def __init__(self) -> None:
        self._items: dict[str, list[Any]] = {}  # the conversation up to and with an answer
        self._replies: dict[str, dict[str, Any]] = {}

    def resume(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body with the earlier conversation in front; one that is not known stays for the checks to refuse."""
        earlier = self._items.get(str(body.get("previous_response_id")))
        if earlier is None:
            return body
        rest = {key: value for key, value in body.items() if key != "previous_response_id"}
        return {**rest, "input": [*earlier, *_items(body)]}

    def keep(self, body: dict[str, Any], reply: dict[str, Any]) -> None:
        if body.get("store") is False:
            return
        if len(self._replies) >= _MOST:
            self.forget(next(iter(self._replies)))
        name = str(reply["id"])
        self._items[name] = [*_items(body), *reply["output"]]
        self._replies[name] = reply

    def find(self, name: str) -> dict[str, Any] | None:
        return self._replies.get(name)

    def forget(self, name: str) -> bool:
        self._items.pop(name, None)
        return self._replies.pop(name, None) is not None


def _items(body: dict[str, Any]) -> list[Any]:
    said = body.get("input")
    return [{"role": "user", "content": said}] if isinstance(said, str) else list(said or ())
