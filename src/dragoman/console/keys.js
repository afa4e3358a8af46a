// Keys and spend: make, limit, rotate and revoke keys; what each team, key and model has used.

import { h, place, setQuery, signal } from "./ui.js";
import { call } from "./api.js";
import { t } from "./texts.js";

const FIELDS = ["rpm", "tpm", "at_once"];
const GROUPS = ["day", "team", "key", "model", "upstream"];

export function keys() {
  const rows = signal(null);
  const budgets = signal([]);
  const made = signal(null);
  const problem = signal("");
  const fail = (error) => (problem.value = error.message);
  const load = () => Promise.all([
    call("/admin/v1/keys").then((found) => (rows.value = found.keys)),
    call("/admin/v1/budgets").then((found) => (budgets.value = found.budgets)),
  ]).catch(fail);
  const act = (work) => work.then((found) => {
    problem.value = "";
    made.value = found?.key ? found : null;
    return load();
  }, fail);
  load();
  return [
    h("h2", null, t("keys")),
    () => problem.value && h("p", { class: "card bad", role: "alert" }, problem.value),
    () => made.value && h("p", { class: "card", role: "status" }, t("keyMade"), " ", h("code", null, made.value.key)),
    making(act),
    () => rows.value && h("div", { class: "card" }, rows.value.length ? rows.value.map((row) => keyRow(row, budgets.value, act)) : t("noKeys")),
    spend(),
  ];
}

function making(act) {
  const field = (name, more = {}) => h("input", { name, placeholder: t(name), "aria-label": t(name), ...more });
  const form = h("form", {
    class: "row card",
    onsubmit: (event) => {
      event.preventDefault();
      const said = Object.fromEntries(new FormData(form));
      act(call("/admin/v1/keys", { body: { name: said.name, team: said.team, admin: said.admin === "on", grant: grantOf(said) } }));
      form.reset();
    },
  }, field("name", { required: true }), field("team"), field("models", { title: "gpt-*, fast" }),
  FIELDS.map((name) => field(name, { type: "number", min: 1 })), field("budget", { title: "20 USD/month" }),
  h("label", { class: "row" }, h("input", { type: "checkbox", name: "admin" }), t("admin")), h("button", { class: "main" }, t("makeKey")));
  return form;
}

function grantOf(said) {
  const grant = {};
  if (said.models) grant.models = said.models.split(",").map((word) => word.trim()).filter(Boolean);
  for (const name of FIELDS) if (said[name]) grant[name] = Number(said[name]);
  if (said.budget) grant.budget = said.budget;
  return grant;
}

function keyRow(row, budgets, act) {
  const ended = row.revoked || (row.expires && row.expires * 1000 < Date.now());
  const budget = budgets.find((one) => one.account === `key:${row.id}` || one.account === row.id);
  const limits = [...FIELDS.filter((name) => row.grant[name]).map((name) => `${t(name)} ${row.grant[name]}`), row.grant.models && row.grant.models.join(", "), row.grant.budget].filter(Boolean);
  return h("div", { class: "row key", "aria-label": row.name || row.id },
    h("strong", null, row.name || row.id), h("code", { class: "quiet" }, row.id),
    row.team && h("span", { class: "pill harmless" }, row.team), row.admin && h("span", { class: "pill invented" }, t("admin")),
    ended && h("span", { class: "pill dropped" }, row.revoked ? t("revoked") : t("expired")),
    h("span", { class: "small quiet grow" }, limits.join(" · ") || t("noLimits")),
    budget && h("span", { class: budget.percent >= 100 ? "bad small" : "small" }, `${budget.spent} / ${budget.budget} (${budget.percent} %)`),
    !ended && [
      h("button", { class: "plain small", onclick: () => edit(row, act) }, t("limit")),
      h("button", { class: "plain small", onclick: () => act(call(`/admin/v1/keys/${row.id}/rotate`, { body: { grace_s: 3600 } })) }, t("rotate")),
      h("button", { class: "plain small bad", onclick: () => act(call(`/admin/v1/keys/${row.id}`, { method: "DELETE" })) }, t("revoke"))]);
}

function edit(row, act) {
  const fields = Object.fromEntries([...FIELDS, "budget", "models"].map((name) => [name, h("input", { name, value: Array.isArray(row.grant[name]) ? row.grant[name].join(", ") : row.grant[name] ?? "" })]));
  const box = h("dialog", { onclose: () => box.remove() }, h("form", {
    method: "dialog",
    onsubmit: () => {
      const grant = {};
      for (const name of FIELDS) grant[name] = fields[name].value ? Number(fields[name].value) : null;
      grant.budget = fields.budget.value || null;
      grant.models = fields.models.value ? fields.models.value.split(",").map((word) => word.trim()) : null;
      act(call(`/admin/v1/keys/${row.id}`, { method: "PATCH", body: { grant } }));
    },
  }, h("h2", null, row.name || row.id), Object.entries(fields).map(([name, field]) => h("label", null, t(name), field)), h("p", null, h("button", { class: "main" }, t("save")))));
  document.body.append(box);
  box.showModal();
}

// ---------------------------------------------------------------- spend

function spend() {
  const by = signal(place.peek().query.get("by") || "model");
  const since = signal(place.peek().query.get("since") || "7d");
  const rows = signal(null);
  const problem = signal("");
  const load = () => call(`/admin/v1/usage?by=${by.peek()}&since=${since.peek()}`).then((found) => (rows.value = found.usage), (error) => (problem.value = error.message));
  load();
  const choose = (name, target, words) => h("label", null, t(name), h("select", {
    onchange: (event) => {
      target.value = event.target.value;
      setQuery(name, event.target.value);
      load();
    },
  }, words.map((word) => h("option", { value: word, selected: word === target.peek() }, t(word)))));
  return h("section", { class: "card", "aria-label": t("spend") },
    h("div", { class: "row end" }, h("h2", { class: "grow" }, t("spend")), choose("by", by, GROUPS), choose("since", since, ["1d", "7d", "30d", "90d"]),
      h("button", { onclick: () => save(rows.peek() || [], by.peek()) }, t("exportCsv"))),
    () => problem.value && h("p", { class: "quiet" }, problem.value),
    () => rows.value && (rows.value.length ? bars(rows.value) : h("p", { class: "quiet" }, t("noSpend"))));
}

function bars(rows) {
  const size = (row) => row.cost || (row.input + row.output) / 1e6;
  const most = Math.max(1e-9, ...rows.map(size));
  return rows.slice(0, 60).map((row) => {
    const fill = h("i");
    fill.style.width = `${(size(row) / most) * 100}%`;
    const name = Object.values(row.by).join(" · ") || "–";
    return h("div", { class: "spent" }, h("span", null, name), h("div", { class: "bar" }, fill),
      h("span", { class: "number small" }, `${(row.cost / 1e6).toFixed(4)}${row.unpriced ? " + ?" : ""} · ${row.requests.toLocaleString()} · ${(row.input + row.output).toLocaleString()} tok`));
  });
}

function save(rows, by) {
  const names = ["requests", "failed", "input", "cache_read", "cache_write", "output", "reasoning", "cost", "unpriced"];
  const quote = (value) => `"${String(value).replaceAll('"', '""')}"`;
  const text = [[by, ...names].join(","), ...rows.map((row) => [quote(Object.values(row.by).join(" ")), ...names.map((name) => row[name])].join(","))].join("\n");
  const a = h("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: `usage-by-${by}.csv` });
  a.click();
}
