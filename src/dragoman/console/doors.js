// The five protocols as a browser speaks them: how to ask for a stream, and what one event of it says.

const messagesOf = ({ system, prompt, image }, picture) => [
  ...(system ? [{ role: "system", content: system }] : []),
  { role: "user", content: image ? [{ type: "text", text: prompt }, picture(image)] : prompt },
];
const dataUrl = (image) => `data:${image.type};base64,${image.data}`;
const BUDGETS = { low: 1024, medium: 4096, high: 16384 };

export const DOORS = {
  openai_chat: {
    ask: (model, asked) => ({
      path: "/v1/chat/completions",
      body: {
        model, stream: true, stream_options: { include_usage: true },
        messages: messagesOf(asked, (image) => ({ type: "image_url", image_url: { url: dataUrl(image) } })),
        ...(asked.tools ? { tools: asked.tools.map((tool) => ({ type: "function", function: tool })) } : {}),
        ...(asked.effort ? { reasoning_effort: asked.effort } : {}),
        ...(asked.schema ? { response_format: { type: "json_schema", json_schema: { name: "answer", schema: asked.schema } } } : {}),
      },
    }),
    read: (event) => {
      const delta = event.choices?.[0]?.delta || {};
      return {
        text: delta.content, thought: delta.reasoning_content ?? delta.reasoning, error: event.error?.message,
        calls: delta.tool_calls?.map((one) => ({ at: one.index, name: one.function?.name, arguments: one.function?.arguments })),
        usage: event.usage ? { input: event.usage.prompt_tokens, output: event.usage.completion_tokens } : {},
      };
    },
  },
  openai_responses: {
    ask: (model, asked) => ({
      path: "/v1/responses",
      body: {
        model, stream: true, ...(asked.system ? { instructions: asked.system } : {}),
        input: [{ role: "user", content: [{ type: "input_text", text: asked.prompt }, ...(asked.image ? [{ type: "input_image", image_url: dataUrl(asked.image) }] : [])] }],
        ...(asked.tools ? { tools: asked.tools.map((tool) => ({ type: "function", strict: false, ...tool })) } : {}),
        ...(asked.effort ? { reasoning: { effort: asked.effort, summary: "auto" } } : {}),
        ...(asked.schema ? { text: { format: { type: "json_schema", name: "answer", schema: asked.schema } } } : {}),
      },
    }),
    read: (event) => ({
      text: event.type === "response.output_text.delta" ? event.delta : "",
      thought: /^response\.reasoning(_summary)?_text\.delta$/.test(event.type) ? event.delta : "",
      calls: event.type === "response.output_item.added" && event.item.type === "function_call" ? [{ at: event.output_index, name: event.item.name }]
        : event.type === "response.function_call_arguments.delta" ? [{ at: event.output_index, arguments: event.delta }] : [],
      error: event.type === "error" ? event.message : event.response?.error?.message,
      usage: event.response?.usage ? { input: event.response.usage.input_tokens, output: event.response.usage.output_tokens } : {},
    }),
  },
  anthropic: {
    ask: (model, asked) => ({
      path: "/v1/messages",
      body: {
        model, stream: true, max_tokens: 4096 + (BUDGETS[asked.effort] || 0), ...(asked.system ? { system: asked.system } : {}),
        messages: [{ role: "user", content: [{ type: "text", text: asked.prompt }, ...(asked.image ? [{ type: "image", source: { type: "base64", media_type: asked.image.type, data: asked.image.data } }] : [])] }],
        ...(asked.tools ? { tools: asked.tools.map(({ parameters, ...tool }) => ({ ...tool, input_schema: parameters })) } : {}),
        ...(asked.effort ? { thinking: { type: "enabled", budget_tokens: BUDGETS[asked.effort] } } : {}),
        ...(asked.schema ? { output_config: { format: { type: "json_schema", schema: asked.schema } } } : {}),
      },
    }),
    read: (event) => {
      const usage = event.usage || event.message?.usage;
      return {
        text: event.delta?.text, thought: event.delta?.thinking, error: event.type === "error" ? event.error?.message : "",
        calls: event.content_block?.type === "tool_use" ? [{ at: event.index, name: event.content_block.name }]
          : event.delta?.partial_json ? [{ at: event.index, arguments: event.delta.partial_json }] : [],
        usage: usage ? { ...(usage.input_tokens ? { input: usage.input_tokens } : {}), output: usage.output_tokens } : {},
      };
    },
  },
  gemini: {
    ask: (model, asked) => ({
      path: `/v1beta/models/${model}:streamGenerateContent?alt=sse`,
      body: {
        ...(asked.system ? { systemInstruction: { parts: [{ text: asked.system }] } } : {}),
        contents: [{ role: "user", parts: [{ text: asked.prompt }, ...(asked.image ? [{ inlineData: { mimeType: asked.image.type, data: asked.image.data } }] : [])] }],
        ...(asked.tools ? { tools: [{ functionDeclarations: asked.tools.map(({ parameters, ...tool }) => ({ ...tool, parametersJsonSchema: parameters })) }] } : {}),
        generationConfig: {
          ...(asked.effort ? { thinkingConfig: { thinkingBudget: BUDGETS[asked.effort], includeThoughts: true } } : {}),
          ...(asked.schema ? { responseMimeType: "application/json", responseJsonSchema: asked.schema } : {}),
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
        usage: event.usageMetadata ? { input: event.usageMetadata.promptTokenCount, output: event.usageMetadata.candidatesTokenCount } : {},
      };
    },
  },
  ollama: {
    lines: true,
    ask: (model, asked) => ({
      path: "/api/chat",
      body: {
        model, stream: true,
        messages: [...(asked.system ? [{ role: "system", content: asked.system }] : []), { role: "user", content: asked.prompt, ...(asked.image ? { images: [asked.image.data] } : {}) }],
        ...(asked.tools ? { tools: asked.tools.map((tool) => ({ type: "function", function: tool })) } : {}),
        ...(asked.effort ? { think: true } : {}),
        ...(asked.schema ? { format: asked.schema } : {}),
      },
    }),
    read: (event) => ({
      text: event.message?.content, thought: event.message?.thinking, error: event.error,
      calls: event.message?.tool_calls?.map((one, i) => ({ at: `${one.function.name}${i}`, name: one.function.name, arguments: JSON.stringify(one.function.arguments) })),
      usage: event.done ? { input: event.prompt_eval_count, output: event.eval_count } : {},
    }),
  },
};

// ---------------------------------------------------------------- the same request as a program

export function codeFor(name, model, asked) {
  const { path, body } = DOORS[name].ask(model, asked);
  const text = JSON.stringify(asked.prompt);
  const base = location.origin;
  const curl = `curl ${base}${path} \\\n  -H 'content-type: application/json' \\\n  -d '${JSON.stringify(body).replaceAll("'", "'\\''")}'`;
  const programs = {
    openai_chat: `from openai import OpenAI\n\nclient = OpenAI(base_url="${base}/v1", api_key="dk-...")\nreply = client.chat.completions.create(\n    model="${model}", messages=[{"role": "user", "content": ${text}}])\nprint(reply.choices[0].message.content)`,
    openai_responses: `from openai import OpenAI\n\nclient = OpenAI(base_url="${base}/v1", api_key="dk-...")\nprint(client.responses.create(model="${model}", input=${text}).output_text)`,
    anthropic: `from anthropic import Anthropic\n\nclient = Anthropic(base_url="${base}", api_key="dk-...")\nreply = client.messages.create(\n    model="${model}", max_tokens=1024, messages=[{"role": "user", "content": ${text}}])\nprint(reply.content[0].text)`,
    gemini: `from google import genai\n\nclient = genai.Client(api_key="dk-...", http_options={"base_url": "${base}"})\nprint(client.models.generate_content(model="${model}", contents=${text}).text)`,
    ollama: `from ollama import Client\n\nclient = Client(host="${base}")\nreply = client.chat(model="${model}", messages=[{"role": "user", "content": ${text}}])\nprint(reply.message.content)`,
  };
  const own = `from dragoman.client import Client\n\nclient = Client(base_url="${base}")\nprint(client.chat("${model}", ${text}).text)`;
  return [curl, programs[name], own].join("\n\n# ----\n\n");
}
