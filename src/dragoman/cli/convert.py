"""`dragoman convert`: converts one body to another dialect. The notes go to stderr."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec import to_builtins

from dragoman.cli.arguments import add_refuse, read_whole
from dragoman.cli.style import Style, paint
from dragoman.convert import AUTO, Converted, StreamConverter, convert, convert_failure, convert_reply, first_frame
from dragoman.convert import recognise as recognise_dialect
from dragoman.errors import DecodeError, DragomanError, LossError
from dragoman.jsontypes import dump_json, format_json
from dragoman.note_ranks import RANKS, NoteRank, fold_notes
from dragoman.notes import Note

NAME = "convert"
HELP = "convert a request, reply, stream or error to another dialect"
EPILOG = """examples:
  dragoman convert --from anthropic --to openai-chat request.json
  cat reply.json | dragoman convert --reply --to anthropic -
  dragoman convert --stream --from openai-chat --to gemini stream.sse

exit codes: 0 converted, 1 could not read the file, 2 bad input or usage,
3 refused a loss (--refuse)"""

REFUSED = 3
STYLES: dict[NoteRank, Style] = {"lost": "red", "changed": "yellow", "harmless": "green"}
CUT_OFF = "the stream is cut off: its last part is missing"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("file", help="the body to convert; - reads standard input")
    parser.add_argument("--from", dest="source", default=AUTO, metavar="DIALECT", help="its dialect (default: auto)")
    parser.add_argument("--to", required=True, metavar="DIALECT", help="the dialect to write (`dragoman dialects`)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--request", dest="what", action="store_const", const="request", help="a request (the default)")
    what.add_argument("--reply", dest="what", action="store_const", const="reply", help="an unstreamed reply")
    what.add_argument("--stream", dest="what", action="store_const", const="stream", help="a streamed reply")
    what.add_argument("--error", dest="what", action="store_const", const="failure", help="an error body")
    parser.set_defaults(what="request")
    parser.add_argument("--path", default="", help="the request's path, for dialects that put the model there")
    parser.add_argument(
        "--status", type=read_whole(100, 599), default=400, help="the error's HTTP status (default: 400)"
    )
    parser.add_argument("--compact", action="store_true", help="print JSON on one line")
    parser.add_argument(
        "--notes",
        choices=("table", "json", "none"),
        default="table",
        help="losses and changes, on standard error: a table, JSON, or none",
    )
    add_refuse(parser)
    parser.add_argument("--verbose", "-v", action="store_true", help="every note on a line of its own")
    parser.add_argument("--as-is", action="store_true", help="skip the passes that make a request legal for its target")


def run(args: argparse.Namespace) -> int:
    try:
        data = read_input(args.file)
    except OSError as error:
        return complain(f"{args.file}: {error.strerror or error}", 1)
    try:
        notes = convert_stream_bytes(data, args) if args.what == "stream" else convert_body(data, args)
    except LossError as error:
        return complain(f"refused: {error}", REFUSED)
    except DragomanError as error:
        return complain(f"{args.file}: {error}", 2)
    print_notes(notes, args.notes, verbose=args.verbose)
    return 0


def read_input(file: str) -> bytes:
    return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()


def convert_body(data: bytes, args: argparse.Namespace) -> Sequence[Note]:
    result: Converted
    match args.what:
        case "request":
            result = convert(
                data, to=args.to, source=args.source, path=args.path, refuse=args.refuse, mend=not args.as_is
            )
        case "reply":
            result = convert_reply(data, to=args.to, source=args.source, refuse=args.refuse)
        case _:
            result = convert_failure(data, to=args.to, source=args.source, status=args.status)
    write((dump_json(result.body) if args.compact else format_json(result.body)) + b"\n")
    return result.notes


def convert_stream_bytes(data: bytes, args: argparse.Namespace) -> Sequence[Note]:
    """Converts the whole stream at once. A cut stream is bad input, but its converted part is printed first."""
    source = args.source
    if source == AUTO:
        frame = first_frame(data)
        if frame is None:
            raise DecodeError("not a stream of any dialect: it has no frame that is a JSON object")
        source = recognise_dialect(frame, "stream").name
    converter = StreamConverter(source, args.to, refuse=args.refuse)
    write(converter.feed(data))
    write(converter.close())
    if converter.failure is not None and converter.failure.kind == "cut_off":
        raise DecodeError(CUT_OFF)
    return converter.notes.items


def write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def print_notes(notes: Sequence[Note], form: str, *, verbose: bool = False) -> None:
    if form == "json":
        print(dump_json([{"rank": note.rank, **to_builtins(note)} for note in notes]).decode(), file=sys.stderr)
    elif form == "table" and notes:
        print(notes_table(notes, verbose=verbose), file=sys.stderr)


def notes_table(notes: Sequence[Note], *, verbose: bool = False) -> str:
    """The worst first. Notes that differ only in their place share a line, unless `verbose`."""
    rows = [row for note in notes for row in fold_notes([note])] if verbose else fold_notes(notes)
    rows.sort(key=lambda row: RANKS.index(row.rank))
    places = [(row.first.where or "/") + (f"  (and {row.places - 1} more)" if row.places > 1 else "") for row in rows]
    width = max(len(place) for place in places)
    lines = []
    for row, place in zip(rows, places, strict=True):
        rank = paint(f"{row.rank:<8}", STYLES[row.rank], sys.stderr)
        lines.append(f"{rank}  {row.first.kind:<8}  {place:<{width}}  {row.first.why}")
    return "\n".join(lines)


def complain(text: str, code: int) -> int:
    print(f"{paint('dragoman convert:', 'red', sys.stderr)} {text}", file=sys.stderr)
    return code
