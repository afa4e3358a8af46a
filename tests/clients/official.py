"""The vendors' own Python clients for the matrix, also with a history that they did not make themselves."""

import json
from collections.abc import Callable
from typing import Any

from tests.gateway.sdks import CLOCK, DOORS, WEATHER

TOOLS = [WEATHER, CLOCK]
Turn = dict[str, Any]  # user, or assistant with calls [[id, name, arguments], ...], or results [[id, name, text], ...]


def chat_turns(turns: list[Turn]) -> list[Any]:
    made: list[Any] = []
    for turn in turns:
        if "user" in turn:
            made.append({"role": "user", "content": turn["user"]})
        elif "results" in turn:
            made += [{"role": "tool", "tool_call_id": i, "content": text} for i, _, text in turn["results"]]
        else:
            calls = [
                {"id": i, "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
                for i, name, args in turn.get("calls", ())
            ]
            made.append({"role": "assistant", "content": turn["assistant"]} | ({"tool_calls": calls} if calls else {}))
    return made


def responses_turns(turns: list[Turn]) -> list[Any]:
    made: list[Any] = []
    for turn in turns:
        if "user" in turn:
            made.append({"role": "user", "content": turn["user"]})
        elif "results" in turn:
            made += [{"type": "function_call_output", "call_id": i, "output": text} for i, _, text in turn["results"]]
        else:
            calls = turn.get("calls", ())
            if turn["assistant"] or not calls:
                made.append({"role": "assistant", "content": turn["assistant"]})
            made += [
                {"type": "function_call", "call_id": i, "name": name, "arguments": json.dumps(args)}
                for i, name, args in calls
            ]
    return made


def anthropic_turns(turns: list[Turn]) -> list[Any]:
    made: list[Any] = []
    for turn in turns:
        if "user" in turn:
            made.append({"role": "user", "content": turn["user"]})
        elif "results" in turn:
            answers = [{"type": "tool_result", "tool_use_id": i, "content": text} for i, _, text in turn["results"]]
            made.append({"role": "user", "content": answers})
        else:
            calls = [{"type": "tool_use", "id": i, "name": name, "input": a} for i, name, a in turn.get("calls", ())]
            text = [{"type": "text", "text": turn["assistant"]}] if turn["assistant"] or not calls else []
            made.append({"role": "assistant", "content": text + calls})
    return made


def gemini_turns(turns: list[Turn]) -> list[Any]:
    made: list[Any] = []
    for turn in turns:
        if "user" in turn:
            made.append({"role": "user", "parts": [{"text": turn["user"]}]})
        elif "results" in turn:
            answers = [
                {"function_response": {"id": i, "name": name, "response": {"output": text}}}
                for i, name, text in turn["results"]
            ]
            made.append({"role": "user", "parts": answers})
        else:
            calls = [{"function_call": {"id": i, "name": name, "args": a}} for i, name, a in turn.get("calls", ())]
            text = [{"text": turn["assistant"]}] if turn["assistant"] or not calls else []
            made.append({"role": "model", "parts": text + calls})
    return made


def ollama_turns(turns: list[Turn]) -> list[Any]:
    made: list[Any] = []
    for turn in turns:
        if "user" in turn:
            made.append({"role": "user", "content": turn["user"]})
        elif "results" in turn:
            made += [{"role": "tool", "tool_name": name, "content": text} for _, name, text in turn["results"]]
        else:
            calls = [{"function": {"name": name, "arguments": args}} for _, name, args in turn.get("calls", ())]
            made.append({"role": "assistant", "content": turn["assistant"]} | ({"tool_calls": calls} if calls else {}))
    return made


TURNS = {
    "openai_chat": chat_turns,
    "openai_responses": responses_turns,
    "anthropic": anthropic_turns,
    "gemini": gemini_turns,
    "ollama": ollama_turns,
}


class Official:
    """One door's client, with its history between two questions."""

    def __init__(self, door: str, gateway: str) -> None:
        self.door, self.history = DOORS[door](gateway), list[Any]()
        self.read_turns: Callable[[list[Turn]], list[Any]] = TURNS[door]

    def ask(self, wish: dict[str, Any]) -> dict[str, Any]:
        turns = wish.pop("turns", None)
        if turns is not None:
            self.history = self.read_turns(turns)
        tools = TOOLS if wish.pop("tools", None) else ()
        said = self.door.ask(wish.pop("model"), wish.pop("text", ""), tools=tools, after=self.history, **wish)
        self.history = said.raw
        return {
            "text": said.text,
            "thought": said.thought,
            "calls": said.calls,
            "finish": said.finish,
            "tokens": said.tokens,
        }


CLIENTS = {
    "openai chat": lambda gateway: Official("openai_chat", gateway),
    "openai responses": lambda gateway: Official("openai_responses", gateway),
    "anthropic": lambda gateway: Official("anthropic", gateway),
    "google-genai": lambda gateway: Official("gemini", gateway),
    "ollama": lambda gateway: Official("ollama", gateway),
}
