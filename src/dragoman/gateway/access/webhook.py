"""Messages about budgets: in the log, and to the address that `[budgets] webhook` names.

A message has a `text` for people, which Slack, Mattermost and others show as it is, and the same as data.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence

from dragoman.accounts.budgets import Passed, find_reset
from dragoman.accounts.grants import Account
from dragoman.accounts.money import write_amount, write_time
from dragoman.jsontypes import dump_json
from dragoman.log_line import LogLine

log = logging.getLogger(__name__)
WEBHOOK_S = 10.0
PAUSES_S = (2.0, 20.0, 120.0)  # before a message is sent again
MOST_AT_ONCE = 100  # messages that are on their way or wait to be sent again


_free = threading.BoundedSemaphore(MOST_AT_ONCE)


def tell_webhook(url: str, passed: Sequence[Passed], find_account: Callable[[str], Account | None]) -> None:
    """Runs in the bookkeeper's thread. Each message is sent by a thread of its own, and no request waits for it."""
    for one in passed:
        body = make_message(one, find_account(one.line.account))
        log.warning(LogLine(str(body["event"]), {name: body[name] for name in body if name not in ("event", "text")}))
        if url and _free.acquire(blocking=False):
            threading.Thread(target=_post, args=(url, dump_json(body)), daemon=True).start()
        elif url:
            why = f"{MOST_AT_ONCE} messages wait already"
            log.warning(LogLine("webhook_failed", {"why": why, "again_in_s": None}))


def _post(url: str, body: bytes) -> None:
    try:
        for pause_s in (*PAUSES_S, None):
            why = _send(url, body)
            if not why:
                return
            log.warning(LogLine("webhook_failed", {"why": why, "again_in_s": pause_s}))
            if pause_s is not None:
                time.sleep(pause_s)
    finally:
        _free.release()


def _send(url: str, body: bytes) -> str:
    """Why the message did not arrive, or "". A redirect is an error: what is asked there is no message."""
    from dragoman.fetch import fetch  # few gateways have a webhook

    headers = {"content-type": "application/json", "user-agent": "dragoman"}
    try:
        fetch(url, seconds=WEBHOOK_S, most_bytes=0, body=body, headers=headers)
    except OSError as error:
        return str(error) or type(error).__name__
    return ""


def _escape(text: str) -> str:
    """For Slack and programs like it, which read `<!channel>` as an order. Names come from identity providers, too."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def make_message(passed: Passed, account: Account | None) -> dict[str, object]:
    """`account`: None if the key or the team is gone meanwhile."""
    line = passed.line
    label = account.label if account is not None else line.account
    kind = f"the {line.account.partition(':')[0]} "
    spent, budget = write_amount(passed.micros), account.budget if account is not None else None
    reset = find_reset(budget, line.period) if budget is not None else None
    until = f", until {write_time(reset)}" if reset is not None else ""
    return {
        "event": "budget_spent" if passed.percent >= 100 else "budget_soft_limit",
        "text": _escape(f"{label} has spent {spent} of {budget or write_amount(line.limit)}{until}"),
        "account": line.account,
        "name": label.removeprefix(kind) if account is not None else "",
        "percent": passed.percent,
        "spent": spent,
        "limit": write_amount(line.limit),
        "currency": budget.currency if budget is not None else "",
        "period": budget.period if budget is not None else "",
        "period_began": write_time(line.period),
        "resets": write_time(reset) if reset is not None else None,
    }
