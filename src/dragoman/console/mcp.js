// MCP: servers, their tools, texts that changed since they were approved, a form to try a tool, and what loops did.

import { h, link, signal } from "./ui.js";
import { call, me } from "./api.js";
import { jsonView } from "./json_view.js";
import { empty, head, problem, statusPill, textDiff, time, when } from "./parts.js";
import { loopTree } from "./xray.js";
import { t } from "./texts.js";

export function mcp() {
  const servers = signal(null);
  const loops = signal([]);
  const trouble = signal("");
  const load = () => call("/admin/v1/mcp").then((found) => (servers.value = found.servers), (error) => (trouble.value = error.message));
  const act = (work) => work.then(() => ((trouble.value = ""), load()), (error) => (trouble.value = error.message));
  load();
  call("/admin/v1/xray").then((found) => (loops.value = found.requests.filter((one) => one.calls).slice(0, 20)), () => null);
  const locked = Boolean(me.value?.read_only);
  return [
    head(t("mcp"), t("mcpLead")),
    () => trouble.value && problem(trouble.value),
    locked ? null : adding(act),
    () => servers.value?.length === 0 && empty("mcp", t("noMcpTitle"), t("noMcp"), "dragoman mcp add files -- npx -y @modelcontextprotocol/server-filesystem ."),
    () => servers.value?.map((one) => card(one, act, locked)),
    h("section", { class: "card stack", "aria-label": t("loops") }, h("h3", null, t("loops")), () => (loops.value.length ? loops.value.map(loop) : h("p", { class: "quiet small" }, t("noLoops")))),
  ];
}

function adding(act) {
  const name = h("input", { required: true, pattern: "[\\w.\\-]+", "aria-label": t("name"), placeholder: t("name"), size: 12 });
  const url = h("input", { class: "grow", type: "url", required: true, "aria-label": "URL", placeholder: "https://example.org/mcp" });
  return h("form", {
    class: "row card",
    onsubmit: (event) => {
      event.preventDefault();
      act(call("/mcp/add", { body: { name: name.value, url: url.value } }).then(() => event.target.reset()));
    },
  }, name, url, h("button", { class: "main" }, t("add")));
}

function card(one, act, locked) {
  const up = one.health === "up";
  return h("section", { class: "card stack", "aria-label": one.name },
    h("div", { class: "row" }, h("h3", null, one.name), h("span", { class: `pill ${up ? "PASS" : "FAIL"}` }, h("span", { class: "dot" }), one.health),
      h("span", { class: "quiet small grow" }, [one.url, one.transport, one.source].filter(Boolean).join(" · ")),
      one.source === "registry" && !locked && h("button", { class: "plain danger", onclick: () => act(call(`/mcp/remove?name=${encodeURIComponent(one.name)}`, { method: "DELETE" })) }, t("remove"))),
    one.last_error && h("p", { class: "bad small" }, one.last_error),
    one.changed.length ? changes(one, act, locked) : null,
    one.listed.map((tool) => h("details", null, h("summary", null, h("code", null, tool.name), " ", h("span", { class: "quiet small" }, (tool.description || "").split("\n")[0].slice(0, 120))),
      tryTool(one.name, tool, locked))));
}

function changes(one, act, locked) {
  return h("div", { class: "card notice warn stack" },
    h("p", { class: "strong" }, t("changedTools")),
    one.changed.map((change) => h("div", { class: "stack" }, h("p", null, h("code", null, change.tool), ` ${change.what}${change.withheld ? " · " + t("withheld") : ""}`),
      h("div", { class: "card" }, textDiff(textOf(change.approved), textOf(change.now))))),
    locked ? null : h("div", null, h("button", { class: "main", onclick: () => act(call("/admin/v1/mcp/approve", { body: { name: one.name } })) }, t("approve"))));
}

const textOf = (tool) => (tool ? `${tool.description || ""}\n${JSON.stringify(tool.schema, null, 2)}` : "");

function tryTool(server, tool, locked) {
  const field = h("textarea", { rows: 4, spellcheck: "false", "aria-label": t("arguments") }, JSON.stringify(emptyOf(tool.schema), null, 2));
  const result = signal(null);
  const run = async () => {
    const began = performance.now();
    try {
      const found = await call("/admin/v1/mcp/call", { body: { server, tool: tool.name, arguments: JSON.parse(field.value) } });
      result.value = { ...found, ms: performance.now() - began };
    } catch (error) {
      result.value = { failed: true, parts: error.message, ms: performance.now() - began };
    }
  };
  const look = jsonView(tool.schema, { label: tool.name });
  look.classList.add("snippet");
  return h("div", { class: "columns" },
    h("div", { class: "stack" }, h("p", { class: "small" }, tool.description), look),
    h("div", { class: "stack" }, field, locked ? null : h("div", null, h("button", { onclick: run }, t("tryIt"))),
      () => result.value && h("div", { class: "stack", role: "status" }, h("div", { class: "row" }, h("span", { class: `pill ${result.value.failed ? "FAIL" : "PASS"}` }, result.value.failed ? t("failed") : "ok"), h("span", { class: "small quiet" }, time(result.value.ms))),
        h("pre", { class: "snippet" }, typeof result.value.parts === "string" ? result.value.parts : result.value.parts.map((part) => part.text ?? JSON.stringify(part)).join("\n")))));
}

function emptyOf(schema) {
  const found = {};
  for (const name of schema?.required || []) found[name] = { string: "", number: 0, integer: 0, boolean: false, array: [], object: {} }[schema.properties?.[name]?.type] ?? "";
  return found;
}

function loop(row) {
  const whole = signal(null);
  return h("details", { ontoggle: (event) => event.target.open && !whole.peek() && call(`/admin/v1/xray/${encodeURIComponent(row.id)}`).then((found) => (whole.value = found), () => null) },
    h("summary", null, h("span", { class: "mono" }, when(row.time * 1000)), ` ${row.upstream}/${row.model} `, statusPill(row.status), " ", h("span", { class: "pill invented" }, t("toolCalls", { n: row.calls }))),
    () => whole.value && h("div", { class: "stack" }, loopTree(whole.value), h("a", { href: link("xray", row.id) }, t("showWire"))));
}
