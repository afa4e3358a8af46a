// Configuration: the file, checked while it is written, with what would change, what was before, and a way back.

import { h, signal } from "./ui.js";
import { call, me } from "./api.js";
import { fullTime, head, problem, sure, textDiff } from "./parts.js";
import { t } from "./texts.js";

const EXAMPLE = '# dragoman.toml\n[providers.openai]\napi_key = "${OPENAI_API_KEY}"\nrpm = 60\n\n[aliases]\nfast = "gpt-4o-mini"\n';

export function config() {
  const file = signal(null);
  const verdict = signal(null);
  const text = signal("");
  const trouble = signal("");
  const editor = makeEditor((value) => {
    text.value = value;
    later();
  });
  let waiting = 0;
  const later = () => {
    clearTimeout(waiting);
    waiting = setTimeout(check, 250);
  };
  const check = () => call("/admin/v1/config/check", { body: { text: text.peek() } }).then((found) => {
    verdict.value = found;
    editor.mark(found.good ? null : found.line);
  }, (error) => (verdict.value = { good: false, why: error.message }));
  const load = (keep = false) => call("/admin/v1/config").then((found) => {
    file.value = found;
    if (keep) return;
    editor.put(found.source ? found.text : EXAMPLE);
    check();
  }, (error) => (trouble.value = error.message));
  load();
  call("/admin/v1/config/schema").then((schema) => editor.learn(schema), () => null);
  const store = () => call("/admin/v1/config", { body: { text: text.peek(), digest: file.peek().digest } }).then((found) => {
    verdict.value = { ...found, saved: found.good };
    editor.mark(found.good ? null : found.line);
    if (found.good) setTimeout(load, 300); // the gateway takes a moment to read it
  }, (error) => (trouble.value = error.message));
  const again = () => call("/admin/v1/config/apply", { method: "POST" }).then((found) => (verdict.value = found, load()), (error) => (trouble.value = error.message));
  const locked = Boolean(me.value?.read_only);
  return [
    head(t("config"), () => (file.value ? (file.value.source ? t("configNow", { n: file.value.generation, file: file.value.source }) : t("configNone")) : "")),
    () => trouble.value && problem(trouble.value),
    h("div", { class: "stack" }, editor.node,
      () => verdict.value && h("p", { class: `card notice ${verdict.value.good ? "" : "bad"}`, role: "status" }, words(verdict.value)),
      h("div", { class: "row" },
        () => file.value?.source && !locked && [
          h("button", { class: "main", disabled: () => text.value === file.value.text || !verdict.value?.good, onclick: () => sure(t("applyTitle"), [h("p", null, t("applyHelp")), textDiff(file.peek().text, text.peek())], store, t("apply")) }, t("apply")),
          h("button", { disabled: () => text.value === file.value.text, onclick: () => editor.put(file.peek().text) }, t("discard")),
          h("button", { onclick: again }, t("readAgain"))],
        h("button", { onclick: check }, t("check")), h("span", { class: "grow small quiet" }, t("configHelp")))),
    () => file.value?.source && text.value !== file.value.text && h("section", { class: "card stack", "aria-label": t("difference") }, h("h3", null, t("difference")), textDiff(file.value.text, text.value)),
    () => file.value?.source && history(file.value, editor),
  ];
}

function words(verdict) {
  if (verdict.saved) return t("configSaved");
  if (verdict.good) return t("configGood");
  return `${verdict.line ? t("lineNumber", { n: verdict.line }) + " · " : ""}${verdict.key ? verdict.key + ": " : ""}${verdict.why}`;
}

// Every text that the file had, with what is different now.
function history(file, editor) {
  const versions = file.versions;
  return h("section", { class: "card stack", "aria-label": t("history") }, h("h3", null, t("history")),
    versions.length ? versions.map((one, i) => h("details", null,
      h("summary", null, fullTime(one.number), h("span", { class: "quiet small" }, ` · ${one.who}`), one.text === file.text ? h("span", { class: "pill PASS" }, t("inUse")) : null),
      h("div", { class: "stack" }, versions[i + 1] ? textDiff(versions[i + 1].text, one.text) : h("p", { class: "quiet small" }, t("firstVersion")),
        one.text === file.text ? null : h("div", null, h("button", { onclick: () => (editor.put(one.text), document.getElementById("content").scrollTo(0, 0)) }, t("undo")))))) : h("p", { class: "quiet small" }, t("noHistory")));
}

// ---------------------------------------------------------------- a text field with line numbers and completion

function makeEditor(onChange) {
  const gutter = h("div", { class: "gutter", "aria-hidden": "true" });
  const list = h("ul", { class: "complete", role: "listbox", id: "completions", "aria-label": t("completions"), hidden: true });
  let tables = null; // keys by table, out of the schema
  let found = [];
  let chosen = 0;
  const field = h("textarea", {
    spellcheck: "false", autocapitalize: "off", "aria-label": "dragoman.toml", "aria-controls": "completions",
    oninput: () => (onChange(field.value), draw(), suggest()), onscroll: () => ((gutter.scrollTop = field.scrollTop), close()), onblur: () => setTimeout(close, 150),
    onkeydown: (event) => press(event),
  });
  let wrong = null;
  function draw() {
    const size = field.value.split("\n").length;
    gutter.replaceChildren(...Array.from({ length: size }, (_, i) => h("div", { class: i + 1 === wrong ? "wrong" : "" }, i + 1)));
    gutter.scrollTop = field.scrollTop;
  }
  function close() {
    list.hidden = true;
    found = [];
  }
  function suggest() {
    close();
    const before = field.value.slice(0, field.selectionStart);
    const line = before.slice(before.lastIndexOf("\n") + 1);
    const word = /^\s*([\w-]*)$/.exec(line)?.[1];
    const opened = /^\s*\[+([\w.-]*)$/.exec(line)?.[1];
    if (!tables || (word === undefined && opened === undefined) || (!word && opened === undefined)) return;
    const known = opened === undefined ? tables.keys(tableAt(before)) : tables.names();
    const start = opened ?? word;
    found = known.filter(([name]) => name.startsWith(start) && name !== start).slice(0, 12);
    if (!found.length) return;
    chosen = 0;
    list.replaceChildren(...found.map(([name, about], i) => h("li", { role: "option", "aria-selected": String(i === 0), onpointerdown: (event) => (event.preventDefault(), take(i)) }, h("code", null, name), h("small", null, about))));
    list.style.top = `${Math.min(field.clientHeight - 40, before.split("\n").length * 19.4 - field.scrollTop + 12)}px`;
    list.style.left = "4rem";
    list.hidden = false;
  }
  function take(i) {
    const before = field.value.slice(0, field.selectionStart);
    const start = /[\w.-]*$/.exec(before)[0];
    field.setRangeText(found[i][0], before.length - start.length, before.length, "end");
    close();
    onChange(field.value);
    draw();
    field.focus();
  }
  function press(event) {
    if (list.hidden) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) chosen = (chosen + step + found.length) % found.length;
    else if (event.key === "Enter" || event.key === "Tab") take(chosen);
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
    [...list.children].forEach((node, i) => node.setAttribute("aria-selected", String(i === chosen)));
  }
  return {
    node: h("div", { class: "editor" }, gutter, field, list),
    put(value) {
      field.value = value;
      onChange(value);
      wrong = null;
      draw();
    },
    mark(line) {
      wrong = line;
      draw();
    },
    learn(schema) {
      tables = readSchema(schema);
    },
  };
}

// The table that a line stands in: "providers.openai", or "" at the top.
function tableAt(before) {
  const heads = [...before.matchAll(/^\s*\[+([^\]\n]+)\]+/gm)];
  return heads.length ? heads.at(-1)[1].trim() : "";
}

// What may stand in each table. A step that is a name of the user's own leads through additionalProperties.
export function readSchema(schema) {
  const follow = (node) => {
    if (node?.$ref) return follow(schema.$defs[node.$ref.split("/").pop()]);
    const choice = (node?.anyOf || []).map(follow).find((one) => one?.properties || one?.additionalProperties);
    return choice || (node?.items ? follow(node.items) : node);
  };
  const at = (table) => table.split(".").filter(Boolean).reduce((node, step) => follow(node?.properties?.[step.replaceAll('"', "")] ?? (typeof node?.additionalProperties === "object" ? node.additionalProperties : null)), follow(schema));
  const list = (node) => Object.entries(node?.properties || {}).map(([name, one]) => [name, one.description || one.anyOf?.find((part) => part.description)?.description || ""]);
  return {
    keys: (table) => list(at(table)),
    names: () => list(follow(schema)).filter(([name]) => follow(follow(schema).properties[name])?.properties || follow(follow(schema).properties[name])?.additionalProperties || ["mcp", "key", "team", "prices", "budgets", "ledger"].includes(name)),
  };
}
