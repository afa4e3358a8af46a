"""What a stream of 200 deltas costs in every pair of dialects, without sockets: text, arguments of a call, thoughts.

    python bench/streams.py [text|arguments|thoughts] [--events 4]     all pairs, beside their median
    python bench/streams.py text --only anthropic:ollama [--calls]     one pair: client, then server
    python bench/streams.py text --instructions [--only ollama]        by valgrind, as targets and sources, beside Chat

`--events`: how many arrive together. Each piece comes in a turn of the loop of its own, as from a slow server.
"""

import argparse
import asyncio
import tempfile
import time
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

import one_request
import servers
from gateway import CHAT, MESSAGES
from one_request import FakeTransport, count_instructions, drive, drive_for_count, open_ours
from servers import DIALECTS, EVENTS, Answers, Request, converted, find_spoken, path_of

KINDS = ("text", "arguments", "thoughts")


def make_frames(name: str, kind: str) -> list[bytes]:
    """The frames of a stream in a dialect: one delta in each."""
    from dragoman.dialects import find_dialect
    from dragoman.model.events import PartDelta, PartEnd, PartStart, ReplyEnd, ReplyStart
    from dragoman.model.messages import Part, Reasoning, Text, ToolCall
    from dragoman.model.reply import Finish, Usage
    from dragoman.notes import Notes

    dialect, usage = find_dialect(name), Usage(input=100, output=EVENTS)
    part: Part = Text(text="")
    texts = [f"word{i} " for i in range(EVENTS)]
    if kind == "arguments":
        part = ToolCall(id=f"{dialect.call_id_prefix}1", name="tool_1", arguments="")
        texts = ['{"path":"', *texts[2:], '"}']
    elif kind == "thoughts":
        part = Reasoning(text="", summary=name in ("openai_responses", "gemini"))
    start = [ReplyStart(id=f"{dialect.reply_id_prefix}1", model=name, created=1), PartStart(index=0, part=part)]
    end: list[Any] = [PartEnd(index=0)]
    if kind == "thoughts":
        end += [PartStart(index=1, part=Text(text="")), PartDelta(index=1, text="So."), PartEnd(index=1)]
    finish = Finish(reason="tool_call" if kind == "arguments" else "stop")
    end.append(ReplyEnd(finishes=(finish,), usage=usage))
    events = [*start, *[PartDelta(index=0, text=text) for text in texts], *end]
    encoder = dialect.stream_encoder(Notes(), None)
    return [frame for frame in [*(encoder.feed([event]) for event in events), encoder.close()] if frame]


def make_pieces(name: str, kind: str, events: int) -> Answers:
    media = "application/x-ndjson" if name == "ollama" else "text/event-stream"
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {media}\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    frames = make_frames(name, kind)
    pieces = [b"".join(frames[i : i + events]) for i in range(0, len(frames), events)]
    return Answers(b"", [head, *[b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces], b"0\r\n\r\n"])


class SlowProvider:
    """The far end of one connection to an upstream: the next piece when the one before was dealt with."""

    answers: dict[str, Answers]

    def __init__(self, protocol: Any) -> None:
        self.loop, self.protocol = asyncio.get_running_loop(), protocol
        protocol.connection_made(FakeTransport(self.loop, self.answer))

    def answer(self, data: bytes) -> None:
        line = data[: data.find(b" HTTP/")].lower()
        if line.startswith(b"post"):
            self.pieces = iter(self.answers[find_spoken(line)].chunks)
            self.loop.call_soon(self.send)

    def send(self) -> None:
        piece = next(self.pieces, None)
        if piece is not None:
            self.protocol.data_received(piece)
            self.loop.call_soon(self.send)


def request_of(client: str, server: str) -> Request:
    """The small agent's; Chat to Chat has the short one, as in bench/gateway.py."""
    model = "m" if server == "openai_chat" else server
    path = {"openai_chat": CHAT, "anthropic": MESSAGES}.get(client) or path_of(client, model, stream=True)
    return Request(path, converted(client, model, stream=True), fresh=True)


async def main(args: argparse.Namespace, folder: Path) -> None:
    one_request.Provider = SlowProvider  # type: ignore[misc,assignment]
    ours = open_ours(folder, "off")
    pairs = [(client, server) for client in DIALECTS for server in DIALECTS]
    if args.only:
        client, _, server = args.only.partition(":")
        pairs = [(client, server)]
    for kind in [args.kind] if args.kind else KINDS:
        SlowProvider.answers = {name: make_pieces(name, kind, args.events) for name in DIALECTS}
        if args.count:
            await drive_for_count(ours, request_of(*pairs[0]), args.count, streamed=True)
            return
        if args.calls:
            await one_request.tell_calls(ours, request_of(*pairs[0]), args, streamed=True)
            continue
        best = dict.fromkeys(pairs, inf)
        for _ in range(args.rounds):
            for pair in pairs:
                request = request_of(*pair)
                await drive(ours, request, 5, streamed=True)
                began = time.process_time()
                await drive(ours, request, args.batch, streamed=True)
                best[pair] = min(best[pair], (time.process_time() - began) / args.batch * 1e6)
        tell(kind, best)


def tell_instructions(args: argparse.Namespace) -> None:
    """As in features.py: each dialect as the server of an Anthropic client, and as the client of such a server."""
    others = [name for name in DIALECTS if name != "anthropic"]
    for way in ([f"anthropic:{name}" for name in others], [f"{name}:anthropic" for name in others]):
        base = 0.0
        for pair in way:
            if args.only in pair or (not base and any(args.only in other for other in way)):
                words = (args.kind or "text", "--only", pair, "--events", str(args.events))
                thousands = count_instructions(__file__, *words, counts=(20, 60))
                base = base or thousands
                print(f"{pair:30}{thousands:8,.0f} thousand{thousands / base:8.2f} times Chat", flush=True)


def tell(kind: str, best: dict[tuple[str, str], float]) -> None:
    middle = median(best.values())
    print(f"\n{kind}: us for a stream; median {middle:.0f}, slowest {max(best.values()) / middle:.2f} times")
    print(f"{'client, server':18}" + "".join(f"{name:>18}" for name in DIALECTS))
    for client in DIALECTS:
        cells = [best.get((client, server)) for server in DIALECTS]
        print(f"{client:18}" + "".join(f"{c:10.0f} ({c / middle:.2f})" if c else f"{'':18}" for c in cells))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", nargs="?", choices=KINDS)
    parser.add_argument("--only", default="", help="CLIENT:SERVER")
    parser.add_argument("--events", type=int, default=4)
    parser.add_argument("--calls", action="store_true")
    parser.add_argument("--most", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch", type=int, default=30)
    parser.add_argument("--instructions", action="store_true")
    parser.add_argument("--count", type=int, default=0, help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.instructions:
        raise SystemExit(tell_instructions(words))
    with tempfile.TemporaryDirectory() as place:
        servers.run(main(words, Path(place)))
