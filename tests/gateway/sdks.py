"""The vendors' own clients, each behind the same few words, so that one table of scenarios serves all doors."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import anthropic
import httpx
import ollama
import openai
from google import genai
from google.genai import errors as genai_errors
from google.genai import types as genai_types

from tests.waiting import NEVER_S

PIXEL = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
        "1f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
    )
).decode()
WEATHER = {
    "name": "get_weather",
    "description": "The weather in a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["C", "F"]}},
        "required": ["city"],
    },
}
CLOCK = {
    "name": "get_time",
    "description": "The time in a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@dataclass
class Said:
    text: str = ""
    thought: str = ""
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    finish: str = ""  # stop, tool, length
    tokens: tuple[int, int] | None = None
    raw: Any = None  # what the next turn sends back


class Door:
    name = ""

    def __init__(self, url: str, key: str = "unused") -> None:
        self.url, self.key = url, key

    def close(self) -> None:
        """Leave no socket open."""


class Chat(Door):
    name = "openai_chat"
    Error: Any = openai.APIStatusError

    def __init__(self, url: str, key: str = "unused") -> None:
        super().__init__(url, key)
        self.client = openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=NEVER_S)

    def close(self) -> None:
        self.client.close()

    def ask(
        self, model: str, text: str, *, tools: Sequence[Any] = (), after: Any = None, results: Any = None, **more: Any
    ) -> Said:
        messages: list[Any] = list(after or [])
        if results is None:
            content: Any = text
            if more.pop("image", None):
                url = {"url": f"data:image/png;base64,{PIXEL}"}
                content = [{"type": "text", "text": text}, {"type": "image_url", "image_url": url}]
            messages.append({"role": "user", "content": content})
        else:
            calls = messages[-1]["tool_calls"]
            messages += [
                {"role": "tool", "tool_call_id": c["id"], "content": r} for c, r in zip(calls, results, strict=True)
            ]
        body: dict[str, Any] = {"model": model, "messages": messages}
        if tools:
            body["tools"] = [{"type": "function", "function": tool} for tool in tools]
        if more.pop("schema", None):
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": SCHEMA, "strict": True},
            }
        if more.pop("think", None):
            body["reasoning_effort"] = "low"
        if (limit := more.pop("limit", None)) is not None:
            body["max_tokens"] = limit
        if not more.pop("stream", False):
            reply = self.client.chat.completions.create(**body)
            message = reply.choices[0].message
            usage = reply.usage
            finish = reply.choices[0].finish_reason
        else:
            with self.client.chat.completions.stream(**body, stream_options={"include_usage": True}) as events:
                _drain(events)
                final = events.get_final_completion()
            message, usage, finish = final.choices[0].message, final.usage, final.choices[0].finish_reason
        kept = message.model_dump(exclude_none=True, exclude={"parsed"})
        for call in kept.get("tool_calls", ()):
            call["function"].pop("parsed_arguments", None)
            call.pop("index", None)
        return Said(
            text=message.content or "",
            thought=getattr(message, "reasoning_content", None) or _read_details(kept),
            calls=[(c.function.name, json.loads(c.function.arguments)) for c in message.tool_calls or ()],
            finish={"stop": "stop", "tool_calls": "tool", "length": "length"}.get(finish or "", finish or ""),
            tokens=(usage.prompt_tokens, usage.completion_tokens) if usage else None,
            raw=[*messages, kept],
        )

    def models(self) -> list[str]:
        return [m.id for m in self.client.models.list()]


class Responses(Door):
    name = "openai_responses"
    Error: Any = openai.APIStatusError

    def __init__(self, url: str, key: str = "unused") -> None:
        super().__init__(url, key)
        self.client = openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=NEVER_S)

    def close(self) -> None:
        self.client.close()

    def ask(
        self, model: str, text: str, *, tools: Sequence[Any] = (), after: Any = None, results: Any = None, **more: Any
    ) -> Said:
        items: list[Any] = list(after or [])
        if results is None:
            content: Any = text
            if more.pop("image", None):
                image = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "auto"}
                content = [{"type": "input_text", "text": text}, image]
            items.append({"role": "user", "content": content})
        else:
            calls = [item for item in items if item.get("type") == "function_call"][-len(results) :]
            items += [
                {"type": "function_call_output", "call_id": c["call_id"], "output": r}
                for c, r in zip(calls, results, strict=True)
            ]
        body: dict[str, Any] = {"model": model, "input": items, "store": False}
        if tools:
            body["tools"] = [{"type": "function", "strict": False, **tool} for tool in tools]
        if more.pop("schema", None):
            body["text"] = {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True}}
        if more.pop("think", None):
            body["reasoning"] = {"effort": "low", "summary": "auto"}
            body["include"] = ["reasoning.encrypted_content"]
        if (limit := more.pop("limit", None)) is not None:
            body["max_output_tokens"] = max(limit, 16)
        if not more.pop("stream", False):
            reply = self.client.responses.create(**body)
        else:
            with self.client.responses.stream(**body) as events:
                _drain(events)
                reply = events.get_final_response()
        calls = [item for item in reply.output if item.type == "function_call"]
        thought = "".join(s.text for item in reply.output if item.type == "reasoning" for s in item.summary)
        cut = reply.incomplete_details.reason if reply.incomplete_details else ""
        kept = [item.model_dump(exclude_none=True) for item in reply.output]
        for item in kept:
            item.pop("parsed_arguments", None)
            for part in item.get("content") or ():
                part.pop("parsed", None)
        return Said(
            text=reply.output_text,
            thought=thought,
            calls=[(c.name, json.loads(c.arguments)) for c in calls],
            finish="tool" if calls else "length" if cut else "stop",
            tokens=(reply.usage.input_tokens, reply.usage.output_tokens) if reply.usage else None,
            raw=[*items, *kept],
        )

    def models(self) -> list[str]:
        return [m.id for m in self.client.models.list()]

    def count(self, model: str, text: str) -> int:
        return int(self.client.responses.input_tokens.count(model=model, input=text).input_tokens)


class Messages(Door):
    name = "anthropic"
    Error: Any = anthropic.APIStatusError

    def __init__(self, url: str, key: str = "unused") -> None:
        super().__init__(url, key)
        self.client = anthropic.Anthropic(base_url=url, api_key=key, max_retries=0, timeout=NEVER_S)

    def close(self) -> None:
        self.client.close()

    def ask(
        self, model: str, text: str, *, tools: Sequence[Any] = (), after: Any = None, results: Any = None, **more: Any
    ) -> Said:
        messages: list[Any] = list(after or [])
        if results is None:
            content: Any = text
            if more.pop("image", None):
                source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
                content = [{"type": "text", "text": text}, {"type": "image", "source": source}]
            messages.append({"role": "user", "content": content})
        else:
            calls = [block for block in messages[-1]["content"] if block["type"] == "tool_use"]
            answers = [
                {"type": "tool_result", "tool_use_id": c["id"], "content": r}
                for c, r in zip(calls, results, strict=True)
            ]
            messages.append({"role": "user", "content": answers})
        body: dict[str, Any] = {"model": model, "messages": messages, "max_tokens": more.pop("limit", None) or 4096}
        if tools:
            body["tools"] = [
                {"name": t["name"], "description": t["description"], "input_schema": t["parameters"]} for t in tools
            ]
        if more.pop("schema", None):
            body["output_config"] = {"format": {"type": "json_schema", "schema": SCHEMA}}
        if more.pop("think", None):
            body["thinking"] = {"type": "enabled", "budget_tokens": 1024}
        if not more.pop("stream", False):
            reply = self.client.messages.create(**body)
        else:
            with self.client.messages.stream(**body) as events:
                _drain(events)
                reply = events.get_final_message()
        kept = [block.model_dump(exclude_none=True, exclude={"parsed_output"}) for block in reply.content]
        return Said(
            text="".join(b.text for b in reply.content if b.type == "text"),
            thought="".join(b.thinking for b in reply.content if b.type == "thinking"),
            calls=[(b.name, b.input) for b in reply.content if b.type == "tool_use"],
            finish={"end_turn": "stop", "tool_use": "tool", "max_tokens": "length"}.get(reply.stop_reason, ""),
            tokens=(reply.usage.input_tokens, reply.usage.output_tokens),
            raw=[*messages, {"role": "assistant", "content": kept}],
        )

    def models(self) -> list[str]:
        return [m.id for m in self.client.models.list()]

    def count(self, model: str, text: str) -> int:
        messages: Any = [{"role": "user", "content": text}]
        return int(self.client.messages.count_tokens(model=model, messages=messages).input_tokens)


class Gemini(Door):
    name = "gemini"
    Error: Any = genai_errors.APIError

    def __init__(self, url: str, key: str = "unused") -> None:
        super().__init__(url, key)
        options = genai_types.HttpOptions(base_url=url, timeout=int(NEVER_S * 1000))
        self.client = genai.Client(api_key=key, http_options=options)

    def close(self) -> None:
        self.client.close()

    def ask(
        self, model: str, text: str, *, tools: Sequence[Any] = (), after: Any = None, results: Any = None, **more: Any
    ) -> Said:
        contents: list[Any] = list(after or [])
        if results is None:
            parts: list[Any] = [{"text": text}]
            if more.pop("image", None):
                parts.append(genai_types.Part.from_bytes(data=base64.b64decode(PIXEL), mime_type="image/png"))
            contents.append({"role": "user", "parts": parts})
        else:
            calls = [p["function_call"] for p in contents[-1]["parts"] if p.get("function_call")]
            parts = []
            for call, result in zip(calls, results, strict=True):
                answer = {"name": call["name"], "response": {"output": result}}
                parts.append({"function_response": answer | ({"id": call["id"]} if call.get("id") else {})})
            contents.append({"role": "user", "parts": parts})
        config: Any = {}
        if tools:
            declared = [
                {"name": t["name"], "description": t["description"], "parameters_json_schema": t["parameters"]}
                for t in tools
            ]
            config["tools"] = [{"function_declarations": declared}]
        if more.pop("schema", None):
            config |= {"response_mime_type": "application/json", "response_json_schema": SCHEMA}
        if more.pop("think", None):
            config["thinking_config"] = {"thinking_budget": 1024, "include_thoughts": True}
        if (limit := more.pop("limit", None)) is not None:
            config["max_output_tokens"] = limit
        if not more.pop("stream", False):
            replies = [self.client.models.generate_content(model=model, contents=contents, config=config or None)]
        else:
            replies = list(
                self.client.models.generate_content_stream(model=model, contents=contents, config=config or None)
            )
        parts = [p for r in replies for c in r.candidates or () if c.content for p in c.content.parts or ()]
        finishes = [c.finish_reason for r in replies for c in r.candidates or () if c.finish_reason]
        usage = next((r.usage_metadata for r in reversed(replies) if r.usage_metadata), None)
        calls = [p.function_call for p in parts if p.function_call]
        kept = [p.model_dump(exclude_none=True) for p in parts]
        finish = finishes[-1].name if finishes else ""
        return Said(
            text="".join(p.text for p in parts if p.text and not p.thought),
            thought="".join(p.text for p in parts if p.text and p.thought),
            calls=[(c.name, c.args or {}) for c in calls],
            finish="tool" if calls else {"STOP": "stop", "MAX_TOKENS": "length"}.get(finish, finish),
            tokens=(usage.prompt_token_count or 0, usage.candidates_token_count or 0) if usage else None,
            raw=[*contents, {"role": "model", "parts": kept}],
        )

    def models(self) -> list[str]:
        return [(m.name or "").removeprefix("models/") for m in self.client.models.list()]

    def count(self, model: str, text: str) -> int:
        return self.client.models.count_tokens(model=model, contents=text).total_tokens or 0


class Ollama(Door):
    name = "ollama"
    Error: Any = ollama.ResponseError

    def __init__(self, url: str, key: str = "unused") -> None:
        super().__init__(url, key)
        self.client = ollama.Client(host=url, timeout=NEVER_S, headers={"authorization": f"Bearer {key}"})

    def close(self) -> None:
        self.client._client.close()

    def ask(
        self, model: str, text: str, *, tools: Sequence[Any] = (), after: Any = None, results: Any = None, **more: Any
    ) -> Said:
        messages: list[Any] = list(after or [])
        if results is None:
            message: dict[str, Any] = {"role": "user", "content": text}
            if more.pop("image", None):
                message["images"] = [PIXEL]
            messages.append(message)
        else:
            calls = messages[-1]["tool_calls"]
            messages += [
                {"role": "tool", "tool_name": c["function"]["name"], "content": r}
                for c, r in zip(calls, results, strict=True)
            ]
        body: dict[str, Any] = {"model": model, "messages": messages}
        if tools:
            body["tools"] = [{"type": "function", "function": tool} for tool in tools]
        if more.pop("schema", None):
            body["format"] = SCHEMA
        if more.pop("think", None):
            body["think"] = True
        if (limit := more.pop("limit", None)) is not None:
            body["options"] = {"num_predict": limit}
        if not more.pop("stream", False):
            replies = [self.client.chat(**body, stream=False)]
        else:
            replies = list(self.client.chat(**body, stream=True))
        calls = [c for r in replies for c in r.message.tool_calls or ()]
        last = replies[-1]
        text_said = "".join(r.message.content or "" for r in replies)
        kept: dict[str, Any] = {"role": "assistant", "content": text_said}
        thought = "".join(r.message.thinking or "" for r in replies)
        if thought:
            kept["thinking"] = thought
        if calls:
            kept["tool_calls"] = [c.model_dump(exclude_none=True) for c in calls]
        return Said(
            text=text_said,
            thought=thought,
            calls=[(c.function.name, dict(c.function.arguments)) for c in calls],
            finish="tool" if calls else last.done_reason or "",
            tokens=(last.prompt_eval_count or 0, last.eval_count or 0),
            raw=[*messages, kept],
        )

    def models(self) -> list[str]:
        return [m.model or "" for m in self.client.list().models]


def _read_details(message: dict[str, Any]) -> str:
    return "".join(detail.get("text") or "" for detail in message.get("reasoning_details") or ())


def _drain(events: Any) -> None:
    for _ in events:
        pass


DOORS: dict[str, type[Any]] = {door.name: door for door in (Chat, Responses, Messages, Gemini, Ollama)}
NETWORK_ERRORS = (httpx.HTTPError,)
