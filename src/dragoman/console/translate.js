// Translate: any request, reply or stream, in all other dialects at once. No provider is asked.

import { h, place, setQuery, signal } from "./ui.js";
import { call } from "./api.js";
import { jsonView } from "./json_view.js";
import { t } from "./texts.js";

const EXAMPLES = {
  request: {
    model: "claude-sonnet-4-5", max_tokens: 1024, system: "Answer in one sentence.", top_k: 5,
    tools: [{ name: "weather", description: "The weather in a city.", input_schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] } }],
    messages: [
      { role: "user", content: "What is the weather in Seoul?" },
      { role: "assistant", content: [{ type: "tool_use", id: "toolu_1", name: "weather", input: { city: "Seoul" } }] },
      { role: "user", content: [{ type: "tool_result", tool_use_id: "toolu_1", content: "Rain, 12 °C" }] },
    ],
  },
  reply: {
    id: "chatcmpl-1", object: "chat.completion", created: 1763300000, model: "gpt-4o",
    choices: [{ index: 0, finish_reason: "tool_calls", message: { role: "assistant", content: null, tool_calls: [{ id: "call_1", type: "function", function: { name: "weather", arguments: "{\"city\":\"Seoul\"}" } }] } }],
    usage: { prompt_tokens: 60, completion_tokens: 12, total_tokens: 72 },
  },
  stream: 'data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"Hello"},"finish_reason":null}]}\n\ndata: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n',
};

export function translate() {
  const what = signal(place.peek().query.get("what") || "request");
  const source = signal("auto");
  const result = signal(null);
  const problem = signal("");
  const field = h("textarea", { rows: 14, spellcheck: "false", "aria-label": t("paste"), oninput: () => later() });
  let waiting = 0;
  const later = () => {
    clearTimeout(waiting);
    waiting = setTimeout(work, 250);
  };
  async function work() {
    if (!field.value.trim()) {
      result.value = null;
      return;
    }
    try {
      result.value = await call("/admin/v1/translate", { body: { what: what.peek(), source: source.peek(), text: field.value } });
      problem.value = "";
    } catch (error) {
      problem.value = error.message;
      result.value = null;
    }
  }
  function example() {
    const found = EXAMPLES[what.peek()];
    field.value = typeof found === "string" ? found : JSON.stringify(found, null, 2);
    work();
  }
  return [
    h("h2", null, t("translate")),
    h("div", { class: "row end" },
      h("label", null, t("what"), h("select", { onchange: (event) => { what.value = event.target.value; setQuery("what", event.target.value); work(); } },
        ["request", "reply", "stream"].map((name) => h("option", { value: name, selected: name === what.peek() }, t(name))))),
      h("label", null, t("from"), h("select", { onchange: (event) => { source.value = event.target.value; work(); } },
        ["auto", "openai_chat", "openai_responses", "anthropic", "gemini", "ollama"].map((name) => h("option", { value: name }, t(name))))),
      h("button", { onclick: example }, t("example"))),
    h("div", { class: "card" }, field, h("p", { class: "small quiet" }, () => (result.value ? t("readAs", { name: result.value.source }) : t("paste")))),
    () => problem.value && h("p", { class: "card bad", role: "alert" }, problem.value),
    () => result.value && h("div", { class: "columns tall" }, result.value.results.map(card)),
  ];
}

function card(one) {
  const kinds = Object.entries(count(one.notes));
  return h("section", { class: "card", "aria-label": one.dialect },
    h("h3", null, h("strong", null, one.dialect), h("span", null, kinds.map(([kind, n]) => [h("span", { class: `pill ${kind}` }, `${n} ${t(kind)}`), " "]))),
    one.error ? h("p", { class: "bad" }, one.error) : jsonView(one.value, { label: one.dialect, marks: new Map() }),
    one.notes.length ? h("details", null, h("summary", { class: "small" }, t("notes")), one.notes.map((note) =>
      h("p", { class: "small" }, h("span", { class: `pill ${note.kind}` }, t(note.kind)), " ", h("code", null, note.where || "/"), " ", note.why))) : null);
}

function count(notes) {
  const found = {};
  for (const note of notes) found[note.kind] = (found[note.kind] || 0) + 1;
  return found;
}
