"""What 19 real clients send (CLIENTS.md), a body for each point in words of our own, and what an upstream must hear."""

from dataclasses import dataclass, field
from typing import Any

from tests.gateway.sdks import PIXEL

Body = dict[str, Any]
Step = tuple[Any, ...]  # ("call", name, arguments) or ("result", text)

SCHEMA: Body = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "file_path": {"type": "string", "pattern": "^/"},
        "limit": {"type": ["integer", "null"], "exclusiveMinimum": 0},
        "mode": {"oneOf": [{"const": "text"}, {"const": "binary"}]},
        "extra": {"$ref": "#/$defs/extra"},
        "both": {"allOf": [{"type": "string"}, {"minLength": 1}]},
    },
    "$defs": {
        "extra": {"type": "object", "propertyNames": {"pattern": "^x-"}, "additionalProperties": {"type": "string"}}
    },
    "required": ["file_path"],
    "additionalProperties": False,
}
READ: Body = {"name": "Read", "description": "Reads a file", "input_schema": SCHEMA}
SEARCH: Body = {"name": "Search", "description": "Searches", "input_schema": {"type": "object", "properties": {}}}
CACHED: Body = {"cache_control": {"type": "ephemeral"}}
PATH = {"file_path": "/a.txt"}


@dataclass(frozen=True)
class Case:
    """One body, and what is to become of it at any upstream. None is "whatever"."""

    name: str  # the point's number first
    door: str
    body: Body
    headers: dict[str, str] = field(default_factory=dict)
    hears: tuple[str, ...] = ()  # texts the model gets, in this order
    misses: tuple[str, ...] = ()  # texts it does not get
    steps: tuple[Step, ...] | None = None  # calls and results of the history
    tools: tuple[str, ...] | None = None
    pictures: int | None = None
    thinks: bool | None = None
    says: str | None = None  # in the answer
    calls: tuple[str, Any] | None = None  # the answer is this call
    but: tuple[str, ...] = ()  # upstreams that refuse a part of it for good reason: only this request goes without it
    learns: tuple[str, ...] = ()  # upstreams that refuse a part of it, which is left out from then on


# ---------------------------------------------------------------- Anthropic


def claude(*messages: Any, **more: Any) -> Body:
    return {"max_tokens": 8000, "messages": list(messages), **more}


def use(call: str = "toolu_1", name: str = "Read", **arguments: Any) -> Body:
    return {"type": "tool_use", "id": call, "name": name, "input": arguments or PATH}


def result(content: Any, call: str = "toolu_1", **more: Any) -> Body:
    return {"type": "tool_result", "tool_use_id": call, "content": content, **more}


def by(role: str, *content: Any) -> Body:
    return {"role": role, "content": content[0] if len(content) == 1 and isinstance(content[0], str) else list(content)}


def text(said: str, **more: Any) -> Body:
    return {"type": "text", "text": said, **more}


IMAGE: Body = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
HI = by("user", "say hi")
ASKED = by("user", "read the file /a.txt")
HEADERS = {"anthropic-version": "2023-06-01", "anthropic-beta": "claude-code-20250219,tomorrow-2027-01-01"}
DONE = "The Read tool answered: "

ANTHROPIC = [
    Case(
        "1 system text in the middle",
        "anthropic",
        claude(by("user", "first"), by("assistant", "yes"), by("system", "be brief"), HI, system="You are kind."),
        hears=("You are kind.", "first", "yes", "be brief", "say hi"),
        says="hi",
    ),
    Case(
        "1 system text last, as blocks, with an output_config",
        "anthropic",
        claude(HI, {**by("system", text("the date is today")), "output_config": {"effort": "low"}}),
        hears=("say hi", "the date is today"),
    ),
    Case(
        "2 thinking with a budget next to the limit",
        "anthropic",
        claude(HI, max_tokens=64000, thinking={"type": "enabled", "budget_tokens": 63999}),
        thinks=True,
        says="hi",
    ),
    Case(
        "2 thinking with a budget above the limit",
        "anthropic",
        claude(HI, thinking={"type": "enabled", "budget_tokens": 32000}),
        thinks=True,
        says="hi",
    ),
    Case(
        "2 adaptive thinking, shown, bound, with an effort",
        "anthropic",
        claude(
            HI,
            thinking={"type": "adaptive", "display": "summarized", "block_binding": "turn"},
            output_config={"effort": "high"},
        ),
        thinks=True,
        says="hi",
    ),
    Case("2 no thinking", "anthropic", claude(HI, thinking={"type": "disabled"}), thinks=False, says="hi"),
    Case(
        "3 betas, context management, an identity in JSON, a billing header",
        "anthropic",
        claude(
            HI,
            system=[text("x-anthropic-billing-header: cc_version=9;"), text("You are kind.", **CACHED)],
            metadata={"user_id": '{"device_id":"d","account_uuid":"","session_id":"s"}'},
            context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        ),
        hears=("You are kind.", "say hi"),
        says="hi",
    ),
    Case(
        "4 a tool that is loaded late and the reference that loads it",
        "anthropic",
        claude(
            ASKED,
            by("assistant", use("toolu_0", "Search", query="read")),
            by("user", result([{"type": "tool_reference", "tool_name": "Read"}], "toolu_0")),
            by("assistant", use()),
            by("user", result("alpha")),
            tools=[SEARCH, {**READ, "defer_loading": True}],
        ),
        tools=("Search", "Read"),
        says=DONE + "alpha",
    ),
    Case(
        "4 a list of tools that has grown",
        "anthropic",
        claude(
            ASKED, by("assistant", use()), by("user", result("alpha")), tools=[SEARCH, READ, {**READ, "name": "Later"}]
        ),
        tools=("Search", "Read", "Later"),
        steps=(("call", "Read", PATH), ("result", "alpha")),
        says=DONE + "alpha",
    ),
    Case(  # Claude Code asks a model to search the web with nothing but this
        "4 a search of the provider's own, forced",
        "anthropic",
        claude(
            by("user", "say hi"),
            tools=[{"type": "web_search_20250305", "name": "web_search", "max_uses": 8}],
            tool_choice={"type": "tool", "name": "web_search"},
        ),
        hears=("say hi",),
        tools=(),
    ),
    Case(
        "5 a result as a text",
        "anthropic",
        claude(ASKED, by("assistant", text("Let me look."), use()), by("user", result("alpha")), tools=[READ]),
        hears=("read the file", "Let me look.", "alpha"),
        steps=(("call", "Read", PATH), ("result", "alpha")),
        says=DONE + "alpha",
    ),
    *(
        Case(
            f"5 a result of {'text and picture' if order > 0 else 'picture and text'}",
            "anthropic",
            claude(ASKED, by("assistant", use()), by("user", result([text("alpha"), IMAGE][::order])), tools=[READ]),
            hears=("alpha",),
            pictures=1,
        )
        for order in (1, -1)
    ),
    Case(
        "5 a failed result, marked for the cache",
        "anthropic",
        claude(
            ASKED, by("assistant", use()), by("user", result("no such file", is_error=True, **CACHED)), tools=[READ]
        ),
        hears=("no such file",),
        says="The Read tool failed: no such file",
    ),
    Case(
        "6 results in two turns, and text behind them",
        "anthropic",
        claude(
            ASKED,
            by("assistant", use("t1"), use("t2", file_path="/b.txt")),
            by("user", result("alpha", "t1")),
            by("user", result("beta", "t2"), text("<reminder>be brief</reminder>")),
            tools=[READ],
        ),
        hears=("alpha", "beta", "be brief"),
        steps=(
            ("call", "Read", PATH),
            ("call", "Read", {"file_path": "/b.txt"}),
            ("result", "alpha"),
            ("result", "beta"),
        ),
        says=DONE + "beta",
    ),
]

# ---------------------------------------------------------------- Responses


def function(name: str = "Read", **more: Any) -> Body:
    return {
        "type": "function",
        "name": name,
        "description": "Reads a file",
        "strict": False,
        "parameters": SCHEMA,
        **more,
    }


PATCH: Body = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Patches files",
    "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin Patch" /.+/'},
}
CODEX: Body = {
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
}


def item(role: str, said: str, **more: Any) -> Body:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": said}], **more}


def called(**more: Any) -> Body:
    return {"type": "function_call", "call_id": "call_1", "name": "Read", "arguments": '{"file_path":"/a.txt"}', **more}


def output(said: Any, **more: Any) -> Body:
    return {"type": "function_call_output", "call_id": "call_1", "output": said, **more}


NAMESPACE: Body = {"type": "namespace", "name": "files", "description": "", "tools": [function("Read"), PATCH]}

RESPONSES = [
    Case(
        "7 tools in an item of the input, in a namespace",
        "openai_responses",
        {
            **CODEX,
            "input": [
                {"type": "additional_tools", "role": "developer", "tools": [NAMESPACE]},
                item("user", "read /a.txt"),
            ],
        },
        tools=("files__Read", "files__apply_patch"),
        calls=("Read", PATH),
    ),
    Case(
        "7 namespace, custom, search and what only OpenAI runs",
        "openai_responses",
        {
            **CODEX,
            "input": [item("user", "say hi")],
            "tool_choice": "none",
            "tools": [
                NAMESPACE,
                PATCH,
                {
                    "type": "tool_search",
                    "execution": "client",
                    "description": "finds",
                    "parameters": {"type": "object", "properties": {}},
                },
                {"type": "web_search", "external_web_access": True},
                {"type": "image_generation", "output_format": "png"},
            ],
        },
        says="hi",
    ),
    Case(
        "8 a call in free text and its output",
        "openai_responses",
        {
            **CODEX,
            "tools": [PATCH],
            "input": [
                item("user", "patch it"),
                {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "*** Begin Patch"},
                {"type": "custom_tool_call_output", "call_id": "c1", "output": "patched"},
            ],
        },
        hears=("patch it", "patched"),
        says="The apply_patch tool answered: patched",
    ),
    Case(
        "8 an output of text and picture",
        "openai_responses",
        {
            **CODEX,
            "tools": [function()],
            "input": [
                item("user", "look"),
                called(),
                output(
                    [
                        {"type": "input_text", "text": "alpha"},
                        {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"},
                    ]
                ),
            ],
        },
        hears=("alpha",),
        pictures=1,
    ),
    Case(
        "9 items without type and id, and nulls",
        "openai_responses",
        {
            **CODEX,
            "tools": [function()],
            "input": [
                {"role": "user", "content": "read /a.txt"},
                {"type": "reasoning", "summary": [], "content": None, "encrypted_content": "gAAAA"},
                {"role": "assistant", "content": [{"type": "output_text", "text": "Let me look."}], "phase": None},
                called(caller=None, namespace=None, id=None),
                output("alpha", caller=None),
            ],
        },
        hears=("read /a.txt", "Let me look.", "alpha"),
        steps=(("call", "Read", PATH), ("result", "alpha")),
        says=DONE + "alpha",
        but=("openai_responses",),  # a strict provider knows that this was never encrypted by it
    ),
    Case(
        "10 instructions",
        "openai_responses",
        {**CODEX, "instructions": "be kind", "input": "say hi"},
        hears=("be kind", "say hi"),
        says="hi",
    ),
    *(
        Case(
            f"10 a {role} message in the input",
            "openai_responses",
            {**CODEX, "input": [item(role, "be kind"), item("user", "say hi")]},
            hears=("be kind", "say hi"),
            says="hi",
        )
        for role in ("developer", "system")
    ),
]

# ---------------------------------------------------------------- Chat

TOOL: Body = {"type": "function", "function": {"name": "Read", "description": "Reads a file", "parameters": SCHEMA}}
CALL: Body = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "Read", "arguments": '{ "file_path" : "/a.txt" }'},
}
ANSWER: Body = {"role": "tool", "tool_call_id": "call_1", "content": "alpha"}


def chat(*messages: Body, **more: Any) -> Body:
    return {"messages": list(messages), **more}


CHAT = [
    Case(
        "11 a user's message between a call and its result",
        "openai_chat",
        chat(
            ASKED,
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            by("user", "(note)"),
            ANSWER,
            tools=[TOOL],
        ),
        hears=("read the file",),
        steps=(("call", "Read", PATH), ("result", "alpha")),
    ),
    Case(
        "11 roles in a row, content as a list",
        "openai_chat",
        chat(
            by("developer", "be kind"),
            by("system", "be brief"),
            by("user", text("one")),
            by("user", "say hi"),
        ),
        hears=("be kind", "be brief", "one", "say hi"),
        says="hi",
    ),
    Case(
        "12 keys of other servers",
        "openai_chat",
        chat(
            {**by("user", "one"), "name": "ada"},
            {
                **by("assistant", "two"),
                "reasoning_content": "hm",
                "refusal": None,
                "provider_specific_fields": {"a": 1},
            },
            HI,
            search_parameters={"mode": "off"},
            prompt_cache_key="k",
            x_private={"trace": 1},
        ),
        hears=("one", "two", "say hi"),
        says="hi",
        learns=("openai_chat",),
    ),
    Case(
        "13 no reasoning comes back",
        "openai_chat",
        chat(
            ASKED,
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            ANSWER,
            tools=[TOOL],
            reasoning_effort="low",
        ),
        steps=(("call", "Read", PATH), ("result", "alpha")),
        says=DONE + "alpha",
    ),
    Case(
        "19 a long name",
        "openai_chat",
        chat(
            by("user", "use mcp__" + "x" * 40),
            tools=[{**TOOL, "function": {**TOOL["function"], "name": "mcp__" + "x" * 40}}],
        ),
        tools=("mcp__" + "x" * 40,),
        calls=("mcp__" + "x" * 40, None),
    ),
    Case(
        "20 an id of 300 characters",
        "openai_chat",
        chat(
            ASKED,
            {"role": "assistant", "content": "", "tool_calls": [{**CALL, "id": "c" * 300}]},
            {**ANSWER, "tool_call_id": "c" * 300},
            tools=[TOOL],
        ),
        steps=(("call", "Read", PATH), ("result", "alpha")),
        says=DONE + "alpha",
    ),
]

# ---------------------------------------------------------------- Gemini

DECLARED: Body = {"name": "Read", "description": "Reads a file", "parametersJsonSchema": SCHEMA}
MODEL_CALL: Body = {"functionCall": {"name": "Read", "args": PATH}}


def turn(role: str, *parts: Body) -> Body:
    return {"role": role, "parts": list(parts)}


def response(said: str, **more: Any) -> Body:
    return {"functionResponse": {"name": "Read", "response": {"output": said}, **more}}


GOOGLE = [
    Case(
        "14 both spellings in one body, tools as an object",
        "gemini",
        {
            "system_instruction": {"parts": [{"text": "be kind"}]},
            "contents": [turn("user", {"text": "read /a.txt"})],
            "generationConfig": {"max_output_tokens": 500, "topP": 0.9},
            "tools": {"function_declarations": [DECLARED]},
        },
        hears=("be kind", "read /a.txt"),
        tools=("Read",),
        calls=("Read", PATH),
    ),
    Case(
        "14 parameters, and none at all",
        "gemini",
        {
            "contents": [turn("user", {"text": "use Ping"})],
            "tools": [
                {
                    "functionDeclarations": [
                        {"name": "Look", "parameters": {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}}},
                        {"name": "Ping"},
                    ]
                }
            ],
        },
        tools=("Look", "Ping"),
        calls=("Ping", {}),
    ),
    Case(
        "15 a response without an id, whose name is none",
        "gemini",
        {
            "contents": [
                turn("user", {"text": "read /a.txt"}),
                turn("model", MODEL_CALL),
                turn("user", response("alpha", name="0b6ad0be-1111-4222-8333-444455556666")),
            ],
            "tools": [{"functionDeclarations": [DECLARED]}],
        },
        steps=(("call", "Read", PATH), ("result", "alpha")),
    ),
    Case(
        "15 a response that comes twice",
        "gemini",
        {
            "contents": [
                turn("user", {"text": "read /a.txt"}),
                turn("model", MODEL_CALL),
                turn("user", response("alpha")),
                turn("user", response("alpha")),
            ],
            "tools": [{"functionDeclarations": [DECLARED]}],
        },
        says=DONE + "alpha",
        hears=("read /a.txt", "alpha"),
    ),
    Case(
        "16 thoughts echoed, signatures that are none, a picture beside the response, search beside functions",
        "gemini",
        {
            "contents": [
                turn("user", {"text": "read /a.txt"}),
                turn(
                    "model",
                    {"text": "let me think", "thought": True},
                    {**MODEL_CALL, "thoughtSignature": "skip_thought_signature_validator"},
                ),
                turn(
                    "user",
                    {**response("alpha"), "thoughtSignature": "skip_thought_signature_validator"},
                    {"inlineData": {"mimeType": "image/png", "data": PIXEL}},
                ),
            ],
            "tools": [{"functionDeclarations": [DECLARED]}, {"googleSearch": {}}],
            # Google refuses a search beside functions without this switch, and takes only VALIDATED with it.
            "toolConfig": {"functionCallingConfig": {"mode": "VALIDATED"}, "includeServerSideToolInvocations": True},
        },
        steps=(("call", "Read", PATH), ("result", "alpha")),
        pictures=1,
    ),
    Case(
        "16 a picture inside the response",
        "gemini",
        {
            "contents": [
                turn("user", {"text": "read /a.txt"}),
                turn("model", MODEL_CALL),
                turn("user", response("alpha", parts=[{"inlineData": {"mimeType": "image/png", "data": PIXEL}}])),
            ],
            "tools": [{"functionDeclarations": [DECLARED]}],
        },
        hears=("alpha",),
        pictures=1,
    ),
]

# ---------------------------------------------------------------- Ollama

OLLAMA_CALL: Body = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"function": {"name": "Read", "arguments": PATH}}],
}

OLLAMA = [
    *(
        Case(
            f"18 a result with {' and '.join(names)}",
            "ollama",
            chat(ASKED, OLLAMA_CALL, {"role": "tool", "content": "alpha", **names}, tools=[TOOL], tool_choice="auto"),
            steps=(("call", "Read", PATH), ("result", "alpha")),
            says=DONE + "alpha",
        )
        for names in (
            {"tool_name": "Read"},
            {"tool_call_id": "call_7"},
            {"tool_name": "Read", "tool_call_id": "call_7"},
        )
    ),
    Case(
        "18 pictures on any message",
        "ollama",
        chat(
            {**by("user", "what is this?"), "images": [PIXEL]},
            by("assistant", "a dot"),
            {**by("user", "say hi"), "images": [PIXEL]},
            keep_alive="5m",
        ),
        hears=("what is this?", "a dot", "say hi"),
        pictures=2,
    ),
]

CASES = [*ANTHROPIC, *RESPONSES, *CHAT, *GOOGLE, *OLLAMA]
