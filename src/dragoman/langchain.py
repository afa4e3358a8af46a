"""ChatDragoman: every model that dragoman knows as a chat model of LangChain. `pip install 'dragoman[langchain]'`.

    model = ChatDragoman(model="claude-sonnet-5-5", max_tokens=500)
    model.bind_tools([get_weather]).invoke("What is the weather in Oslo?")

Keys come from the environment. With `base_url`, a running gateway answers. The thoughts of a model and their signatures
travel in `additional_kwargs`, so that a model that thinks gets them back with the results of its tools.
"""

import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, cast

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, convert_to_openai_messages
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from dragoman.client import AsyncClient, Client
from dragoman.client.answers import Answer, StreamEvent
from dragoman.client.prompts import ChatOptions
from dragoman.jsontypes import dump_json, load_json
from dragoman.model.reply import Usage

KEPT = "dragoman"  # in `additional_kwargs`: the message in our own form
_ANY_TOOL = {"any": "required", "required": "required", True: "required", "auto": "auto", "none": "none", False: "none"}


class ChatDragoman(BaseChatModel):  # type: ignore[misc]  # the type checker may do without the extra
    """A chat model of LangChain in front of any provider. `options`: other arguments of `Client.chat`."""

    model: str
    provider: str | None = None
    base_url: str | None = None
    api_key: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    timeout: float | None = None
    max_retries: int | None = None
    options: dict[str, Any] = {}  # noqa: RUF012  # pydantic copies it
    _client: Client | None = None
    _async_client: AsyncClient | None = None

    @property
    def _llm_type(self) -> str:
        return "dragoman"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model": self.model, "provider": self.provider, "base_url": self.base_url}

    def _make_client(self, kind: Callable[..., Any]) -> Any:
        limits = {"max_retries": self.max_retries}
        return kind(self.provider, base_url=self.base_url, api_key=self.api_key, **limits)

    @property
    def client(self) -> Client:
        """The client that it asks with."""
        if self._client is None:
            self._client = self._make_client(Client)
        return self._client

    @property
    def async_client(self) -> AsyncClient:
        if self._async_client is None:
            self._async_client = self._make_client(AsyncClient)
        return self._async_client

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: dict[str, Any] | str | bool | None = None,
        **kwargs: Any,
    ) -> Runnable[Any, AIMessage]:
        """`tool_choice`: auto, any, none, or the name of a tool."""
        declared = [convert_to_openai_tool(tool) for tool in tools]
        if isinstance(tool_choice, dict):
            tool_choice = tool_choice.get("function", tool_choice).get("name")
        if tool_choice is not None:
            kwargs["tool_choice"] = _ANY_TOOL.get(tool_choice, tool_choice)
        return super().bind(tools=declared, **kwargs)

    def _arguments(self, stop: list[str] | None, more: dict[str, Any]) -> ChatOptions:
        own = {"temperature": self.temperature, "max_tokens": self.max_tokens, "timeout_s": self.timeout, "stop": stop}
        own |= {key: more[key] for key in more if key in ChatOptions.__annotations__}
        return cast(ChatOptions, {**self.options, **{key: value for key, value in own.items() if value is not None}})

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return write_result(self.client.chat(self.model, read_turns(messages), **self._arguments(stop, kwargs)))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        turns = read_turns(messages)
        return write_result(await self.async_client.chat(self.model, turns, **self._arguments(stop, kwargs)))

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        with self.client.stream(self.model, read_turns(messages), **self._arguments(stop, kwargs)) as answering:
            for event in answering:
                if (chunk := write_chunk(event)) is not None:
                    if run_manager is not None:
                        run_manager.on_llm_new_token(event.text, chunk=chunk)
                    yield chunk
            yield write_last_chunk(answering.answer())

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        turns, arguments = read_turns(messages), self._arguments(stop, kwargs)
        async with await self.async_client.stream(self.model, turns, **arguments) as answering:
            async for event in answering:
                if (chunk := write_chunk(event)) is not None:
                    if run_manager is not None:
                        await run_manager.on_llm_new_token(event.text, chunk=chunk)
                    yield chunk
            yield write_last_chunk(await answering.answer())


def read_turns(messages: Sequence[BaseMessage]) -> list[Any]:
    """Messages of LangChain as `Client.chat` takes them. A turn that this class wrote is kept as it was."""
    turns: list[Any] = []
    for message in messages:
        kept = message.additional_kwargs.get(KEPT)
        turn = kept if kept is not None else convert_to_openai_messages([message], pass_through_unknown_blocks=True)[0]
        turns.append(turn)
    return turns


def write_result(answer: Answer[Any]) -> ChatResult:
    message = AIMessage(
        content=answer.text,
        additional_kwargs=_kept(answer),
        tool_calls=[
            {"name": call.name, "args": _read_arguments(call.arguments), "id": call.id, "type": "tool_call"}
            for call in answer.calls
        ],
        usage_metadata=_usage(answer.usage),
        response_metadata=_metadata(answer),
        id=answer.id or None,
    )
    return ChatResult(generations=[ChatGeneration(message=message)])


def write_chunk(event: StreamEvent) -> ChatGenerationChunk | None:
    """The text of an event, or the call that it completes."""
    if event.text:
        return ChatGenerationChunk(message=AIMessageChunk(content=event.text))
    if event.call is None:
        return None
    index = getattr(event.event, "index", 0)
    call = tool_call_chunk(name=event.call.name, args=event.call.arguments or "{}", id=event.call.id, index=index)
    return ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[call]))


def write_last_chunk(answer: Answer[Any]) -> ChatGenerationChunk:
    message = AIMessageChunk(
        content="",
        additional_kwargs=_kept(answer),
        usage_metadata=_usage(answer.usage),
        response_metadata=_metadata(answer),
        chunk_position="last",
    )
    return ChatGenerationChunk(message=message)


def _kept(answer: Answer[Any]) -> dict[str, Any]:
    """The answer in our own form, and its thoughts where LangChain's programs look for them."""
    thoughts = {"reasoning_content": answer.reasoning} if answer.reasoning else {}
    return {KEPT: load_json(dump_json(answer.message)), **thoughts}


def _metadata(answer: Answer[Any]) -> dict[str, Any]:
    notes = [f"{note.rank} {note.where}: {note.why}" for note in answer.notes]
    fields = {"model_name": answer.model, "model_provider": "dragoman", "finish_reason": answer.finish, "notes": notes}
    return {name: value for name, value in fields.items() if value}


def _usage(usage: Usage) -> UsageMetadata:
    """LangChain counts cached tokens as input, and thoughts as output."""
    output = (usage.output or 0) + (usage.reasoning or 0)
    return UsageMetadata(input_tokens=usage.total - output, output_tokens=output, total_tokens=usage.total)


def _read_arguments(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
