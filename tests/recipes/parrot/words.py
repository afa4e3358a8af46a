"""Parrot Chat: its words and ours. https://parrot.example/docs/chat (an API we made up, read 2026-11-16)"""

from dragoman.failure import FailureKind
from dragoman.model.messages import Role
from dragoman.model.reply import FinishReason

NAME = "parrot"
PATH = "/v1/squawk"

ROLES: dict[str, Role] = {"owner": "system", "human": "user", "bird": "assistant"}
ROLE_WORDS: dict[Role, str] = {role: word for word, role in ROLES.items()} | {"developer": "owner"}
FINISHES: dict[str, FinishReason] = {"done": "stop", "tired": "length", "fetching": "tool_call", "rude": "filter"}
FINISH_WORDS: dict[FinishReason, str] = {reason: word for word, reason in FINISHES.items()}
FAILURES: dict[str, FailureKind] = {"gibberish": "invalid_request", "too_fast": "rate_limited", "asleep": "overloaded"}
FAILURE_WORDS: dict[FailureKind, str] = {kind: word for word, kind in FAILURES.items()}
