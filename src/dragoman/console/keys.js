// Keys and spend: make, limit, rotate and revoke keys; what each day, team, key and model has used.

import { effect, h, place, setQuery, signal } from "./ui.js";
import { call, me } from "./api.js";
import { dayBars } from "./charts.js";
import { copyButton, count, dialog, empty, head, money, problem, save, short, sure } from "./parts.js";
import { t } from "./texts.js";

const FIELDS = ["rpm", "tpm", "at_once"];
const GROUPS = ["model", "key", "team", "upstream", "day"];

export function keys() {
  if (!me.value.key_store) return [head(t("keys"), t("keysLead")), empty("keys", t("noStore"), t("noStoreHelp"), "dragoman keys new --name ada")];
  const rows = signal(null);
  const budgets = signal([]);
  const made = signal(null);
  const trouble = signal("");
  const locked = Boolean(me.value.read_only);
  const fail = (error) => (trouble.value = error.message);
  const load = () => Promise.all([
    call("/admin/v1/keys").then((found) => (rows.value = found.keys)),
    call("/admin/v1/budgets").then((found) => (budgets.value = found.budgets)),
  ]).catch(fail);
  const act = (work) => work.then((found) => {
    trouble.value = "";
    made.value = found?.key ? found : null;
    return load();
  }, fail);
  load();
  return [
    head(t("keys"), t("keysLead")),
    () => trouble.value && problem(trouble.value),
    () => made.value && h("div", { class: "card notice stack", role: "status" }, h("p", { class: "strong" }, t("keyMade")), h("div", { class: "row" }, h("code", { class: "snippet grow" }, made.value.key), copyButton(() => made.peek().key))),
    locked ? null : making(act),
    () => rows.value && (rows.value.length ? h("div", { class: "card wide-table" }, table(rows.value, budgets.value, act, locked)) : empty("keys", t("noKeysTitle"), t("noKeys"))),
    spend(),
  ];
}

function making(act) {
  const field = (name, more = {}) => h("label", null, t(name), h("input", { name, ...more }));
  const form = h("form", {
    class: "stack",
    onsubmit: (event) => {
      event.preventDefault();
      const said = Object.fromEntries(new FormData(form));
      act(call("/admin/v1/keys", { body: { name: said.name, team: said.team, admin: said.admin === "on", grant: { ...grantOf(said), ...(said.read_only === "on" ? { read_only: true } : {}) } } }));
      form.reset();
    },
  },
  h("div", { class: "columns" }, field("name", { required: true }), field("team"), field("models", { placeholder: "gpt-*, fast" }),
    FIELDS.map((name) => field(name, { type: "number", min: 1 })), field("budget", { placeholder: "20 USD/month" })),
  h("div", { class: "row" }, h("label", { class: "check" }, h("input", { type: "checkbox", name: "admin" }), t("adminKey")), h("label", { class: "check" }, h("input", { type: "checkbox", name: "read_only" }), t("readOnlyKey")),
    h("span", { class: "space" }), h("button", { class: "main" }, t("makeKey"))));
  return h("details", { class: "card" }, h("summary", null, t("makeKeyTitle")), form);
}

function grantOf(said) {
  const grant = {};
  if (said.models) grant.models = said.models.split(",").map((word) => word.trim()).filter(Boolean);
  for (const name of FIELDS) if (said[name]) grant[name] = Number(said[name]);
  if (said.budget) grant.budget = said.budget;
  return grant;
}

function table(rows, budgets, act, locked) {
  const sorted = [...rows].sort((a, b) => Number(Boolean(a.revoked)) - Number(Boolean(b.revoked)) || b.created - a.created);
  return h("table", { class: "plain fold" },
    h("thead", null, h("tr", null, ["name", "team", "limits", "budgetUsed"].map((name) => h("th", null, t(name))), h("th"))),
    h("tbody", null, sorted.map((row) => keyRow(row, budgets, act, locked))));
}

function keyRow(row, budgets, act, locked) {
  const ended = row.revoked || (row.expires && row.expires * 1000 < Date.now());
  const name = row.name || row.id;
  const limits = [row.grant.models && row.grant.models.join(", "), ...FIELDS.filter((one) => row.grant[one]).map((one) => `${t(one)} ${count(row.grant[one])}`)].filter(Boolean);
  return h("tr", { "aria-label": name },
    h("td", null, h("div", { class: "row tight" }, h("span", { class: ended ? "quiet" : "strong" }, name), row.admin && h("span", { class: "pill invented" }, row.grant.read_only ? t("readOnly") : t("admin")), ended && h("span", { class: "pill FAIL" }, row.revoked ? t("revoked") : t("expired")), row.in_file && h("span", { class: "pill" }, t("inFile"))), h("code", { class: "quiet" }, row.id)),
    h("td", null, row.team || h("span", { class: "quiet" }, "–")),
    h("td", { class: "small" }, limits.join(" · ") || h("span", { class: "quiet" }, t("noLimits"))),
    h("td", null, budget(budgets.find((one) => one.account === `key:${row.id}`), row)),
    h("td", { class: "number" }, ended || locked || row.in_file ? null : h("div", { class: "row tight" },
      h("button", { class: "plain small", onclick: () => edit(row, act) }, t("limit")),
      h("button", { class: "plain small", onclick: () => sure(t("rotateTitle", { name }), h("p", null, t("rotateHelp")), () => act(call(`/admin/v1/keys/${row.id}/rotate`, { body: { grace_s: 3600 } })), t("rotate")) }, t("rotate")),
      h("button", { class: "plain small danger", onclick: () => sure(t("revokeTitle", { name }), h("p", null, t("revokeHelp")), () => act(call(`/admin/v1/keys/${row.id}`, { method: "DELETE" })), t("revoke")) }, t("revoke")))));
}

function budget(found, row) {
  if (!found) return h("span", { class: "quiet small" }, row.grant.budget || "–");
  const fill = h("i", { class: found.percent >= 100 ? "full" : found.percent >= 80 ? "near" : "" });
  fill.style.width = `${Math.min(100, found.percent)}%`;
  return h("div", { class: "small" }, h("span", { class: found.percent >= 100 ? "bad" : "" }, `${found.spent} / ${found.budget} (${found.percent} %)`),
    h("div", { class: "bar", role: "meter", "aria-label": t("budgetUsed"), "aria-valuenow": found.percent, "aria-valuemin": 0, "aria-valuemax": 100 }, fill));
}

function edit(row, act) {
  const fields = Object.fromEntries([...FIELDS, "budget", "models"].map((name) => [name, h("input", { name, value: Array.isArray(row.grant[name]) ? row.grant[name].join(", ") : row.grant[name] ?? "" })]));
  const box = dialog(row.name || row.id, h("form", {
    class: "stack", method: "dialog",
    onsubmit: () => {
      const grant = {};
      for (const name of FIELDS) grant[name] = fields[name].value ? Number(fields[name].value) : null;
      grant.budget = fields.budget.value || null;
      grant.models = fields.models.value ? fields.models.value.split(",").map((word) => word.trim()) : null;
      act(call(`/admin/v1/keys/${row.id}`, { method: "PATCH", body: { grant } }));
    },
  }, Object.entries(fields).map(([name, field]) => h("label", null, t(name), field)),
  h("div", { class: "row" }, h("button", { class: "main" }, t("save")), h("button", { type: "button", onclick: () => box.close() }, t("cancel")))));
}

// ---------------------------------------------------------------- spend

function spend() {
  const query = place.peek().query;
  const by = signal(GROUPS.includes(query.get("by")) ? query.get("by") : "model");
  const since = signal(query.get("since") || "7d");
  const rows = signal(null);
  const days = signal(null);
  const trouble = signal("");
  effect(() => {
    const [group, span] = [by.value, since.value];
    setQuery("by", group === "model" ? "" : group);
    setQuery("since", span === "7d" ? "" : span);
    Promise.all([call(`/admin/v1/usage?by=${group}&since=${span}`), call(`/admin/v1/usage?by=day&since=${span}`)]).then(([found, daily]) => {
      rows.value = found.usage;
      days.value = [...daily.usage].sort((a, b) => String(a.by.day).localeCompare(String(b.by.day)));
      trouble.value = "";
    }, (error) => (trouble.value = error.message));
  });
  const choose = (name, target, words) => h("label", null, t(name), h("select", { onchange: (event) => (target.value = event.target.value) },
    words.map((word) => h("option", { value: word, selected: word === target.peek() }, t(`by_${word}`)))));
  return h("section", { class: "card stack", "aria-label": t("spend") },
    h("div", { class: "row end" }, h("h3", { class: "grow" }, t("spend")), choose("by", by, GROUPS), choose("since", since, ["1d", "7d", "30d", "90d"]),
      h("button", { onclick: () => save(`usage-by-${by.peek()}.csv`, "text/csv", asCsv(rows.peek() || [], by.peek())) }, t("exportCsv")),
      h("button", { onclick: () => save(`usage-by-${by.peek()}.json`, "application/json", JSON.stringify(rows.peek() || [], null, 2)) }, t("exportJson"))),
    () => trouble.value && h("p", { class: "bad" }, trouble.value),
    () => rows.value && days.value && (rows.value.length ? [sums(days.value), dayBars(t("spend"), everyDay(days.value, since.peek())), bars(rows.value)] : empty("keys", t("noSpendTitle"), t("noSpend"))));
}

const tokensOf = (row) => row.input + row.cache_read + row.cache_write + row.output + row.reasoning;
const sizeOf = (row) => row.cost || tokensOf(row) / 1e6;
const nameOf = (row) => Object.entries(row.by).filter(([name, value]) => name !== "currency" && value !== "").map(([, value]) => value).join(" · ") || t("unknown");
const wordsOf = (row) => `${money(row.cost, row.by.currency || "USD")}${row.unpriced ? " + ?" : ""} · ${t("requestCount", { n: short(row.requests) })} · ${short(tokensOf(row))} tok`;

// Days without a request have a bar too, an empty one.
function everyDay(rows, span) {
  const size = Number.parseInt(span, 10);
  return Array.from({ length: size + 1 }, (_, i) => {
    const name = new Date(Date.now() - (size - i) * 86400000).toISOString().slice(0, 10);
    const found = rows.filter((row) => row.by.day === name);
    return { name, value: found.reduce((sum, row) => sum + sizeOf(row), 0), words: found.map(wordsOf).join(", ") || "0" };
  });
}

function sums(days) {
  const all = (pick) => days.reduce((sum, row) => sum + pick(row), 0);
  const facts = [[t("spend"), money(all((row) => row.cost))], [t("requestsAll"), count(all((row) => row.requests))], [t("failed"), count(all((row) => row.failed))], [t("tokensAll"), short(all(tokensOf))], [t("unpriced"), count(all((row) => row.unpriced))]];
  return h("dl", { class: "facts" }, facts.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
}

function bars(rows) {
  const most = Math.max(1e-9, ...rows.map(sizeOf));
  return h("div", null, rows.slice(0, 60).map((row) => {
    const fill = h("i");
    fill.style.width = `${(sizeOf(row) / most) * 100}%`;
    return h("div", { class: "spent" }, h("span", null, nameOf(row)), h("div", { class: "bar" }, fill), h("span", { class: "number small" }, wordsOf(row)));
  }));
}

function asCsv(rows, by) {
  const names = ["requests", "failed", "input", "cache_read", "cache_write", "output", "reasoning", "cost", "unpriced"];
  // A spreadsheet takes a cell that begins with = + - @ for a formula.
  const quote = (value) => `"${String(value).replace(/^[=+\-@\t\r]/, "'$&").replaceAll('"', '""')}"`;
  return [[by, ...names].join(","), ...rows.map((row) => [quote(nameOf(row)), ...names.map((name) => row[name])].join(","))].join("\n");
}
