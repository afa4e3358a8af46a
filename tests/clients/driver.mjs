// Runs npm clients for the matrix: a line of JSON on stdin is what to ask, a line on stdout is what was said.
//
//   node driver.mjs FOLDER GATEWAY SAMPLES     FOLDER is where the packages are; SAMPLES: tools, schema, picture
//
// Each client keeps its history in its own objects, so what comes back to the gateway is what the client brings back.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [folder, gateway, samples] = process.argv.slice(2);
const { tools, schema, pixel } = JSON.parse(samples);
const require = createRequire(`${folder}/`);
const load = (name) => import(pathToFileURL(require.resolve(name)));
const key = "sk-dummy-of-a-test";
const finishes = {
  stop: "stop", STOP: "stop", end_turn: "stop", length: "length", max_tokens: "length", MAX_TOKENS: "length",
  tool_calls: "tool", tool_use: "tool", "tool-calls": "tool",
};

async function gather(pieces) {
  const all = [];
  for await (const piece of pieces) all.push(piece);
  return all;
}

const clean = (value) => JSON.parse(JSON.stringify(value));

async function chat() {
  const OpenAI = require("openai");
  const client = new OpenAI({ baseURL: `${gateway}/v1`, apiKey: key, maxRetries: 0 });
  const read = (turn) => {
    if ("user" in turn) return [{ role: "user", content: turn.user }];
    if ("results" in turn)
      return turn.results.map(([id, , content]) => ({ role: "tool", tool_call_id: id, content }));
    const calls = (turn.calls ?? []).map(([id, name, args]) => ({
      id, type: "function", function: { name, arguments: JSON.stringify(args) },
    }));
    return [{ role: "assistant", content: turn.assistant, ...(calls.length ? { tool_calls: calls } : {}) }];
  };
  let history = [];
  return async (wish) => {
    if (wish.turns) history = wish.turns.flatMap(read);
    if (wish.results) {
      const calls = history.at(-1).tool_calls;
      history.push(...calls.map((c, i) => ({ role: "tool", tool_call_id: c.id, content: wish.results[i] })));
    } else {
      const picture = { type: "image_url", image_url: { url: `data:image/png;base64,${pixel}` } };
      history.push({ role: "user", content: wish.image ? [{ type: "text", text: wish.text }, picture] : wish.text });
    }
    const body = { model: wish.model, messages: history };
    if (wish.tools) body.tools = tools.map((tool) => ({ type: "function", function: tool }));
    if (wish.schema) body.response_format = { type: "json_schema", json_schema: { name: "x", schema, strict: true } };
    if (wish.think) body.reasoning_effort = "low";
    if (wish.limit) body.max_tokens = wish.limit;
    const reply = wish.stream
      ? await client.chat.completions.stream({ ...body, stream_options: { include_usage: true } }).finalChatCompletion()
      : await client.chat.completions.create(body);
    const { message, finish_reason } = reply.choices[0];
    const { parsed, ...kept } = clean(message);
    for (const call of kept.tool_calls ?? []) delete call.function.parsed_arguments;
    history.push(kept);
    const calls = message.tool_calls ?? [];
    return {
      text: message.content ?? "",
      thought: message.reasoning_content ?? message.reasoning ?? (message.reasoning_details ?? []).map((d) => d.text ?? "").join(""),
      calls: calls.map((c) => [c.function.name, JSON.parse(c.function.arguments)]),
      finish: finishes[finish_reason] ?? finish_reason,
      tokens: reply.usage ? [reply.usage.prompt_tokens, reply.usage.completion_tokens] : null,
    };
  };
}

async function responses() {
  const OpenAI = require("openai");
  const client = new OpenAI({ baseURL: `${gateway}/v1`, apiKey: key, maxRetries: 0 });
  const read = (turn) => {
    if ("user" in turn) return [{ role: "user", content: turn.user }];
    if ("results" in turn)
      return turn.results.map(([id, , output]) => ({ type: "function_call_output", call_id: id, output }));
    const calls = (turn.calls ?? []).map(([id, name, args]) => ({
      type: "function_call", call_id: id, name, arguments: JSON.stringify(args),
    }));
    return [...(turn.assistant || !calls.length ? [{ role: "assistant", content: turn.assistant }] : []), ...calls];
  };
  let history = [];
  let last = [];
  return async (wish) => {
    if (wish.turns) history = wish.turns.flatMap(read);
    if (wish.results) {
      history.push(...last.map((c, i) => ({ type: "function_call_output", call_id: c.call_id, output: wish.results[i] })));
    } else {
      const picture = { type: "input_image", image_url: `data:image/png;base64,${pixel}`, detail: "auto" };
      history.push({ role: "user", content: wish.image ? [{ type: "input_text", text: wish.text }, picture] : wish.text });
    }
    const body = { model: wish.model, input: history, store: false };
    if (wish.tools) body.tools = tools.map((tool) => ({ type: "function", strict: false, ...tool }));
    if (wish.schema) body.text = { format: { type: "json_schema", name: "x", schema, strict: true } };
    if (wish.think) {
      body.reasoning = { effort: "low", summary: "auto" };
      body.include = ["reasoning.encrypted_content"];
    }
    if (wish.limit) body.max_output_tokens = wish.limit;
    const reply = wish.stream
      ? await client.responses.stream(body).finalResponse()
      : await client.responses.create(body);
    const kept = clean(reply.output);
    for (const item of kept) {
      delete item.parsed_arguments;
      for (const part of item.content ?? []) delete part.parsed;
    }
    history.push(...kept);
    last = reply.output.filter((item) => item.type === "function_call");
    const thoughts = reply.output.filter((item) => item.type === "reasoning").flatMap((item) => item.summary);
    return {
      text: reply.output_text,
      thought: thoughts.map((s) => s.text).join(""),
      calls: last.map((c) => [c.name, JSON.parse(c.arguments)]),
      finish: last.length ? "tool" : reply.incomplete_details ? "length" : "stop",
      tokens: reply.usage ? [reply.usage.input_tokens, reply.usage.output_tokens] : null,
    };
  };
}

async function messages() {
  const Anthropic = require("@anthropic-ai/sdk").default;
  const client = new Anthropic({ baseURL: gateway, apiKey: key, maxRetries: 0 });
  const read = (turn) => {
    if ("user" in turn) return { role: "user", content: turn.user };
    if ("results" in turn) {
      const content = turn.results.map(([id, , text]) => ({ type: "tool_result", tool_use_id: id, content: text }));
      return { role: "user", content };
    }
    const calls = (turn.calls ?? []).map(([id, name, input]) => ({ type: "tool_use", id, name, input }));
    const text = turn.assistant || !calls.length ? [{ type: "text", text: turn.assistant }] : [];
    return { role: "assistant", content: [...text, ...calls] };
  };
  let history = [];
  return async (wish) => {
    if (wish.turns) history = wish.turns.map(read);
    if (wish.results) {
      const calls = history.at(-1).content.filter((block) => block.type === "tool_use");
      const content = calls.map((c, i) => ({ type: "tool_result", tool_use_id: c.id, content: wish.results[i] }));
      history.push({ role: "user", content });
    } else {
      const picture = { type: "image", source: { type: "base64", media_type: "image/png", data: pixel } };
      history.push({ role: "user", content: wish.image ? [{ type: "text", text: wish.text }, picture] : wish.text });
    }
    const body = { model: wish.model, messages: history, max_tokens: wish.limit ?? 4096 };
    if (wish.tools) body.tools = tools.map(({ parameters, ...rest }) => ({ ...rest, input_schema: parameters }));
    if (wish.schema) body.output_config = { format: { type: "json_schema", schema } };
    if (wish.think) body.thinking = { type: "enabled", budget_tokens: 1024 };
    const reply = wish.stream ? await client.messages.stream(body).finalMessage() : await client.messages.create(body);
    const kept = clean(reply.content);
    for (const block of kept) delete block.parsed_output;
    history.push({ role: "assistant", content: kept });
    const some = (kind) => reply.content.filter((block) => block.type === kind);
    return {
      text: some("text").map((block) => block.text).join(""),
      thought: some("thinking").map((block) => block.thinking).join(""),
      calls: some("tool_use").map((block) => [block.name, block.input]),
      finish: finishes[reply.stop_reason] ?? reply.stop_reason,
      tokens: [reply.usage.input_tokens, reply.usage.output_tokens],
    };
  };
}

async function gemini() {
  const { GoogleGenAI } = require("@google/genai");
  const client = new GoogleGenAI({ apiKey: key, httpOptions: { baseUrl: gateway } });
  const read = (turn) => {
    if ("user" in turn) return { role: "user", parts: [{ text: turn.user }] };
    if ("results" in turn) {
      const parts = turn.results.map(([id, name, output]) => ({ functionResponse: { id, name, response: { output } } }));
      return { role: "user", parts };
    }
    const calls = (turn.calls ?? []).map(([id, name, args]) => ({ functionCall: { id, name, args } }));
    return { role: "model", parts: [...(turn.assistant || !calls.length ? [{ text: turn.assistant }] : []), ...calls] };
  };
  let history = [];
  return async (wish) => {
    if (wish.turns) history = wish.turns.map(read);
    if (wish.results) {
      const calls = history.at(-1).parts.filter((p) => p.functionCall).map((p) => p.functionCall);
      const parts = calls.map(({ id, name }, i) => ({
        functionResponse: { ...(id ? { id } : {}), name, response: { output: wish.results[i] } },
      }));
      history.push({ role: "user", parts });
    } else {
      const picture = { inlineData: { mimeType: "image/png", data: pixel } };
      history.push({ role: "user", parts: [{ text: wish.text }, ...(wish.image ? [picture] : [])] });
    }
    const config = {};
    if (wish.tools) {
      const declared = tools.map(({ parameters, ...rest }) => ({ ...rest, parametersJsonSchema: parameters }));
      config.tools = [{ functionDeclarations: declared }];
    }
    if (wish.schema) Object.assign(config, { responseMimeType: "application/json", responseJsonSchema: schema });
    if (wish.think) config.thinkingConfig = { thinkingBudget: 1024, includeThoughts: true };
    if (wish.limit) config.maxOutputTokens = wish.limit;
    const body = { model: wish.model, contents: history, config };
    const replies = wish.stream
      ? await gather(await client.models.generateContentStream(body))
      : [await client.models.generateContent(body)];
    const candidates = replies.flatMap((reply) => reply.candidates ?? []);
    const parts = candidates.flatMap((candidate) => candidate.content?.parts ?? []);
    history.push({ role: "model", parts: clean(parts) });
    const calls = parts.filter((part) => part.functionCall).map((part) => part.functionCall);
    const finish = candidates.map((candidate) => candidate.finishReason).filter(Boolean).at(-1);
    const usage = replies.map((reply) => reply.usageMetadata).filter(Boolean).at(-1);
    return {
      text: parts.filter((part) => part.text && !part.thought).map((part) => part.text).join(""),
      thought: parts.filter((part) => part.text && part.thought).map((part) => part.text).join(""),
      calls: calls.map((call) => [call.name, call.args ?? {}]),
      finish: calls.length ? "tool" : finishes[finish] ?? finish,
      tokens: usage ? [usage.promptTokenCount, usage.candidatesTokenCount] : null,
    };
  };
}

async function ollama() {
  const { Ollama } = require("ollama");
  const client = new Ollama({ host: gateway });
  const read = (turn) => {
    if ("user" in turn) return [{ role: "user", content: turn.user }];
    if ("results" in turn) return turn.results.map(([, name, content]) => ({ role: "tool", tool_name: name, content }));
    const calls = (turn.calls ?? []).map(([, name, args]) => ({ function: { name, arguments: args } }));
    return [{ role: "assistant", content: turn.assistant, ...(calls.length ? { tool_calls: calls } : {}) }];
  };
  let history = [];
  return async (wish) => {
    if (wish.turns) history = wish.turns.flatMap(read);
    if (wish.results) {
      const calls = history.at(-1).tool_calls;
      history.push(...calls.map((c, i) => ({ role: "tool", tool_name: c.function.name, content: wish.results[i] })));
    } else {
      history.push({ role: "user", content: wish.text, ...(wish.image ? { images: [pixel] } : {}) });
    }
    const body = { model: wish.model, messages: history };
    if (wish.tools) body.tools = tools.map((tool) => ({ type: "function", function: tool }));
    if (wish.schema) body.format = schema;
    if (wish.think) body.think = true;
    if (wish.limit) body.options = { num_predict: wish.limit };
    const replies = wish.stream
      ? await gather(await client.chat({ ...body, stream: true }))
      : [await client.chat(body)];
    const join = (name) => replies.map((reply) => reply.message[name] ?? "").join("");
    const calls = replies.flatMap((reply) => reply.message.tool_calls ?? []);
    const kept = { role: "assistant", content: join("content") };
    if (join("thinking")) kept.thinking = join("thinking");
    if (calls.length) kept.tool_calls = calls;
    history.push(kept);
    const last = replies.at(-1);
    return {
      text: kept.content,
      thought: join("thinking"),
      calls: calls.map((c) => [c.function.name, c.function.arguments]),
      finish: calls.length ? "tool" : finishes[last.done_reason] ?? last.done_reason ?? "",
      tokens: [last.prompt_eval_count ?? 0, last.eval_count ?? 0],
    };
  };
}

// The AI SDK is one program over a package for each dialect.

async function vercel(makeModel, options = () => ({})) {
  const { generateText, streamText, tool, jsonSchema, Output } = await load("ai");
  const declared = Object.fromEntries(
    tools.map((t) => [t.name, tool({ description: t.description, inputSchema: jsonSchema(t.parameters) })]),
  );
  const read = (turn) => {
    if ("user" in turn) return { role: "user", content: turn.user };
    if ("results" in turn) {
      const content = turn.results.map(([id, name, value]) => ({
        type: "tool-result", toolCallId: id, toolName: name, output: { type: "text", value },
      }));
      return { role: "tool", content };
    }
    const calls = (turn.calls ?? []).map(([id, name, input]) => ({ type: "tool-call", toolCallId: id, toolName: name, input }));
    const text = turn.assistant || !calls.length ? [{ type: "text", text: turn.assistant }] : [];
    return { role: "assistant", content: [...text, ...calls] };
  };
  let history = [];
  let last = [];
  return async (wish) => {
    if (wish.turns) history = wish.turns.map(read);
    if (wish.results) {
      const content = last.map((call, i) => ({
        type: "tool-result", toolCallId: call.toolCallId, toolName: call.toolName,
        output: { type: "text", value: wish.results[i] },
      }));
      history.push({ role: "tool", content });
    } else {
      const picture = { type: "image", image: Buffer.from(pixel, "base64"), mediaType: "image/png" };
      history.push({ role: "user", content: wish.image ? [{ type: "text", text: wish.text }, picture] : wish.text });
    }
    const body = { model: makeModel(wish.model), messages: history, maxRetries: 0 };
    if (wish.tools) body.tools = declared;
    if (wish.schema) body.output = Output.object({ schema: jsonSchema(schema) });
    if (wish.limit) body.maxOutputTokens = wish.limit;
    if (wish.think) body.providerOptions = options();
    let failed = null;
    const reply = wish.stream ? streamText({ ...body, onError: ({ error }) => (failed = error) }) : await generateText(body);
    if (wish.stream) await reply.consumeStream({ onError: (error) => (failed = failed ?? error) });
    if (failed) throw failed;
    const response = await reply.response;
    const made = (await reply.responseMessages) ?? response.messages;
    history.push(...made);
    last = await reply.toolCalls;
    const usage = await reply.usage;
    const finish = await reply.finishReason;
    return {
      text: wish.schema ? JSON.stringify(await reply.output) : await reply.text,
      thought: (await reply.reasoningText) ?? "",
      calls: last.map((call) => [call.toolName, call.input]),
      finish: finishes[finish] ?? finish,
      tokens: [usage.inputTokens, usage.outputTokens],
    };
  };
}

const clients = {
  "npm openai chat": chat,
  "npm openai responses": responses,
  "npm @anthropic-ai/sdk": messages,
  "npm @google/genai": gemini,
  "npm ollama": ollama,
  "AI SDK openai-compatible": async () => {
    const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
    const make = createOpenAICompatible({
      name: "far", baseURL: `${gateway}/v1`, apiKey: key, includeUsage: true, supportsStructuredOutputs: true,
    });
    return vercel((model) => make(model), () => ({ far: { reasoningEffort: "low" } }));
  },
  "AI SDK openai": async () => {
    const { createOpenAI } = await load("@ai-sdk/openai");
    const make = createOpenAI({ baseURL: `${gateway}/v1`, apiKey: key });
    return vercel((model) => make.responses(model), () => ({
      openai: {
        store: false, reasoningEffort: "low", reasoningSummary: "auto", include: ["reasoning.encrypted_content"],
        forceReasoning: true,
      },
    }));
  },
  "AI SDK anthropic": async () => {
    const { createAnthropic } = await load("@ai-sdk/anthropic");
    const make = createAnthropic({ baseURL: `${gateway}/v1`, apiKey: key });
    return vercel((model) => make(model), () => ({ anthropic: { thinking: { type: "enabled", budgetTokens: 1024 } } }));
  },
  "AI SDK google": async () => {
    const { createGoogleGenerativeAI } = await load("@ai-sdk/google");
    const make = createGoogleGenerativeAI({ baseURL: `${gateway}/v1beta`, apiKey: key });
    return vercel((model) => make(model), () => ({
      google: { thinkingConfig: { thinkingBudget: 1024, includeThoughts: true } },
    }));
  },
  "AI SDK ollama": async () => {
    const { createOllama } = await load("ollama-ai-provider-v2");
    const make = createOllama({ baseURL: `${gateway}/api` });
    return vercel((model) => make(model), () => ({ ollama: { think: true } }));
  },
};

function describe(error) {
  const below = error.lastError ?? error.cause ?? {};
  const status = error.status ?? error.status_code ?? error.statusCode ?? below.statusCode ?? null;
  const message = `${error.message ?? error} ${error.responseBody ?? ""}`.trim(); // not every client reads the body
  return { error: error.constructor.name, status, message: message.slice(0, 600) };
}

process.on("unhandledRejection", (error) => console.error(String(error?.stack ?? error)));
const made = {};
for await (const line of createInterface({ input: process.stdin })) {
  const { client, ...wish } = JSON.parse(line);
  let said;
  try {
    made[client] ??= await clients[client]();
    said = await made[client](wish);
  } catch (error) {
    said = describe(error);
  }
  process.stdout.write(JSON.stringify(said) + "\n");
}
