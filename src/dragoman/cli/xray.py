"""`dragoman xray`: shows one request of a running gateway, from the client to the provider and back."""

import argparse
import os
import sys
import urllib.error
import urllib.request

from dragoman.cli.style import paint
from dragoman.gateway import HOST, PORT
from dragoman.jsontypes import Json, format_json, load_json

NAME = "xray"
HELP = "show a request that the gateway has kept, step by step"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "The gateway keeps requests sent with `x-dragoman-xray: 1`, and all of them with `serve --xray N`."
    parser.add_argument("id", nargs="?", help="the x-request-id of its answer; without it, lists the kept requests")
    parser.add_argument("--url", default=f"http://{HOST}:{PORT}", help="of the gateway (default: %(default)s)")
    parser.add_argument("--key", default=None, help="an admin key (default: DRAGOMAN_ADMIN_KEY)")
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def run(args: argparse.Namespace) -> int:
    key = args.key or os.environ.get("DRAGOMAN_ADMIN_KEY")
    try:
        found = fetch(f"{args.url.rstrip('/')}/xray" + (f"/{args.id}" if args.id else ""), key)
    except (urllib.error.URLError, OSError, ValueError) as error:
        print(f"{paint('dragoman xray:', 'red', sys.stderr)} {explain(error, args.url)}", file=sys.stderr)
        return 1
    if args.json:
        print(format_json(found).decode())
    elif args.id is None:
        for row in found["requests"]:
            print(
                f"{row['id']}  {row['door']:<10} {row['status']}  {row['s']:>8.3f} s  {row['upstream']}/{row['model']}"
            )
    else:
        show(found)
    return 0


def explain(error: Exception, url: str) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return error.read().decode("utf-8", "replace")
    if isinstance(error, urllib.error.URLError):
        return f"no gateway answers at {url}; start one with `dragoman serve --xray 50`"
    return str(error)


def fetch(url: str, key: str | None) -> Json:
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"not a URL: {url}")
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {key}"} if key else {})  # noqa: S310
    with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310  # checked above
        return load_json(response.read())


def show(found: Json) -> None:
    title(f"client wire  {found['path']}")
    body(found.get("asked"))
    title("canonical")
    body(found.get("canonical"))
    for attempt in found.get("attempts", ()):
        title(f"provider wire  {attempt['upstream']}/{attempt['model']}")
        body(attempt.get("sent"))
        title(f"provider reply  {attempt.get('status') or ''} {attempt.get('failure') or ''}".rstrip())
        body(attempt.get("reply"))
    title(f"client reply  {found['status']}  {found['seconds']} s")
    body(found.get("reply"))
    title("notes")
    for note in found.get("notes", ()):
        print(f"{note['kind']:<9} {note['body']:<8} {note['where'] or '/'}  {note['why']}")


def title(text: str) -> None:
    print(paint(f"── {text}", "bold", sys.stdout))


def body(value: Json) -> None:
    print(value if isinstance(value, str) else format_json(value).decode())
