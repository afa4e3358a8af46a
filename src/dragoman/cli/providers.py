"""`dragoman providers [NAME]`: the known servers and model families, with their rules."""

import argparse
import os
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from dragoman.cli.style import paint
from dragoman.dialects import find_dialect
from dragoman.errors import ConfigError
from dragoman.jsontypes import dump_text, format_json
from dragoman.passes.parameters import write_range
from dragoman.upstream.profiles import (
    Kind,
    Rows,
    choose_dialect,
    find_kind,
    load_rows,
    own_kinds,
    plain_model,
    profile_for,
)

NAME = "providers"
HELP = "show the known servers and what each one accepts"
PLAIN_WIDTH = 100  # if the output is not a terminal
LABEL_WIDTH = 16

# Labels of a profile's fields. A field without a label is shown by its name.
LABELS: dict[str, str] = {
    "pairing": "pairs",
    "results_in_order": "results",
    "result_names": "result names",
    "result_media": "in results",
    "results_alone": "results",
    "results_first": "results",
    "tools_for_history": "old calls",
    "sentinel": "unsigned calls",
    "arguments": "old arguments",
    "tool_names": "tool names",
    "call_ids": "call ids",
    "join_turns": "turns",
    "first_user": "first turn",
    "prefill": "last turn",
    "empty_text": "blank text",
    "empty_content": "calls alone",
    "lead_system": "system text",
    "mid_system": "later system",
    "developer": "developer",
    "refusals": "refusals",
    "allowed_tools": "some tools only",
    "billing": "billing line",
    "schema": "tool schemas",
    "strict_schema": "strict",
    "output_schema": "answer schemas",
    "echo": "old thoughts",
    "echo_field": "thoughts in",
    "echo_of": "thoughts of",
    "seals_bound_to": "signatures of",
    "seal_forms": "signatures are",
    "thinking": "thinking",
    "thinking_first": "thinking first",
    "think_tags": "thoughts between",
    "think_opened": "opening tag",
    "forced_choice": "forced calls",
    "sampling": "sampling",
    "samplers": "sampling means",
    "one_sampler": "samplers",
    "rejects": "refuses",
    "rejects_extras": "and refuses",
    "takes_extras": "own keys",
    "early_usage": "usage early by",
    "takes_tool_extras": "tools' own keys",
    "takes_betas": "betas",
    "ranges": "ranges",
    "words": "only values",
    "forced_word": "word: required",
    "off": "thinking off is",
    "on": "thinking on is",
    "reasoning_words": "thinking values",
    "spelling": "spelling",
    "omit_neutral": "neutral values",
    "nulls": "nulls",
    "stops": "stop sequences",
    "blank_stops": "blank stops",
    "cache_marks": "cache marks",
    "context": "window",
    "media": "takes",
    "lacks": "lacks",
    "searches": "web search",
    "search_tool": "search tool",
    "mcp": "MCP servers",
    "wrong_forms": "wrong forms",
    "takes_older": "older spellings",
    "maker": "other API's keys",
    "empty_tools": "empty tool list",
    "most_tools": "tools at most",
    "most_output": "output at most",
    "open_budget": "open budget",
    "effort_with_tools": "effort with tools",
    "hides_thoughts": "hidden thoughts",
    "json_not_with": "JSON not with",
    "strict_alike": "strict for all",
    "takes_turn_extras": "turns' own keys",
    "empty_calls": "empty call list",
    "result_ids": "results' ids",
    "sentinel_format": "unsigned calls as",
    "text_beside_calls": "text and calls",
    "user_after_results": "after results",
}
# What a `spelling` is about.
SPELLED = {"~limit": "limit", "~guests": "also takes"}
# Descriptions of values that are not clear by themselves.
MEANINGS: dict[tuple[str, Any], str] = {
    ("wrong_forms", ()): "none: all that clients send is taken",
    ("takes_older", True): "taken too",
    ("maker", True): "taken: Chat takes some of Responses, and Responses some of Chat",
    ("results_in_order", True): "in the order of their calls",
    ("results_alone", False): "may stand with other things",
    ("results_alone", True): "alone in their turn",
    ("results_first", True): "first in their turn",
    ("tools_for_history", True): "need their tools in the request",
    ("arguments", "object"): "must be a JSON object: others are repaired",
    ("join_turns", True): "must alternate: neighbours of one role are joined",
    ("first_user", True): "must be the user's",
    ("first_user", False): "may be the assistant's",
    ("prefill", False): "must not be the assistant's",
    ("prefill", True): "may be the assistant's",
    ("empty_text", False): "refused",
    ("empty_content", "null"): "content is null",
    ("empty_content", "blank"): "content is an empty string",
    ("lead_system", "one"): "in one piece",
    ("lead_system", "user"): "sent as the user's, marked",
    ("mid_system", "user"): "sent as the user's, marked",
    ("mid_system", "lead"): "moved to the head",
    ("developer", False): "sent as system",
    ("refusals", False): "sent as text",
    ("allowed_tools", False): "done by leaving out the others",
    ("billing", False): "left out",
    ("strict_schema", ""): "not supported",
    ("echo", "forbidden"): "refused",
    ("echo", "required"): "every one must come back",
    ("echo", "accepted"): "taken back",
    ("echo_of", "calls"): "turns with calls",
    ("seals_bound_to", "upstream"): "this server only",
    ("seals_bound_to", "model"): "the same model only",
    ("thinking_first", False): "not demanded in a tool loop",
    ("think_opened", True): "stands in the prompt, not in the answer",
    ("forced_choice", "no"): "refused: asked for in words",
    ("forced_choice", "unless_thinking"): "not while it thinks",
    ("forced_choice", "yes"): "taken",
    ("sampling", "no"): "refused",
    ("sampling", "unless_thinking"): "not while it thinks",
    ("sampling", "yes"): "taken",
    ("one_sampler", True): "temperature or top_p, not both",
    ("omit_neutral", True): "left out: even they are refused",
    ("nulls", False): "left out: even they are refused",
    ("cache_marks", 0): "not taken",
    ("takes_extras", ()): "none",
    ("takes_tool_extras", ()): "none",
    ("takes_betas", ()): "none",
    ("mcp", True): "yes",
    ("empty_tools", False): "refused",
    ("empty_tools", True): "taken",
    ("result_ids", False): "may be left out",
    ("result_ids", True): "must be there",
    ("strict_alike", True): "all tools are strict, or none",
    ("searches", "alone"): "only in a request without functions",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="one provider, in full")
    parser.add_argument("--model", metavar="MODEL", default="", help="with the rules of this model")
    parser.add_argument("--config", type=Path, metavar="FILE", help="with the rows of this file (default: as serve)")
    parser.add_argument("--json", action="store_true", help="for programs")


def run(args: argparse.Namespace) -> int:
    from dragoman.gateway.config.load import load_user_rows
    from dragoman.gateway.config.source import find_file

    try:
        path = args.config or find_file(Path.cwd(), os.environ)
        rows = load_user_rows(path, os.environ) or load_rows()
        if args.name is None:
            print_all(rows, path, as_json=args.json)
            return 0
    except ConfigError as error:
        return _complain(str(error))
    try:
        kind = find_kind(args.name, rows)
    except ConfigError as error:
        return _complain(error.why)
    if args.json:
        shown = {"kind": kind, "profile": profile_for(kind.name, args.model, rows=rows)}
        print(format_json(to_builtins(shown)).decode())
    else:
        print_one(kind, args.model, rows)
    return 0


def _complain(words: str) -> int:
    print(f"{paint('dragoman providers:', 'red', sys.stderr)} {words}", file=sys.stderr)
    return 1


def print_all(rows: Rows, path: Path | None, *, as_json: bool) -> None:
    kinds = rows.kinds
    if as_json:
        print(format_json(to_builtins(list(kinds.values()))).decode())
        return
    names = max(len(name) for name in kinds)
    spoken = max(len(_spoken(kind)) for kind in kinds.values())
    print(paint(f"{'name'.ljust(names)}  {'speaks'.ljust(spoken)}  address", "dim", sys.stdout))
    for kind in kinds.values():
        name = paint(kind.name.ljust(names), "bold", sys.stdout)
        room = max(_width() - names - spoken - 4, 20)
        print(f"{name}  {_spoken(kind).ljust(spoken)}  {_cut(kind.base_url, room)}")
    if own := own_kinds(rows):
        print(f"\n{path} adds or changes {', '.join(kind.name for kind in own)}.")
    print("\n`dragoman providers NAME [--model MODEL]` shows what one accepts, with sources.")


def _spoken(kind: Kind) -> str:
    return " ".join(dialect.removeprefix("openai_") for dialect in kind.dialects)


def _width() -> int:
    return shutil.get_terminal_size((PLAIN_WIDTH, 24)).columns if sys.stdout.isatty() else PLAIN_WIDTH


def _cut(text: str, room: int) -> str:
    """On a terminal, cuts a long line. A file or a pipe gets all of it."""
    return text if len(text) <= room or not sys.stdout.isatty() else f"{text[: room - 3]}..."


def print_one(kind: Kind, model: str, rows: Rows) -> None:
    print(f"{paint(kind.title, 'bold', sys.stdout)} ({kind.name})")
    _print_row("address", kind.base_url)
    for dialect, url in kind.urls.items():
        _print_row("", f"{url} as {dialect}")
    _print_row("key", _key(kind))
    _print_row("models", ", ".join(f"{prefix}*" for prefix in kind.prefixes))
    _print_row("note", kind.notes)
    chosen = choose_dialect(kind.name, model, rows) if model else None
    for dialect in kind.dialects if chosen is None else (chosen,):
        rules = differences(kind.name, model, dialect, rows)
        usual = "" if rules else ": no differences"
        print(f"\n{paint(dialect, 'bold', sys.stdout)}{f' for {model}' if model else ''}{usual}")
        for field, value in rules.items():
            _print_row(LABELS.get(field, field), _describe(field, value))
    sources = dict.fromkeys((*kind.seen, *_family_sources(kind.name, model, rows)))
    if sources:
        print(f"\n{paint('seen', 'bold', sys.stdout)}")
    for line in sources:
        print(textwrap.fill(line, _width(), initial_indent="  - ", subsequent_indent="    ", break_on_hyphens=False))


def _key(kind: Kind) -> str:
    variables = [f"{name} (set)" if os.environ.get(name) else name for name in kind.keys]
    return (
        f"{' or '.join(variables)}, sent as {kind.auth}"
        if kind.auth != "none"
        else " or ".join(variables) + ", not needed"
    )


def _print_row(name: str, value: str) -> None:
    if value:
        indent = " " * (LABEL_WIDTH + 3)
        lines = textwrap.wrap(value, max(_width() - len(indent), 20), break_long_words=False, break_on_hyphens=False)
        print(f"  {name.ljust(LABEL_WIDTH)} " + f"\n{indent}".join(lines))


def _describe(field: str, value: Any) -> str:
    """A value as text for people."""
    if not isinstance(value, dict):
        known = MEANINGS.get((field, tuple(value) if isinstance(value, list) else value))
        if known is not None:
            return known
    match field, value:
        case "ranges", dict():
            return "; ".join(f"{name} {write_range(*ends)}" for name, ends in value.items())
        case "thinking", dict():
            return _thinking(value)
        case "media", dict():
            kinds = {name: value[name] for name in ("images", "documents", "audio", "video") if name in value}
            return "; ".join(
                f"{name} as {' or '.join(forms)}" if forms else f"no {name}" for name, forms in kinds.items()
            )
        case "tool_names" | "call_ids", dict():
            first = f", first of {value['first']}" if value.get("first") else ""
            return f"{value['shortest']} to {value['longest']} of {value['letters']}{first}"
        case "spelling" | "words" | "reasoning_words", dict():
            return "; ".join(f"{SPELLED.get(name, name)}: {_join(words)}" for name, words in value.items())
        case _, list() | tuple():
            return _join(value)
        case _:
            return value if isinstance(value, str) else dump_text(value)


def _join(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value) or "none"
    return str(value)


def _thinking(value: dict[str, Any]) -> str:
    says = {"nothing": "cannot be set", "switch": "on or off", "both": "by effort or budget"}.get(value["says"])
    text = says or f"by {value['says']}"
    if value["says"] in ("effort", "adaptive", "both", "level") and value["efforts"]:
        text += f" ({', '.join(value['efforts'])})"
    text += f", {value['default']} by default"
    return text if value["off"] else f"{text}, never off"


def differences(kind: str, model: str, dialect: str, rows: Rows | None = None) -> dict[str, Any]:
    """The rules that differ from the dialect's defaults."""
    usual = to_builtins(find_dialect(dialect).profile)
    here = to_builtins(profile_for(kind, model, dialect, rows=rows))
    return {key: value for key, value in here.items() if value != usual.get(key) and key != "kind"}


def _family_sources(kind: str, model: str, rows: Rows) -> list[str]:
    if not model:
        return []
    name = plain_model(model)
    return [line for family in rows.families if family.fits(kind, name) for line in family.seen]
