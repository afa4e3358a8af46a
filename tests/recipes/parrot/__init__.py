"""Parrot Chat: an API we made up. Copy this folder to begin a dialect; CONTRIBUTING.md says what to do with it."""

from dragoman.dialects._base import Dialect, Door, What
from dragoman.dialects.parrot.failure import decode_failure, encode_failure
from dragoman.dialects.parrot.reply import decode_reply, encode_reply
from dragoman.dialects.parrot.request import decode_request, encode_request
from dragoman.dialects.parrot.stream import StreamDecoder, StreamEncoder
from dragoman.dialects.parrot.words import NAME, PATH
from dragoman.jsontypes import JsonObject
from dragoman.passes.profile import Feature, MediaForms, Profile

NO_MEDIA = MediaForms(images=(), documents=(), audio=(), video=())
LACKS: tuple[Feature, ...] = ("tool_choice", "parallel_off", "choices", "json_schema", "stop", "custom_tools")


def recognise(body: JsonObject, what: What) -> int:
    return 80 if body.keys() & {"turns", "says", "trouble"} else 0  # in a request, a reply and a failure


DIALECT = Dialect(
    name=NAME,
    title="Parrot Chat",
    profile=Profile(kind=NAME, dialect=NAME, developer=False, media=NO_MEDIA, lacks=LACKS),
    recognise=recognise,
    decode_request=decode_request,
    encode_request=encode_request,
    decode_reply=decode_reply,
    encode_reply=encode_reply,
    stream_decoder=StreamDecoder,
    stream_encoder=StreamEncoder,
    decode_failure=decode_failure,
    encode_failure=encode_failure,
    doors=(Door(path=PATH),),
    media_type="text/event-stream",
    reply_keys=("says",),
    ping=b": preening\n\n",
)
