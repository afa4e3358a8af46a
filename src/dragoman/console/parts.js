// Pieces that several sections use: heads, empty states, times, copying, saving, text differences.

import { h, signal } from "./ui.js";
import { icon } from "./icons.js";
import { language, t } from "./texts.js";

export function head(title, lead, ...more) {
  return h("div", { class: "head" }, h("div", null, h("h2", null, title), lead ? h("p", { class: "lead" }, lead) : null), more);
}

// What is not here yet, and how to get it.
export function empty(picture, title, words, snippet = "") {
  return h("div", { class: "card empty" }, icon(picture), h("h3", null, title), h("p", null, words), snippet ? h("pre", { class: "snippet" }, snippet) : null);
}

export function problem(words, kind = "bad") {
  return h("div", { class: `card notice ${kind}`, role: "alert" }, words);
}

const locale = () => (language.peek() === "ko" ? "ko-KR" : navigator.language.startsWith("en") ? navigator.language : "en-GB");

export function clock(ms) {
  return new Date(ms).toLocaleTimeString("en-GB"); // 14:05:09 in every language
}

// Today only the time; else the day too. In the reader's zone.
export function when(ms) {
  const day = new Date(ms);
  if (day.toDateString() === new Date().toDateString()) return clock(ms);
  return day.toLocaleDateString(locale(), { month: "short", day: "numeric" }) + " " + day.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
}

export function fullTime(ms) {
  return new Date(ms).toLocaleString(locale(), { dateStyle: "medium", timeStyle: "medium", hour12: false });
}

export function time(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 10 && ms % 1) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  return ms < 100000 ? `${(ms / 1000).toFixed(ms < 10000 ? 2 : 1)} s` : `${Math.round(ms / 60000)} min`;
}

export const count = (n) => (n === null || n === undefined ? "–" : n.toLocaleString("en-US"));

// 1,234,567 as 1.23M, for figures that are only looked at.
export function short(n) {
  return new Intl.NumberFormat("en-US", { notation: n < 10000 ? "standard" : "compact", maximumFractionDigits: n < 10000 ? 0 : 1 }).format(n);
}

// Micro-units of a currency as money.
export function money(micros, currency = "USD") {
  const value = micros / 1e6;
  const digits = value === 0 || value >= 1 ? 2 : value >= 0.01 ? 3 : 6;
  return `${value.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: digits })} ${currency}`;
}

// "0.00015 USD", as the gateway writes it, for a narrow place.
export const price = (words) => (words ? words.replace(/^([\d.]+) USD$/, "$$$1") : "–");

export function save(name, kind, text) {
  const a = h("a", { href: URL.createObjectURL(new Blob([text], { type: kind })), download: name });
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 10000);
}

export function copyButton(text, words = "") {
  const done = signal(false);
  return h("button", {
    class: "plain small", "aria-label": words || t("copy"), title: words || t("copy"),
    onclick: async () => {
      await copy(text());
      done.value = true;
      setTimeout(() => (done.value = false), 2000);
    },
  }, () => (done.value ? t("copied") : icon("copy")), words ? ` ${words}` : null);
}

// Without https the clipboard of the browser is closed: then the text is chosen and copied the old way.
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = h("textarea", { value: text });
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}

// A row of buttons of which one is chosen.
export function tabs(names, chosen, label = t) {
  return h("div", { class: "tabs", role: "group" }, names.map((name) =>
    h("button", { type: "button", "aria-pressed": () => String(chosen.value === name), onclick: () => (chosen.value = name) }, label(name))));
}

export function dialog(title, ...inside) {
  const box = h("dialog", { "aria-label": title, onclose: () => box.remove() }, h("h2", null, title), inside);
  document.body.append(box);
  box.showModal();
  return box;
}

// Asks before something cannot be undone, or costs money.
export function sure(title, inside, act, verb) {
  const box = dialog(title, h("div", { class: "stack" }, inside, h("div", { class: "row" },
    h("button", { class: "main", onclick: () => (box.close(), act()) }, verb), h("button", { onclick: () => box.close() }, t("cancel")))));
}

const MOST_LINES = 3000;

// Lines that went are red, lines that came are green; the longest common part stays plain.
export function diffLines(before, now) {
  let a = before.split("\n");
  let b = now.split("\n");
  const lines = [];
  while (a.length && b.length && a[0] === b[0]) lines.push(["", a.shift(), b.shift()].slice(0, 2));
  const tail = [];
  while (a.length && b.length && a.at(-1) === b.at(-1)) tail.unshift(["", a.pop(), b.pop()].slice(0, 2));
  if (a.length * b.length > MOST_LINES * MOST_LINES) return [...lines, ...a.map((one) => ["dropped", one]), ...b.map((one) => ["repaired", one]), ...tail];
  const size = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) for (let j = b.length - 1; j >= 0; j--) size[i][j] = a[i] === b[j] ? size[i + 1][j + 1] + 1 : Math.max(size[i + 1][j], size[i][j + 1]);
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) lines.push(["", a[i++]]), j++;
    else if (j >= b.length || (i < a.length && size[i + 1][j] >= size[i][j + 1])) lines.push(["dropped", a[i++]]);
    else lines.push(["repaired", b[j++]]);
  }
  return [...lines, ...tail];
}

// Only what changed, with some lines around it.
export function textDiff(before, now, around = 3) {
  const lines = diffLines(before, now);
  const near = lines.map((_, i) => lines.slice(Math.max(0, i - around), i + around + 1).some(([kind]) => kind));
  if (!near.includes(true)) return h("p", { class: "quiet" }, t("noDifference"));
  const sign = { "": "  ", dropped: "- ", repaired: "+ " };
  const shown = [];
  lines.forEach(([kind, text], i) => {
    if (near[i]) shown.push(h("span", { class: `l ${kind}` }, sign[kind] + text));
    else if (near[i - 1] || i === 0) shown.push(h("span", { class: "l quiet" }, "  …"));
  });
  return h("pre", { class: "json diff", tabindex: "0", "aria-label": t("difference") }, shown);
}

// "2 lost", "1 changed": what a translation did, in colours.
export function ranks(row) {
  return ["lost", "changed"].filter((rank) => row[rank]).map((rank) => h("span", { class: `pill ${rank}` }, `${row[rank]} ${t(rank)}`));
}

export function statusPill(status, failure = "") {
  const bad = status >= 400 || failure || !status;
  return h("span", { class: `pill ${bad ? "FAIL" : "PASS"}`, title: failure }, status || t("left"));
}
