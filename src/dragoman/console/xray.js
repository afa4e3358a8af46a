// X-ray: one request at the client, in the neutral form and at the provider, side by side, with what changed on the way.

import { effect, h, link, place, signal } from "./ui.js";
import { call, readFrame } from "./api.js";
import { aim, jsonView, showSame } from "./json_view.js";
import { t } from "./texts.js";
import { clock, time } from "./traffic.js";

export function xray() {
  const found = signal(null);
  const problem = signal("");
  effect(() => {
    const id = place.value.detail;
    found.value = null;
    problem.value = "";
    const path = id ? `/admin/v1/xray/${encodeURIComponent(id)}` : "/admin/v1/xray";
    call(path).then((value) => id === place.peek().detail && (found.value = value), (error) => (problem.value = error.status === 404 ? t("noXray") : error.message));
  });
  return [
    h("h2", null, () => `${t("xray")} ${place.value.detail}`),
    () => problem.value && h("p", { class: "card", role: "alert" }, problem.value),
    () => found.value && (found.value.requests ? list(found.value.requests) : one(found.value)),
  ];
}

function list(rows) {
  if (!rows.length) return h("p", { class: "card empty" }, t("noXray"));
  return [
    h("p", { class: "quiet" }, t("chooseRequest")),
    h("ul", { class: "card" }, rows.map((row) =>
      h("li", null, h("a", { href: link("xray", row.id), class: "mono" }, row.id), ` ${row.door} → ${row.upstream}/${row.model}, ${row.status || t("left")}, ${time(row.s * 1000)}`))),
  ];
}

function one(row) {
  const side = signal("request");
  const hover = signal(undefined);
  const attempt = row.attempts[row.attempts.length - 1] || {};
  const views = signal([]);
  const frames = { client: framesOf(row.reply), provider: framesOf(attempt.reply) };
  const at = signal(0);

  const columns = () => {
    const fresh = side.value === "request"
      ? [
          column(`${t("client")}: ${row.door}`, row.asked, "request", "where"),
          column(t("canonical"), row.canonical, "request", "canonical"),
          column(`${t("provider")}: ${row.upstream || "–"}`, attempt.sent, "request", "target"),
        ]
      : [
          column(`${t("provider")}: ${row.upstream || "–"}`, pick(frames.provider, attempt.reply), "reply", "where"),
          column(`${t("client")}: ${row.door}`, pick(frames.client, row.reply), "reply", "target"),
        ];
    views.value = fresh.map((one) => one.view);
    linkScrolling(views.peek());
    return h("div", { class: "columns tall" }, fresh.map((one) => one.card));
  };
  const pick = (list, whole) => (list.length ? list[Math.min(at.value, list.length - 1)] : whole);

  function column(title, value, body, field) {
    const marks = new Map(row.notes.filter((note) => note.body === body && note[field] !== undefined && note[field] !== null && note[field] !== "").map((note) => [note[field], note.kind]));
    const view = jsonView(value, { marks, hover, label: title });
    return { view, card: h("section", { class: "card" }, h("h3", null, title), value === null || value === undefined ? h("p", { class: "quiet" }, t("notKept")) : view) };
  }

  effect(() => {
    for (const view of views.value) showSame(view, hover.value);
  });
  const most = Math.max(frames.client.length, frames.provider.length);
  return [
    h("div", { class: "row" },
      h("span", null, `${row.door} → ${row.upstream || "?"}/${row.model}`),
      h("span", { class: row.status >= 400 || !row.status ? "bad" : "fine" }, row.status || t("left")),
      h("span", { class: "quiet" }, time(row.seconds * 1000)), h("span", { class: "quiet" }, row.time ? clock(row.time * 1000) : ""),
      h("span", { class: "grow" }),
      actions(row)),
    notes(row, side, views),
    attempts(row),
    h("div", { class: "row", role: "group" }, ["request", "answer"].map((name) =>
      h("button", { "aria-pressed": () => String(side.value === name), class: () => (side.value === name ? "main" : ""), onclick: () => (side.value = name) }, t(name))),
    () => side.value === "answer" && most > 1 && h("label", { class: "grow" }, () => t("frames", { n: at.value + 1, all: most }),
      h("input", { type: "range", min: 0, max: most - 1, value: at.peek(), oninput: (event) => (at.value = Number(event.target.value)) }))),
    columns,
  ];
}

// The frames of a streamed answer, as JSON where they are JSON.
export function framesOf(reply) {
  if (typeof reply !== "string") return [];
  const sse = /^(event|data|:)/m.test(reply);
  const pieces = sse ? reply.split(/\r?\n\r?\n/) : reply.split(/\r?\n/);
  return pieces.filter((piece) => piece.trim()).map((piece) => {
    const text = sse ? readFrame(piece).data || piece : piece;
    try {
      return JSON.parse(text);
    } catch {
      return text;
    }
  });
}

function linkScrolling(views) {
  let leader = null;
  for (const view of views) {
    view.addEventListener("pointerenter", () => (leader = view));
    view.addEventListener("focus", () => (leader = view));
    view.addEventListener("scroll", () => {
      if (leader !== view) return;
      const part = view.scrollTop / Math.max(1, view.scrollHeight - view.clientHeight);
      for (const other of views) if (other !== view) other.scrollTop = part * (other.scrollHeight - other.clientHeight);
    });
  }
}

function notes(row, side, views) {
  if (!row.notes.length) return h("p", { class: "card quiet" }, t("noNotes"));
  return h("details", { class: "card", open: true }, h("summary", null, `${t("notes")} (${row.notes.length})`),
    worstFirst(row.notes).map((note) =>
      h("button", {
        class: "note",
        onclick: () => {
          side.value = note.body === "request" ? "request" : "answer";
          const places = note.body === "request" ? [note.where, note.canonical, note.target] : [note.where, note.target];
          requestAnimationFrame(() => views.peek().forEach((view, i) => aim(view, places[i] || "")));
        },
      }, h("span", { class: `pill ${note.rank === "harmless" ? "harmless" : note.kind}`, title: t(note.rank) }, t(note.kind)), h("code", null, note.where || "/"), h("span", { class: "why" }, note.why))));
}

const worstFirst = (notes) => [...notes].sort((a, b) => RANKS.indexOf(a.rank) - RANKS.indexOf(b.rank));
const RANKS = ["lost", "changed", "harmless"];

function attempts(row) {
  if (row.attempts.length < 2 && !row.attempts.some((one) => one.failure)) return null;
  return h("details", { class: "card", open: true }, h("summary", null, t("attempts")), h("ol", null, row.attempts.map((one) =>
    h("li", null, `${one.upstream}/${one.model}: `, h("span", { class: one.failure ? "bad" : "fine" }, `${one.status || ""} ${one.failure || "ok"}`),
      one.waited_s ? `, ${t("waiting")} ${time(one.waited_s * 1000)}` : ""))));
}

// ---------------------------------------------------------------- what can be done with a request

function actions(row) {
  const words = signal("");
  const say = (text) => {
    words.value = text;
    setTimeout(() => (words.value = ""), 4000);
  };
  return h("div", { class: "row" },
    h("span", { class: "small fine", role: "status" }, () => words.value),
    h("button", { onclick: () => navigator.clipboard.writeText(asCurl(row)).then(() => say(t("copied"))) }, t("copyCurl")),
    h("button", { onclick: () => save(`${row.id}.html`, "text/html", asHtml(row)) }, t("download")),
    h("button", { onclick: () => save(`${row.id}.json`, "application/json", JSON.stringify(asCase(row), null, 2)) }, t("saveCase")),
    replay(row, say));
}

function replay(row, say) {
  const model = h("input", { list: "models", value: row.asked_model || row.model, "aria-label": t("replayTo") });
  const names = h("datalist", { id: "models" });
  call("/admin/v1/models").then((found) => names.append(...found.models.map((name) => h("option", { value: name }))), () => null);
  return h("form", {
    class: "row",
    onsubmit: async (event) => {
      event.preventDefault();
      try {
        const found = await call("/admin/v1/replay", { body: { id: row.id, model: model.value } });
        say(t("replayed", { status: found.status }));
        location.hash = link("xray", found.id);
      } catch (error) {
        say(error.message);
      }
    },
  }, model, names, h("button", null, t("replay")));
}

export function asCurl(row) {
  const body = JSON.stringify(row.asked).replaceAll("'", "'\\''");
  return `curl ${location.origin}${row.path} \\\n  -H 'content-type: application/json' \\\n  -H "authorization: Bearer $DRAGOMAN_KEY" \\\n  -d '${body}'`;
}

export function asCase(row) {
  return { from: row.door, path: row.path, to: row.upstream, request: row.asked, sent: row.attempts.at(-1)?.sent ?? null, reply: row.attempts.at(-1)?.reply ?? null, answer: row.reply, notes: row.notes };
}

// One file to attach to a bug report: no script, secrets were masked by the gateway.
function asHtml(row) {
  const escape = (text) => String(text).replace(/[&<>"]/g, (one) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[one]);
  const part = (title, value) => `<section><h2>${escape(title)}</h2><pre>${escape(typeof value === "string" ? value : JSON.stringify(value, null, 2))}</pre></section>`;
  const rows = row.notes.map((note) => `<tr class="${escape(note.kind)}"><td>${escape(t(note.kind))}<td>${escape(note.where || "/")}<td>${escape(note.why)}`).join("");
  const style = "body{font:15px/1.5 system-ui;margin:2rem}main{display:grid;grid-template-columns:repeat(auto-fit,minmax(320px,1fr));gap:1rem}pre{white-space:pre-wrap;overflow-wrap:anywhere;border:1px solid #ccc;padding:.6rem;border-radius:.4rem;font-size:13px}td{padding:.2rem .6rem}.dropped{background:#fde8e6}.altered{background:#fdf0d3}.invented{background:#e3eefc}.repaired{background:#e0f3e6}";
  const attempt = row.attempts.at(-1) || {};
  return `<!doctype html><meta charset="utf-8"><title>X-ray ${escape(row.id)}</title><style>${style}</style><h1>X-ray ${escape(row.id)}</h1><p>${escape(row.door)} → ${escape(row.upstream)}/${escape(row.model)}, ${escape(row.status)}, ${escape(row.seconds)} s</p><table>${rows}</table><main>${part("client request " + row.path, row.asked)}${part("neutral form", row.canonical)}${part("provider request", attempt.sent)}${part("provider answer", attempt.reply)}${part("client answer", row.reply)}</main>`;
}

function save(name, kind, text) {
  const a = h("a", { href: URL.createObjectURL(new Blob([text], { type: kind })), download: name });
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 10000);
}
