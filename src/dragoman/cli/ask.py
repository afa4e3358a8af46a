"""`dragoman ask`: one question, one answer."""

import argparse
import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.cli.arguments import add_refuse, read_decimal, read_whole
from dragoman.cli.local_gateway import DEMO, GatewayError, find_key, find_model
from dragoman.cli.style import paint, tame
from dragoman.errors import ConfigError, DecodeError, DragomanError, LossError, UpstreamError
from dragoman.jsontypes import JsonObject, dump_json, format_json, load_json

if TYPE_CHECKING:
    from dragoman.client import Answer, Client
    from dragoman.client.prompts import ChatOptions

NAME = "ask"
HELP = "ask a model one question"
EPILOG = """examples:
  dragoman ask "What is a dragoman?"
  git diff | dragoman ask "Write a commit message" --model claude-sonnet-5-5
  dragoman ask "What is in the picture?" --image cat.png -m gemini-2.5-flash
  dragoman ask "The largest city of Norway" --json-schema city.schema.json
  dragoman ask hello --url http://127.0.0.1:20006

Keys come from the environment (OPENAI_API_KEY, ANTHROPIC_API_KEY,
GEMINI_API_KEY, ...; DRAGOMAN_KEY for --url). Without --model, DRAGOMAN_MODEL
names the model. Without any key the built-in demo model answers.

exit codes: 0 answered, 1 no answer, or one that does not match --json-schema,
2 bad input or usage, 3 refused a loss (--refuse)"""

NO_ANSWER = 1
MISUSED = 2
REFUSED = 3
EFFORTS = ("off", "minimal", "low", "medium", "high", "xhigh", "max")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("words", nargs="*", metavar="QUESTION", help="the question; standard input is added to it")
    parser.add_argument("--model", "-m", help="a model, or upstream/model (default: see below)")
    parser.add_argument("--system", "-s", metavar="TEXT", help="instructions")
    parser.add_argument("--image", "-i", action="append", default=[], metavar="FILE", help="a picture: file or URL")
    parser.add_argument("--file", "-f", action="append", default=[], metavar="FILE", help="a document to read")
    parser.add_argument("--json-schema", metavar="SCHEMA", help="answer with JSON: a schema, or a file that holds one")
    parser.add_argument(
        "--effort",
        type=read_effort,
        metavar="LEVEL",
        help=f"how much to think: {', '.join(EFFORTS)}, or a number of tokens",
    )
    parser.add_argument("--max-output", type=read_whole(1), metavar="N", help="limit of the answer, in tokens")
    parser.add_argument("--temperature", type=read_decimal, metavar="T", help="randomness of the answer, from 0")
    parser.add_argument(
        "--stream",
        action=argparse.BooleanOptionalAction,
        help="piece by piece (default: on a terminal)",
    )
    parser.add_argument("--url", metavar="URL", help="ask through a running gateway")
    add_refuse(parser)
    parser.add_argument("--verbose", "-v", action="store_true", help="notes, usage and upstream, on standard error")


def run(args: argparse.Namespace) -> int:
    from dragoman.client import Client

    try:
        prompt, chat_options = read_question(args)
        with Client(base_url=read_url(args.url)) as client:
            model = args.model or choose_model(client, args.url)
            return print_answer(client, model, prompt, chat_options, args)
    except NoAnswerError as error:
        return complain(str(error), NO_ANSWER)
    except ConfigError as error:
        return complain(str(error).replace("Client: base_url", "--url"), MISUSED)
    except UpstreamError as error:
        return complain(str(error).partition(", or Client(")[0], NO_ANSWER)
    except LossError as error:
        return complain(f"refused: {error}", REFUSED)
    except DragomanError as error:
        return complain(str(error), MISUSED)


class NoAnswerError(DragomanError):
    """The model answered, but the answer does not match the schema."""


def read_effort(text: str) -> str | int:
    if text.isdigit():
        return int(text)
    if text not in EFFORTS:
        raise argparse.ArgumentTypeError(f"expected {', '.join(EFFORTS)}, or a number of tokens, found {text!r}")
    return text


def read_url(url: str | None) -> str | None:
    return f"http://{url}" if url and "://" not in url else url


def read_question(args: argparse.Namespace) -> tuple[str, "ChatOptions"]:
    words = " ".join(word for word in args.words if word != "-")
    piped = "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read().strip()
    prompt = "\n\n".join(text for text in (words, piped) if text)
    if not prompt and not args.image and not args.file:
        raise DragomanError("no question: write it after `ask`, or pipe it in")
    values: dict[str, Any] = {
        "system": args.system,
        "images": args.image,
        "files": args.file,
        "output": read_schema(args.json_schema) if args.json_schema else None,
        "effort": args.effort,
        "max_output": args.max_output,
        "temperature": args.temperature,
        "refuse": args.refuse,
    }
    chat_options: ChatOptions = {}
    chat_options.update({name: value for name, value in values.items() if value not in (None, [])})  # type: ignore[typeddict-item]
    return prompt, chat_options


def read_schema(source: str) -> JsonObject:
    """Reads JSON text, or a file that holds it."""
    text = source
    if not text.lstrip().startswith("{"):
        try:
            text = Path(source).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DragomanError(f"--json-schema: {source}: {getattr(error, 'strerror', None) or error}") from error
    schema = load_json(text)
    if not isinstance(schema, dict):
        raise DragomanError("--json-schema: expected an object")
    return schema


def choose_model(client: "Client", url: str | None) -> str:
    """Chooses the model as all commands do. Without a gateway: by the keys and the local servers of this machine."""
    model = os.environ.get("DRAGOMAN_MODEL")
    if model:
        return model
    if url is not None:
        with suppress(GatewayError):  # the client says better what is wrong with an address
            return find_model((read_url(url) or "").rstrip("/").removesuffix("/v1"), find_key(None))
        listed = client.models()
        return listed[0].name if listed else DEMO
    from dragoman.upstream.discovery import probe_local
    from dragoman.upstream.routing import Routes, find_default

    keyed = tuple(upstream for upstream in client.upstreams.all if upstream.keys)
    found = find_default(Routes(upstreams=keyed)) if keyed else None
    if found is None:
        local = asyncio.run(probe_local(os.environ))
        found = next((f"{name}/{models[0]}" for name, models in local.items() if models), DEMO)
    return found


def print_answer(
    client: "Client", model: str, prompt: str, chat_options: "ChatOptions", args: argparse.Namespace
) -> int:
    streaming = sys.stdout.isatty() if args.stream is None else args.stream
    if streaming and "output" not in chat_options:
        with client.chat(model, prompt, stream=True, **chat_options) as stream:
            for text in stream.texts():
                sys.stdout.write(tame(text, sys.stdout))
                sys.stdout.flush()
            answer = stream.answer()
        sys.stdout.write("\n")
    else:
        answer = client.chat(model, prompt, **chat_options)
        if "output" in chat_options:
            sys.stdout.flush()
            sys.stdout.buffer.write((format_json if sys.stdout.isatty() else dump_json)(parsed(answer)) + b"\n")
        else:
            print(tame(answer.text, sys.stdout))
    if args.verbose:
        report(answer)
    elif answer.finish not in ("stop", "sequence", None):
        print(paint(f"(ended: {answer.finish})", "dim", sys.stderr), file=sys.stderr)
    return 0


def parsed(answer: "Answer[Any]") -> Any:
    try:
        return answer.parsed
    except DecodeError as error:
        if answer.text.strip():
            raise NoAnswerError(f"{error}; it says: {answer.text[:200]}") from error
        raise NoAnswerError(f"the model gave no text: {explain_silence(answer)}") from error


def explain_silence(answer: "Answer[Any]") -> str:
    usage = answer.usage
    spent = f"{usage.output or 0} tokens out" + (f", {usage.reasoning} of them thinking" if usage.reasoning else "")
    why = f"it ended with {answer.finish or 'nothing'}, {spent}"
    return f"{why}; try a larger --max-output" if answer.finish == "length" else why


def report(answer: "Answer[Any]") -> None:
    usage = answer.usage
    lines = [f"{note.kind}: {note.where or '/'}: {note.why}" for note in answer.notes]
    lines.append(f"{answer.upstream}, {answer.model}, {answer.finish}, {usage.input or 0} in, {usage.output or 0} out")
    for line in lines:
        print(paint(line, "dim", sys.stderr), file=sys.stderr)


def complain(text: str, code: int) -> int:
    print(f"{paint('dragoman ask:', 'red', sys.stderr)} {text}", file=sys.stderr)
    return code
