// Playground: one conversation, two to four models or protocols side by side.

import { h, link, signal } from "./ui.js";
import { call, events, wordsOf } from "./api.js";
import { t } from "./texts.js";
import { codeFor, DOORS } from "./doors.js";
import { time } from "./traffic.js";

const EXAMPLE_TOOL = [{ name: "weather", description: "The weather in a city.", parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] } }];

export function playground() {
  const models = signal([]);
  const columns = signal([newColumn("openai_chat"), newColumn("anthropic")]);
  const problem = signal("");
  call("/admin/v1/models").then((found) => {
    models.value = found.models;
    for (const column of columns.peek()) column.model.value ||= found.models[0] || "demo";
  }, (error) => (problem.value = error.message));
  const fields = {
    system: h("textarea", { rows: 2 }), prompt: h("textarea", { rows: 3 }, "Say hello in three languages."),
    tools: h("textarea", { rows: 4, placeholder: "[]" }), schema: h("textarea", { rows: 4, placeholder: "{}" }),
    effort: h("select", null, ["", "low", "medium", "high"].map((word) => h("option", { value: word }, word || t("off")))),
    image: h("input", { type: "file", accept: "image/*" }),
  };
  async function read() {
    const json = (field, name) => {
      if (!field.value.trim()) return null;
      try {
        return JSON.parse(field.value);
      } catch (error) {
        throw new Error(`${name}: ${error.message}`);
      }
    };
    const file = fields.image.files[0];
    return {
      system: fields.system.value.trim(), prompt: fields.prompt.value, effort: fields.effort.value,
      tools: json(fields.tools, t("tools")), schema: json(fields.schema, t("schema")),
      image: file ? { type: file.type, data: await base64(file) } : null,
    };
  }
  async function send() {
    problem.value = "";
    try {
      const asked = await read();
      await Promise.all(columns.peek().map((column) => run(column, asked)));
    } catch (error) {
      problem.value = error.message;
    }
  }
  const more = h("details", null, h("summary", { class: "small" }, `${t("tools")}, ${t("schema")}, ${t("thinking")}, ${t("image")}`),
    h("div", { class: "columns" },
      h("label", null, t("tools"), fields.tools, h("button", { class: "plain small", onclick: () => (fields.tools.value = JSON.stringify(EXAMPLE_TOOL, null, 1)) }, t("example"))),
      h("label", null, t("schema"), fields.schema),
      h("label", null, t("thinking"), fields.effort), h("label", null, t("image"), fields.image)));
  return [
    h("h2", null, t("playground")),
    h("div", { class: "card" },
      h("label", null, t("system"), fields.system), h("label", null, t("prompt"), fields.prompt), more,
      h("div", { class: "row" },
        h("button", { class: "main", onclick: send }, t("send")),
        h("button", { onclick: () => columns.peek().forEach((column) => column.abort?.abort()) }, t("stop")),
        h("button", { disabled: () => columns.value.length >= 4, onclick: () => (columns.value = [...columns.peek(), newColumn("gemini", models.peek()[0])]) }, t("addColumn")))),
    () => problem.value && h("p", { class: "card bad", role: "alert" }, problem.value),
    h("datalist", { id: "all-models" }, () => models.value.map((name) => h("option", { value: name }))),
    h("div", { class: "columns" }, () => columns.value.map((column) => show(column, columns, read))),
  ];
}

function newColumn(door, model = "") {
  return { door: signal(door), model: signal(model), text: signal(""), thought: signal(""), calls: signal([]), state: signal(null), code: signal(""), abort: null };
}

async function run(column, asked) {
  const door = DOORS[column.door.peek()];
  const { path, body } = door.ask(column.model.peek(), asked);
  column.abort = new AbortController();
  for (const [name, empty] of [["text", ""], ["thought", ""], ["calls", []]]) column[name].value = empty;
  column.state.value = { running: true };
  const begun = performance.now();
  let first = null;
  let usage = {};
  let id = "";
  try {
    const answer = await fetch(path, { method: "POST", signal: column.abort.signal, headers: { "content-type": "application/json", "x-dragoman-xray": "1" }, body: JSON.stringify(body) });
    id = answer.headers.get("x-request-id") || "";
    if (!answer.ok) {
      const value = await answer.json().catch(() => null);
      throw new Error(`${answer.status}: ${wordsOf(value) || wordsOf(value?.error)}`);
    }
    for await (const piece of door.lines ? lines(answer) : events(answer)) {
      const value = parse(piece.data);
      if (!value) continue;
      first ??= performance.now() - begun;
      const said = door.read(value);
      if (said.text) column.text.value += said.text;
      if (said.thought) column.thought.value += said.thought;
      if (said.calls?.length) column.calls.value = mergeCalls(column.calls.peek(), said.calls);
      if (said.error) throw new Error(said.error);
      usage = { ...usage, ...said.usage };
    }
    column.state.value = { first, all: performance.now() - begun, usage, id };
  } catch (error) {
    column.state.value = { error: error.message, id, first, all: performance.now() - begun };
  }
}

function mergeCalls(before, fresh) {
  const found = before.map((one) => ({ ...one }));
  for (const call_ of fresh) {
    const same = found.find((one) => one.at === call_.at);
    if (same) {
      same.name ||= call_.name;
      same.arguments += call_.arguments || "";
    } else found.push({ at: call_.at, name: call_.name || "", arguments: call_.arguments || "" });
  }
  return found;
}

async function* lines(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const found = (rest + value).split("\n");
    rest = found.pop();
    for (const line of found) yield { data: line };
  }
  if (rest) yield { data: rest };
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function show(column, columns, read) {
  return h("section", { class: "card" },
    h("div", { class: "row end" },
      h("label", { class: "grow" }, t("model"), h("input", { list: "all-models", value: () => column.model.value, oninput: (event) => (column.model.value = event.target.value) })),
      h("label", null, t("door"), h("select", { onchange: (event) => (column.door.value = event.target.value) },
        Object.keys(DOORS).map((name) => h("option", { value: name, selected: name === column.door.peek() }, name)))),
      h("button", { class: "plain", onclick: () => columns.peek().length > 1 && (columns.value = columns.peek().filter((one) => one !== column)) }, t("removeColumn"))),
    () => column.thought.value && h("p", { class: "thought small" }, column.thought.value),
    h("div", { class: "said", "aria-live": "polite" }, () => column.text.value),
    () => column.calls.value.map((one) => h("pre", { class: "json" }, `${one.name}(${one.arguments})`)),
    () => status(column.state.value),
    h("div", { class: "row" },
      () => column.state.value?.id && h("a", { href: link("xray", column.state.value.id) }, t("showWire")),
      h("button", { class: "plain small", onclick: async () => (column.code.value = column.code.peek() ? "" : codeFor(column.door.peek(), column.model.peek(), await read())) }, t("asCode"))),
    () => column.code.value && h("pre", { class: "json" }, column.code.value));
}

function status(state) {
  if (!state) return null;
  if (state.running) return h("p", { class: "small quiet" }, "…");
  const parts = [state.first !== null && state.first !== undefined ? `${t("first")} ${time(state.first)}` : "", `${t("total")} ${time(state.all)}`];
  const { input, output } = state.usage || {};
  if (input !== undefined || output !== undefined) parts.push(`${t("tokens")} ${input ?? "–"} / ${output ?? "–"}`);
  return h("p", { class: `small ${state.error ? "bad" : "quiet"}`, role: state.error ? "alert" : null }, state.error ? `${state.error} ` : "", parts.filter(Boolean).join(" · "));
}

function base64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).split(",")[1]);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
