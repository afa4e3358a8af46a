// One vendor's npm client through the gateway: asks every model the same few things, and prints a line for each.
//
//   node sdks.mjs FOLDER DOOR GATEWAY MODEL...      FOLDER is where the packages are; the model `busy` always fails

import { createRequire } from "node:module";

const [folder, name, gateway, ...models] = process.argv.slice(2);
const require = createRequire(`${folder}/`);
const key = "sk-dummy-of-a-test";
const question = "say 안녕 🌍";
const errand = "use get_weather for `Seoul`";
const weather = {
  name: "get_weather",
  description: "The weather in a city",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};

async function join(pieces, text) {
  let whole = "";
  for await (const piece of pieces) whole += text(piece) ?? "";
  return whole;
}

function openai() {
  const OpenAI = require("openai");
  return new OpenAI({ baseURL: `${gateway}/v1`, apiKey: key, maxRetries: 0 });
}

function chat() {
  const client = openai();
  const ask = (model, content, more) =>
    client.chat.completions.create({ model, messages: [{ role: "user", content }], ...more });
  return {
    whole: async (model) => (await ask(model, question)).choices[0].message.content,
    stream: async (model) => join(await ask(model, question, { stream: true }), (c) => c.choices[0]?.delta?.content),
    call: async (model) => {
      const tools = [{ type: "function", function: weather }];
      const call = (await ask(model, errand, { tools })).choices[0].message.tool_calls[0].function;
      return [call.name, JSON.parse(call.arguments)];
    },
  };
}

function responses() {
  const client = openai();
  const ask = (model, input, more) => client.responses.create({ model, input, store: false, ...more });
  return {
    whole: async (model) => (await ask(model, question)).output_text,
    stream: async (model) => {
      const stream = client.responses.stream({ model, input: question, store: false });
      const said = await join(stream, (event) => (event.type === "response.output_text.delta" ? event.delta : ""));
      const last = (await stream.finalResponse()).output_text;
      if (last !== said) throw new Error(`streamed ${said}, ended with ${last}`);
      return said;
    },
    call: async (model) => {
      const tools = [{ type: "function", strict: false, ...weather }];
      const call = (await ask(model, errand, { tools })).output.find((item) => item.type === "function_call");
      return [call.name, JSON.parse(call.arguments)];
    },
  };
}

function messages() {
  const Anthropic = require("@anthropic-ai/sdk").default;
  const client = new Anthropic({ baseURL: gateway, apiKey: key, maxRetries: 0 });
  const body = (model, content, more) => ({
    model,
    max_tokens: 1000,
    messages: [{ role: "user", content }],
    ...more,
  });
  const text = (message) => message.content.map((block) => block.text ?? "").join("");
  return {
    whole: async (model) => text(await client.messages.create(body(model, question))),
    stream: async (model) => text(await client.messages.stream(body(model, question)).finalMessage()),
    call: async (model) => {
      const { parameters, ...rest } = weather;
      const tools = [{ ...rest, input_schema: parameters }];
      const message = await client.messages.stream(body(model, errand, { tools })).finalMessage();
      const call = message.content.find((block) => block.type === "tool_use");
      return [call.name, call.input];
    },
  };
}

function gemini() {
  const { GoogleGenAI } = require("@google/genai");
  const client = new GoogleGenAI({ apiKey: key, httpOptions: { baseUrl: gateway } });
  return {
    whole: async (model) => (await client.models.generateContent({ model, contents: question })).text,
    stream: async (model) =>
      join(await client.models.generateContentStream({ model, contents: question }), (chunk) => chunk.text),
    call: async (model) => {
      const { parameters, ...rest } = weather;
      const config = { tools: [{ functionDeclarations: [{ ...rest, parametersJsonSchema: parameters }] }] };
      const call = (await client.models.generateContent({ model, contents: errand, config })).functionCalls[0];
      return [call.name, call.args];
    },
  };
}

function ollama() {
  const { Ollama } = require("ollama");
  const client = new Ollama({ host: gateway });
  const ask = (model, content, more) => client.chat({ model, messages: [{ role: "user", content }], ...more });
  return {
    whole: async (model) => (await ask(model, question)).message.content,
    stream: async (model) => join(await ask(model, question, { stream: true }), (part) => part.message.content),
    call: async (model) => {
      const tools = [{ type: "function", function: weather }];
      const call = (await ask(model, errand, { tools })).message.tool_calls[0].function;
      return [call.name, call.arguments];
    },
  };
}

const doors = { chat, responses, messages, gemini, ollama };
const door = doors[name]();
for (const model of models) {
  for (const [what, act] of Object.entries(door)) {
    let row;
    try {
      row = { said: await act(model) };
    } catch (error) {
      const status = error.status ?? error.status_code;
      row = { error: error.constructor.name, status, message: String(error.message).slice(0, 300) };
    }
    console.log(JSON.stringify({ model, what, ...row }));
  }
}
