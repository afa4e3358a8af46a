// Traffic: every request as a row, newest first, live. Searches stand in the address; the gateway does them.

import { computed, effect, h, link, onRemove, place, setQuery, signal } from "./ui.js";
import { call } from "./api.js";
import { bucketOf, chart, quantile } from "./charts.js";
import { count, empty, fullTime, head, price, problem, ranks, short, statusPill, time, when } from "./parts.js";
import { t } from "./texts.js";

const ROW = 36;
const MINUTES = 30;
const FIRST = 200; // rows of the first page; the others are longer
const PAGE = 1000;

export function traffic() {
  const rows = signal([]); // newest first
  const total = signal(null); // how many rows the search finds
  const minutes = signal(new Map());
  const live = signal(true);
  const trouble = signal("");
  const chosen = signal(-1);
  const loaded = signal(false);
  const words = computed(() => place.value.query.get("q") || "");
  let older = null; // the cursor of the next page
  let last = 0; // the newest row of all, whether it is found or not
  let busy = false;
  let asked = 0; // counts the views: an answer to an older one is thrown away
  let source = null;

  const path = (before, limit) => `/admin/v1/traffic?limit=${limit}&q=${encodeURIComponent(words.peek())}${before ? `&before=${before}` : ""}`;

  async function load() {
    const view = ++asked;
    try {
      const found = await call(path(null, FIRST));
      if (view !== asked) return;
      rows.value = found.rows;
      older = found.next;
      last = found.last ?? 0;
      total.value = found.total ?? 0;
      minutes.value = new Map((found.minutes || []).map((one) => [one.minute, one]));
      trouble.value = "";
      if (live.peek()) follow();
    } catch (error) {
      if (view === asked) trouble.value = error.message;
    }
    loaded.value = true;
  }

  async function loadMore() {
    if (busy || !older) return;
    busy = true;
    const view = asked;
    try {
      const found = await call(path(older, PAGE));
      if (view === asked) {
        older = found.next;
        rows.value = rows.peek().concat(found.rows);
      }
    } catch (error) {
      trouble.value = error.message;
    }
    busy = false;
  }

  function follow() {
    source?.close();
    source = new EventSource(`/admin/v1/traffic/live?after=${last}`);
    source.onmessage = (event) => take(JSON.parse(event.data));
  }

  function take({ after, rows: fresh, counted = true }) {
    if (!counted) fresh.forEach((row, i) => (row.seq = after + 1 + i));
    if (after > last) return void load(); // this browser was too slow, and rows were left out
    const news = fresh.filter((row) => row.seq > last).reverse();
    if (!news.length) return;
    last = news[0].seq;
    if (words.peek()) return void loadSoon(); // the gateway searches
    total.value += news.length;
    minutes.value = addRows(minutes.peek(), news);
    for (const row of news) row.fresh = true;
    rows.value = news.concat(rows.peek());
    if (chosen.peek() >= 0) chosen.value += news.length;
  }

  let soon = 0;
  const loadSoon = (wait = 1500) => {
    clearTimeout(soon);
    soon = setTimeout(load, wait);
  };
  onRemove(() => {
    source?.close();
    clearTimeout(soon);
  });
  effect(() => {
    words.value;
    chosen.value = -1;
    clearTimeout(soon);
    soon = setTimeout(load, loaded.peek() ? 200 : 0);
  });
  effect(() => {
    if (!live.value) source?.close();
    else if (loaded.peek()) load();
  });
  const tick = setInterval(() => (minutes.value = new Map(minutes.peek())), 30000); // the charts move on
  onRemove(() => clearInterval(tick));

  const list = table(rows, chosen, loadMore);
  keyboard(rows, chosen, list);
  const field = h("input", {
    type: "search", class: "grow", placeholder: t("search"), "aria-label": t("search"), title: t("searchHelp"), value: words.peek(),
    oninput: (event) => setQuery("q", event.target.value),
  });
  const toggle = (word) => {
    const now = field.value.split(/\s+/).filter(Boolean);
    field.value = (now.includes(word) ? now.filter((one) => one !== word) : [...now, word]).join(" ");
    setQuery("q", field.value);
  };
  return [
    head(t("traffic"), t("trafficLead")),
    h("div", { class: "charts", role: "group", "aria-label": t("charts") }, () => charts(minutes.value)),
    h("div", { class: "row" }, field,
      ["is:error", "is:lossy"].map((word) => h("button", { "aria-pressed": () => String(words.value.split(/\s+/).includes(word)), class: () => (words.value.split(/\s+/).includes(word) ? "main" : ""), onclick: () => toggle(word) }, t(word.slice(3)))),
      h("span", { class: "quiet small", role: "status" }, () => (total.value === null ? "" : t("rows", { n: count(total.value) }))),
      h("button", { "aria-pressed": () => String(live.value), onclick: () => (live.value = !live.peek()) },
        () => [h("span", { class: live.value ? "dot fine" : "dot quiet" }), " ", live.value ? t("live") : t("paused")])),
    () => trouble.value && problem(trouble.value),
    () => (loaded.value && !rows.value.length ? nothing(words.value) : list),
  ];
}

function nothing(words) {
  if (words) return empty("traffic", t("noMatch"), t("searchHelp"));
  return empty("traffic", t("noTraffic"), t("noTrafficHelp"),
    `curl ${location.origin}/v1/chat/completions -H 'content-type: application/json' \\\n  -d '{"model": "demo", "messages": [{"role": "user", "content": "Hello"}]}'`);
}

// ---------------------------------------------------------------- the strip of charts

function addRows(minutes, rows) {
  const found = new Map(minutes);
  for (const row of rows) {
    const minute = Math.floor(row.time / 60000);
    const old = found.get(minute) || { minute, requests: 0, errors: 0, tokens: 0, firsts: {} };
    const one = { ...old, requests: old.requests + 1, errors: old.errors + (row.status >= 400 || row.failure ? 1 : 0), tokens: old.tokens + (row.input || 0) + (row.output || 0), firsts: { ...old.firsts } };
    if (row.first_ms !== null) one.firsts[bucketOf(row.first_ms)] = (one.firsts[bucketOf(row.first_ms)] || 0) + 1;
    found.set(minute, one);
  }
  return found;
}

function charts(minutes) {
  const now = Math.floor(Date.now() / 60000);
  const each = Array.from({ length: MINUTES }, (_, i) => minutes.get(now - MINUTES + 1 + i));
  const of = (pick) => each.map((one) => (one ? pick(one) : 0));
  const sum = (values) => values.reduce((a, b) => a + b, 0);
  const all = {};
  for (const one of each) for (const [bucket, n] of Object.entries(one?.firsts || {})) all[bucket] = (all[bucket] || 0) + n;
  const figure = (value, words) => [value, " ", h("small", null, words)];
  const requests = of((one) => one.requests);
  const errors = of((one) => one.errors);
  const tokens = of((one) => one.tokens);
  const share = sum(requests) ? ` ${((sum(errors) / sum(requests)) * 100).toFixed(1)} %` : "";
  return [
    chart(t("requests"), figure(short(sum(requests)), t("in30")), [{ values: requests, name: "" }], short),
    chart(t("errors"), figure(short(sum(errors)), share || t("in30")), [{ values: errors, name: "bad" }], short),
    chart(t("latency"), figure(`${time(quantile(all, 0.5))} / ${time(quantile(all, 0.95))}`, "p50 / p95"),
      [{ values: of((one) => quantile(one.firsts, 0.95)), name: "second" }, { values: of((one) => quantile(one.firsts, 0.5)), name: "" }], time),
    chart(t("tokenRate"), figure(short(sum(tokens)), t("in30")), [{ values: tokens, name: "" }], short),
  ];
}

// ---------------------------------------------------------------- the list: only the rows in sight are in the page

// Name, and from which width on it is shown.
const COLUMNS = [["time", ""], ["key", "wide"], ["program", "wide third"], ["way", ""], ["status", ""], ["first", "wide number"], ["total", "number"], ["tokens", "wide number"], ["cost", "wide number"], ["losses", "wide third"]];

function table(rows, chosen, loadMore) {
  const body = h("div", { role: "rowgroup" });
  body.style.position = "relative";
  const box = h("div", { class: "card table", role: "table", "aria-label": t("traffic"), tabindex: "0", onscroll: () => draw() },
    h("div", { role: "rowgroup", class: "heads" },
      h("div", { role: "row", class: "line head" }, COLUMNS.map(([name, where]) => h("span", { role: "columnheader", class: where }, t(name))))),
    body);
  let waiting = false;
  function later() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      draw();
    });
  }
  const nodes = new Map(); // by seq: rows that stay in sight keep their elements
  function draw() {
    const all = rows.peek();
    body.style.height = `${all.length * ROW}px`;
    const from = Math.max(0, Math.floor(box.scrollTop / ROW) - 8);
    const to = Math.min(all.length, from + Math.ceil((box.clientHeight || 600) / ROW) + 16);
    const seen = new Set();
    for (let i = from; i < to; i++) {
      const row = all[i];
      seen.add(row.seq);
      let node = nodes.get(row.seq);
      if (!node) {
        node = line(row);
        nodes.set(row.seq, node);
        body.append(node);
      }
      node.style.top = `${i * ROW}px`;
      node.classList.toggle("chosen", i === chosen.peek());
      node.setAttribute("aria-rowindex", i + 2);
    }
    for (const [seq, node] of nodes) {
      if (seen.has(seq)) continue;
      node.remove();
      nodes.delete(seq);
    }
    box.setAttribute("aria-rowcount", all.length + 1);
    if (to >= all.length - 100 && all.length) loadMore();
  }
  effect(() => {
    rows.value;
    chosen.value;
    later();
  });
  const sizes = new ResizeObserver(later);
  sizes.observe(box);
  onRemove(() => sizes.disconnect());
  box.reveal = (i) => {
    const top = i * ROW;
    if (top < box.scrollTop || top > box.scrollTop + box.clientHeight - 3 * ROW) box.scrollTop = top - box.clientHeight / 2;
  };
  return box;
}

function line(row) {
  const cell = (where, ...inside) => h("span", { role: "cell", class: where }, inside);
  return h("a", { class: row.fresh ? "line body fresh" : "line body", role: "row", href: link("xray", row.id), title: `${fullTime(row.time)}\n${row.failure || row.id}` },
    cell("mono", when(row.time)), cell("wide", row.key || "–"), cell("wide third quiet", row.program || "–"),
    cell("way", h("span", { class: "door" }, `${row.door} → `), row.upstream ? `${row.upstream}/` : "", h("b", null, row.model || row.asked || "?"), row.tries > 1 ? ` ×${row.tries}` : ""),
    cell("", statusPill(row.status, row.failure)),
    cell("wide number", time(row.first_ms)), cell("number", time(row.ms)),
    cell("wide number", row.input === null && row.output === null ? "–" : `${count(row.input)} / ${count(row.output)}`),
    cell("wide number", price(row.cost)), cell("wide third", h("span", { class: "pills" }, ranks(row))));
}

function keyboard(rows, chosen, list) {
  const act = (event) => {
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) || event.ctrlKey || event.metaKey || document.querySelector("dialog")) return;
    const step = { j: 1, k: -1 }[event.key];
    if (step) {
      chosen.value = Math.max(0, Math.min(rows.peek().length - 1, chosen.peek() + step));
      list.reveal(chosen.peek());
    }
    const row = rows.peek()[chosen.peek()];
    if (event.key === "Enter" && row && !/^(A|BUTTON)$/.test(event.target.tagName)) location.hash = link("xray", row.id);
  };
  addEventListener("keydown", act);
  onRemove(() => removeEventListener("keydown", act));
}
