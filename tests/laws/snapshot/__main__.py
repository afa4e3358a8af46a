"""The snapshot by hand.

python -m tests.laws.snapshot check       what is written in another way than the tables say
python -m tests.laws.snapshot accept      write the tables anew
python -m tests.laws.snapshot dump --case 575894ac --target ollama

`dump` prints the bytes and notes that this commit writes. To see what was written before, run it on an older commit.
"""

import sys
from argparse import ArgumentParser

from tests.laws.snapshot.report import describe
from tests.laws.snapshot.table import DIRECTIONS, WRITE, compare, file_of, save_table, targets_of
from tests.laws.snapshot.ways import DIALECTS, talks
from tests.recorded import corpus_root


def main() -> int:
    parser = ArgumentParser(prog="python -m tests.laws.snapshot")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check")
    commands.add_parser("accept")
    dump = commands.add_parser("dump")
    dump.add_argument("--case", required=True, help="the name of a recording, or its last eight characters")
    dump.add_argument("--target", help="one target; all if left out")
    args = parser.parse_args()
    if corpus_root() is None:
        parser.error("no recorded traffic: set DRAGOMAN_CORPUS or put shared/corpus beside the project")
    if args.command == "dump":
        return print_written(args.case, args.target)
    return accept() if args.command == "accept" else check()


def check() -> int:
    reports = [
        describe(d, name, compare(d, name)) for d in DIRECTIONS for name in DIALECTS if file_of(d, name).exists()
    ]
    sys.stdout.write("".join(reports) or "as it was\n")
    return 1 if any(reports) else 0


def accept() -> int:
    check()
    for direction in DIRECTIONS:
        for dialect in DIALECTS:
            save_table(direction, dialect)
    return 0


def print_written(name: str, target: str | None) -> int:
    out = sys.stdout.buffer
    found = [case for dialect in DIALECTS for case in talks(dialect) if case.name.endswith(name)]
    for case in found:
        for direction in DIRECTIONS:
            wanted = [t for t in targets_of(direction) if target in (None, t)]
            for at, written in WRITE[direction](case, wanted).items():
                out.write(f"==== {direction} {case.name} -> {at}\n".encode())
                out.write(written.sent + b"\n---- notes\n" + written.notes)
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
