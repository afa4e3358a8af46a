"""A whole answer in each dialect beside Chat, without sockets: as a target of Anthropic's clients, and as a source.

    python bench/pairs.py [to|from|"to ollama"]     microseconds of processor time, and times Chat: the best of many
    python bench/pairs.py "to ollama" --calls       by function
    python bench/pairs.py [to|from] --instructions  thousands of instructions by valgrind: the same on a busy machine

The connections are those of one_request.py.
"""

import argparse
import gc
import sys
import tempfile
import time
from math import inf
from pathlib import Path

import servers
from one_request import Provider, count_instructions, drive, drive_for_count, make_answerer, open_ours, tell_calls
from servers import Request, converted, make_answers, other_answers, path_of

CHAT = "openai_chat"
OTHERS = ("openai_responses", "gemini", "ollama")


def make_requests(only: str) -> dict[str, Request]:
    """Those whose name contains the word."""
    found: dict[str, Request] = {}
    for name in (CHAT, *OTHERS):
        model = "m" if name == CHAT else name
        found[f"to {name}"] = Request("/v1/messages", converted("anthropic", model, stream=False), fresh=True)
    for name in (CHAT, *OTHERS):
        body = converted(name, "anthropic", stream=False)
        found[f"from {name}"] = Request(path_of(name, "anthropic", stream=False), body, fresh=True)
    return {name: request for name, request in found.items() if only in name}


async def main(args: argparse.Namespace, folder: Path) -> None:
    make_answerer()
    for name in OTHERS:
        Provider.answers[name] = make_answers(*other_answers(name))
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)  # as in process/run.py
    ours, requests = open_ours(folder, "off"), make_requests(args.only)
    if args.count:
        await drive_for_count(ours, requests[args.only], args.count, streamed=False)
        return
    if not args.calls:
        requests |= {name: request for name, request in make_requests(CHAT).items() if name.startswith(args.only[:2])}
    for request in requests.values():
        await drive(ours, request, 100, streamed=False)
    if args.calls:
        for name, request in requests.items():
            print(name)
            await tell_calls(ours, request, args, streamed=False)
        return
    best = dict.fromkeys(requests, inf)
    for _ in range(args.rounds):
        for name, request in requests.items():
            began = time.process_time()
            await drive(ours, request, args.batch, streamed=False)
            best[name] = min(best[name], (time.process_time() - began) / args.batch * 1e6)
    for name, us in best.items():
        print(f"{name:24}{us:8.1f} us{us / best[f'{name.split()[0]} {CHAT}']:8.2f} times Chat")


def tell_instructions(only: str) -> None:
    found: dict[str, float] = {}
    for name in [f"{way} {dialect}" for way in ("to", "from") for dialect in (CHAT, *OTHERS)]:
        if only in name or (name.endswith(CHAT) and only.startswith(name.split()[0])):
            found[name] = count_instructions(__file__, name)
            base = found[f"{name.split()[0]} {CHAT}"]
            print(f"{name:24}{found[name]:8,.0f} thousand{found[name] / base:8.2f} times Chat", flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(servers.ROOT / "src"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", nargs="?", default="")
    parser.add_argument("--calls", action="store_true")
    parser.add_argument("--most", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--instructions", action="store_true")
    parser.add_argument("--count", type=int, default=0, help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.instructions:
        raise SystemExit(tell_instructions(words.only))
    with tempfile.TemporaryDirectory() as place:
        servers.run(main(words, Path(place)))
