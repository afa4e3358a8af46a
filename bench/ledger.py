"""A large ledger in SQLite: how fast rows are written, how large the files become, and how long a report takes.

    python bench/ledger.py [--rows 1000000] [--days 30] [--folder DIR]

Rows go the way that a gateway's rows go: into the journal, then to the database in batches. They are spread over 20
teams, 100 keys, 6 models and the given days, and one in fifty had a second attempt. Seconds are those of the wall.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from dragoman.accounts.journal import FOLDER, Journal
from dragoman.accounts.ledger import FILE, AttemptRow, LedgerRow, SqliteLedger

BATCH = 5000
NOW = 1_790_000_000.0
MODELS = ("gpt-5", "gpt-5-mini", "claude-sonnet-4-5", "claude-haiku-4-5", "gemini-2.5-pro", "llama-3.3-70b")
REPORTS = (("team", "day"), ("team", "model"), ("key", "day"), ("key",), ("client",), ("tags",))


def make_rows(count: int, days: int) -> Iterator[LedgerRow]:
    dice = random.Random(1)  # noqa: S311  # the same rows each time
    for n in range(count):
        key, model = dice.randrange(100), dice.choice(MODELS)
        tries = (AttemptRow("openai", model, 500, "server_error", 0), AttemptRow("spare", model, 200, None, 300))
        yield LedgerRow(
            id=f"req_{n:020x}",
            at=NOW - days * 86_400 * (1 - n / count),
            key=f"person-{key}",
            key_id=f"{key:08x}",
            team=f"team-{key % 20}",
            tags=f"project={key % 7}",
            client="OpenAI",
            door="openai_chat",
            asked=model,
            upstream="openai",
            model=model,
            input=dice.randrange(20_000),
            cache_read=dice.randrange(20_000),
            output=dice.randrange(2000),
            cost=dice.randrange(200_000),
            currency="USD",
            status=200,
            first_ms=dice.randrange(2000),
            total_ms=dice.randrange(30_000),
            tries=2 if n % 50 == 0 else 1,
            attempts=tries if n % 50 == 0 else (),
        )


def write(folder: Path, count: int, days: int) -> None:
    """The journal's part of the way, then the database's."""
    journal, ledger = Journal(folder / FOLDER), SqliteLedger(folder / FILE)
    noting = adding = 0.0
    batch: list[LedgerRow] = []
    for n, row in enumerate(make_rows(count, days), 1):
        batch.append(row)
        if len(batch) < BATCH and n < count:
            continue
        began = time.perf_counter()
        for one in batch:
            journal.write(one)
        noted = time.perf_counter()
        for segment in list(journal.turn()):
            ledger.add(segment.read(), segment.take_lines())
            journal.is_done(segment)
        noting, adding, batch = noting + noted - began, adding + time.perf_counter() - noted, []
    ledger.close()
    journal.close()
    size = sum(path.stat().st_size for path in folder.glob(f"{FILE}*"))
    print(f"{count} rows: {noting * 1e6 / count:.1f} us a row to the journal, {count / adding:.0f} rows a second")
    print(f"to the database; {size / 1e6:.0f} MB, {size / count:.0f} bytes a row")


def report(folder: Path, days: int) -> None:
    ledger = SqliteLedger(folder / FILE, read_only=True)
    for by in REPORTS:
        began = time.perf_counter()
        found = ledger.sum(by, NOW - days * 86_400, NOW, {})
        print(f"usage --by {','.join(by):12} {time.perf_counter() - began:6.3f} s, {len(found)} lines")
    began = time.perf_counter()
    page = ledger.page(0.0, NOW, {}, "", 100)
    print(f"the last {len(page.rows)} rows {time.perf_counter() - began:10.3f} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--folder", type=Path, help="keep the ledger there")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = args.folder or Path(made)
        write(folder, args.rows, args.days)
        report(folder, args.days)
    return 0


if __name__ == "__main__":
    sys.exit(main())
