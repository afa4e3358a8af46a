"""How much a server reads at most: Ollama cuts a longer prompt at its head without a word (FIELD-CASES 82).

System text and tools go first, and what is left looks like a bad model. So what does not fit the window it opens by
itself opens a larger one, in steps: each new size loads the model anew.
"""

from msgspec.structs import replace

from dragoman.jsontypes import dump_json
from dragoman.model.messages import Part, Reasoning, Text, ToolCall, ToolResult
from dragoman.model.request import Request, Tool
from dragoman.notes import ROOT, Notes
from dragoman.passes.profile import Profile

OPTION = "num_ctx"
BYTES_A_TOKEN = 3  # fewer than in English prose: code and other scripts need more tokens
A_PICTURE = 1_500
AN_ANSWER = 2_048  # at most: agents ask for far more than they get, and a window is paid for in memory


def open_window(request: Request, profile: Profile, notes: Notes) -> Request:
    if profile.context is None or profile.native:  # who speaks Ollama's language knows of its windows
        return request
    own = request.extras.get(profile.dialect, {})
    options = own.get("options")
    if options is not None and (not isinstance(options, dict) or OPTION in options):
        return request
    needed = estimate(request) + min(request.max_output or AN_ANSWER, AN_ANSWER)
    if needed <= profile.context:
        return request
    size = profile.context
    while size < needed:
        size *= 2
    notes.invented(((((ROOT, "extras"), profile.dialect), "options"), OPTION), f"a prompt of about {needed} tokens")
    extras = {**own, "options": {**(options or {}), OPTION: size}}
    return replace(request, extras={**request.extras, profile.dialect: extras})


def estimate(request: Request) -> int:
    """Tokens, roughly, and rather too many."""
    tokens = sum(_size(part) for message in request.messages for part in message.parts)
    for tool in request.tools or ():
        if isinstance(tool, Tool):
            tokens += (
                len(tool.name) + len(tool.description or "") + len(dump_json(tool.parameters or {}))
            ) // BYTES_A_TOKEN
    return tokens


def _size(part: Part) -> int:
    match part:
        case Text() | Reasoning():
            return len(part.text.encode()) // BYTES_A_TOKEN
        case ToolCall():
            return (len(part.name) + len(part.arguments.encode())) // BYTES_A_TOKEN
        case ToolResult():
            return sum(_size(piece) for piece in part.parts)
        case _:
            return A_PICTURE
