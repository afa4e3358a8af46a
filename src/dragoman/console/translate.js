// Translate: any request, reply or stream, in all other dialects at once. No provider is asked.

import { effect, h, place, setQuery, signal } from "./ui.js";
import { call } from "./api.js";
import { aim, jsonView } from "./json_view.js";
import { copyButton, head, problem, tabs } from "./parts.js";
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
const DIALECTS = ["openai_chat", "openai_responses", "anthropic", "gemini", "ollama"];

export function translate() {
  const what = signal(["request", "reply", "stream"].includes(place.peek().query.get("what")) ? place.peek().query.get("what") : "request");
  const source = signal("auto");
  const result = signal(null);
  const trouble = signal("");
  const field = h("textarea", { rows: 22, spellcheck: "false", "aria-label": t("paste"), placeholder: t("paste"), oninput: () => later() });
  let waiting = 0;
  let asked = 0;
  const later = () => {
    clearTimeout(waiting);
    waiting = setTimeout(work, 250);
  };
  async function work() {
    const view = ++asked;
    if (!field.value.trim()) return void (result.value = null);
    try {
      const found = await call("/admin/v1/translate", { body: { what: what.peek(), source: source.peek(), text: field.value } });
      if (view === asked) [result.value, trouble.value] = [found, ""];
    } catch (error) {
      if (view === asked) [result.value, trouble.value] = [null, error.message];
    }
  }
  function example() {
    const found = EXAMPLES[what.peek()];
    field.value = typeof found === "string" ? found : JSON.stringify(found, null, 2);
    work();
  }
  effect(() => {
    setQuery("what", what.value === "request" ? "" : what.value);
    if (field.value) work();
  });
  return [
    head(t("translate"), t("translateLead")),
    h("div", { class: "row" }, tabs(["request", "reply", "stream"], what),
      h("select", { "aria-label": t("from"), onchange: (event) => { source.value = event.target.value; work(); } },
        ["auto", ...DIALECTS].map((name) => h("option", { value: name }, name === "auto" ? t("auto") : name))),
      h("button", { onclick: example }, t("example")),
      h("span", { class: "small quiet", role: "status" }, () => (result.value ? t("readAs", { name: result.value.source }) : ""))),
    () => trouble.value && problem(trouble.value),
    h("div", { class: "split" },
      h("div", { class: "card" }, field),
      () => (result.value ? results(result.value) : tables(source, what))),
    () => result.value && tables(signal(result.value.source), what),
  ];
}

function results(found) {
  const chosen = signal(found.results[0].dialect);
  const pills = (one) => Object.entries(countKinds(one.notes)).map(([kind, n]) => h("span", { class: `pill ${kind}` }, `${n} ${t(kind)}`));
  return h("div", { class: "card stack" },
    h("div", { class: "tabs", role: "tablist" }, found.results.map((one) =>
      h("button", { role: "tab", "aria-selected": () => String(chosen.value === one.dialect), onclick: () => (chosen.value = one.dialect) },
        one.dialect === "canonical" ? t("canonical") : one.dialect, one.error ? " ✗" : one.notes.some((note) => note.rank === "lost") ? h("span", { class: "bad" }, " ●") : null))),
    found.results.map((one) => {
      const view = one.error ? h("p", { class: "bad" }, one.error) : jsonView(one.value, { label: one.dialect, marks: new Map(one.notes.filter((note) => note.target).map((note) => [note.target, note.kind])) });
      if (!one.error) view.classList.add("snippet");
      if (!one.error) view.style.maxHeight = "24rem";
      return h("section", { role: "tabpanel", class: "stack", "aria-label": one.dialect, hidden: () => chosen.value !== one.dialect },
        h("div", { class: "row" }, pills(one), one.notes.length ? null : h("span", { class: "fine small" }, `✓ ${t("noNotes")}`), h("span", { class: "space" }),
          one.error ? null : copyButton(() => (typeof one.value === "string" ? one.value : JSON.stringify(one.value, null, 2)))),
        view,
        h("div", { class: "notes" }, one.notes.map((note) => h("button", { class: "note", onclick: () => aim(view, note.target || "") },
          h("span", { class: `pill ${note.kind}` }, t(note.kind)), h("code", null, note.where || "/"), h("span", { class: "why" }, note.why)))));
    }));
}

function countKinds(notes) {
  const found = {};
  for (const note of notes) found[note.kind] = (found[note.kind] || 0) + 1;
  return found;
}

// ---------------------------------------------------------------- what survives from one dialect to each other one

let known = null; // the tables of the documentation, read once

function tables(source, what) {
  const found = signal(known);
  const which = signal("pairs");
  const search = signal("");
  if (!known) call("/console/tables.json").then((value) => (found.value = known = value), () => null);
  const MARKS = { c: "✓", a: "~", l: "✗", "-": "" };
  const NAMES = { c: "carried", a: "adapted", l: "lost", "-": "none" };
  return h("section", { class: "card stack", "aria-label": t("tables") }, () => {
    if (!found.value) return h("p", { class: "quiet" }, t("loading"));
    const from = signal(DIALECTS.includes(source.value) ? source.value : "anthropic");
    const names = Object.keys(found.value.dialects);
    return [
      h("div", { class: "row" }, h("h3", null, t("tables")), tabs(["pairs", "fields"], which, (name) => t(`table_${name}`)), h("span", { class: "space" }),
        h("select", { "aria-label": t("from"), onchange: (event) => (from.value = event.target.value) }, DIALECTS.map((name) => h("option", { value: name, selected: name === from.peek() }, found.value.dialects[name])))),
      h("div", { class: "row" }, h("input", { type: "search", class: "grow", "aria-label": t("filter"), placeholder: t("filter"), oninput: (event) => (search.value = event.target.value.toLowerCase()) }),
        h("span", { class: "legend" }, ["c", "a", "l"].map((letter) => h("span", { class: `fate ${letter}` }, `${MARKS[letter]} ${t(NAMES[letter])}`)))),
      () => h("div", { class: "wide-table" }, h("table", { class: "plain small" },
        h("thead", null, h("tr", null, h("th", null, t(what.value)), names.filter((name) => name !== from.value).map((name) => h("th", { class: "fate" }, name)))),
        h("tbody", null, found.value[which.value].map(([kind, name, letters]) => [kind, name, letters.slice(names.indexOf(from.value) * names.length).slice(0, names.length)]).filter(([kind, name, letters]) => kind === what.value && /[^-]/.test(letters) && name.toLowerCase().includes(search.value)).map(([, name, letters]) =>
          h("tr", null, h("td", null, which.value === "fields" ? h("code", null, name) : name), names.map((to, i) => to === from.value ? null
            : h("td", { class: `fate ${letters[i]}`, title: t(NAMES[letters[i]]) }, MARKS[letters[i]]))))))),
    ];
  });
}
