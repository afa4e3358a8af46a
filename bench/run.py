"""`make bench`: what conversion costs, as multiples of the floor, all in one run. Its goals are printed at the end.

The floor is msgspec decoding the same bytes to plain objects and encoding them again: what no converter can beat.
CPU time, best of several rounds taken in turn, so that a noisy machine disturbs both sides alike.
"""

import gc
import json
import sys
import time
from collections.abc import Callable
from statistics import median

import msgspec
from goals import Goals
from samples import anthropic_request, prose

from dragoman import convert
from dragoman.dialects import NAMES, find_dialect
from dragoman.jsontypes import dump_json, load_json
from dragoman.model.events import Event, PartDelta, PartEnd, PartStart, ReplyEnd, ReplyStart
from dragoman.model.messages import Text
from dragoman.model.reply import Finish
from dragoman.model.request import Request
from dragoman.notes import Notes
from dragoman.passes.prepare import legalise
from dragoman.upstream.admission import Window
from dragoman.wire import WireRequest

DIALECTS = [name for name in NAMES if name != "canonical"]
ROUNDS = 9


def cpu_us(work: Callable[[], object], times: int) -> float:
    """CPU microseconds for one call."""
    started = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - started) / times * 1e6


def compare(works: dict[str, Callable[[], object]], times: int) -> dict[str, float]:
    """Best of the rounds for each, the rounds interleaved."""
    gc.collect()
    gc.disable()
    best = dict.fromkeys(works, float("inf"))
    for _ in range(ROUNDS):
        for name, work in works.items():
            best[name] = min(best[name], cpu_us(work, times))
    gc.enable()
    return best


def floor(data: bytes) -> Callable[[], object]:
    decode, encode = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode
    return lambda: encode(decode(data))


def convert_request(data: bytes, source: str, to: str) -> bytes:
    """Decode, encode."""
    here, there = find_dialect(source), find_dialect(to)
    notes = Notes()
    request = here.decode_request(WireRequest(body=load_json(data)), notes)
    return dump_json(there.encode_request(request, notes).body)


def decode_request(data: bytes, source: str) -> Request:
    return find_dialect(source).decode_request(WireRequest(body=load_json(data)), Notes())


def bench_requests(goals: Goals) -> None:
    print("requests, Anthropic -> each dialect (floor: decode and encode the same bytes)\n")
    print(f"{'request':<28}{'bytes':>8}{'floor us':>10}" + "".join(f"{name:>19}" for name in DIALECTS))
    limits = {"20 messages, 10 tools": 4.0, "150 KB history": 2.5}
    for name, data in {
        "20 messages, 10 tools": anthropic_request(20, 45, 10),
        "150 KB history": anthropic_request(160, 170, 10),
    }.items():
        works: dict[str, Callable[[], object]] = {"floor": floor(data)}
        for to in DIALECTS:
            works[to] = lambda data=data, to=to: convert_request(data, "anthropic", to)  # type: ignore[misc]
        best = compare(works, 40 if len(data) < 50_000 else 8)
        base = best.pop("floor")
        cells = "".join(f"{us:>11.0f} ({us / base:4.2f}x)" for us in best.values())
        print(f"{name:<28}{len(data):>8}{base:>10.1f}{cells}")
        goals.later(f"{name}, Anthropic -> Chat", best["openai_chat"] / base, limits[name], "floors")
    print()


ANY_LLM = 2.2  # floors: any-llm takes 79 us for this request where the floor is 36, and does less


def bench_convert(goals: Goals) -> None:
    """The library's face, with a plain object."""
    data = anthropic_request(20, 45, 10)
    body = json.loads(data)
    works: dict[str, Callable[[], object]] = {
        "floor": floor(data),
        "convert": lambda: convert(body, source="anthropic", to="openai_chat"),
        "bytes": lambda: convert(data, source="anthropic", to="openai_chat").json(),
    }
    best = compare(works, 40)
    ratio = best["convert"] / best["floor"]
    print(f"convert(dict), 20 messages and 10 tools: {best['convert']:.0f} us, {ratio:.2f} floors")
    print(f"convert(bytes).json(): {best['bytes']:.0f} us, {best['bytes'] / best['floor']:.2f} floors\n")
    goals.later("convert(dict) of 10 KB, as any-llm", ratio, ANY_LLM, "floors")


def bench_passes(goals: Goals) -> None:
    """All passes of a target over a history that is legal already, against the decode of that history."""
    print("all passes of a target on a legal history, CPU us (in brackets: decodes of it)\n")
    print(f"{'history':<28}{'decode us':>10}" + "".join(f"{name:>19}" for name in DIALECTS))
    for turns in (12, 100, 1000):
        data = anthropic_request(turns, 200, 10)
        request = decode_request(data, "anthropic")
        works: dict[str, Callable[[], object]] = {"decode": lambda data=data: decode_request(data, "anthropic")}  # type: ignore[misc]
        for to in DIALECTS:
            legal = legalise(request, find_dialect(to).profile, Notes())
            works[to] = lambda legal=legal, to=to: legalise(legal, find_dialect(to).profile, Notes())  # type: ignore[misc]
        best = compare(works, max(2, 2000 // turns))
        base = best.pop("decode")
        cells = "".join(f"{us:>11.0f} ({us / base:4.2f}x)" for us in best.values())
        print(f"{turns:>4} turns, {len(data) // 1024:>4} KB{'':<13}{base:>9.0f}{cells}")
        if turns == 100:
            goals.later("all passes on 100 turns, the slowest target", max(best.values()) / base, 1.0, "decodes")
    print()


def text_stream(deltas: int) -> list[Event]:
    body: list[Event] = [PartDelta(index=0, text=prose(1, i) + " ") for i in range(deltas)]
    start: list[Event] = [ReplyStart(id="r", model="m", created=1), PartStart(index=0, part=Text(text=""))]
    return [*start, *body, PartEnd(index=0), ReplyEnd(finishes=(Finish(reason="stop"),))]


def frames_of(dialect: str, events: list[Event]) -> list[bytes]:
    """The stream as the network would bring it: one event a piece."""
    encoder = find_dialect(dialect).stream_encoder(Notes())
    frames = [encoder.feed([event]) for event in events]
    return [frame for frame in frames if frame]


def relay(source: str, to: str, pieces: list[bytes]) -> None:
    notes = Notes()
    decoder, encoder = find_dialect(source).stream_decoder(notes), find_dialect(to).stream_encoder(notes)
    for piece in pieces:
        encoder.feed(decoder.feed(piece))


def bench_deltas(goals: Goals) -> None:
    count = 400
    print("a streamed text delta, from (row) to (column), CPU us each; in brackets: floors of its own size\n")
    print(f"{'':<20}{'floor':>8}" + "".join(f"{to:>19}" for to in DIALECTS))
    costs: dict[tuple[str, str], float] = {}
    over: list[float] = []  # of what a delta may cost
    for source in DIALECTS:
        frames = frames_of(source, text_stream(count))[2:-2]
        opening = frames_of(source, text_stream(count))[:2]
        sample = frames[len(frames) // 2]
        payload = sample[sample.index(b"{") :].strip()
        once = floor(payload)
        works: dict[str, Callable[[], object]] = {"floor": lambda once=once: [once() for _ in range(count)]}  # type: ignore[misc]
        for to in DIALECTS:

            def run(
                source: str = source, to: str = to, opening: list[bytes] = opening, frames: list[bytes] = frames
            ) -> None:
                notes = Notes()
                decoder, encoder = find_dialect(source).stream_decoder(notes), find_dialect(to).stream_encoder(notes)
                for frame in opening:
                    encoder.feed(decoder.feed(frame))
                for frame in frames:
                    encoder.feed(decoder.feed(frame))

            works[to] = run
        best = compare(works, 2)
        base = best.pop("floor") / count
        row = ""
        for to, us in best.items():
            each = us / len(frames)
            costs[source, to] = each
            row += f"{each:>11.2f} ({each / base:4.1f}x)"
            over.append(each / (4 * base + 2))
        print(f"{source:<20}{base:>8.2f}{row}")
    middle = median(costs.values())
    (slowest, cost) = max(costs.items(), key=lambda item: item[1])
    print(f"\nmedian pair {middle:.2f} us; slowest {slowest[0]} -> {slowest[1]} {cost:.2f} us")
    goals.later("a delta, the slowest pair, of 4 floors and 2 us", max(over), 1.0)
    goals.later("a delta, the slowest pair, of the median pair", cost / middle, 1.6)


def bench_window(goals: Goals) -> None:
    """A request under a limit by the minute: when the minute is empty, and when it holds 60,000 others."""

    def serve(window: Window) -> None:
        window.wait_s(1.0)
        late, unsent = window.take(1.0), window.take(1.0)
        late = window.stamp(late, 1, 1.1)
        window.change(unsent, -1)
        window.change(late, -1)

    empty, full = Window(10**6), Window(10**6)
    for i in range(60_000):
        full.take(i / 60_000)
    best = compare({"empty": lambda: serve(empty), "full": lambda: serve(full)}, 500)
    goals.later("a limit by the minute with 60,000 in the minute", best["full"] / best["empty"], 1.5)
    print(f"\na limit by the minute: {best['empty']:.2f} us a request, with 60,000 in the minute {best['full']:.2f} us")


def main() -> int:
    goals = Goals()
    for part in (bench_requests, bench_convert, bench_passes, bench_deltas, bench_window):
        part(goals)
    print()
    return goals.end()


if __name__ == "__main__":
    sys.exit(main())
