"""The Python library: one small API for every provider, straight or through a gateway, sync and async.

prompts.py       the caller's arguments -> Request     answers.py       Reply -> Answer, Stream, RunAnswer
outputs.py       types and schemas of answers          services.py      models, token counts, speech
upstreams.py     the upstreams of a client             openai_style.py  requests and answers in OpenAI's form
async_client.py  AsyncClient                           sync_client.py   Client: the same without `await`
"""

from dragoman.client.answers import Answer, AsyncStream, RunAnswer, StreamEvent
from dragoman.client.async_client import AsyncClient, ClientEvent
from dragoman.client.sync_client import Client, Stream
from dragoman.speech import Sound

__all__ = [
    "Answer",
    "AsyncClient",
    "AsyncStream",
    "Client",
    "ClientEvent",
    "RunAnswer",
    "Sound",
    "Stream",
    "StreamEvent",
]
