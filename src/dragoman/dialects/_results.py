"""Marks that carry what a dialect has no slot for, and are read back on the return trip."""

FAILED = "[ERROR] "  # a tool result that is an error, where the dialect has no flag for it (mission D9)


def mark_failed(text: str) -> str:
    return FAILED + text


def unmark_failed(text: str) -> str | None:
    """The text behind the mark, or None if it is not marked."""
    return text[len(FAILED) :] if text.startswith(FAILED) else None
