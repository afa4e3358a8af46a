"""What a reply says of its cost, where a dialect has no word for it."""

from dragoman.dialects._settings import says_something
from dragoman.model.reply import Usage
from dragoman.notes import ROOT, At, Notes


def note_audio(usage: Usage, dialect: str, at: At, notes: Notes) -> None:
    """For dialects that do not count audio; none of it is nothing to count."""
    for key in ("input_audio", "output_audio"):
        if getattr(usage, key):
            notes.dropped((at, key), f"{dialect} does not count audio")


def note_missing_tier(tier: str | None, dialect: str, notes: Notes) -> None:
    """For replies that cannot say which tier served them; the usual one goes without saying."""
    if says_something("service_tier", tier):
        notes.dropped((ROOT, "service_tier"), f"{dialect} has no service tier {tier}")
