"""Pictures and files in tool results: shown beside them, where a target's results hold text only."""

from msgspec.structs import replace

from dragoman.model.messages import Audio, Document, Image, Media, Message, Part, Text, ToolResult, Video
from dragoman.model.request import Request
from dragoman.notes import ROOT, Notes


def move_result_media(request: Request, notes: Notes) -> Request:
    """A placeholder in the result, the thing itself in a user turn behind ALL results of that turn: a turn between two
    results would part the second from its call (FIELD-CASES 3, 30)."""
    if not _any_media(request):  # fast path: no media in results
        return request
    messages: list[Message] = []
    waiting: list[Part] = []
    for i, message in enumerate(request.messages):
        if waiting and not _goes_on(message):
            messages.append(Message(role="user", parts=tuple(waiting)))
            waiting = []
        moved: list[Part] = []
        parts = tuple(_strip(part, moved) for part in message.parts)
        if moved:
            notes.repaired(((ROOT, "messages"), i), "media of tool results moved behind the results")
            message = replace(message, parts=parts)
        messages.append(message)
        waiting.extend(moved)
        if waiting and not isinstance(message.parts[-1], ToolResult):
            messages[-1] = _put_behind_results(message, waiting)
            waiting = []
    if waiting:
        messages.append(Message(role="user", parts=tuple(waiting)))
    return replace(request, messages=tuple(messages))


MEDIA = (Image, Document, Audio, Video)


def _any_media(request: Request) -> bool:
    for message in request.messages:
        if message.role == "user":  # results stand in user turns
            for part in message.parts:
                if type(part) is ToolResult:
                    for inner in part.parts:
                        if type(inner) is not Text and isinstance(inner, MEDIA):
                            return True
    return False


def _has_media(part: ToolResult) -> bool:
    for inner in part.parts:  # noqa: SIM110  # a loop, because this runs for every result of every request
        if type(inner) is not Text and isinstance(inner, MEDIA):
            return True
    return False


def _goes_on(message: Message) -> bool:
    """Whether a turn still holds results of the same calls."""
    return message.role == "user" and any(isinstance(part, ToolResult) for part in message.parts)


def _strip(part: Part, moved: list[Part]) -> Part:
    if not isinstance(part, ToolResult) or not _has_media(part):
        return part
    kept: list[Part] = []
    for inner in part.parts:
        if isinstance(inner, Image | Document | Audio | Video):
            kept.append(Text(text=_placeholder(inner)))
            moved.append(inner)
        else:
            kept.append(inner)
    return replace(part, parts=tuple(kept))


def _placeholder(media: Media) -> str:
    word = type(media).__name__.lower()
    name = media.name if isinstance(media, Document) else None
    return f"[{word} attached below]" if name is None else f"[{word} attached below: {name}]"


def _put_behind_results(message: Message, moved: list[Part]) -> Message:
    last = max(i for i, part in enumerate(message.parts) if isinstance(part, ToolResult))
    return replace(message, parts=(*message.parts[: last + 1], *moved, *message.parts[last + 1 :]))
