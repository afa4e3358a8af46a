"""Notes as the client gets them: in a header, or behind the end of a stream."""

from dragoman.jsontypes import dump_json
from dragoman.note_ranks import FoldedNote
from dragoman.notes import Note

MAX_NOTES_HEADER = 3500


def each_note(notes: tuple[Note, ...]) -> list[FoldedNote]:
    """All notes, none of them folded."""
    return [FoldedNote(note.rank, note) for note in notes]


def write_notes(rows: list[FoldedNote], *, canonical: bool = False) -> str:
    """Notes as ASCII JSON, the worst first, equal ones folded, as many as fit. The last entry counts the others.
    `canonical`: all of them and with those places too, for a client that is a dragoman: its caller knows the canonical
    form, and not the body that it sent."""
    shown: list[bytes] = []
    size = 2
    for i, row in enumerate(rows):
        note = row.first
        entry: dict[str, object] = {"rank": row.rank, "kind": note.kind, "where": note.where, "why": note.why}
        if row.places > 1:
            entry["places"] = row.places
        if note.body != "request":
            entry["body"] = note.body
        if canonical:
            entry["canonical"] = note.canonical
        text = dump_json(entry)
        size += len(text) + 1
        if size > MAX_NOTES_HEADER:
            shown.append(dump_json({"more": len(rows) - i}))
            break
        shown.append(text)
    return f"[{b','.join(shown).decode()}]".encode("ascii", "backslashreplace").decode()
