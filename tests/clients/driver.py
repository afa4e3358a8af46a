"""Runs Python clients for the matrix: a line of JSON on stdin is what to ask, a line on stdout is what was said.

    python -m tests.clients.driver GATEWAY     needs no dragoman, so that it also runs among the frameworks' packages

Each client keeps its history in its own objects: what comes back to the gateway is what the client itself brings back.
"""

import json
import sys
from typing import Any


def load_clients() -> dict[str, Any]:
    """The frameworks where they are installed, else the vendors' own."""
    try:
        from tests.clients import frameworks

        return frameworks.CLIENTS
    except ImportError:
        from tests.clients import official

        return official.CLIENTS


def describe(error: BaseException) -> dict[str, Any]:
    """The client's exception. A framework may wrap the one of the SDK below, which has the status."""
    status: Any = None
    seen: BaseException | None = error
    while seen is not None and not isinstance(status, int):
        status = getattr(seen, "status_code", None) or getattr(seen, "code", None)
        seen = seen.__cause__ or seen.__context__
    return {"error": type(error).__name__, "status": status, "message": str(error)[:600]}


def main(gateway: str) -> None:
    makers, clients = load_clients(), dict[str, Any]()
    out = sys.stdout
    sys.stdout = sys.stderr  # what a package prints is no answer
    for line in sys.stdin:
        wish = json.loads(line)
        name = wish.pop("client")
        try:
            client = clients.get(name) or clients.setdefault(name, makers[name](gateway))
            said = client.ask(wish)
        except Exception as error:
            said = describe(error)
        out.write(json.dumps(said) + "\n")
        out.flush()


if __name__ == "__main__":
    main(sys.argv[1])
