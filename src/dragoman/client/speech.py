"""A text spoken: by a provider, through a gateway, or by the demo model."""

from typing import TYPE_CHECKING

from dragoman.client.wiring import GATEWAY
from dragoman.dialects import USUAL, find_dialect
from dragoman.dialects._openai_services import SPEECH_PATH
from dragoman.errors import DragomanError
from dragoman.exchange import UpstreamCall
from dragoman.jsontypes import JsonObject, dump_json
from dragoman.notes import Notes
from dragoman.upstream.attempts import Job
from dragoman.upstream.spec import DEMO, Target
from dragoman.upstream.speech import FORMS, Sound, find_speech, hear_answer, shape_sound, speak_demo
from dragoman.upstream.upstream_state import UpstreamState
from dragoman.wire import WireRequest

if TYPE_CHECKING:
    from dragoman.client.async_client import AsyncClient


async def speak(
    client: "AsyncClient",
    model: str,
    text: str,
    *,
    voice: str | None,
    instructions: str | None,
    form: str | None,
    timeout_s: float | None,
) -> Sound:
    if form is not None and form not in FORMS:
        raise DragomanError(f"no such form of sound: {form}; there are {', '.join(FORMS)}")
    said = {"model": model, "input": text, "voice": voice, "instructions": instructions, "response_format": form}
    body: JsonObject = {name: value for name, value in said.items() if value is not None}
    targets = client.wiring.targets(model)
    if targets[0][0].spec.kind == DEMO:
        return await shape_sound(speak_demo(body), form)
    job = Job(targets=targets, render=lambda state, target: _render(state, target, body), stream=False,
              deadline=client.deadline(timeout_s))  # fmt: skip
    sent = await client.ask(job)
    try:
        sound = hear_answer(sent.dialect, sent.raw or b"", said=form or "mp3")
        return await shape_sound(sound, form)
    finally:
        client.done(sent)


def _render(state: UpstreamState, target: Target, body: JsonObject) -> UpstreamCall:
    spec = state.spec
    if spec.name.startswith(GATEWAY):  # it takes every form, and OpenAI's door is the one for speech
        dialect = find_dialect(USUAL)
        wire = WireRequest(path=SPEECH_PATH, body={**body, "model": target.model})
    else:
        dialect = find_dialect((spec.dialects or (spec.dialect,))[0])
        wire = find_speech(dialect).encode_request(target.model, body)
    return UpstreamCall(
        dialect=dialect, path=wire.path, body=dump_json(wire.body), headers={}, notes=Notes(), opaque=True
    )
