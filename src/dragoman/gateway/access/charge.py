"""Checks and counts a request for its key: allowed models, the budget, the row in the ledger."""

import logging
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from dragoman.accounts.budgets import Line, Refused, Spent, find_reset, make_lines
from dragoman.accounts.grants import Account, Holder
from dragoman.accounts.ledger import AttemptRow, LedgerRow
from dragoman.accounts.money import write_time
from dragoman.accounts.prices import Cost, ModelPrice, count_cost, is_free
from dragoman.errors import UpstreamError
from dragoman.failure import Failure
from dragoman.gateway.access.key_limits import Entered
from dragoman.jsontypes import Json, dump_json
from dragoman.log_line import LogLine
from dragoman.model.messages import Image
from dragoman.model.reply import Usage
from dragoman.model.request import Request
from dragoman.note_ranks import NoteRank
from dragoman.upstream.attempts import Attempt
from dragoman.upstream.read_reply import MOST_TOKENS
from dragoman.upstream.spec import Target

if TYPE_CHECKING:
    from dragoman.accounts.bookkeeper import Bookkeeper
    from dragoman.gateway.scope import Scope
    from dragoman.gateway.state import Generation

log = logging.getLogger(__name__)
CHARS_PER_TOKEN = 4
MOST_OUTPUT = 10**9  # a client's larger number is lowered to this, so that every store can hold it
USUAL_OUTPUT = 4096  # tokens to reserve at most: answers are mostly far shorter than the client's limit
COUNTERS = [name for name in Usage.__struct_fields__ if name != "extras"]
_read_counts: Callable[[Usage], tuple[int | None, ...]] = attrgetter(*COUNTERS)
SPEECH = "speech"  # the name of its door
# Tokens of sound for a token of text: a minute has some 150 words or 225 tokens of text, and 1,500 tokens of sound
# (Gemini: 25 a second, https://ai.google.dev/gemini-api/docs/speech-generation).
SPOKEN_TOKENS = 7
FRAME_BYTES = 250  # bytes around the text in a frame of a stream
LONGEST_TAGS = 200
NO_USAGE = Usage()
NO_RANKS: dict[NoteRank, int] = {"lost": 0, "changed": 0, "harmless": 0}
LONGEST_PROGRAM = 40
_PROGRAM = re.compile(r"[A-Za-z0-9._@-]+")
OTHER_MODELS = ("models", "fallbacks", "preset")  # keys of requests that name further models


# ---------------------------------------------------------------- models


def check_model(now: "Generation", holder: Holder | None, model: str) -> None:
    """A 403 if the key may not use a model of this name."""
    if holder is not None and not holder.free_models and not may_use(now, holder, model):
        words = f"this key may not use the model {model[:200]!r}"
        raise UpstreamError(
            Failure(kind="forbidden", status=403, code="model_not_allowed", param="model", message=words)
        )


def check_other_models(now: "Generation", holder: Holder, request: Request) -> None:
    """A 403 if a server may answer with a model that the key may not use, or that has another price: routers such as
    OpenRouter and LiteLLM try the models of a list when the first one fails."""
    if holder.free_models and not holder.budgeted:
        return
    for own in request.extras.values():
        for key in OTHER_MODELS:
            for name in _list_models(own.get(key)):
                if name != request.model and (holder.budgeted or not may_use(now, holder, name)):
                    words = f"this key may not use the model {name[:200]!r} instead"
                    raise UpstreamError(
                        Failure(kind="forbidden", status=403, code="model_not_allowed", param=key, message=words)
                    )


def _list_models(value: Json) -> list[str]:
    """Names, or objects with one."""
    rows = value if isinstance(value, list) else [] if value is None else [value]
    return [str(row.get("model", row) if isinstance(row, dict) else row) for row in rows]


def may_use(now: "Generation", holder: Holder | None, model: str) -> bool:
    return holder is None or holder.free_models or holder.may_use(now.plain_name(model))


# ---------------------------------------------------------------- the budget


class Charge(Struct):
    """What a request holds of its key until it ends."""

    holder: Holder | None = None
    books: "Bookkeeper | None" = None
    places: Entered = ()
    lines: tuple[Line, ...] = ()
    turns: list[str] = []  # reservations of further turns of a loop
    warning: str = ""  # for a header: an account is past its soft limit
    recorded: bool = False
    usage: Usage | None = None  # as it was recorded


async def begin_charge(scope: "Scope", tokens: int, output: int | None, choices: int = 1) -> None:
    """Checks the model, the limits and the budget of the key, before anything is sent."""
    holder, gateway = scope.http.holder, scope.gateway
    books = gateway.find_books(holder)
    if holder is None:
        if books is not None:
            scope.charge = Charge(books=books)
        return
    charge = scope.charge = Charge(holder=holder, books=books)  # set first: a refused request gets a row, too
    output, choices = bound_output(output), max(choices, 1)
    check_model(scope.now, holder, scope.model)
    if holder.limited:
        charge.places = await gateway.key_limits.enter(holder, tokens + (output or 0))
    if holder.budgeted:
        await reserve(scope, charge, holder, books, tokens, output, choices)


def charge_at_once(scope: "Scope", tokens: int, output: int | None) -> bool:
    """The same without waiting. `output`: as `bound_output` has it. False: the request is refused or has to wait, and
    nothing was taken."""
    holder, gateway = scope.http.holder, scope.gateway
    books = gateway.find_books(holder)
    if holder is None:
        if books is not None:
            scope.charge = Charge(books=books)
        return True
    if holder.keeps_bodies or not may_use(scope.now, holder, scope.model):
        return False
    charge = Charge(holder=holder, books=books)
    given = tokens + (output or 0)
    if holder.limited:
        places = gateway.key_limits.enter_at_once(holder, given)
        if places is None:
            return False
        charge.places = places
    if holder.budgeted and not reserve_at_once(scope, charge, holder, tokens, output):
        gateway.key_limits.leave(charge.places, sent=False)
        return False
    scope.charge = charge
    return True


def uncharge(scope: "Scope") -> None:
    """Gives back what `charge_at_once` took: the request is charged again, under another id."""
    charge = scope.charge
    if charge is not None:
        scope.gateway.key_limits.leave(charge.places, sent=False)
        if charge.books is not None and charge.lines:
            charge.books.give_back(scope.http.unique_id, charge.lines)


def bound_output(limit: int | None) -> int | None:
    """How many tokens an answer may have, for limits and budgets; None is "not said". A number below zero is no number
    of tokens (some servers take it for "no limit"): it would be counted as tokens that are given back."""
    return None if limit is None or limit < 0 else min(limit, MOST_OUTPUT)


async def reserve(
    scope: "Scope",
    charge: Charge,
    holder: Holder,
    books: "Bookkeeper | None",
    tokens: int,
    output: int | None,
    choices: int,
) -> None:
    micros = _find_amount(scope, holder, tokens, output, choices)
    if micros is None:
        return
    if books is None:
        raise UpstreamError(_no_books("the state folder cannot be used"))
    now, cap = scope.gateway.wall(), scope.now.settings.teams.budgets.policy == "cap"
    lines = charge.lines = make_lines(holder.budgeted, now)  # from here on the row of this request settles it
    try:
        found = await books.reserve(scope.http.unique_id, lines, micros, cap=cap)
    except OSError as error:
        raise UpstreamError(_no_books(str(error))) from error
    if isinstance(found, Refused):
        charge.lines = ()
        raise UpstreamError(_spent(found.spent, holder.budgeted, now))
    charge.warning = _warn(found, holder.budgeted, now)


def reserve_at_once(scope: "Scope", charge: Charge, holder: Holder, tokens: int, output: int | None) -> bool:
    """The same from what this process has in hand. False: it does not fit, or is refused, and nothing was taken."""
    try:
        micros = _find_amount(scope, holder, tokens, output, 1)
    except UpstreamError:
        return False
    if micros is None:
        return True
    if charge.books is None:
        return False
    now = scope.gateway.wall()
    lines = make_lines(holder.budgeted, now)
    found = charge.books.reserve_in_hand(scope.http.unique_id, lines, micros)
    if found is None:
        return False
    charge.lines, charge.warning = lines, _warn(found, holder.budgeted, now)
    return True


def _find_amount(scope: "Scope", holder: Holder, tokens: int, output: int | None, choices: int) -> int | None:
    """What a request reserves, in micro-units; None if it has nothing to pay, or its price is not known."""
    rules, price = scope.now.settings.teams.budgets, scope.now.price_of(scope.model)
    if price is not None and holder.currency == price.currency:
        return estimate_cost(price, tokens, output, choices, cap=rules.policy == "cap")
    targets = [target for _, target in scope.now.targets(scope.model, lambda: 0.0)]
    if targets and rules.unknown_price == "refuse":  # an unknown model is "not found": that error comes later
        raise UpstreamError(_no_price(scope.model, targets[0], holder, price))
    return None


def estimate_cost(price: ModelPrice, tokens: int, output: int | None, choices: int, *, cap: bool) -> int | None:
    """The amount to reserve. None if there is nothing to pay."""
    most = USUAL_OUTPUT if output is None else min(output, USUAL_OUTPUT) if cap else output
    estimate = count_cost(price, Usage(input=max(tokens, 1), output=most * choices))
    if estimate is None or (not estimate.micros and is_free(price)):
        return None
    # Even the shortest request reserves something: otherwise a key without money could send such requests for ever.
    return max(estimate.micros, 1)


async def reserve_turn(scope: "Scope", tokens: int, output: int | None) -> None:
    """A further turn of a loop reserves too. What the turns have cost is known at the end of the loop."""
    charge, holder, price = scope.charge, scope.http.holder, scope.now.price_of(scope.model)
    if charge is None or holder is None or charge.books is None or not charge.lines or price is None:
        return
    cap = scope.now.settings.teams.budgets.policy == "cap"
    micros = estimate_cost(price, tokens, output, 1, cap=cap)
    if micros is None:
        return
    name = f"{scope.http.unique_id}-{len(charge.turns) + 1}"
    charge.turns.append(name)
    try:
        found = await charge.books.reserve(name, charge.lines, micros, cap=cap)
    except OSError as error:
        raise UpstreamError(_no_books(str(error))) from error
    if isinstance(found, Refused):
        raise UpstreamError(_spent(found.spent, holder.budgeted, scope.gateway.wall()))


async def charge_stored(scope: "Scope", tokens: int, added: int, output: int | None) -> None:
    """A request has grown by a stored conversation: it takes its places anew, and reserves for what was added.
    `tokens`: of all that is sent now."""
    charge, holder = scope.charge, scope.http.holder
    if charge is None or holder is None:
        return
    if charge.places:
        limits, places = scope.gateway.key_limits, charge.places
        charge.places = ()
        limits.leave(places, sent=False)
        charge.places = await limits.enter(holder, tokens + (bound_output(output) or 0))
    await reserve_turn(scope, added, 0)


def _spent(spent: Spent, accounts: Sequence[Account], now: float) -> Failure:
    """Spent money is gone until the next period. Money that running requests have reserved is free again soon."""
    account = next(one for one in accounts if one.name == spent.account)
    if spent.may_come_back:
        words = f"running requests hold the rest of the budget of {account.label} ({account.budget})"
        return Failure(kind="rate_limited", status=429, code="budget_reserved", message=words, retry_after_s=2.0)
    reset = find_reset(account.budget, now) if account.budget is not None else None
    when = f"; it begins anew at {write_time(reset)}" if reset is not None else ""
    state = "is spent" if spent.micros >= spent.limit else "has less left than this request may cost"
    return Failure(
        kind="no_credit",
        code="budget_exceeded",
        message=f"the budget of {account.label} {state} ({account.budget}){when}",
        retry_after_s=None if reset is None else max(reset - now, 1.0),
    )


def _warn(found: Sequence[Spent], accounts: Sequence[Account], now: float) -> str:
    words = []
    for spent, account in zip(found, accounts, strict=True):
        if account.budget is not None and spent.percent >= account.grant.soft:
            reset = find_reset(account.budget, now)
            until = f", until {write_time(reset)}" if reset is not None else ""
            words.append(f"{account.name.partition(':')[0]} {spent.percent}% of {account.budget}{until}")
    return "; ".join(words)


def _no_price(model: str, target: Target, holder: Holder, price: ModelPrice | None) -> Failure:
    why = "is not known" if price is None else f"is in {price.currency}, and the budget is not"
    where = f"{target.upstream.name}/{target.model}"[:200]
    words = f"the price of {model[:200]!r} {why}, and {holder.budgeted[0].label} has a budget"
    words += f": an admin of this gateway can add [prices.{dump_json(where).decode()}] to its configuration"
    return Failure(kind="forbidden", status=403, code="unknown_price", param="model", message=words)


def _no_books(why: str) -> Failure:
    """The reason is for the log: it may name files and servers of ours."""
    log.warning(LogLine("budget_not_checked", {"why": why}))
    words = "the budget of this key cannot be checked now: the store of budgets does not answer; try again"
    return Failure(kind="overloaded", status=503, code="budget_unavailable", message=words, retry_after_s=2.0)


# ---------------------------------------------------------------- the end


def end_charge(scope: "Scope", charge: Charge) -> None:
    """Gives back the places at the limits, and what further turns have reserved: the row of the request pays them."""
    if charge.books is not None:
        for name in charge.turns:
            charge.books.give_back(name, charge.lines)
    if charge.places:
        tokens = _sum_tokens(charge.usage if charge.recorded else find_usage(scope)[0])
        scope.gateway.key_limits.leave(charge.places, sent=bool(scope.attempts), tokens=tokens)
        charge.places = ()


def _sum_tokens(usage: Usage | None) -> int | None:
    """None: they are not known."""
    if usage is None:
        return None
    given = (usage.input or 0) + (usage.cache_read or 0) + (usage.cache_write or 0)
    return given + (usage.output or 0) + (usage.reasoning or 0) or None


def believe(usage: Usage, calls: int) -> Usage:
    """Without the counters that make no sense for so many calls. One number below zero would give money back, and a
    gigantic one cannot be written down (T42)."""
    most = MOST_TOKENS * max(calls, 1)
    counts = _read_counts(usage)
    for count in counts:
        if count is not None and not 0 <= count <= most:
            break
    else:
        return usage
    wrong = [n for n, count in zip(COUNTERS, counts, strict=True) if count is not None and not 0 <= count <= most]
    return replace(usage, extras={}, **dict.fromkeys(wrong))


def count_sent(scope: "Scope") -> int:
    """About how many tokens a request has."""
    return max((scope.size or scope.http.size) // CHARS_PER_TOKEN, 1)


def find_running(scope: "Scope") -> Attempt | None:
    """The try that an upstream worked on when the client left."""
    last = scope.attempts[-1] if scope.attempts and scope.answer is None else None
    return last if last is not None and last.abandoned else None


def find_usage(scope: "Scope") -> tuple[Usage | None, bool]:
    """The usage of a request, and whether it is our estimate. Tokens of a stream that broke count too."""
    answer = scope.answer
    if answer is None:
        return (Usage(input=count_sent(scope), output=0), True) if find_running(scope) is not None else (None, False)
    reported = scope.usage or answer.usage
    usage = None if reported is None else believe(reported, len(scope.attempts))
    if scope.client_request is None and not answer.plain:  # not a conversation
        if usage is not None and usage is reported:
            return usage, False
        return _estimate_service(scope), True
    whole = usage is reported and (scope.usage is not None or answer.complete)
    if whole and usage is not None and (usage.input is not None or usage.output is not None):
        return usage, False
    used = usage or Usage()
    text = max(scope.events, (scope.streamed - FRAME_BYTES * scope.events) // CHARS_PER_TOKEN)
    if answer.complete:
        text = max(1, (len(answer.raw) - FRAME_BYTES) // CHARS_PER_TOKEN)
    read = used.input if used.input is not None else count_sent(scope)
    return replace(used, input=read, output=max(used.output or 0, text)), True


def _estimate_service(scope: "Scope") -> Usage:
    """The usage of embeddings or of speech that its server does not report."""
    given = count_sent(scope)
    if scope.door != SPEECH:
        return Usage(input=given, output=0)
    price, spoken = scope.now.price_of(scope.model), given * SPOKEN_TOKENS
    priced = price is not None and price.output_audio is not None
    return Usage(input=given, output=spoken, output_audio=spoken if priced else None)


def find_cost(scope: "Scope", usage: Usage | None) -> Cost | None:
    """None is unknown. A request that no upstream has answered costs nothing."""
    answer, running = scope.answer, find_running(scope)
    if answer is not None:
        upstream, model = answer.target.upstream, answer.target.model
    elif running is not None and running.upstream in scope.now.upstream_states:
        upstream, model = scope.now.upstream_states[running.upstream].spec, running.model
    else:
        return Cost(0, "")
    price = scope.now.prices.find(upstream.name, upstream.kind, model)
    if price is None:
        return None
    images = count_images(scope) if price.image is not None else 0
    return count_cost(price, usage, images)


def find_debit(scope: "Scope", usage: Usage | None) -> int | None:
    """The amount for a request that was answered by an upstream of unknown price: the price of the upstream that was
    asked first."""
    cost = count_cost(scope.now.price_of(scope.model), usage)
    return None if cost is None else cost.micros


def count_images(scope: "Scope") -> int:
    reply = scope.answer.reply if scope.answer is not None else None
    parts = [part for choice in reply.choices for part in choice.parts] if reply is not None else []
    return sum(isinstance(part, Image) for part in parts)


def make_row(scope: "Scope", charge: Charge, usage: Usage | None, cost: Cost | None, *, estimated: bool) -> LedgerRow:
    """By place, which takes half the time."""
    http, holder, answer, used = scope.http, charge.holder, scope.answer, usage or NO_USAGE
    elapsed = scope.gateway.clock() - scope.started
    last = scope.attempts[-1] if scope.attempts else None
    ranks = _count_ranks(scope) if scope.count_notes() else NO_RANKS
    return LedgerRow(
        http.unique_id or http.id,
        scope.gateway.wall() - elapsed,
        (holder.name or holder.id) if holder is not None else "",
        holder.id if holder is not None else "",
        holder.team if holder is not None else "",
        read_tags(scope),
        read_program(http.headers.get("user-agent", "")),
        scope.door,
        scope.model[:200],
        answer.target.upstream.name if answer is not None else last.upstream if last else "",
        answer.target.model if answer is not None else last.model if last else "",
        used.input,
        used.cache_read,
        used.cache_write,
        used.output,
        used.reasoning,
        None if cost is None else cost.micros,
        "" if cost is None else cost.currency,
        scope.status,
        (scope.failure.code or scope.failure.kind) if scope.failure is not None else "",
        None if scope.first_s is None else round(scope.first_s * 1000),
        round(elapsed * 1000),
        len(scope.attempts),
        ranks["harmless"],
        ranks["changed"],
        ranks["lost"],
        estimated,
        scope.show_bodies() if holder is not None and holder.keeps_bodies else "",
        _list_attempts(scope.attempts),
        charge.lines,
        None if cost is not None or not charge.lines else find_debit(scope, usage),
    )


def _count_ranks(scope: "Scope") -> dict[NoteRank, int]:
    """The number of notes of each rank."""
    ranks = dict(NO_RANKS)
    for row in scope.fold_notes():
        ranks[row.rank] += row.places
    return ranks


def _list_attempts(attempts: Sequence[Attempt]) -> tuple[AttemptRow, ...]:
    """Empty if the only one went well: the row of the request says the same."""
    if len(attempts) == 1 and not attempts[0].failure:
        return ()
    return tuple(
        AttemptRow(one.upstream, one.model, one.status, one.failure, round(one.waited_s * 1000)) for one in attempts
    )


def read_tags(scope: "Scope") -> str:
    """`x-dragoman-tags`, and the parts of `metadata` that the configuration names."""
    header = scope.http.headers.get("x-dragoman-tags", "")
    if not header and not scope.now.settings.teams.ledger.tags:
        return ""
    words = [word.strip() for word in header.split(",") if word.strip()]
    names = scope.now.settings.teams.ledger.tags
    if names and scope.client_request is not None:
        metadata = scope.client_request.request.metadata or {}
        words += [f"{name}={metadata[name]}" for name in names if isinstance(metadata.get(name), str | int)]
    tags = ",".join(sorted(set(words)))[:LONGEST_TAGS]
    return tags if tags.isprintable() else ""


@lru_cache(maxsize=256)
def read_program(agent: str) -> str:
    """The name of the program, without its version."""
    return _read_program(agent[:LONGEST_PROGRAM])


@lru_cache(256)
def _read_program(agent: str) -> str:
    match = _PROGRAM.match(agent)
    return match[0] if match else ""
