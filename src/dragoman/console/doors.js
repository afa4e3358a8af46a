// The five protocols as a browser speaks them: how to ask for a stream, and what one event of it says.
// `asked`: {system, turns: [{role, text, calls, images}], tools, effort, schema}. A turn of the user may have images.

const dataUrl = (image) => `data:${image.type};base64,${image.data}`;
const BUDGETS = { low: 1024, medium: 4096, high: 16384 };
const some = (wanted, value) => (wanted ? value : {});

export const DOORS = {
  openai_chat: {
    ask: (model, asked) => ({
      path: "/v1/chat/completions",
      body: {
        model, stream: true, stream_options: { include_usage: true },
        messages: [...(asked.system ? [{ role: "system", content: asked.system }] : []), ...asked.turns.map((turn) => ({
          role: turn.role,
          content: turn.images?.length ? [{ type: "text", text: turn.text }, ...turn.images.map((image) => ({ type: "image_url", image_url: { url: dataUrl(image) } }))] : turn.text,
        }))],
        ...some(asked.tools, { tools: asked.tools?.map((tool) => ({ type: "function", function: tool })) }),
        ...some(asked.effort, { reasoning_effort: asked.effort }),
        ...some(asked.schema, { response_format: { type: "json_schema", json_schema: { name: "answer", schema: asked.schema } } }),
      },
    }),
    read: (event) => {
      const delta = event.choices?.[0]?.delta || {};
      return {
        text: delta.content, thought: delta.reasoning_content ?? delta.reasoning, error: event.error?.message,
        calls: delta.tool_calls?.map((one) => ({ at: one.index, name: one.function?.name, arguments: one.function?.arguments })),
      };
    },
  },
  openai_responses: {
    ask: (model, asked) => ({
      path: "/v1/responses",
      body: {
        model, stream: true, store: false, ...some(asked.system, { instructions: asked.system }),
        input: asked.turns.map((turn) => ({
          role: turn.role,
          content: turn.role === "assistant" ? [{ type: "output_text", text: turn.text }]
            : [{ type: "input_text", text: turn.text }, ...(turn.images || []).map((image) => ({ type: "input_image", image_url: dataUrl(image) }))],
        })),
        ...some(asked.tools, { tools: asked.tools?.map((tool) => ({ type: "function", strict: false, ...tool })) }),
        ...some(asked.effort, { reasoning: { effort: asked.effort, summary: "auto" } }),
        ...some(asked.schema, { text: { format: { type: "json_schema", name: "answer", schema: asked.schema } } }),
      },
    }),
    read: (event) => ({
      text: event.type === "response.output_text.delta" ? event.delta : "",
      thought: /^response\.reasoning(_summary)?_text\.delta$/.test(event.type) ? event.delta : "",
      calls: event.type === "response.output_item.added" && event.item.type === "function_call" ? [{ at: event.output_index, name: event.item.name }]
        : event.type === "response.function_call_arguments.delta" ? [{ at: event.output_index, arguments: event.delta }] : [],
      error: event.type === "error" ? event.message : event.response?.error?.message,
    }),
  },
  anthropic: {
    ask: (model, asked) => ({
      path: "/v1/messages",
      body: {
        model, stream: true, max_tokens: 4096 + (BUDGETS[asked.effort] || 0), ...some(asked.system, { system: asked.system }),
        messages: asked.turns.map((turn) => ({
          role: turn.role,
          content: turn.images?.length ? [{ type: "text", text: turn.text }, ...turn.images.map((image) => ({ type: "image", source: { type: "base64", media_type: image.type, data: image.data } }))] : turn.text,
        })),
        ...some(asked.tools, { tools: asked.tools?.map(({ parameters, ...tool }) => ({ ...tool, input_schema: parameters })) }),
        ...some(asked.effort, { thinking: { type: "enabled", budget_tokens: BUDGETS[asked.effort] } }),
        ...some(asked.schema, { output_config: { format: { type: "json_schema", schema: asked.schema } } }),
      },
    }),
    read: (event) => ({
      text: event.delta?.text, thought: event.delta?.thinking, error: event.type === "error" ? event.error?.message : "",
      calls: event.content_block?.type === "tool_use" ? [{ at: event.index, name: event.content_block.name }]
        : event.delta?.partial_json ? [{ at: event.index, arguments: event.delta.partial_json }] : [],
    }),
  },
  gemini: {
    ask: (model, asked) => ({
      path: `/v1beta/models/${model}:streamGenerateContent?alt=sse`,
      body: {
        ...some(asked.system, { systemInstruction: { parts: [{ text: asked.system }] } }),
        contents: asked.turns.map((turn) => ({
          role: turn.role === "assistant" ? "model" : "user",
          parts: [{ text: turn.text }, ...(turn.images || []).map((image) => ({ inlineData: { mimeType: image.type, data: image.data } }))],
        })),
        ...some(asked.tools, { tools: [{ functionDeclarations: asked.tools?.map(({ parameters, ...tool }) => ({ ...tool, parametersJsonSchema: parameters })) }] }),
        generationConfig: {
          ...some(asked.effort, { thinkingConfig: { thinkingBudget: BUDGETS[asked.effort], includeThoughts: true } }),
          ...some(asked.schema, { responseMimeType: "application/json", responseJsonSchema: asked.schema }),
        },
      },
    }),
    read: (event) => {
      const parts = event.candidates?.[0]?.content?.parts || [];
      return {
        text: parts.filter((part) => !part.thought).map((part) => part.text || "").join(""),
        thought: parts.filter((part) => part.thought).map((part) => part.text || "").join(""),
        calls: parts.filter((part) => part.functionCall).map((part, i) => ({ at: part.functionCall.id || `${part.functionCall.name}${i}`, name: part.functionCall.name, arguments: JSON.stringify(part.functionCall.args) })),
        error: event.error?.message,
      };
    },
  },
  ollama: {
    lines: true,
    ask: (model, asked) => ({
      path: "/api/chat",
      body: {
        model, stream: true,
        messages: [...(asked.system ? [{ role: "system", content: asked.system }] : []),
          ...asked.turns.map((turn) => ({ role: turn.role, content: turn.text, ...some(turn.images?.length, { images: turn.images?.map((image) => image.data) }) }))],
        ...some(asked.tools, { tools: asked.tools?.map((tool) => ({ type: "function", function: tool })) }),
        ...some(asked.effort, { think: true }),
        ...some(asked.schema, { format: asked.schema }),
      },
    }),
    read: (event) => ({
      text: event.message?.content, thought: event.message?.thinking, error: event.error,
      calls: event.message?.tool_calls?.map((one, i) => ({ at: `${one.function.name}${i}`, name: one.function.name, arguments: JSON.stringify(one.function.arguments) })),
    }),
  },
};

// ---------------------------------------------------------------- the same request as a program

export const FORMS = ["curl", "openai", "anthropic", "google-genai", "ollama", "dragoman"];

export function codeFor(form, door, model, asked) {
  const base = location.origin;
  const body = (name) => {
    const { stream, stream_options, store, ...rest } = DOORS[name].ask(model, asked).body;
    return rest;
  };
  if (form === "curl") {
    const { path, body: whole } = DOORS[door].ask(model, asked);
    return `curl -N '${base}${path}' \\\n  -H 'content-type: application/json' \\\n  -H "authorization: Bearer $DRAGOMAN_KEY" \\\n  -d '${JSON.stringify(whole).replaceAll("'", "'\\''")}'`;
  }
  const key = 'os.environ.get("DRAGOMAN_KEY", "none")';
  if (form === "openai" && door === "openai_responses")
    return `import os\nfrom openai import OpenAI\n\nclient = OpenAI(base_url="${base}/v1", api_key=${key})\nanswer = client.responses.create(\n${named(body(door))})\nprint(answer.output_text)`;
  if (form === "openai")
    return `import os\nfrom openai import OpenAI\n\nclient = OpenAI(base_url="${base}/v1", api_key=${key})\nanswer = client.chat.completions.create(\n${named(body("openai_chat"))})\nprint(answer.choices[0].message.content)`;
  if (form === "anthropic")
    return `import os\nfrom anthropic import Anthropic\n\nclient = Anthropic(base_url="${base}", api_key=${key})\nanswer = client.messages.create(\n${named(body("anthropic"))})\nprint("".join(block.text for block in answer.content if block.type == "text"))`;
  if (form === "google-genai") {
    const { contents, systemInstruction, tools, generationConfig } = body("gemini");
    const config = { ...some(systemInstruction, { systemInstruction }), ...some(tools, { tools }), ...generationConfig };
    return `import os\nfrom google import genai\n\nclient = genai.Client(api_key=${key}, http_options={"base_url": "${base}"})\nanswer = client.models.generate_content(\n${named({ model, contents, ...some(Object.keys(config).length, { config }) })})\nprint(answer.text)`;
  }
  if (form === "ollama")
    return `import os\nfrom ollama import Client\n\nclient = Client(host="${base}", headers={"authorization": "Bearer " + ${key}})\nanswer = client.chat(\n${named(body("ollama"))})\nprint(answer.message.content)`;
  const turns = asked.turns.length === 1 && !asked.turns[0].images?.length ? asked.turns[0].text : body("openai_chat").messages.filter((turn) => turn.role !== "system");
  const more = { ...some(asked.system, { system: asked.system }), ...some(asked.effort, { effort: asked.effort }), ...some(asked.schema, { output: asked.schema }), ...some(asked.tools, { tools: body("openai_chat").tools }) };
  return `import dragoman\n\nclient = dragoman.Client(base_url="${base}")\nanswer = client.chat(\n    ${python(model)},\n    ${python(turns, 4)},\n${Object.keys(more).length ? named(more) : ""})\nprint(answer.text)`;
}

const named = (fields) => Object.entries(fields).map(([name, value]) => `    ${name}=${python(value, 4)},\n`).join("");

// A JSON value as Python writes it.
export function python(value, deep = 0) {
  if (value === true) return "True";
  if (value === false) return "False";
  if (value === null || value === undefined) return "None";
  if (typeof value !== "object") return JSON.stringify(value);
  const flat = Array.isArray(value) ? `[${value.map((item) => python(item)).join(", ")}]` : `{${Object.entries(value).map(([name, item]) => `${JSON.stringify(name)}: ${python(item)}`).join(", ")}}`;
  if (flat.length + deep < 90) return flat;
  const pad = " ".repeat(deep + 4);
  const inside = Array.isArray(value) ? value.map((item) => `${pad}${python(item, deep + 4)},\n`) : Object.entries(value).map(([name, item]) => `${pad}${JSON.stringify(name)}: ${python(item, deep + 4)},\n`);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  return `${open}\n${inside.join("")}${" ".repeat(deep)}${close}`;
}
