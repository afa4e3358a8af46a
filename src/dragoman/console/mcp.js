// MCP: servers, their tools, texts that changed since they were approved, and a form to try a tool.

import { h, signal } from "./ui.js";
import { call } from "./api.js";
import { jsonView } from "./json_view.js";
import { t } from "./texts.js";

export function mcp() {
  const servers = signal(null);
  const problem = signal("");
  const load = () => call("/admin/v1/mcp").then((found) => (servers.value = found.servers), (error) => (problem.value = error.message));
  const act = (work) => work.then(load, (error) => (problem.value = error.message));
  load();
  return [
    h("h2", null, t("mcp")),
    () => problem.value && h("p", { class: "card bad", role: "alert" }, problem.value),
    adding(act),
    () => servers.value?.length === 0 && h("p", { class: "card empty" }, t("noMcp")),
    () => servers.value?.map((one) => card(one, act)),
  ];
}

function adding(act) {
  const name = h("input", { required: true, pattern: "[\\w.-]+", "aria-label": t("name"), placeholder: t("name") });
  const url = h("input", { class: "grow", type: "url", required: true, "aria-label": "URL", placeholder: "https://example.org/mcp" });
  return h("form", {
    class: "row card",
    onsubmit: (event) => {
      event.preventDefault();
      act(call("/mcp/add", { body: { name: name.value, url: url.value } }));
    },
  }, name, url, h("button", { class: "main" }, t("add")));
}

function card(one, act) {
  const up = one.health === "up";
  return h("section", { class: "card", "aria-label": one.name },
    h("div", { class: "row" }, h("strong", null, one.name), h("span", { class: up ? "fine" : "bad" }, `● ${one.health}`),
      h("span", { class: "quiet small" }, `${one.url || ""} · ${one.transport} · ${one.source}`), h("span", { class: "grow" }),
      one.source === "registry" && h("button", { class: "plain", onclick: () => act(call(`/mcp/remove?name=${encodeURIComponent(one.name)}`, { method: "DELETE" })) }, t("remove"))),
    one.last_error && h("p", { class: "bad small" }, one.last_error),
    one.changed.length ? changes(one, act) : null,
    one.listed.map((tool) => h("details", null, h("summary", null, h("code", null, tool.name), " ", h("span", { class: "quiet small" }, (tool.description || "").split("\n")[0].slice(0, 120))),
      tryTool(one.name, tool))));
}

function changes(one, act) {
  return h("div", { class: "card" },
    h("p", { class: "bad" }, t("changedTools")),
    one.changed.map((change) => h("div", null, h("p", null, h("code", null, change.tool), ` ${change.what}${change.withheld ? " · " + t("withheld") : ""}`),
      textDiff(textOf(change.approved), textOf(change.now)))),
    h("button", { class: "main", onclick: () => act(call("/admin/v1/mcp/approve", { body: { name: one.name } })) }, t("approve")));
}

const textOf = (tool) => (tool ? `${tool.description || ""}\n${JSON.stringify(tool.schema, null, 2)}` : "");

// Lines that went are red, lines that came are green; the longest common part stays plain.
export function textDiff(before, now) {
  const a = before.split("\n");
  const b = now.split("\n");
  const size = Array.from({ length: a.length + 1 }, () => new Array(b.length + 1).fill(0));
  for (let i = a.length - 1; i >= 0; i--) for (let j = b.length - 1; j >= 0; j--) size[i][j] = a[i] === b[j] ? size[i + 1][j + 1] + 1 : Math.max(size[i + 1][j], size[i][j + 1]);
  const lines = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) lines.push(["", `  ${a[i]}`, i++, j++]);
    else if (j >= b.length || (i < a.length && size[i + 1][j] >= size[i][j + 1])) lines.push(["dropped", `- ${a[i++]}`]);
    else lines.push(["repaired", `+ ${b[j++]}`]);
  }
  return h("pre", { class: "json" }, lines.map(([kind, text]) => h("span", { class: `l ${kind}` }, text)));
}

function tryTool(server, tool) {
  const field = h("textarea", { rows: 4, "aria-label": t("arguments") }, JSON.stringify(emptyOf(tool.schema), null, 2));
  const result = signal(null);
  return [
    h("p", { class: "small" }, tool.description), jsonView(tool.schema, { label: tool.name }),
    h("div", { class: "row" }, field, h("button", {
      onclick: async () => {
        try {
          result.value = await call("/admin/v1/mcp/call", { body: { server, tool: tool.name, arguments: JSON.parse(field.value) } });
        } catch (error) {
          result.value = { failed: true, parts: error.message };
        }
      },
    }, t("tryIt"))),
    () => result.value && h("div", { class: result.value.failed ? "bad" : "", role: "status" }, jsonView(result.value.parts)),
  ];
}

function emptyOf(schema) {
  const found = {};
  for (const name of schema?.required || []) found[name] = { string: "", number: 0, integer: 0, boolean: false, array: [], object: {} }[schema.properties?.[name]?.type] ?? "";
  return found;
}
