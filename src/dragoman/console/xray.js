// X-ray: one request at the client, in the neutral form and at the provider, side by side, with what changed on the way.

import { computed, effect, h, link, onRemove, place, setQuery, signal } from "./ui.js";
import { call, me, wordsOf } from "./api.js";
import { aim, jsonView, showSame } from "./json_view.js";
import { compare, framesUntil } from "./compare.js";
import { asCase, asCurl, asHtml } from "./report.js";
import { copy, copyButton, count, empty, fullTime, head, price, problem, save, statusPill, tabs, time, when } from "./parts.js";
import { t } from "./texts.js";

export function xray() {
  const found = signal(null);
  const other = signal(null); // to compare with
  const facts = signal(null); // the row of the traffic
  const missing = signal(false);
  const trouble = signal("");
  const detail = computed(() => place.value.detail);
  const second = computed(() => place.value.query.get("with") || "");
  effect(() => {
    const id = detail.value;
    found.value = facts.value = null;
    missing.value = false;
    trouble.value = "";
    const still = () => id === detail.peek();
    call(id ? `/admin/v1/xray/${encodeURIComponent(id)}` : "/admin/v1/xray").then((value) => still() && (found.value = value),
      (error) => still() && (error.status === 404 ? (missing.value = true) : (trouble.value = error.message)));
    if (id) call(`/admin/v1/traffic?limit=1&q=${encodeURIComponent("id:" + id)}`).then((value) => still() && (facts.value = value.rows[0] || null), () => null);
  });
  effect(() => {
    other.value = null;
    if (second.value) call(`/admin/v1/xray/${encodeURIComponent(second.value)}`).then((value) => (other.value = value), (error) => (trouble.value = error.message));
  });
  return [
    () => (detail.value ? null : head(t("xray"), t("xrayLead"))),
    () => trouble.value && problem(trouble.value),
    () => missing.value && notKept(facts.value),
    () => found.value && (found.value.requests ? list(found.value.requests) : other.value ? compare(other.value, found.value) : one(found.value, facts)),
  ];
}

function notKept(row) {
  return [
    head(t("notKeptTitle"), row ? `${row.door} → ${row.upstream}/${row.model}` : ""),
    row && h("section", { class: "card" }, factList(row)),
    empty("xray", t("noXrayTitle"), t("noXray"), "dragoman serve --xray 100"),
  ];
}

function list(rows) {
  if (!rows.length) return empty("xray", t("noXrayTitle"), t("noXray"), "dragoman serve --xray 100");
  return h("div", { class: "card" }, h("table", { class: "plain fold" },
    h("thead", null, h("tr", null, ["time", "way", "status", "total"].map((name) => h("th", { class: name === "total" ? "number" : "" }, t(name))), h("th", null, t("request")))),
    h("tbody", null, rows.map((row) => h("tr", null,
      h("td", { class: "mono" }, row.time ? when(row.time * 1000) : "–"),
      h("td", null, h("span", { class: "quiet" }, `${row.door} → `), `${row.upstream || "?"}/${row.model}`, row.tries > 1 ? h("span", { class: "quiet" }, ` ×${row.tries}`) : null, row.calls ? h("span", { class: "pill invented" }, t("toolCalls", { n: row.calls })) : null),
      h("td", null, statusPill(row.status)), h("td", { class: "number" }, time(row.s * 1000)),
      h("td", null, h("a", { href: link("xray", row.id), class: "mono" }, row.id)))))));
}

function factList(row) {
  const rows = [["time", h("span", { title: fullTime(row.time) }, when(row.time))], ["key", row.key || "–"], ["program", row.program || "–"], ["first", time(row.first_ms)], ["total", time(row.ms)],
    ["tokens", row.input === null && row.output === null ? "–" : `${count(row.input)} / ${count(row.output)}`], ["cost", price(row.cost)]];
  return h("dl", { class: "facts" }, rows.map(([name, value]) => h("div", null, h("dt", null, t(name)), h("dd", null, value))));
}

// ---------------------------------------------------------------- one request

function one(row, facts) {
  const chosen = place.peek().query.get("side");
  const side = signal(chosen === "answer" ? "answer" : "request");
  const hover = signal(undefined);
  const views = signal([]);
  const used = row.attempts.at(-1)?.model || row.model;
  const streamed = row.frames.provider.length + row.frames.client.length > 1;
  effect(() => {
    for (const view of views.value) showSame(view, hover.value);
  });
  return [
    head([`${row.door} → ${row.upstream || "?"}/${used} `, statusPill(row.status)], [h("span", { class: "mono" }, row.id), used === row.model ? null : ` · ${t("askedFor", { model: row.model })}`], actions(row)),
    h("section", { class: "card" }, () => factList(facts.value || { time: row.time * 1000, first_ms: null, ms: row.seconds * 1000, input: null, output: null })),
    timeline(row),
    row.loop.length ? h("details", { class: "card", open: true }, h("summary", null, t("loop")), loopTree(row)) : null,
    notes(row, side, views),
    h("div", { class: "row" }, tabs(["request", "answer"], side), h("span", { class: "space" }), legend()),
    () => {
      setQuery("side", side.value === "answer" ? "answer" : "");
      if (side.value === "answer" && streamed) return frames(row.frames, views);
      return columns(row, side.value, hover, views);
    },
  ];
}

function legend() {
  return h("div", { class: "legend", "aria-label": t("legend") }, [["dropped", "bad"], ["altered", "warn"], ["invented", "blue"], ["repaired", "fine"]].map(([kind]) =>
    h("span", null, h("span", { class: `pill ${kind}` }, t(kind)))));
}

function columns(row, side, hover, views) {
  const attempt = row.attempts[row.attempts.length - 1] || {};
  const provider = `${row.upstream || "–"}${attempt.dialect ? " · " + attempt.dialect : ""}`;
  const client = `${row.door}${row.dialect && row.dialect !== row.door ? " · " + row.dialect : ""}`;
  const parts = side === "request"
    ? [["client", client, row.asked, "where"], ["canonical", "", row.canonical, "canonical"], ["provider", provider, attempt.sent || null, "target"]]
    : [["provider", provider, attempt.reply || null, "where"], ["canonical", "", row.reply_canonical, "canonical"], ["client", client, row.reply || null, "target"]];
  const fresh = parts.map(([name, more, value, field], i) => column(name, more, value, marksOf(row.notes, side, field), hover, i === 2 ? goneOf(row.notes, side) : []));
  views.value = fresh.map((one) => one.view);
  linkScrolling(views.peek());
  return h("div", { class: "three" }, fresh.map((one) => one.card));
}

export function marksOf(notes, side, field) {
  const mine = notes.filter((note) => (note.body === "request") === (side === "request"));
  return new Map(mine.filter((note) => note[field] !== undefined && note[field] !== null && note[field] !== "").map((note) => [note[field], note.kind]));
}

const LOST = "lost:"; // the place of a field in a body where it is not

// What the last body does not have: fields that were lost on the way to it.
function goneOf(notes, side) {
  const mine = notes.filter((note) => (note.body === "request") === (side === "request") && note.kind === "dropped" && !note.target);
  return mine.slice(0, 50).map((note) => ({ at: LOST + note.where, text: `✗ ${note.where || "/"}` }));
}

function column(name, more, value, marks, hover, gone) {
  const label = more ? `${t(name)}: ${more}` : t(name);
  const view = jsonView(value, { marks, hover, label, gone });
  const none = value === null || value === undefined;
  return { view, card: h("section", { class: "card", "aria-label": label },
    h("header", null, h("h3", null, t(name), more ? h("span", null, ` ${more}`) : null), none ? null : copyButton(() => (typeof value === "string" ? value : JSON.stringify(value, null, 2)))),
    none ? h("div", { class: "empty" }, h("p", null, t(name === "provider" ? "noProvider" : name === "canonical" ? "noNeutral" : "notKept"))) : view) };
}

// The columns scroll together, each in its own measure.
function linkScrolling(views) {
  let leader = null;
  for (const view of views) {
    for (const name of ["pointerenter", "focus", "wheel", "touchstart"]) view.addEventListener(name, () => (leader = view), { passive: true });
    view.addEventListener("scroll", () => {
      const beside = views.filter((other) => other.isConnected).every((other) => Math.abs(other.getBoundingClientRect().top - view.getBoundingClientRect().top) < 40);
      if (leader !== view || !beside || views.some((other) => performance.now() - (other.aimedAt ?? -Infinity) < 400)) return;
      const part = view.scrollTop / Math.max(1, view.scrollHeight - view.clientHeight);
      for (const other of views) if (other !== view) other.scrollTop = part * (other.scrollHeight - other.clientHeight);
    });
  }
}

// ---------------------------------------------------------------- a stream, frame by frame

function frames(found, views) {
  views.value = [];
  const leading = found.provider.length ? found.provider : found.client;
  const times = leading.map((frame) => frame.ms);
  const at = signal(times.length - 1);
  const playing = signal(false);
  let timer = 0;
  const stop = () => (clearInterval(timer), (playing.value = false));
  const play = () => {
    if (playing.peek()) return stop();
    if (at.peek() >= times.length - 1) at.value = 0;
    playing.value = true;
    timer = setInterval(() => (at.peek() < times.length - 1 ? (at.value += 1) : stop()), 120);
  };
  onRemove(() => clearInterval(timer));
  const said = h("div", { class: "bubble model", "aria-live": "off" });
  const boxes = [frameColumn("provider", found.provider, found.provider.map((frame) => frame.step)), frameColumn("canonical", found.canonical, found.canonical.map((frame) => frame.step)),
    frameColumn("client", found.client, found.provider.length ? stepsOf(found.client, times) : found.client.map((frame) => frame.step))];
  effect(() => {
    for (const box of boxes) box.show(at.value);
    said.textContent = framesUntil(found.canonical, at.value).text || "…";
  });
  return [
    h("section", { class: "card stack" },
      h("div", { class: "row" }, h("button", { onclick: play }, () => (playing.value ? t("pause") : t("play"))),
        h("label", { class: "grow" }, h("span", null, () => t("frames", { n: at.value + 1, all: times.length, time: time(times[at.value]) })),
          h("input", { type: "range", min: 0, max: times.length - 1, value: () => at.value, "aria-label": t("frameSlider"), oninput: (event) => (stop(), (at.value = Number(event.target.value))) }))),
      said),
    h("div", { class: "three" }, boxes.map((box) => box.card)),
  ];
}

// With which step of the provider each frame of the client came. Frames that arrived in one moment are spread over it.
function stepsOf(frames, times) {
  const moment = (ms) => Math.max(0, times.findLastIndex((time) => time <= ms));
  return frames.map((frame) => {
    const last = moment(frame.ms);
    const first = times.indexOf(times[last]);
    const mates = frames.filter((other) => moment(other.ms) === last);
    return first + Math.floor(((mates.indexOf(frame) + 1) * (last - first + 1) - 1) / mates.length);
  });
}

function frameColumn(name, found, steps) {
  const nodes = found.map((frame, i) => h("div", { class: "frame" },
    h("header", null, h("span", null, `${i + 1}${frame.event ? " " + frame.event : ""}`), h("span", null, `+${time(frame.ms)}`)),
    h("pre", { class: "json" }, h("span", { class: "l" }, typeof frame.value === "string" ? frame.value : JSON.stringify(frame.value)))));
  const box = h("div", { class: "json", tabindex: "0", "aria-label": t(name) }, nodes.length ? nodes : h("div", { class: "empty" }, h("p", null, name === "provider" ? t("noProvider") : t("notKept"))));
  return {
    card: h("section", { class: "card", "aria-label": t(name) }, h("header", null, h("h3", null, t(name), h("span", null, ` ${t("frameCount", { n: found.length })}`))), box),
    show(now) {
      nodes.forEach((node, i) => {
        node.classList.toggle("later", steps[i] > now);
        node.classList.toggle("now", steps[i] === now);
      });
      const here = nodes[steps.findLastIndex((step) => step <= now)];
      if (here) box.scrollTop = here.offsetTop - box.clientHeight / 2;
    },
  };
}

// ---------------------------------------------------------------- notes, attempts, tool calls

function notes(row, side, views) {
  if (!row.notes.length) return row.status && row.status < 400 ? h("p", { class: "card fine" }, `✓ ${t("noNotes")}`) : problem(failureOf(row));
  return h("details", { class: "card", open: true }, h("summary", null, t("notes", { n: row.notes.length })),
    h("div", { class: "notes" }, worstFirst(row.notes).map((note) =>
      h("button", {
        class: "note",
        onclick: () => {
          side.value = note.body === "request" ? "request" : "answer";
          const places = [note.where, note.canonical, note.target || LOST + note.where];
          requestAnimationFrame(() => {
            views.peek().forEach((view, i) => aim(view, places[i] || ""));
            views.peek()[0]?.closest(".three").scrollIntoView({ block: "nearest" });
          });
        },
      }, h("span", { class: `pill ${note.kind}`, title: t(note.rank) }, t(note.kind)), h("code", null, note.where || "/"), h("span", { class: "why" }, note.why, note.rank === "harmless" ? h("span", { class: "quiet" }, ` · ${t("harmless")}`) : null)))));
}

// Why a request failed, in the words that the client got.
function failureOf(row) {
  if (!row.status) return t("leftHelp");
  return wordsOf(row.reply) || row.attempts.at(-1)?.failure || `${t("status")} ${row.status}`;
}

const RANKS = ["lost", "changed", "harmless"];
const worstFirst = (found) => [...found].sort((a, b) => RANKS.indexOf(a.rank) - RANKS.indexOf(b.rank));
const PHASES = ["queue", "connect", "first", "stream"];

function timeline(row) {
  const timed = row.attempts.filter((one) => one.times);
  if (!timed.length) return null;
  const end = Math.max(row.seconds * 1000, ...timed.map((one) => one.times.start_ms + PHASES.reduce((sum, phase) => sum + one.times[`${phase}_ms`], 0)), 1);
  const piece = (ms, name) => {
    const i = h("i", { class: name && ms > 0 ? `${name} solid` : "", title: name ? `${t(`phase_${name}`)} ${time(ms)}` : "" });
    i.style.width = `${(ms / end) * 100}%`;
    return i;
  };
  return h("section", { class: "card stack", "aria-label": t("attempts") },
    h("div", { class: "row" }, h("h3", { class: "grow" }, t("attempts")), h("div", { class: "legend" }, PHASES.map((name) => h("span", { class: name }, h("i"), t(`phase_${name}`))))),
    h("div", { class: "gantt" }, row.attempts.map((one) => {
      const steps = one.times || { start_ms: 0, queue_ms: 0, connect_ms: 0, first_ms: 0, stream_ms: 0 };
      const whole = PHASES.map((phase) => `${t(`phase_${phase}`)} ${time(steps[`${phase}_ms`])}`).join(", ");
      return [
        h("span", null, `${one.upstream}/${one.model} `, one.failure ? h("span", { class: "pill FAIL" }, `${one.status || ""} ${one.failure}`) : h("span", { class: "pill PASS" }, one.status || "ok")),
        h("div", { class: "way", role: "img", "aria-label": whole }, piece(steps.start_ms, ""), PHASES.map((phase) => piece(steps[`${phase}_ms`], phase))),
        h("span", { class: "number small" }, time(PHASES.reduce((sum, phase) => sum + steps[`${phase}_ms`], 0)))];
    })));
}

// Turns of the model and, below each, the calls that it made.
export function loopTree(row) {
  const turns = [...new Set(row.loop.map((one) => one.turn))];
  return h("ul", { class: "tree top" }, turns.map((turn) => h("li", null, h("span", { class: "strong" }, t("turn", { n: turn })),
    h("ul", { class: "tree" }, row.loop.filter((one) => one.turn === turn).map((one) => h("li", null, h("details", null,
      h("summary", null, h("code", null, one.tool), " ", h("span", { class: `pill ${one.failed ? "FAIL" : "PASS"}` }, one.failed ? t("failed") : "ok"), " ", h("span", { class: "quiet small" }, time(one.seconds * 1000))),
      h("div", { class: "stack" }, h("pre", { class: "snippet" }, one.arguments), h("pre", { class: "snippet" }, one.result || "–")))))))),
  h("li", null, h("span", { class: "strong" }, t("finalAnswer"))));
}

// ---------------------------------------------------------------- what can be done with a request

function actions(row) {
  const words = signal("");
  const say = (text) => {
    words.value = text;
    setTimeout(() => (words.value = ""), 5000);
  };
  const scenario = () => call(`/admin/v1/xray/${encodeURIComponent(row.id)}/scenario`).then((text) => save(`${row.id}.toml`, "application/toml", String(text)), (error) => say(error.message));
  const SAVES = { html: () => save(`${row.id}.html`, "text/html", asHtml(row)), scenario, case: () => save(`${row.id}.json`, "application/json", JSON.stringify(asCase(row), null, 2)) };
  const choice = h("select", { "aria-label": t("saveAs"), onchange: () => { SAVES[choice.value]?.(); choice.value = ""; } },
    h("option", { value: "" }, t("saveAs")), [["html", "download"], ["scenario", "saveScenario"], ["case", "saveCase"]].map(([value, name]) => h("option", { value }, t(name))));
  return h("div", { class: "row" },
    h("span", { class: "small", role: "status" }, () => words.value),
    h("button", { onclick: () => copy(asCurl(row)).then(() => say(t("copied"))) }, t("copyCurl")),
    choice, me.value?.read_only ? null : replay(row, say));
}

const DIALECTS = ["openai_chat", "openai_responses", "anthropic", "gemini", "ollama"];

function replay(row, say) {
  const model = h("input", { list: "replay-models", value: row.model, "aria-label": t("replayTo"), size: 16 });
  const names = h("datalist", { id: "replay-models" });
  const dialect = h("select", { "aria-label": t("replayAs") }, DIALECTS.map((name) => h("option", { value: name, selected: name === row.dialect }, name)));
  call("/admin/v1/models").then((found) => names.append(...found.models.map((name) => h("option", { value: name }))), () => null);
  return h("form", {
    class: "row",
    onsubmit: async (event) => {
      event.preventDefault();
      try {
        const found = await call("/admin/v1/replay", { body: { id: row.id, model: model.value, dialect: dialect.value } });
        location.hash = link("xray", found.id, { with: row.id });
      } catch (error) {
        say(error.message);
      }
    },
  }, model, names, dialect, h("button", { class: "main" }, t("replay")));
}
