"""What changed, in words: bytes first, because notes may change on purpose."""

from collections import Counter
from collections.abc import Iterable

from tests.laws.snapshot.table import Change, Comparison

SHOWN = 3  # changes that are printed with what is written now
MOST_BYTES = 3000


def describe(direction: str, dialect: str, found: Comparison) -> str:
    """Empty where nothing changed."""
    lines = []
    if found.targets:
        lines.append(f"{direction} of {dialect}: targets that are new or gone: {' '.join(found.targets)}")
    sent = [change for change in found.changes if change.sent]
    if sent:
        lines.append(
            f"{direction} of {dialect}: BYTES of {len(sent)} exchanges changed: {_count(c.sent for c in sent)}"
        )
        lines += [_show(change, change.sent[0], notes=False) for change in sent[:SHOWN]]
    noted = [change for change in found.changes if change.notes]
    if noted:
        also = "" if sent else " (the bytes are as they were)"
        lines.append(
            f"{direction} of {dialect}: notes of {len(noted)} exchanges changed{also}: {_count(c.notes for c in noted)}"
        )
        lines += [_show(change, change.notes[0], notes=True) for change in noted[:SHOWN]]
    return "".join(f"{line}\n" for line in lines)


def _count(targets: Iterable[tuple[str, ...]]) -> str:
    counts = Counter(target for some in targets for target in some)
    return ", ".join(f"{target} {n}" for target, n in counts.most_common())


def _show(change: Change, target: str, *, notes: bool) -> str:
    """What is written now. An older commit prints what was written then."""
    written = change.written[target]
    words = (written.notes if notes else written.sent).decode("utf-8", "backslashreplace")
    command = f"python -m tests.laws.snapshot dump --case {change.case.name} --target {target}"
    return f"  {command}\n{words[:MOST_BYTES]}"
