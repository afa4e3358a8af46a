"""Speech: /v1/audio/speech, served by OpenAI-compatible upstreams, Gemini's speaking models and the demo's voice."""

from dragoman.dialects._base import Dialect
from dragoman.errors import DecodeError
from dragoman.gateway.http import HttpRequest, HttpResponse
from dragoman.gateway.non_chat import ask, read_object
from dragoman.gateway.routes import Match
from dragoman.gateway.state import Gateway
from dragoman.jsontypes import JsonObject
from dragoman.upstream.spec import DEMO
from dragoman.upstream.speech import FORMS, Sound, find_speech, hear_answer, shape_sound, speak_demo
from dragoman.wire import WireRequest


async def serve_speech(gateway: Gateway, http: HttpRequest, match: Match) -> HttpResponse:
    body = await read_object(gateway, http)
    model, text, wanted = body.get("model"), body.get("input"), body.get("response_format")
    if type(model) is not str or type(text) is not str:
        raise DecodeError("expected `model` and `input` as strings")
    if wanted is not None and wanted not in FORMS:
        raise DecodeError(f"expected one of {', '.join(FORMS)}", "response_format")
    targets = gateway.now.targets(model, lambda: 0.0)
    if targets and targets[0][0].spec.kind == DEMO:
        _check_whole(body)
        return _respond(await shape_sound(speak_demo(body), wanted))

    def form(there: Dialect, name: str) -> WireRequest:
        codec = find_speech(there)
        if codec.decode_reply is not None:
            _check_whole(body)
        return codec.encode_request(name, body)

    answer = await ask(gateway, http, "speech", match.route.dialect, model, form)
    try:
        heard = hear_answer(answer.dialect, answer.raw, said=wanted or "mp3")
        if find_speech(answer.dialect).decode_reply is not None:
            return _respond(await shape_sound(heard, wanted))
        if wanted is not None and _differs(heard.form, wanted):  # some servers speak one form whatever is asked
            return _respond(await shape_sound(heard, wanted))
        kind = answer.headers.get("content-type", heard.media_type)
        return HttpResponse(200, answer.raw, headers={"content-type": kind})
    finally:
        if http.scope is not None:
            http.scope.finish()


def _check_whole(body: JsonObject) -> None:
    if body.get("stream_format") == "sse":
        raise DecodeError("only the sound itself comes from this upstream, not events", "stream_format")


def _differs(form: str, wanted: str) -> bool:
    return form != wanted and {form, wanted} != {"ogg", "opus"}


def _respond(sound: Sound) -> HttpResponse:
    return HttpResponse(200, sound.data, headers={"content-type": sound.media_type})
