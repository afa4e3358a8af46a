"""The learner: a refusal that says what is wrong with a request, and the request without it. A pure decision.

`exchange.py` asks it after each refusal and sends the corrected request instead. The running process remembers what was
learned about a model at a server (FIELD-CASES 12, 14, 15, 38, 43, 50, 54, 128). Messages, tools and schemas of answers
are never given up: without them the request would mean something else.
"""

import re
from collections.abc import Iterator

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from dragoman.dialects import find_dialect
from dragoman.failure import Failure
from dragoman.learner_rules import RULES
from dragoman.model.effort import EFFORTS
from dragoman.model.messages import Reasoning, ToolResult
from dragoman.model.request import Request, Tool
from dragoman.notes import ROOT, Notes
from dragoman.passes.emulate import Undo
from dragoman.passes.parameters import BETA
from dragoman.passes.prepare import prepare
from dragoman.passes.profile import Profile, Thinking
from dragoman.passes.reasoning import sign_calls
from dragoman.passes.schemas.fit import adapt_schemas

# A parameter's name at some server -> its name in a Request.
FIELDS: dict[str, str] = {
    "temperature": "temperature",
    "top_p": "top_p",
    "topp": "top_p",
    "top_k": "top_k",
    "topk": "top_k",
    "min_p": "min_p",
    "frequency_penalty": "frequency_penalty",
    "frequencypenalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "presencepenalty": "presence_penalty",
    "seed": "seed",
    "random_seed": "seed",
    "logprobs": "logprobs",
    "responselogprobs": "logprobs",
    "top_logprobs": "top_logprobs",
    "stop": "stop",
    "stop_sequences": "stop",
    "stopsequences": "stop",
    "reasoning_effort": "reasoning",
    "reasoningeffort": "reasoning",
    "reasoning.effort": "reasoning",
    "reasoning": "reasoning",
    "think": "reasoning",
    "thinking": "reasoning",
    "output_config.effort": "reasoning",
    "thinkingconfig": "reasoning",
    "verbosity": "verbosity",
    "text.verbosity": "verbosity",
    "user": "user",
    "safety_identifier": "user",
    "metadata": "metadata",
    "service_tier": "service_tier",
    "store": "store",
    "parallel_tool_calls": "parallel_calls",
    "prompt_cache_key": "cache_key",
    "prompt_cache_options": "cache",
    "n": "choices",
    "modalities": "modalities",
}
LIMITS = ("max_tokens", "max_completion_tokens")

_NAME = r"[`'\"]?([A-Za-z_][A-Za-z0-9_.\[\]-]*)[`'\"]?"
# Parameters named in prose. Each pattern is from one server's messages.
_NAMES_FIELD: tuple[re.Pattern[str], ...] = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"unsupported (?:parameter|value|argument)s?:? {_NAME}",  # OpenAI
        rf"does not support (?:the )?parameters? {_NAME}",  # xAI
        rf"arguments? not supported on this model: {_NAME}",  # xAI, older
        r"does not support (thinking)\b",  # Ollama
        rf"invalid {_NAME}: only \S+ is allowed",  # Kimi
        rf"unrecognized (?:request )?arguments?(?: supplied)?:? {_NAME}",  # OpenAI, older
        rf"unknown (?:name|field|parameter):? {_NAME}",  # Gemini, serde
        rf"property {_NAME} is unsupported",  # Groq
        rf"{_NAME}: Extra inputs are not permitted",  # Anthropic, pydantic
        rf"(?:parameter|field|property|argument) {_NAME} is not (?:supported|allowed|permitted)",
        rf"{_NAME} (?:is|are) not (?:supported|enabled|available) (?:with|by|for|on) (?:this|the) model",  # Mistral
        rf"{_NAME} (?:is|are) deprecated for this model",
        rf"{_NAME} may only be set to",  # Anthropic, sampling with thinking
    )
)
_BETA = re.compile(r"Unexpected value\(s\) (.+?) for the `?anthropic-beta`? header", re.IGNORECASE)
_GRAMMAR = re.compile(r"failed to parse grammar|failed to initialize samplers|grammar.{0,20}(?:error|invalid)", re.I)
_UNSIGNED = re.compile(r"missing a `?thought_signature`?", re.IGNORECASE)
_SPOILT = re.compile(
    r"(?:invalid|corrupted) (?:[`'\"]?signature|thought signature)|invalid `data` in `redacted_thinking`|"
    r"encrypted content\b.{0,200}? could not be (?:verified|decrypted)|Item with id '?rs_\w+'? not found",
    re.IGNORECASE | re.DOTALL,
)
_SENTINEL = "skip_thought_signature_validator"
_ROLE = re.compile(
    r"role\W+does not support '(developer|system)'|unknown variant `(developer|system)`, expected|"
    r"role['\"]?:? (developer|system)[\w ]* (?:is )?not supported|unsupported role:? '?(developer|system)|"
    r"invalid message role: (developer|system)",
    re.IGNORECASE,
)
_KNOWN = re.compile(
    r"(?:supported values are|input should be|must be one of|expected one of|valid values are):?(.+)", re.I
)
_UNWANTED = re.compile(
    r"reasoning(?:_content)?['`\"]?,? (?:is |: ?)?(?:unsupported|Extra inputs|not (?:supported|permitted))", re.I
)
_SWITCH = re.compile(r"think value \W*\w+\W* is not supported", re.IGNORECASE)
_PREFILL = re.compile(r"does not support assistant message prefill", re.IGNORECASE)
_WANTED = re.compile(r"reasoning_content.{0,40}(?:must be passed back|is missing)", re.IGNORECASE)
_FORCED = re.compile(
    r"tool_choice.{0,80}(?:incompatible with thinking|does not support this tool_choice)", re.IGNORECASE
)
_TOOLLESS = re.compile(
    r"without `?tools=?`? param|toolConfig field must be defined|tool_(?:use|result)` blocks must define tools", re.I
)
_DEEP = 4  # levels of an error's details that are searched
_LONG = 4_000  # characters of them


class Lesson(Struct, frozen=True, kw_only=True):
    """What to send instead, which fields of the profile to remember, and what the way back has to undo."""

    request: Request
    what: str
    remember: dict[str, object] = {}
    undo: Undo = Undo()


def add_lesson(known: dict[str, object], fields: dict[str, object]) -> dict[str, object]:
    """Adds a lesson to what is known about a model. Lists grow: a lesson names only what it is about."""
    return {**known, **{key: _both(known.get(key), value) for key, value in fields.items()}}


def _both(known: object, fresh: object) -> object:
    if isinstance(known, tuple) and isinstance(fresh, tuple):
        return (*known, *(item for item in fresh if item not in known))
    return fresh


def learn(failure: Failure, request: Request, profile: Profile, notes: Notes) -> Lesson | None:
    """What a refusal teaches. None: it is an ordinary failure."""
    if failure.kind == "too_long":
        return _learn_window(failure, request, profile, notes)
    if failure.kind != "invalid_request" or failure.status not in (400, 422, None):
        return None
    for teach in _TEACHERS:
        lesson = teach(failure, request, profile, notes)
        if lesson is not None:
            return lesson
    return None


def _words(failure: Failure) -> str:
    """The message, and the texts in its details: a relay quotes the refusal of the server behind it there."""
    found = [failure.message, *_texts(failure.extras, _DEEP)]
    return "\n".join(found)[:_LONG]


def _texts(value: object, deep: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif deep and isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner, deep - 1)


def _prepare(request: Request, profile: Profile, notes: Notes, what: str, **fields: object) -> Lesson | None:
    """The request as a server with these fields takes it; None if nothing changes."""
    prepared = prepare(request, replace(profile, **fields), notes)
    if prepared.request is request:
        return None
    return Lesson(request=prepared.request, what=what, remember=to_builtins(fields), undo=prepared.undo)


def _learn_parameter(failure: Failure, request: Request, profile: Profile, notes: Notes) -> Lesson | None:
    for name in _names(failure):
        if name in LIMITS:
            return _learn_limit(name, request, profile, notes)
        field = FIELDS.get(name.lower())
        if field == "stop" and request.stop is not None:
            return _prepare(request, profile, notes, "stop sequences cut here", lacks=(*profile.lacks, "stop"))
        if field is not None and getattr(request, field) is not None:
            notes.dropped((ROOT, field), f"refused: {failure.message[:200]}")
            changed = replace(request, **{field: None})
            return Lesson(request=changed, what=f"without {name}", remember=_remember(field, profile))
        own = request.extras.get(profile.dialect, {})
        if name in own and name[:1] != "~":
            at = (((ROOT, "extras"), profile.dialect), name)
            notes.dropped(at, f"refused: {failure.message[:200]}")
            kept = {key: value for key, value in own.items() if key != name}
            extras = {**request.extras, profile.dialect: kept}
            refused = (*profile.rejects_extras, name)
            changed = replace(request, extras=extras)
            return Lesson(request=changed, what=f"without {name}", remember={"rejects_extras": refused})
    return None


def _remember(field: str, profile: Profile) -> dict[str, object]:
    if field == "reasoning":
        return {"thinking": {"says": "nothing"}}
    return {"rejects": (*profile.rejects, field)}


def _names(failure: Failure) -> list[str]:
    """The parameters an error is about: what it says in a field, then what it says in words.

    The field alone proves nothing: an ordinary mistake in a parameter names it too.
    """
    words = _words(failure)
    named = [match.group(1) for pattern in _NAMES_FIELD for match in pattern.finditer(words)]
    unsupported = failure.code in ("unsupported_parameter", "unsupported_value", "unknown_parameter") or named
    if failure.param and unsupported:
        named.insert(0, failure.param)
    plain = [name.rstrip(".").split("[")[0] for name in named]
    return list(dict.fromkeys(plain + [name.rpartition(".")[2] for name in plain]))


def _learn_limit(name: str, request: Request, profile: Profile, notes: Notes) -> Lesson | None:
    """The server wants `max_completion_tokens` instead of `max_tokens`, or the reverse."""
    keys = profile.limit_keys
    if name not in keys or request.max_output is None:
        return None
    own = request.extras.get(profile.dialect, {})
    if own.get("~limit", keys[0]) != name:
        return None  # not what we sent
    other = keys[1 - keys.index(name)]
    notes.repaired((ROOT, "max_output"), f"said as {other}: {name} is refused")
    extras = {**request.extras, profile.dialect: {**own, "~limit": other}}
    remember: dict[str, object] = {"spelling": {**profile.spelling, "~limit": other}}
    return Lesson(request=replace(request, extras=extras), what=f"{other} instead of {name}", remember=remember)


def _learn_role(failure: Failure, request: Request, profile: Profile, notes: Notes) -> Lesson | None:
    """The role developer is unknown, or the model takes no system text at all (FIELD-CASES 43)."""
    match = _ROLE.search(_words(failure))
    role = next((group.lower() for group in match.groups() if group), None) if match is not None else None
    if role == "developer":
        return _prepare(request, profile, notes, "developer said as system", developer=False)
    if role == "system":
        what = "system text said by the user"
        return _prepare(request, profile, notes, what, developer=False, lead_system="user", mid_system="user")
    return None


def _learn_forcing(failure: Failure, request: Request, profile: Profile, notes: Notes) -> Lesson | None:
    """Learns that a call cannot be forced while the model thinks (FIELD-CASES 53): thinking is switched off, if
    possible."""
    if not _FORCED.search(_words(failure)) or profile.forced_choice != "yes":
        return None
    usual = profile.thinking or Thinking()
    off = profile.off or {"thinking": {"type": "disabled"}}
    fields = {"forced_choice": "unless_thinking", "thinking": replace(usual, default="on"), "off": off}
    return _prepare(request, profile, notes, "not thinking while a call is forced", **fields)


def _learn_prefill(failure: Failure, request: Request, profile: Profile, notes: Notes) -> Lesson | None:
    if not _PREFILL.search(failure.message):
        return None
    return _prepare(request, profile, notes, "a last word of the user", prefill=False)


def _learn_echo(failure: Failure, request: Request, profile: Profile, notes: Notes) -> Lesson | None:
    """Thoughts in the history: some servers refuse them (FIELD-CASES 15), others demand every one (14)."""
    words = _words(failure)
    if profile.dialect != "openai_chat":
        return None
    if _WANTED.search(words) and profile.echo != "required":
        off = profile.off or {"thinking": {"type": "disabled"}}
        return _prepare(request, profile, notes, "not thinking: a thought is missing", echo="required", off=off)
    if _UNWANTED.search(words) and profile.echo != "forbidden":
        return _prepare(request, profile, notes, "without the thoughts of earlier turns", echo="forbidden")
    return None


def _learn_effort(failure: Failure, request: Request, profile: Profile, notes: Notes) -> Lesson | None:
    """The model does not know this effort: the nearest one of those it names is sent."""
    words = _words(failure)
    if request.reasoning is not None and _SWITCH.search(words):  # Ollama: most models only have a switch
        switch = Thinking(says="switch", efforts=())
        return _prepare(request, profile, notes, "thinking as a switch", thinking=switch)
    if request.reasoning is None or not ("effort" in (failure.param or "") or "effort" in words):
        return None
    listed = _KNOWN.search(words)
    named = re.findall(r"[a-z]+", listed.group(1).lower()) if listed is not None else []
    known = tuple(effort for effort in EFFORTS if effort in named)
    if not known:
        return None
    usual = profile.thinking or Thinking()
    thinking = replace(usual, efforts=known, off="none" in named)
    return None if thinking == usual else _prepare(request, profile, notes, "the nearest effort", thinking=thinking)


def _learn_beta(failure: Failure, request: Request, profile: Profile, notes: Notes) -> Lesson | None:
    match = _BETA.search(failure.message)
    own = request.extras.get(profile.dialect, {})
    if match is None or not isinstance(own.get(BETA), str):
        return None
    refused = {value.strip(" `'\"") for value in match.group(1).split(",")}
    betas = [beta.strip() for beta in own[BETA].split(",")]
    left = [beta for beta in betas if beta not in refused]
    if len(left) == len(betas):
        return None
    notes.altered((((ROOT, "extras"), profile.dialect), BETA), f"refused: {', '.join(sorted(refused))}")
    kept = {key: value for key, value in own.items() if key != BETA} | ({BETA: ",".join(left)} if left else {})
    changed = replace(request, extras={**request.extras, profile.dialect: kept})
    return Lesson(request=changed, what=f"without the betas {', '.join(sorted(refused))}")


def _learn_grammar(failure: Failure, request: Request, profile: Profile, notes: Notes) -> Lesson | None:
    """A local server cannot compile a grammar for the schemas: simpler ones are sent, once."""
    if not _GRAMMAR.search(failure.message) or profile.schema == "gbnf":
        return None
    simpler = replace(profile, schema="gbnf", strict_schema=None, output_schema="gbnf")
    changed, _ = adapt_schemas(request, simpler, notes)
    if changed is request or not any(isinstance(tool, Tool) for tool in request.tools or ()):
        return None
    remember: dict[str, object] = {"schema": "gbnf", "strict_schema": None, "output_schema": "gbnf"}
    return Lesson(request=changed, what="simpler tool schemas", remember=remember)


def _learn_signature(failure: Failure, request: Request, profile: Profile, notes: Notes) -> Lesson | None:
    """Signed state that the server does not know: another account's, or another model's (FIELD-CASES 9, 12).

    Without it the conversation goes on. It would be refused for ever, because clients send their history each time.
    """
    signs_calls = find_dialect(profile.dialect).seals_calls
    if _SPOILT.search(_words(failure)):
        if signs_calls:
            return _learn_bare_calls(request, profile, notes)
        return _learn_unread_thoughts(request, profile, notes)
    if not signs_calls or not _UNSIGNED.search(failure.message):
        return None
    changed = sign_calls(request, replace(profile, sentinel=_SENTINEL), notes)
    if changed is request:
        return None
    return Lesson(request=changed, what="calls marked as unsigned", remember={"sentinel": _SENTINEL})


def _learn_bare_calls(request: Request, profile: Profile, notes: Notes) -> Lesson | None:
    """Gemini: calls get the documented word for having no signature."""
    bare = _without_seals(request, notes)
    if bare is None:
        return None
    signed = sign_calls(bare, replace(profile, sentinel=_SENTINEL), notes)
    return Lesson(request=signed, what="without the refused signatures")


def _learn_unread_thoughts(request: Request, profile: Profile, notes: Notes) -> Lesson | None:
    """The thoughts of earlier turns go first. Those of the turn at hand are most likely the server's own."""
    at_hand = _start_of_turn(request)
    earlier = _thoughts(request, 0, at_hand)
    lost = earlier or _thoughts(request, at_hand, len(request.messages))
    if not lost:
        return None
    messages = list(request.messages)
    for i, places in lost.items():
        for j in places:
            notes.dropped(((((ROOT, "messages"), i), "parts"), j), "the target cannot read it: it is not its own")
        kept = tuple(part for j, part in enumerate(messages[i].parts) if j not in places)
        messages[i] = replace(messages[i], parts=kept)
    bare = replace(request, messages=tuple(m for i, m in enumerate(messages) if m.parts or i not in lost))
    prepared = prepare(bare, profile, notes)
    what = "without the thoughts of earlier turns" if earlier else "without thoughts it cannot read"
    return Lesson(request=prepared.request, what=what, undo=prepared.undo)


def _start_of_turn(request: Request) -> int:
    """The number of the last turn with the user's own words, and not only results of tools."""
    for i in range(len(request.messages) - 1, -1, -1):
        message = request.messages[i]
        if message.role == "user" and not any(isinstance(part, ToolResult) for part in message.parts):
            return i
    return 0


def _thoughts(request: Request, start: int, end: int) -> dict[int, set[int]]:
    """The places of thoughts, by message."""
    found = {}
    for i in range(start, end):
        places = {j for j, part in enumerate(request.messages[i].parts) if isinstance(part, Reasoning)}
        if places:
            found[i] = places
    return found


def _without_seals(request: Request, notes: Notes) -> Request | None:
    messages = list(request.messages)
    for i, message in enumerate(messages):
        sealed = [j for j, p in enumerate(message.parts) if getattr(p, "seal", None) and p.seal.value != _SENTINEL]  # type: ignore[union-attr]
        for j in sealed:
            notes.dropped((((((ROOT, "messages"), i), "parts"), j), "seal"), "the target refuses it")
        if sealed:
            parts = tuple(replace(p, seal=None) if j in sealed else p for j, p in enumerate(message.parts))
            messages[i] = replace(message, parts=parts)
    if all(a is b for a, b in zip(messages, request.messages, strict=True)):
        return None
    return replace(request, messages=tuple(messages))


def _learn_history(failure: Failure, request: Request, profile: Profile, notes: Notes) -> Lesson | None:
    """A history with calls needs tools: Bedrock, and LiteLLM in front of it or of Claude (FIELD-CASES 66)."""
    if request.tools or not _TOOLLESS.search(_words(failure)):
        return None
    return _prepare(request, profile, notes, "with the tools of the history", tools_for_history=True)


# The window and the tokens of the prompt, in the words of each server.
_WINDOWS = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        r"maximum context length is (?P<window>\d+) tokens.{0,120}?has (?P<used>\d+) input tokens",  # vLLM
        r"maximum context length is (?P<window>\d+) tokens.{0,80}?\((?P<used>\d+) (?:in the messages|of text input)",
        r"maximum context length of (?P<window>\d+) tokens.{0,80}?: (?P<used>\d+) tokens from the input",  # SGLang
        r"max_new_tokens`? must be <= (?P<window>\d+)\. Given: (?P<used>\d+) `?inputs",  # TGI, Together
        r"max_tokens`? exceed context limit: (?P<used>\d+) \+ \d+ > (?P<window>\d+)",  # Anthropic
    )
)


def _learn_window(failure: Failure, request: Request, profile: Profile, notes: Notes) -> Lesson | None:
    """The limit is larger than what the window leaves beside the prompt. The refusal names both numbers."""
    words = _words(failure)
    found = next((match for pattern in _WINDOWS if (match := pattern.search(words))), None)
    if found is None or request.max_output is None:
        return None
    window, used = int(found["window"]), int(found["used"])
    if used >= window or request.max_output <= window - used:
        return None  # the prompt itself does not fit
    notes.altered((ROOT, "max_output"), f"the window of {window} tokens leaves {window - used}")
    changed = replace(request, max_output=window - used)
    return Lesson(request=changed, what="a limit that fits the window", remember={"window": window})


def _learn_rule(failure: Failure, request: Request, profile: Profile, notes: Notes) -> Lesson | None:
    """A rule that the server names in words we know (learner_rules.py)."""
    words = _words(failure)
    for rule in RULES:
        match = rule.pattern.search(words)
        if match is not None:
            lesson = _prepare(request, profile, notes, rule.what, **rule.fields(match, profile, request))
            if lesson is not None:
                return replace(lesson, remember={}) if rule.once else lesson
    return None


# From the most specific to the most general: the last one only looks for names.
_TEACHERS = (
    _learn_window,
    _learn_rule,
    _learn_beta,
    _learn_history,
    _learn_grammar,
    _learn_signature,
    _learn_role,
    _learn_forcing,
    _learn_prefill,
    _learn_echo,
    _learn_effort,
    _learn_parameter,
)
