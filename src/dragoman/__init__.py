"""dragoman speaks every LLM wire protocol: it converts between them and says what got lost."""

from dragoman.convert import Converted, StreamConverter, convert, convert_failure, convert_reply, convert_stream
from dragoman.errors import ConfigError, DecodeError, DragomanError, LossError, ToolError, UpstreamError
from dragoman.failure import Failure
from dragoman.model.fold import fold, unfold
from dragoman.model.reply import Reply
from dragoman.model.request import Request
from dragoman.notes import Note, Notes

__version__ = "0.1.0"

__all__ = [
    "ConfigError",
    "Converted",
    "DecodeError",
    "DragomanError",
    "Failure",
    "LossError",
    "Note",
    "Notes",
    "Reply",
    "Request",
    "StreamConverter",
    "ToolError",
    "UpstreamError",
    "__version__",
    "convert",
    "convert_failure",
    "convert_reply",
    "convert_stream",
    "fold",
    "unfold",
]
