"""Parrot Chat: the stream, both ways. A frame is one of our events, under the bird's own names."""

from dragoman.dialects._losses import add_rest
from dragoman.dialects._streams import SseStreamDecoder, SseStreamEncoder, write_frame
from dragoman.dialects.parrot.failure import decode_failure, encode_failure
from dragoman.dialects.parrot.parts import decode_part, encode_part
from dragoman.dialects.parrot.reply import ANSWER, decode_finish, decode_usage, write_end
from dragoman.dialects.parrot.words import NAME
from dragoman.fields import add_extras, leftovers, take_object, take_one, take_text
from dragoman.framing.sse import SseFrame
from dragoman.jsontypes import JsonObject, load_json
from dragoman.model.events import Aside, Event, PartDelta, PartEnd, PartStart, ReplyEnd, ReplyFailed, ReplyStart
from dragoman.notes import ROOT
from dragoman.wire import WireReply


class StreamDecoder(SseStreamDecoder):
    def decode_frame(self, frame: SseFrame) -> Event:
        body: JsonObject = load_json(frame.data)
        match frame.event:
            case "hello":
                return ReplyStart(
                    id=take_text(body, "id"), model=take_text(body, "model"), extras=leftovers(body, NAME)
                )
            case "open":
                return PartStart(index=body["at"], part=decode_part(take_object(body, "block")))
            case "more":
                return PartDelta(index=body["at"], text=take_text(body, "words"))
            case "close":
                return PartEnd(index=body.pop("at"), extras=leftovers(body, NAME))
            case "bye":
                finish, usage = take_one(body, "end", decode_finish), take_one(body, "crackers", decode_usage)
                return ReplyEnd(finishes=(finish,), usage=usage, extras=leftovers(body, NAME))
            case "trouble":
                return ReplyFailed(failure=decode_failure(WireReply(body=body)))
            case _:
                return Aside(dialect=NAME, body=body)


class StreamEncoder(SseStreamEncoder):
    def encode_event(self, event: Event) -> bytes:
        notes = self.notes
        match event:
            case ReplyStart():
                head = {"id": event.id, "model": event.model}
                return write_frame("hello", add_rest(head, event, ("usage",), NAME, ROOT, notes))
            case PartStart():
                block = encode_part(event.part, self.places[event.index], notes) if event.choice == 0 else None
                body = {"at": event.index, "block": block}
                return self.leave_out(event) if block is None else write_frame("open", body)
            case PartDelta() if event.index in self.places:
                add_rest({}, event, ("text",), NAME, self.places[event.index], notes)
                return write_frame("more", {"at": event.index, "words": event.text})
            case PartEnd() if event.index in self.places:
                body = add_rest({"at": event.index}, event, (), NAME, self.places[event.index], notes)
                return write_frame("close", body)
            case ReplyEnd():
                body = write_end(event.finishes, event.usage, notes)
                for extras in event.choice_extras[:1]:
                    add_extras({}, extras, "", ANSWER, notes)
                written = ("finishes", "usage", "choice_extras")
                return write_frame("bye", add_rest(body, event, written, NAME, ROOT, notes))
            case ReplyFailed():
                return write_frame("trouble", encode_failure(event.failure).body)
            case _:
                return b""
