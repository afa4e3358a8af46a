"""Reasoning in the history: which target gets a seal, and which thoughts a target wants back.

Opaque state goes back only to its origin, byte for byte. For other targets it is left out with a note. We never make up
such state, with one exception: Gemini's documented word for "this call has no signature" (FIELD-CASES 9-15, 40).
"""

from msgspec.structs import replace

from dragoman.model.messages import Image, Message, Part, Reasoning, Seal, Text, ToolCall, ToolResult
from dragoman.model.request import ReasoningSetting, Request
from dragoman.notes import ROOT, At, Notes
from dragoman.passes.profile import Profile


def replay_reasoning(request: Request, profile: Profile, notes: Notes) -> Request:
    """Keeps seals that the target can read, and thoughts that it takes, in the field from which it reads them."""
    if not any_sealed(request.messages):  # fast path: no thoughts
        return request
    changed: dict[int, Message] = {}
    for i, message in enumerate(request.messages):
        if not _is_concerned(message.parts, request.model, profile):  # fast path: no thoughts
            continue
        parts = _replay_parts(message, i, request.model, profile, notes)
        if parts is not message.parts:
            changed[i] = replace(message, parts=parts)
    if not changed:
        return request
    messages = tuple(changed.get(i, m) for i, m in enumerate(request.messages))
    return replace(request, messages=tuple(m for i, m in enumerate(messages) if m.parts or i not in changed))


_SEALED = frozenset({Text, ToolCall, Image})


def any_sealed(messages: tuple[Message, ...]) -> bool:  # fast path: no thoughts
    """Whether any turn has a thought or a seal."""
    for message in messages:
        for part in message.parts:
            kind = type(part)
            if kind is Reasoning or (kind in _SEALED and part.seal is not None):  # type: ignore[union-attr]
                return True
    return False


def _is_concerned(parts: tuple[Part, ...], model: str, profile: Profile) -> bool:  # fast path: no thoughts
    for part in parts:
        kind = type(part)
        if kind is Reasoning:
            return True
        if kind in _SEALED:
            seal = part.seal  # type: ignore[union-attr]
            if seal is not None and (seal.upstream or seal.model or not is_readable(seal, model, profile)):
                return True
    return False


def _replay_parts(message: Message, i: int, model: str, profile: Profile, notes: Notes) -> tuple[Part, ...]:
    kept: list[Part] = []
    same = True
    for j, part in enumerate(message.parts):
        if isinstance(part, Reasoning):
            at: At = ((((ROOT, "messages"), i), "parts"), j)
            replayed: Part | None = None
            if message.role == "assistant":
                kept_there = profile.native or _is_sealed_later(message.parts[j + 1 :], model, profile)
                replayed = _replay(part, model, profile, at, notes, kept_there=kept_there)
            else:
                notes.dropped(at, "only turns of the assistant have thoughts")
        elif isinstance(part, Text | ToolCall | Image) and part.seal is not None:
            at = ((((ROOT, "messages"), i), "parts"), j)
            replayed = part if is_readable(part.seal, model, profile) else _unseal(part, at, notes)
        else:
            kept.append(part)
            continue
        if replayed is not None:
            replayed = _deliver(replayed)
            kept.append(replayed)
        same = same and replayed is part
    return message.parts if same else tuple(kept)


def _deliver(part: Part) -> Part:
    """The part without the upstream's name on its seal. We needed the name only to choose the target."""
    seal: Seal | None = getattr(part, "seal", None)
    if seal is None or not (seal.model or seal.upstream):
        return part
    return replace(part, seal=replace(seal, model=None, upstream=None))


def is_readable(seal: Seal, model: str, profile: Profile) -> bool:
    """Whether the target issued the seal, as far as the history shows."""
    if seal.origin != profile.dialect or (profile.seal_forms is not None and seal.form not in profile.seal_forms):
        return False
    bound = profile.seals_bound_to
    if bound != "dialect" and seal.upstream and profile.upstream and seal.upstream != profile.upstream:
        return False
    return bound != "model" or seal.model is None or seal.model == model


def _unseal(part: Text | ToolCall | Image, at: At, notes: Notes) -> Part:
    seal = part.seal
    if seal is not None:
        notes.dropped((at, "seal"), f"only {seal.model or seal.upstream or seal.origin} can read its {seal.form}")
    return replace(part, seal=None)


def _is_sealed_later(rest: tuple[Part, ...], model: str, profile: Profile) -> bool:
    """Whether the thought continues in the next parts and its last part has a seal. A thought of Responses can have
    many texts."""
    for part in rest:
        if type(part) is not Reasoning or part.extras.get(profile.dialect, {}).get("~item") != "same":
            return False
        if part.seal is not None:
            return is_readable(part.seal, model, profile)
    return False


def _replay(part: Reasoning, model: str, profile: Profile, at: At, notes: Notes, *, kept_there: bool) -> Part | None:
    """`kept_there`: the target may know a thought by its id alone."""
    ours = part.seal is not None and is_readable(part.seal, model, profile)
    match profile.echo:
        case "forbidden" if profile.echo_field == "content" == part.extras.get(profile.dialect, {}).get("~name"):
            return part  # in the way the target itself says it (Mistral)
        case "forbidden":
            notes.dropped(at, f"{profile.kind or profile.dialect} refuses reasoning in the history")
            return None
        case "signed":
            blank = part.seal is not None and not part.seal.value  # what clients keep of a thought without a signature
            own = part.extras.get(profile.dialect, {})
            # The maker's own items have no text beside their summary: "Expected an array with maximum length 0"
            foreign = profile.maker and own.get("~place") == "content"
            known = kept_there and part.seal is None and own.get("id") and not foreign
            if (ours and not blank) or known:
                return part  # sealed by the target, or kept there under an id
            who = "unsigned" if part.seal is None or blank else f"sealed by {part.seal.model or part.seal.origin}"
            notes.dropped(at, f"{profile.dialect} takes back only reasoning it signed itself; this is {who}")
            return None
        case "own" if not ours and profile.dialect not in part.extras:
            who = "another model's" if part.seal is None else f"sealed by {part.seal.model or part.seal.origin}"
            notes.dropped(at, f"{profile.dialect} takes back only its own thoughts; this is {who}")
            return None
        case _:
            return _echo(part, ours, profile, at, notes)


def _echo(part: Reasoning, ours: bool, profile: Profile, at: At, notes: Notes) -> Part | None:
    if profile.echo == "required":
        ours = False  # wanted as plain text in one field: nothing signed is read there
    if part.seal is not None and not ours:
        if not part.text:
            notes.dropped(at, f"only {part.seal.origin} can read its {part.seal.form}")
            return None
        notes.dropped((at, "seal"), f"only {part.seal.origin} can read its {part.seal.form}")
        part = replace(part, seal=None)
    own = part.extras.get(profile.dialect, {})
    if profile.echo == "required" and "~detail" in own:  # of another server of the same dialect
        own = {}
        part = replace(part, extras={name: keys for name, keys in part.extras.items() if name != profile.dialect})
    if profile.echo_field is None:
        return part
    if "~detail" in own or own.get("~name", ["reasoning_content"]) == [profile.echo_field]:
        return part  # signed details come back as they were
    return replace(part, extras={**part.extras, profile.dialect: {**own, "~name": [profile.echo_field]}})


def drop_last_thoughts(request: Request, profile: Profile, notes: Notes) -> Request:
    """Drops thoughts at the end of a turn, or (with "not_alone") only turns that contain nothing but thoughts.

    Anthropic: "The final block in an assistant message cannot be `thinking`"; Responses: "was provided without its
    required following item" (FIELD-CASES 40).
    """
    messages, bare_only = request.messages, profile.thoughts == "not_alone"
    changed: dict[int, tuple[Part, ...]] = {}
    for i, message in enumerate(messages):
        if message.role != "assistant" or not message.parts or not isinstance(message.parts[-1], Reasoning):
            continue
        if i + 1 < len(messages) and messages[i + 1].role == "assistant" and not bare_only:
            continue
        if bare_only and (message.extras or not all(isinstance(part, Reasoning) for part in message.parts)):
            continue
        parts = message.parts
        while parts and isinstance(parts[-1], Reasoning):
            notes.dropped(((((ROOT, "messages"), i), "parts"), len(parts) - 1), "nothing follows this thought")
            parts = parts[:-1]
        changed[i] = parts
    if not changed:
        return request
    kept = (replace(m, parts=changed[i]) if i in changed else m for i, m in enumerate(messages) if changed.get(i) != ())
    return drop_last_thoughts(replace(request, messages=tuple(kept)), profile, notes)


def sign_calls(request: Request, profile: Profile, notes: Notes) -> Request:
    """Gives the first call of each turn the documented word for "no signature", if it has no signature.

    Gemini 3: "Function call is missing a thought_signature in functionCall parts"; of parallel calls only the first
    has one. Every turn is treated alike, so that a turn reads the same when it is no longer the last (FIELD-CASES 12).
    """
    changed: dict[int, Message] = {}
    in_turn = False
    for i, message in enumerate(request.messages):
        if message.role != "assistant":
            in_turn = False
            continue
        for j, part in enumerate(message.parts):
            if type(part) is ToolCall and not in_turn:
                in_turn = True
                signed = _sign_call(part, message.parts, profile)
                if signed:
                    changed[i] = replace(message, parts=(*message.parts[:j], *signed, *message.parts[j + 1 :]))
                    at: At = (((((ROOT, "messages"), i), "parts"), j), "seal")
                    notes.invented(at, "the documented placeholder for a call without a signature")
                break
    if not changed:
        return request
    return replace(request, messages=tuple(changed.get(i, m) for i, m in enumerate(request.messages)))


def _sign_call(call: ToolCall, turn: tuple[Part, ...], profile: Profile) -> tuple[Part, ...]:
    """The parts that replace the call: with the word for "no signature". Empty if the call has a signature.

    OpenRouter has the signature in one `reasoning.encrypted` detail of the turn, under the id of its first call
    (RooCodeInc/Roo-Code #10640, read 2026-11-17).
    """
    sentinel, style = profile.sentinel or "", profile.sentinel_format
    if style is None:
        seal = Seal(origin=profile.dialect, value=sentinel)
        return () if call.seal is not None else (replace(call, seal=seal),)
    if any(isinstance(part, Reasoning) and part.seal is not None for part in turn):
        return ()
    own = {"~detail": "reasoning.encrypted", "~index": 0, "id": call.id, "format": style}
    seal = Seal(origin=profile.dialect, value=sentinel, form="encrypted")
    return (Reasoning(text="", seal=seal, extras={profile.dialect: own}), call)


def _has_echo(message: Message, dialect: str) -> bool:
    """Whether a turn has its thought, or an empty text that says it had none (recorded: DeepSeek takes that)."""
    if any(isinstance(part, Reasoning) and part.text for part in message.parts):
        return True
    own = message.extras.get(dialect, {})
    return "reasoning_content" in own or "reasoning_content" in own.get("~blank", ())


LOST = "(not kept)"  # replaces a lost thought, for models that cannot stop thinking


def require_echo(request: Request, profile: Profile, notes: Notes) -> Request:
    """Switches thinking off for this request, if the target wants every thought back and one is missing.

    DeepSeek: "The reasoning_content in the thinking mode must be passed back". Leaving the switch out is not enough,
    it thinks by default (FIELD-CASES 14). Kimi: "thinking is enabled but reasoning_content is missing in assistant
    tool call message"; its newer models always think.
    """
    if profile.is_off(request.extras) or (request.reasoning is not None and request.reasoning.mode == "off"):
        return request
    lost = [
        i
        for i, message in enumerate(request.messages)
        if message.role == "assistant"
        and not _has_echo(message, profile.dialect)
        and (profile.echo_of == "turns" or any(isinstance(part, ToolCall) for part in message.parts))
    ]
    if not lost:
        return request
    if profile.thinking is None or profile.thinking.off:
        return switch_off(request, "a turn of the history has lost its reasoning", notes)
    messages = list(request.messages)
    for i in lost:
        notes.invented(
            ((((ROOT, "messages"), i), "parts"), 0), "this turn has lost its reasoning, and the model wants it"
        )
        stand_in = _echo(Reasoning(text=LOST), False, profile, ROOT, notes)
        messages[i] = replace(messages[i], parts=(stand_in or Reasoning(text=LOST), *messages[i].parts))
    return replace(request, messages=tuple(messages))


def begin_loops_with_thinking(request: Request, profile: Profile, notes: Notes) -> Request:
    """Switches thinking off for this request, if the current tool loop has lost the thought that it began with.

    Anthropic, manual thinking: "Expected thinking or redacted_thinking, but found tool_use" (FIELD-CASES 10).
    """
    if request.reasoning is None or request.reasoning.mode != "on":
        return request
    messages = request.messages
    last = len(messages) - 1
    while last >= 0 and messages[last].role != "assistant":
        last -= 1
    run = last
    while run > 0 and messages[run - 1].role == "assistant":
        run -= 1
    if last < 0 or not any(isinstance(p, ToolCall) for m in messages[run : last + 1] for p in m.parts):
        return request
    first = run  # of the loop: calls and results back to what the user asked
    for i in range(last, -1, -1):
        if messages[i].role == "assistant":
            first = i if messages[i].parts else first
        elif not any(isinstance(p, ToolResult) for p in messages[i].parts):
            break
    if messages[first].parts and isinstance(messages[first].parts[0], Reasoning):
        return request
    return switch_off(request, "the tool loop at hand has lost the reasoning it began with", notes)


def switch_off(request: Request, why: str, notes: Notes) -> Request:
    """No thinking in this request, and nothing in it that depends on thinking (FIELD-CASES 150)."""
    notes.altered((ROOT, "reasoning"), f"switched off: {why}")
    request = replace(request, reasoning=ReasoningSetting(mode="off"))
    own = request.extras.get("anthropic")
    if not own:
        return request
    kept = dict(own)
    _drop_thinking_edits(kept, notes)
    _drop_thinking_beta(kept, notes)
    return request if kept == own else replace(request, extras={**request.extras, "anthropic": kept})


def _drop_thinking_edits(own: dict[str, object], notes: Notes) -> None:
    management = own.get("context_management")
    edits = management.get("edits") if isinstance(management, dict) else None
    if not isinstance(management, dict) or not isinstance(edits, list):
        return
    left = [e for e in edits if not (isinstance(e, dict) and str(e.get("type", "")).startswith("clear_thinking"))]
    if len(left) == len(edits):
        return
    at: At = (((ROOT, "extras"), "anthropic"), "context_management")
    notes.altered(at, "clear_thinking requires thinking to be enabled or adaptive")
    if left:
        own["context_management"] = {**management, "edits": left}
    else:
        del own["context_management"]


def _drop_thinking_beta(own: dict[str, object], notes: Notes) -> None:
    betas = own.get("header:anthropic-beta")
    if not isinstance(betas, str) or "interleaved-thinking" not in betas:
        return
    left = [b for b in betas.split(",") if not b.strip().startswith("interleaved-thinking")]
    notes.altered((((ROOT, "extras"), "anthropic"), "header:anthropic-beta"), "no thinking to interleave")
    if left:
        own["header:anthropic-beta"] = ",".join(left)
    else:
        del own["header:anthropic-beta"]
