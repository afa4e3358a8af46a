"""Usage of several replies, together."""

from dragoman.model.reply import Usage


def add_usage(one: Usage | None, other: Usage | None) -> Usage:
    """Both together; what only one of them knows counts, what neither knows stays unknown."""
    if one is None or other is None:
        return one or other or Usage()
    return Usage(
        input=_add(one.input, other.input),
        cache_read=_add(one.cache_read, other.cache_read),
        cache_write=_add(one.cache_write, other.cache_write),
        output=_add(one.output, other.output),
        reasoning=_add(one.reasoning, other.reasoning),
        input_audio=_add(one.input_audio, other.input_audio),
        output_audio=_add(one.output_audio, other.output_audio),
    )


def _add(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other
