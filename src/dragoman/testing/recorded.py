"""What a scripted provider was asked."""

from typing import Any

from dragoman.jsontypes import load_json


class Recorded:
    """One request as it arrived, and what became of it."""

    def __init__(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        self.method = method
        self.path = path  # with its query
        self.headers = headers  # names in lower case
        self.body = body
        self.dialect: str | None = None  # None: not one of the conversation's endpoints
        self.fault: str | None = None  # the name of the fault it met
        self.refused: str | None = None  # the words it was refused with
        self.warnings: list[str] = []  # what the server takes without a word and then drops or misreads
        self.status: int | None = None
        self.frames_sent = 0
        self.left = False  # the client went away before the end
        self.done = False

    @property
    def json(self) -> Any:
        return load_json(self.body)

    def __repr__(self) -> str:
        became = self.fault or self.refused or self.status
        return f"<{self.method} {self.path} {len(self.body)} bytes: {became}>"
