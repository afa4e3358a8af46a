// Traffic: every request as a row, newest first, live. Filters stand in the address.

import { computed, effect, h, link, onRemove, place, setQuery, signal } from "./ui.js";
import { call } from "./api.js";
import { chart, perMinute, quantile, quantilePerMinute } from "./charts.js";
import { t } from "./texts.js";

const ROW = 34;
const MOST = 100000;
const MINUTES = 30;
const PAGE = 1000;

export function traffic() {
  const rows = signal([]); // newest first
  const older = signal(null); // the cursor for older rows
  const live = signal(true);
  const problem = signal("");
  const chosen = signal(-1);
  const words = computed(() => place.value.query.get("q") || "");
  const shown = computed(() => filter(rows.value, words.value));

  let busy = false;
  async function load(before) {
    if (busy) return;
    busy = true;
    try {
      const found = await call(`/admin/v1/traffic?limit=${PAGE}${before ? `&before=${before}` : ""}`);
      rows.value = before ? [...rows.peek(), ...found.rows].slice(0, MOST) : found.rows;
      older.value = found.next;
    } catch (error) {
      problem.value = error.message;
    }
    busy = false;
  }

  const source = { now: null };
  function follow() {
    source.now?.close();
    source.now = new EventSource(`/admin/v1/traffic/live?after=${rows.peek()[0]?.seq ?? 0}`);
    source.now.onmessage = (event) => {
      const fresh = JSON.parse(event.data).rows;
      if (fresh.length) rows.value = [...fresh.reverse(), ...rows.peek()].slice(0, MOST);
    };
  }
  load().then(follow);
  onRemove(() => source.now?.close());
  effect(() => {
    if (!live.value) source.now?.close();
    else if (source.now) follow();
  });

  const list = table(shown, chosen, () => older.peek() && load(older.peek()));
  const field = h("input", {
    type: "search", class: "grow", placeholder: t("search"), "aria-label": t("search"), value: words.peek(),
    oninput: (event) => setQuery("q", event.target.value),
  });
  keyboard(shown, chosen, list);
  return [
    h("h2", { hidden: true }, t("traffic")),
    h("div", { class: "charts", "aria-label": t("charts") }, () => charts(rows.value)),
    h("div", { class: "row" }, field,
      h("span", { class: "quiet small", "aria-live": "polite" }, () => `${shown.value.length.toLocaleString()}`),
      h("button", { "aria-pressed": () => String(live.value), onclick: () => (live.value = !live.value) }, () => (live.value ? `● ${t("live")}` : `❚❚ ${t("paused")}`))),
    () => problem.value && h("p", { class: "bad", role: "alert" }, problem.value),
    () => (rows.value.length ? list : empty()),
  ];
}

function empty() {
  const lines = `curl ${location.origin}/v1/chat/completions -H 'content-type: application/json' \\\n  -d '{"model": "demo", "messages": [{"role": "user", "content": "Hello"}]}'`;
  return h("div", { class: "card empty" }, h("p", null, t("noTraffic")), h("pre", { class: "json" }, lines));
}

// "claude status:500 key:ada": every word must be somewhere in the row; `name:word` looks in one column.
export function filter(rows, words) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  if (!wanted.length) return rows;
  return rows.filter((row) => wanted.every((word) => {
    const [, name, value] = /^(\w+):(.*)$/.exec(word) || [];
    if (name && name in row) return String(row[name] ?? "").toLowerCase().includes(value);
    return haystack(row).includes(word);
  }));
}

function haystack(row) {
  row.all ??= [row.id, row.key, row.program, row.door, row.upstream, row.model, row.asked, row.status, row.failure].join(" ").toLowerCase();
  return row.all;
}

function charts(rows) {
  const now = Date.now();
  const requests = perMinute(rows, MINUTES, now, () => 1);
  const errors = perMinute(rows, MINUTES, now, (row) => (row.status >= 400 || row.failure ? 1 : 0));
  const firsts = (q) => quantilePerMinute(rows, MINUTES, now, (row) => row.first_ms ?? row.ms, q);
  const recent = rows.filter((row) => now - row.time < MINUTES * 60000).map((row) => row.first_ms ?? row.ms);
  const tokens = perMinute(rows, MINUTES, now, (row) => (row.input || 0) + (row.output || 0));
  const last = (values) => values[values.length - 1].toLocaleString();
  return [
    chart(t("requests"), last(requests), [{ values: requests, name: "" }]),
    chart(t("errors"), last(errors), [{ values: errors, name: "bad" }]),
    chart(t("latency"), `${time(quantile(recent, 0.5))} / ${time(quantile(recent, 0.95))}`, [
      { values: firsts(0.95), name: "second" }, { values: firsts(0.5), name: "" }]),
    chart(t("tokenRate"), last(tokens), [{ values: tokens, name: "" }]),
  ];
}

// ---------------------------------------------------------------- the list: only the rows in sight are in the page

function table(shown, chosen, loadMore) {
  const body = h("div");
  body.style.position = "relative";
  const box = h("div", { class: "card table", role: "table", "aria-label": t("traffic"), tabindex: "0", onscroll: () => draw() },
    h("div", { class: "line head", role: "row" },
      ["time", "key", "program", "way", "status", "first", "total", "tokens", "cost", "losses"].map((name) =>
        h("span", { role: "columnheader", class: `${WIDE.has(name) ? "wide" : ""} ${NUMBER.has(name) ? "number" : ""}` }, t(name)))),
    body);
  function draw() {
    const rows = shown.peek();
    body.style.height = `${rows.length * ROW}px`;
    const from = Math.max(0, Math.floor(box.scrollTop / ROW) - 10);
    const to = Math.min(rows.length, from + Math.ceil((box.clientHeight || 600) / ROW) + 20);
    body.replaceChildren(...rows.slice(from, to).map((row, i) => line(row, from + i, chosen.peek())));
    if (to >= rows.length - 20 && rows.length) loadMore();
  }
  effect(() => {
    shown.value;
    chosen.value;
    requestAnimationFrame(draw);
  });
  new ResizeObserver(draw).observe(box);
  box.reveal = (i) => {
    const top = i * ROW;
    if (top < box.scrollTop || top > box.scrollTop + box.clientHeight - 3 * ROW) box.scrollTop = top - box.clientHeight / 2;
  };
  return box;
}

const WIDE = new Set(["key", "program", "first", "tokens", "cost", "losses"]);
const NUMBER = new Set(["status", "first", "total", "tokens", "cost"]);

function line(row, i, chosen) {
  const bad = row.status >= 400 || row.failure;
  const node = h("a", { class: `line body${i === chosen ? " chosen" : ""}`, role: "row", href: link("xray", row.id), title: row.failure || row.id },
    h("span", { role: "cell", class: "mono" }, clock(row.time)),
    h("span", { role: "cell", class: "wide" }, row.key || "–"),
    h("span", { role: "cell", class: "wide quiet" }, row.program || "–"),
    h("span", { role: "cell" }, `${row.door} → ${row.upstream ? row.upstream + "/" : ""}${row.model || row.asked || "?"}`),
    h("span", { role: "cell", class: `number ${bad ? "bad" : "fine"}` }, row.status || t("left")),
    h("span", { role: "cell", class: "number wide" }, time(row.first_ms)),
    h("span", { role: "cell", class: "number" }, time(row.ms)),
    h("span", { role: "cell", class: "number wide" }, row.input === null && row.output === null ? "–" : `${count(row.input)} / ${count(row.output)}`),
    h("span", { role: "cell", class: "number wide" }, row.cost ?? "–"),
    h("span", { role: "cell", class: "wide" }, losses(row)));
  node.style.top = `${i * ROW}px`;
  return node;
}

function losses(row) {
  return ["lost", "changed", "harmless"].map((rank) => [rank, row.notes?.[rank]]).filter(([, n]) => n).map(([kind, n]) => [h("span", { class: `pill ${kind}`, title: t(kind) }, n), " "]);
}

export function clock(ms) {
  return new Date(ms).toLocaleTimeString([], { hour12: false });
}

export function time(ms) {
  if (ms === null || ms === undefined) return "–";
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(ms < 10000 ? 2 : 1)} s`;
}

const count = (n) => (n === null || n === undefined ? "–" : n.toLocaleString());

function keyboard(shown, chosen, list) {
  const act = (event) => {
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) || event.ctrlKey || event.metaKey) return;
    const step = { j: 1, k: -1 }[event.key];
    if (step) {
      chosen.value = Math.max(0, Math.min(shown.peek().length - 1, chosen.peek() + step));
      list.reveal(chosen.peek());
    }
    if (event.key === "Enter" && shown.peek()[chosen.peek()] && event.target.tagName !== "A" && event.target.tagName !== "BUTTON")
      location.hash = link("xray", shown.peek()[chosen.peek()].id);
  };
  addEventListener("keydown", act);
  onRemove(() => removeEventListener("keydown", act));
}
