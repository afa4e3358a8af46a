"""The Python library: one small API for every provider, straight or through a gateway, sync and async.

prompts.py      what people write -> Request        answers.py  Reply -> Answer, Stream, RunAnswer
outputs.py      types and schemas of answers        lists.py    models and token counts
wiring.py       which upstreams there are           speech.py   a text spoken
aio.py          AsyncClient                         sync.py     Client: the same without `await`
openai_form.py  requests and answers in OpenAI's form, whoever answers
"""

from dragoman.client.answers import Answer, AsyncStream, RunAnswer, StreamEvent
from dragoman.client.async_client import AsyncClient
from dragoman.client.sync_client import Client, Stream
from dragoman.upstream.speech import Sound

__all__ = ["Answer", "AsyncClient", "AsyncStream", "Client", "RunAnswer", "Sound", "Stream", "StreamEvent"]
