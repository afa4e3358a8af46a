"""LangChain, pydantic-ai and llm for the matrix; requirements/frameworks.txt installs them.

Only what a program of theirs would do: their own messages, their own way to bring an answer back.
"""

# mypy: ignore-errors

import base64
import json
from typing import Any

import llm
import openai
from anthropic import AsyncAnthropic
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI
from llm.default_plugins import openai_models
from llm.parts import Message, TextPart, ToolCallPart, ToolResultPart
from openai import AsyncOpenAI
from pydantic_ai import direct, messages
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import ToolDefinition

from tests.gateway.sdks import CLOCK, PIXEL, SCHEMA, WEATHER

KEY = "sk-dummy-of-a-test"
TOOLS = (WEATHER, CLOCK)

FINISHES = {
    "stop": "stop", "STOP": "stop", "end_turn": "stop", "completed": "stop",
    "length": "length", "max_tokens": "length", "MAX_TOKENS": "length", "max_output_tokens": "length",
    "tool_calls": "tool", "tool_use": "tool", "tool_call": "tool",
}  # fmt: skip


class LangChain:
    """A chat model of LangChain. Settings are arguments of its class."""

    def __init__(self, make: Any, gateway: str) -> None:
        self.make, self.gateway, self.history = make, gateway, []
        self.made: dict[Any, Any] = {}

    def ask(self, wish: dict[str, Any]) -> dict[str, Any]:
        if "turns" in wish:
            self.history = [message for turn in wish["turns"] for message in self.read(turn)]
        settings = (wish["model"], wish.get("think"), wish.get("limit"))
        model = self.made.get(settings) or self.made.setdefault(settings, self.make(self.gateway, wish))
        if wish.get("tools"):
            model = model.bind_tools([{"type": "function", "function": tool} for tool in TOOLS])
        if wish.get("schema"):
            schema = {"title": "person", **SCHEMA}
            model = model.with_structured_output(schema, method="json_schema", include_raw=True)
        self.history += self.next_turn(wish)
        if wish.get("schema"):
            found = model.invoke(self.history)
            return {"text": json.dumps(found["parsed"]), "thought": "", "calls": [], "finish": "stop"}
        if wish.get("stream"):
            said = None
            for chunk in model.stream(self.history):
                said = chunk if said is None else said + chunk
        else:
            said = model.invoke(self.history)
        self.history.append(said)
        return self.describe(said)

    def next_turn(self, wish: dict[str, Any]) -> list[Any]:
        if "results" in wish:
            calls = self.history[-1].tool_calls
            return [
                ToolMessage(content=text, tool_call_id=call["id"], name=call["name"])
                for call, text in zip(calls, wish["results"], strict=True)
            ]
        if wish.get("image"):
            picture = {"type": "image", "base64": PIXEL, "mime_type": "image/png"}
            return [HumanMessage(content=[{"type": "text", "text": wish["text"]}, picture])]
        return [HumanMessage(content=wish["text"])]

    def read(self, turn: dict[str, Any]) -> list[Any]:
        if "user" in turn:
            return [HumanMessage(content=turn["user"])]
        if "results" in turn:
            return [ToolMessage(content=text, tool_call_id=i, name=name) for i, name, text in turn["results"]]
        calls = [{"id": i, "name": name, "args": args} for i, name, args in turn.get("calls", ())]
        return [AIMessage(content=turn["assistant"], tool_calls=calls)]

    def describe(self, said: Any) -> dict[str, Any]:
        told = said.response_metadata
        finish = told.get("finish_reason") or told.get("stop_reason") or told.get("done_reason") or told.get("status")
        if told.get("incomplete_details"):
            finish = told["incomplete_details"]["reason"]
        blocks = said.content_blocks
        usage = said.usage_metadata
        return {
            "text": "".join(block["text"] for block in blocks if block["type"] == "text"),
            "thought": "".join(block.get("reasoning", "") for block in blocks if block["type"] == "reasoning"),
            "calls": [[call["name"], call["args"]] for call in said.tool_calls],
            "finish": "tool" if said.tool_calls else FINISHES.get(finish, finish),
            "tokens": [usage["input_tokens"], usage["output_tokens"]] if usage else None,
        }


def lang_openai(gateway: str, wish: dict[str, Any]) -> Any:
    more: dict[str, Any] = {"reasoning_effort": "low"} if wish.get("think") else {}
    return ChatOpenAI(
        model=wish["model"], base_url=f"{gateway}/v1", api_key=KEY, max_retries=0, max_tokens=wish.get("limit"), **more
    )


def lang_responses(gateway: str, wish: dict[str, Any]) -> Any:
    more: dict[str, Any] = {"reasoning": {"effort": "low", "summary": "auto"}} if wish.get("think") else {}
    return ChatOpenAI(
        model=wish["model"], base_url=f"{gateway}/v1", api_key=KEY, max_retries=0, max_tokens=wish.get("limit"),
        use_responses_api=True, store=False, include=["reasoning.encrypted_content"], **more,
    )  # fmt: skip


def lang_anthropic(gateway: str, wish: dict[str, Any]) -> Any:
    more: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": 1024}} if wish.get("think") else {}
    return ChatAnthropic(
        model=wish["model"], base_url=gateway, api_key=KEY, max_retries=0, max_tokens=wish.get("limit") or 4096, **more
    )


def lang_google(gateway: str, wish: dict[str, Any]) -> Any:
    more: dict[str, Any] = {"thinking_budget": 1024, "include_thoughts": True} if wish.get("think") else {}
    return ChatGoogleGenerativeAI(
        model=wish["model"], base_url=gateway, google_api_key=KEY, max_retries=1, vertexai=False,
        max_output_tokens=wish.get("limit"), **more,
    )  # fmt: skip


def lang_ollama(gateway: str, wish: dict[str, Any]) -> Any:
    return ChatOllama(
        model=wish["model"], base_url=gateway, num_predict=wish.get("limit"), reasoning=wish.get("think") or None
    )


class PydanticAi:
    """A model of pydantic-ai, asked directly: its agent would run the tools by itself."""

    def __init__(self, make: Any, gateway: str, **thinking: Any) -> None:
        self.make, self.gateway, self.history, self.thinking = make, gateway, [], thinking
        self.made: dict[str, Any] = {}

    def ask(self, wish: dict[str, Any]) -> dict[str, Any]:
        if "turns" in wish:
            self.history = [self.read(turn) for turn in wish["turns"]]
        name = wish["model"]
        model = self.made.get(name) or self.made.setdefault(name, self.make(self.gateway, name))
        self.history.append(self.next_turn(wish))
        tools = [
            ToolDefinition(name=t["name"], description=t["description"], parameters_json_schema=t["parameters"])
            for t in (TOOLS if wish.get("tools") else ())
        ]
        asked = ModelRequestParameters(function_tools=tools)
        if wish.get("schema"):
            output = OutputObjectDefinition(json_schema=SCHEMA, name="person", strict=True)
            asked = ModelRequestParameters(output_mode="native", output_object=output)
        settings: dict[str, Any] = dict(self.thinking) if wish.get("think") else {}
        if wish.get("limit"):
            settings["max_tokens"] = wish["limit"]
        if wish.get("stream"):
            with direct.model_request_stream_sync(
                model, self.history, model_settings=settings, model_request_parameters=asked
            ) as events:
                for _ in events:
                    pass
                said = events.response
        else:
            said = direct.model_request_sync(
                model, self.history, model_settings=settings, model_request_parameters=asked
            )
        self.history.append(said)
        return self.describe(said)

    def next_turn(self, wish: dict[str, Any]) -> Any:
        if "results" in wish:
            calls = self.history[-1].tool_calls
            pairs = zip(calls, wish["results"], strict=True)
            return messages.ModelRequest(
                parts=[messages.ToolReturnPart(call.tool_name, text, call.tool_call_id) for call, text in pairs]
            )
        content: Any = wish["text"]
        if wish.get("image"):
            content = [content, messages.BinaryContent(base64.b64decode(PIXEL), media_type="image/png")]
        return messages.ModelRequest(parts=[messages.UserPromptPart(content)])

    def read(self, turn: dict[str, Any]) -> Any:
        if "user" in turn:
            return messages.ModelRequest(parts=[messages.UserPromptPart(turn["user"])])
        if "results" in turn:
            parts = [messages.ToolReturnPart(name, text, i) for i, name, text in turn["results"]]
            return messages.ModelRequest(parts=parts)
        calls = [messages.ToolCallPart(name, args, i) for i, name, args in turn.get("calls", ())]
        text = [messages.TextPart(turn["assistant"])] if turn["assistant"] or not calls else []
        return messages.ModelResponse(parts=[*text, *calls])

    def describe(self, said: Any) -> dict[str, Any]:
        return {
            "text": said.text or "",
            "thought": said.thinking or "",
            "calls": [[call.tool_name, call.args_as_dict()] for call in said.tool_calls],
            "finish": "tool" if said.tool_calls else FINISHES.get(said.finish_reason, said.finish_reason),
            "tokens": [said.usage.input_tokens, said.usage.output_tokens],
        }


def open_ai(gateway: str) -> Any:
    return AsyncOpenAI(base_url=f"{gateway}/v1", api_key=KEY, max_retries=0)


def ai_chat(gateway: str, model: str) -> Any:
    return OpenAIChatModel(model, provider=OpenAIProvider(openai_client=open_ai(gateway)))


def ai_responses(gateway: str, model: str) -> Any:
    # By a model's name it knows whether the model thinks. A program that uses another name says so, as here.
    knows = OpenAIModelProfile(supports_thinking=True, openai_supports_encrypted_reasoning_content=True)
    return OpenAIResponsesModel(model, provider=OpenAIProvider(openai_client=open_ai(gateway)), profile=knows)


def ai_anthropic(gateway: str, model: str) -> Any:
    return AnthropicModel(
        model, provider=AnthropicProvider(anthropic_client=AsyncAnthropic(base_url=gateway, api_key=KEY, max_retries=0))
    )


def ai_google(gateway: str, model: str) -> Any:
    return GoogleModel(model, provider=GoogleProvider(base_url=gateway, api_key=KEY))


class LlmChat(openai_models.Chat):
    client: Any = None

    def get_client(self, key: Any, *, async_: bool = False) -> Any:
        """One client, and no waiting: llm makes one for each question."""
        LlmChat.client = LlmChat.client or openai.OpenAI(base_url=self.api_base, api_key=KEY, max_retries=0)
        return LlmChat.client


class LlmResponses(openai_models.Responses):
    get_client = LlmChat.get_client


class Llm:
    """A model of llm, with its own conversation."""

    def __init__(self, kind: Any, gateway: str) -> None:
        self.kind, self.gateway = kind, gateway
        self.talk: Any = None
        self.before: list[Any] = []

    def ask(self, wish: dict[str, Any]) -> dict[str, Any]:
        if "turns" in wish:
            model = self.kind(
                wish["model"], key=KEY, api_base=f"{self.gateway}/v1",
                vision=True, reasoning=True, supports_schema=True, supports_tools=True,
            )  # fmt: skip
            self.talk, self.before = model.conversation(), [self.read(turn) for turn in wish["turns"]]
        more: dict[str, Any] = {"stream": bool(wish.get("stream"))}
        if wish.get("tools"):
            more["tools"] = [llm.Tool(t["name"], t["description"], t["parameters"]) for t in TOOLS]
        if wish.get("schema"):
            more["schema"] = SCHEMA
        if wish.get("image"):
            more["attachments"] = [llm.Attachment(content=base64.b64decode(PIXEL), type="image/png")]
        if wish.get("think"):
            more["reasoning_effort"] = "low"
        if wish.get("limit"):
            more["max_tokens"] = wish["limit"]
        if "results" in wish:
            calls = self.talk.responses[-1].tool_calls()
            pairs = zip(calls, wish["results"], strict=True)
            more["tool_results"] = [llm.ToolResult(c.name, text, tool_call_id=c.tool_call_id) for c, text in pairs]
        if self.before:
            more["messages"], self.before = self.before, []
        said = self.talk.prompt(wish.get("text"), **more)
        text, calls = said.text(), said.tool_calls()
        usage = said.usage()
        thoughts = [part.text for message in said.messages() for part in message.parts if hasattr(part, "redacted")]
        return {
            "text": text,
            "thought": "".join(thoughts),
            "calls": [[call.name, call.arguments] for call in calls],
            "finish": "tool" if calls else "",  # llm does not tell
            "tokens": [usage.input, usage.output] if usage and usage.input is not None else None,
        }

    def read(self, turn: dict[str, Any]) -> Any:
        if "user" in turn:
            return Message(role="user", parts=[TextPart(turn["user"])])
        if "results" in turn:
            return Message(role="tool", parts=[ToolResultPart(name, text, i) for i, name, text in turn["results"]])
        calls = [ToolCallPart(name, args, i) for i, name, args in turn.get("calls", ())]
        return Message(role="assistant", parts=[*([TextPart(turn["assistant"])] if turn["assistant"] else []), *calls])


CLIENTS = {
    "langchain-openai": lambda gateway: LangChain(lang_openai, gateway),
    "langchain-openai responses": lambda gateway: LangChain(lang_responses, gateway),
    "langchain-anthropic": lambda gateway: LangChain(lang_anthropic, gateway),
    "langchain-google-genai": lambda gateway: LangChain(lang_google, gateway),
    "langchain-ollama": lambda gateway: LangChain(lang_ollama, gateway),
    "pydantic-ai chat": lambda gateway: PydanticAi(ai_chat, gateway, openai_reasoning_effort="low"),
    "pydantic-ai responses": lambda gateway: PydanticAi(
        ai_responses, gateway, openai_reasoning_effort="low", openai_reasoning_summary="auto"
    ),
    "pydantic-ai anthropic": lambda gateway: PydanticAi(
        ai_anthropic, gateway, anthropic_thinking={"type": "enabled", "budget_tokens": 1024}
    ),
    "pydantic-ai google": lambda gateway: PydanticAi(
        ai_google, gateway, google_thinking_config={"thinking_budget": 1024, "include_thoughts": True}
    ),
    "llm chat": lambda gateway: Llm(LlmChat, gateway),
    "llm responses": lambda gateway: Llm(LlmResponses, gateway),
}
