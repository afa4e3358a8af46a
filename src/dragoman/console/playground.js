// Playground: one conversation, one to four models or protocols side by side.

import { h, link, place, setQuery, signal } from "./ui.js";
import { call, events, lines, me, wordsOf } from "./api.js";
import { copyButton, count, head, price, problem, ranks, tabs, time } from "./parts.js";
import { icon } from "./icons.js";
import { codeFor, DOORS, FORMS } from "./doors.js";
import { t } from "./texts.js";

const TOOLS = {
  weather: { name: "weather", description: "The weather in a city.", parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] } },
  calculate: { name: "calculate", description: "Works out an arithmetic expression.", parameters: { type: "object", properties: { expression: { type: "string", description: "as 2 * (3 + 4)" } }, required: ["expression"] } },
  search: { name: "search", description: "Searches the documents of the company.", parameters: { type: "object", properties: { query: { type: "string" }, limit: { type: "integer", minimum: 1, maximum: 20 } }, required: ["query"] } },
};
const SCHEMA = { type: "object", properties: { answer: { type: "string" }, sure: { type: "boolean" } }, required: ["answer", "sure"], additionalProperties: false };
const MOST_COLUMNS = 4;

export function playground() {
  const models = signal([]);
  const asked = (place.peek().query.get("columns") || "").split(",").filter(Boolean).map((word) => word.split("@"));
  const columns = signal(asked.length ? asked.map(([model, door]) => newColumn(door in DOORS ? door : "openai_chat", model)) : [newColumn("openai_chat"), newColumn("anthropic")]);
  const trouble = signal("");
  const busy = signal(false);
  const images = signal([]);
  const servers = signal([]); // MCP servers, of which some are chosen
  const chosen = signal(new Set());
  const begun = signal(false);
  call("/admin/v1/models").then((found) => {
    models.value = found.models;
    for (const column of columns.peek()) column.model.value ||= found.models[0] || "demo";
  }, (error) => (trouble.value = error.message));
  call("/admin/v1/mcp").then((found) => (servers.value = found.servers), () => null);
  const remember = () => setQuery("columns", columns.peek().map((one) => `${one.model.peek()}@${one.door.peek()}`).join(","));
  const fields = {
    system: h("textarea", { rows: 2, class: "prose", placeholder: t("systemHint") }),
    prompt: h("textarea", { rows: 3, class: "prose", onkeydown: (event) => (event.ctrlKey || event.metaKey) && event.key === "Enter" && send() }, t("firstPrompt")),
    tools: jsonField(t("tools"), "[]", Array.isArray),
    schema: jsonField(t("schema"), "{}", (value) => value && typeof value === "object" && !Array.isArray(value)),
    effort: h("select", null, ["", "low", "medium", "high"].map((word) => h("option", { value: word }, word ? t(`effort_${word}`) : t("off")))),
  };
  const read = () => ({ system: fields.system.value.trim(), effort: fields.effort.value, tools: fields.tools.read(), schema: fields.schema.read() });

  async function send() {
    trouble.value = "";
    try {
      const settings = read();
      const turn = { role: "user", text: fields.prompt.value, images: images.peek() };
      if (!turn.text.trim()) return;
      busy.value = begun.value = true;
      fields.prompt.value = "";
      images.value = [];
      await Promise.all(columns.peek().map((column) => run(column, turn, settings, [...chosen.peek()])));
    } catch (error) {
      trouble.value = error.message;
    }
    busy.value = false;
  }
  function forget() {
    for (const column of columns.peek()) [column.turns.value, column.state.value] = [[], null];
    begun.value = false;
  }
  const addTool = (tool) => fields.tools.put([...(fields.tools.peek() || []).filter((one) => one.name !== tool.name), tool]);
  const more = h("details", { class: "card inner" }, h("summary", null, t("moreSettings")),
    h("div", { class: "columns" },
      h("div", { class: "stack" }, fields.tools.node, h("div", { class: "row tight" }, h("span", { class: "small quiet" }, t("example")),
        Object.values(TOOLS).map((tool) => h("button", { class: "plain small", onclick: () => addTool(tool) }, `+ ${tool.name}`))),
      () => servers.value.length ? h("fieldset", { class: "card inner stack" }, h("legend", { class: "small quiet" }, t("mcpTools")),
        servers.value.map((one) => h("div", { class: "row tight" }, h("label", { class: "check" }, h("input", {
          type: "checkbox", onchange: (event) => {
            const next = new Set(chosen.peek());
            event.target.checked ? next.add(one.name) : next.delete(one.name);
            chosen.value = next;
          },
        }), one.name), one.listed.slice(0, 6).map((tool) => h("button", { class: "plain small", title: t("onlySchema"), onclick: () => addTool({ name: tool.name, description: tool.description || "", parameters: tool.schema }) }, `+ ${tool.name}`))))) : null),
      h("div", { class: "stack" }, fields.schema.node, h("button", { class: "plain small", onclick: () => fields.schema.put(SCHEMA) }, `+ ${t("example")}`)),
      h("div", { class: "stack" }, h("label", null, t("thinking"), fields.effort),
        h("label", null, t("image"), h("input", { type: "file", accept: "image/*", multiple: true, onchange: async (event) => (images.value = [...images.peek(), ...(await Promise.all([...event.target.files].map(readImage)))]) })),
        () => h("div", { class: "thumbs" }, images.value.map((image) => h("span", { class: "pill" }, `${image.name} `, h("button", { class: "plain small", "aria-label": t("remove"), onclick: () => (images.value = images.peek().filter((one) => one !== image)) }, "×")))))));
  const locked = Boolean(me.value?.read_only);
  return [
    head(t("playground"), t("playgroundLead"), h("button", { hidden: () => !begun.value, onclick: forget }, t("newTalk"))),
    h("div", { class: "card stack" },
      h("label", null, t("system"), fields.system), h("label", null, t("prompt"), fields.prompt), more,
      h("div", { class: "row" },
        h("button", { class: "main", disabled: () => locked || busy.value, onclick: send }, t("send")),
        h("button", { disabled: () => !busy.value, onclick: () => columns.peek().forEach((column) => column.abort?.abort()) }, t("stop")),
        h("span", { class: "small quiet grow" }, locked ? t("readOnlyHelp") : t("sendKeys")),
        h("button", { disabled: () => columns.value.length >= MOST_COLUMNS, onclick: () => {
          const door = Object.keys(DOORS).find((name) => !columns.peek().some((one) => one.door.peek() === name)) || "openai_chat";
          columns.value = [...columns.peek(), newColumn(door, models.peek()[0])];
          remember();
        } }, icon("plus"), " ", t("addColumn")))),
    () => trouble.value && problem(trouble.value),
    h("datalist", { id: "all-models" }, () => models.value.map((name) => h("option", { value: name }))),
    h("div", { class: "columns" }, () => columns.value.map((column) => show(column, columns, remember, () => ({ ...read(), turns: talk(column, fields.prompt.value, images.peek()) })))),
  ];
}

// The conversation of a column with what is being written, for "as code".
function talk(column, prompt, images) {
  const said = column.turns.peek().filter((turn) => turn.text);
  if (prompt.trim()) return [...said, { role: "user", text: prompt, images }];
  return said.at(-1)?.role === "assistant" ? said.slice(0, -1) : said.length ? said : [{ role: "user", text: "Hello" }];
}

// A text field for JSON that says at once what is wrong with it.
function jsonField(label, usual, fits) {
  const wrong = signal("");
  const check = () => {
    wrong.value = "";
    if (!field.value.trim()) return null;
    try {
      const value = JSON.parse(field.value);
      if (!fits(value)) throw new Error(t("wrongShape", { shape: usual }));
      return value;
    } catch (error) {
      wrong.value = error.message;
      return undefined;
    }
  };
  const field = h("textarea", { rows: 6, placeholder: usual, spellcheck: "false", "aria-invalid": () => (wrong.value ? "true" : null), oninput: check });
  return {
    node: h("label", null, label, field, h("span", { class: "bad small" }, () => wrong.value)),
    peek: check,
    put: (value) => {
      field.value = JSON.stringify(value, null, 2);
      check();
    },
    read: () => {
      const value = check();
      if (value === undefined) throw new Error(`${label}: ${wrong.peek()}`);
      return value;
    },
  };
}

function newColumn(door, model = "") {
  return { door: signal(door), model: signal(model), turns: signal([]), now: signal(null), state: signal(null), code: signal(""), abort: null };
}

async function run(column, turn, settings, servers) {
  const door = DOORS[column.door.peek()];
  column.turns.value = [...column.turns.peek(), turn];
  const { path, body } = door.ask(column.model.peek(), { ...settings, turns: column.turns.peek().filter((one) => one.text) });
  column.abort = new AbortController();
  const answer = { role: "assistant", text: "", thought: "", calls: [] };
  const draw = () => (column.now.value = { ...answer });
  draw();
  column.state.value = { running: true };
  const began = performance.now();
  let first = null;
  let id = "";
  let failed = "";
  try {
    const headers = { "content-type": "application/json", "x-dragoman-xray": "1", ...(servers.length ? { "x-dragoman-mcp": servers.join(", ") } : {}) };
    const response = await fetch(path, { method: "POST", signal: column.abort.signal, headers, body: JSON.stringify(body) });
    id = response.headers.get("x-request-id") || "";
    if (!response.ok) {
      const value = await response.json().catch(() => null);
      throw new Error(`${response.status}: ${wordsOf(value) || wordsOf(value?.error)}`);
    }
    for await (const piece of door.lines ? lines(response) : events(response)) {
      const value = parse(piece.data);
      if (!value) continue;
      first ??= performance.now() - began;
      const said = door.read(value);
      answer.text += said.text || "";
      answer.thought += said.thought || "";
      if (said.calls?.length) answer.calls = mergeCalls(answer.calls, said.calls);
      if (said.error) throw new Error(said.error);
      draw();
    }
  } catch (error) {
    failed = error.name === "AbortError" ? t("stopped") : error.message;
  }
  column.now.value = null;
  column.turns.value = [...column.turns.peek(), answer];
  column.state.value = { error: failed, first, all: performance.now() - began, id, row: await findRow(id) };
}

// Tokens, cost and losses, as the gateway counted them.
async function findRow(id) {
  if (!id) return null;
  try {
    return (await call(`/admin/v1/traffic?limit=1&q=${encodeURIComponent("id:" + id)}`)).rows[0] || null;
  } catch {
    return null;
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

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function show(column, columns, remember, read) {
  const form = signal("curl");
  return h("section", { class: "card stack", "aria-label": () => `${column.model.value} ${column.door.value}` },
    h("div", { class: "row end" },
      h("label", { class: "grow" }, t("model"), h("input", { list: "all-models", value: () => column.model.value, oninput: (event) => (column.model.value = event.target.value), onchange: remember })),
      h("label", null, t("door"), h("select", { onchange: (event) => (column.door.value = event.target.value, remember()) },
        Object.keys(DOORS).map((name) => h("option", { value: name, selected: name === column.door.peek() }, name)))),
      h("button", { class: "plain", "aria-label": t("removeColumn"), title: t("removeColumn"), disabled: columns.peek().length < 2, onclick: () => {
        columns.value = columns.peek().filter((one) => one !== column);
        remember();
      } }, icon("close"))),
    h("div", { class: "chat" },
      () => column.turns.value.map(bubble),
      h("div", { "aria-live": "polite" }, () => column.now.value && bubble(column.now.value)),
      () => !column.turns.value.length && h("p", { class: "quiet small" }, t("noTalk"))),
    () => status(column.state.value),
    h("div", { class: "row" },
      () => column.state.value?.id && h("a", { href: link("xray", column.state.value.id) }, t("showWire")),
      h("button", { class: "plain small", "aria-expanded": () => String(Boolean(column.code.value)), onclick: () => (column.code.value = column.code.peek() ? "" : "open") }, t("asCode"))),
    () => column.code.value && code(column, form, read));
}

function code(column, form, read) {
  let text = "";
  return h("div", { class: "stack" }, h("div", { class: "row" }, tabs(FORMS, form, (name) => name), copyButton(() => text)),
    () => {
      try {
        text = codeFor(form.value, column.door.value, column.model.value, read());
      } catch (error) {
        text = error.message;
      }
      return h("pre", { class: "snippet", tabindex: "0", "aria-label": form.value }, text);
    });
}

function bubble(turn) {
  if (turn.role === "user") return h("div", { class: "bubble user" }, turn.text, turn.images?.length ? h("div", { class: "small quiet" }, turn.images.map((one) => one.name).join(", ")) : null);
  return h("div", { class: "bubble model" }, turn.thought ? h("p", { class: "thought" }, turn.thought) : null, h("div", { class: "said" }, turn.text || (turn.calls.length || turn.thought ? "" : "…")),
    turn.calls.map((one) => h("pre", { class: "calls" }, `${one.name}(${one.arguments})`)));
}

function status(state) {
  if (!state || state.running) return null;
  const { row } = state;
  const facts = [[t("first"), time(row?.first_ms ?? state.first)], [t("total"), time(state.all)], [t("tokens"), row ? `${count(row.input)} / ${count(row.output)}` : "–"], [t("cost"), price(row?.cost)]];
  return [
    state.error && h("p", { class: "bad small", role: "alert" }, state.error),
    h("dl", { class: "facts small" }, facts.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value)))),
    row && (row.lost || row.changed) ? h("div", { class: "row tight" }, ranks(row)) : null];
}

function readImage(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve({ name: file.name, type: file.type, data: String(reader.result).split(",")[1] });
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
