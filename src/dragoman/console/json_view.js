// A JSON value as lines, each with its place (a JSON pointer), so that notes and equal values can be found in it.

import { h } from "./ui.js";
import { t } from "./texts.js";

const LONG = 600;
const MOST_LINES = 4000;

export function jsonLines(value) {
  const lines = [];
  walk(value, "", 0, null, false, lines);
  return lines;
}

function walk(value, at, deep, key, more, lines) {
  if (value === null || typeof value !== "object") return void lines.push({ at, deep, key, text: JSON.stringify(value), value, more });
  const list = Array.isArray(value);
  const entries = Object.entries(value);
  if (!entries.length) return void lines.push({ at, deep, key, text: list ? "[]" : "{}", more });
  lines.push({ at, deep, key, text: list ? "[" : "{", more: false });
  entries.forEach(([name, item], i) =>
    walk(item, `${at}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`, deep + 1, list ? null : name, i < entries.length - 1, lines));
  lines.push({ at, deep, key: null, text: list ? "]" : "}", more, closing: true });
}

// `marks`: kind by place. `hover`: a signal with the value under the pointer, shared by all columns.
// `gone`: [{at, text}], what is not here any more; it stands at the end, where a reader looks for it.
export function jsonView(value, { marks = new Map(), hover = null, label = "", gone = [] } = {}) {
  if (value === null || value === undefined) return h("p", { class: "quiet" }, "–");
  if (typeof value === "string") return h("pre", { class: "json", tabindex: "0", "aria-label": label }, value);
  const box = h("pre", { class: "json", tabindex: "0", "aria-label": label });
  const lines = jsonLines(value);
  lines.splice(-1, 0, ...gone.map(({ at, text }) => ({ at, deep: 1, key: null, text, gone: true })));
  const nodes = lines.slice(0, MOST_LINES).map((line) => jsonLine(line, line.gone ? "dropped gone" : markOf(marks, line.at)));
  box.append(...nodes);
  if (lines.length > MOST_LINES) box.append(h("span", { class: "l quiet" }, t("moreLines", { n: lines.length - MOST_LINES })));
  if (hover) {
    box.addEventListener("pointerover", (event) => {
      const i = nodes.indexOf(event.target.closest(".l"));
      hover.value = i < 0 ? undefined : wordsOf(lines[i]);
    });
    box.addEventListener("pointerleave", () => (hover.value = undefined));
  }
  return Object.assign(box, { lines, nodes });
}

function jsonLine(line, kind) {
  const node = h("span", { class: kind ? `l ${kind}` : "l", "data-at": line.at },
    line.key === null ? null : [h("span", { class: "k" }, JSON.stringify(line.key)), ": "], shorten(line), line.more ? "," : "");
  node.style.setProperty("--deep", line.deep);
  return node;
}

function shorten(line) {
  const kind = typeof line.value;
  const name = kind === "string" ? "s" : kind === "number" || kind === "boolean" ? "n" : "";
  if (line.text.length <= LONG) return h("span", { class: name }, line.text);
  const rest = h("button", { class: "link small", onclick: () => rest.replaceWith(line.text.slice(LONG)) }, `… +${line.text.length - LONG}`);
  return h("span", { class: name }, line.text.slice(0, LONG), rest);
}

// What "the same value" means: texts of some length and numbers, not true, null or "".
export function wordsOf(line) {
  const value = line.value;
  if (typeof value === "string") return value.length > 1 ? value : undefined;
  return typeof value === "number" ? String(value) : undefined;
}

export function showSame(box, value) {
  box.nodes?.forEach((node, i) => node.classList.toggle("same", value !== undefined && wordsOf(box.lines[i]) === value));
}

// A mark holds for what stands below its place too.
export function markOf(marks, at) {
  if (!marks.size) return null;
  for (let place = at; ; place = place.slice(0, place.lastIndexOf("/"))) {
    if (marks.has(place)) return marks.get(place);
    if (!place) return null;
  }
}

// Scrolls to a place, or to the nearest one above it that is there.
export function aim(box, place) {
  if (!box.nodes) return;
  for (const node of box.nodes) node.classList.remove("aim");
  if (!place) return;
  for (let at = place; ; at = at.includes("/") ? at.slice(0, at.lastIndexOf("/")) : "") {
    const i = box.lines.findIndex((line) => line.at === at);
    if (i >= 0 && box.nodes[i]) {
      box.nodes[i].classList.add("aim");
      box.aimedAt = performance.now();
      box.scrollTop = box.nodes[i].offsetTop - box.clientHeight / 3;
      return;
    }
    if (!at) return;
  }
}
