"""dragoman speaks every LLM wire protocol: it converts between them and says what got lost.

Clients and tools are loaded on first use: `import dragoman` alone loads no HTTP client and no event loop.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dragoman.convert import Converted, StreamConverter, convert, convert_failure, convert_reply, convert_stream
from dragoman.errors import (
    ArgumentError,
    AuthenticationError,
    BadRequestError,
    ConfigError,
    ConnectionFailedError,
    ContentFilterError,
    ContextTooLongError,
    DecodeError,
    DragomanError,
    LossError,
    ModelNotFoundError,
    NoCreditError,
    RateLimitError,
    RequestTimeoutError,
    ServerFailedError,
    ToolError,
    UpstreamError,
)
from dragoman.failure import Failure
from dragoman.model.fold import fold, unfold
from dragoman.model.reply import Reply
from dragoman.model.request import Request
from dragoman.notes import Note, Notes

if TYPE_CHECKING:
    from dragoman.agent.steps import Limits, Price
    from dragoman.client import Answer, AsyncClient, Client, Sound
    from dragoman.mcp.servers import McpServers
    from dragoman.tools import File, FunctionTool, ToolCollection, tool

__version__ = "0.1.0"

# Where the names live that are loaded on first use.
_HOMES = {
    "Answer": "client",
    "AsyncClient": "client",
    "Client": "client",
    "File": "tools",
    "FunctionTool": "tools",
    "Limits": "agent.steps",
    "McpServers": "mcp.servers",
    "Price": "agent.steps",
    "Sound": "client",
    "ToolCollection": "tools",
    "tool": "tools",
}

# What other packages call it.
_ELSEWHERE = {
    "acompletion": "await AsyncClient().chat(model, messages)",
    "completion": "Client().chat(model, messages)",
    "embedding": "Client().embed(model, texts)",
    "OpenAI": "Client().openai",
    "AsyncOpenAI": "AsyncClient().openai",
    "Router": "Client(aliases={name: [model, ...]})",
    "token_counter": "Client().count_tokens(model, prompt)",
    "completion_cost": "answer.cost",
    "APIConnectionError": "ConnectionFailedError",
    "APIError": "UpstreamError",
    "APIStatusError": "UpstreamError",
    "APITimeoutError": "RequestTimeoutError",
    "ContentPolicyViolationError": "ContentFilterError",
    "ContextWindowExceededError": "ContextTooLongError",
    "InternalServerError": "ServerFailedError",
    "NotFoundError": "ModelNotFoundError",
    "OpenAIError": "DragomanError",
    "PermissionDeniedError": "AuthenticationError",
    "ServiceUnavailableError": "ServerFailedError",
    "Timeout": "RequestTimeoutError",
    "UnprocessableEntityError": "BadRequestError",
}

__all__ = [
    "Answer",
    "ArgumentError",
    "AsyncClient",
    "AuthenticationError",
    "BadRequestError",
    "Client",
    "ConfigError",
    "ConnectionFailedError",
    "ContentFilterError",
    "ContextTooLongError",
    "Converted",
    "DecodeError",
    "DragomanError",
    "Failure",
    "File",
    "FunctionTool",
    "Limits",
    "LossError",
    "McpServers",
    "ModelNotFoundError",
    "NoCreditError",
    "Note",
    "Notes",
    "Price",
    "RateLimitError",
    "Reply",
    "Request",
    "RequestTimeoutError",
    "ServerFailedError",
    "Sound",
    "StreamConverter",
    "ToolCollection",
    "ToolError",
    "UpstreamError",
    "__version__",
    "convert",
    "convert_failure",
    "convert_reply",
    "convert_stream",
    "fold",
    "tool",
    "unfold",
]


if not TYPE_CHECKING:  # a type checker has to see which names there are

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            hint = _ELSEWHERE.get(name, "")
            raise AttributeError(f"module 'dragoman' has no attribute {name!r}{hint and ': use '}{hint}")
        found = getattr(import_module(f"dragoman.{_HOMES[name]}"), name)
        globals()[name] = found
        return found
