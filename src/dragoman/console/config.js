// Configuration: check a text before it becomes the file, and read the file again.

import { h, signal } from "./ui.js";
import { call } from "./api.js";
import { t } from "./texts.js";

const EXAMPLE = '# dragoman.toml\n[providers.openai]\nkey = "${OPENAI_API_KEY}"\nrpm = 60\n\n[aliases]\nfast = "gpt-4o-mini"\n';

export function config() {
  const verdict = signal(null);
  const health = signal(null);
  const field = h("textarea", { rows: 18, spellcheck: "false", "aria-label": "dragoman.toml", oninput: () => later() }, EXAMPLE);
  let waiting = 0;
  const later = () => {
    clearTimeout(waiting);
    waiting = setTimeout(check, 300);
  };
  const check = () => call("/admin/v1/config/check", { body: { text: field.value } }).then((found) => {
    verdict.value = found;
    point(field, found);
  }, (error) => (verdict.value = { good: false, why: error.message }));
  const load = () => call("/health").then((found) => (health.value = found.configuration), () => null);
  load();
  return [
    h("h2", null, t("config")),
    () => health.value && h("p", { class: "card small" }, t("configNow", { n: health.value.generation, file: health.value.source || "–" })),
    h("p", { class: "quiet small" }, t("configHelp")),
    h("div", { class: "card" }, field),
    h("div", { class: "row" }, h("button", { class: "main", onclick: check }, t("check")),
      h("button", { onclick: () => call("/admin/v1/config/apply", { method: "POST" }).then((found) => {
        verdict.value = found;
        load();
      }, (error) => (verdict.value = { good: false, why: error.message })) }, t("readAgain"))),
    () => verdict.value && h("p", { class: `card ${verdict.value.good ? "fine" : "bad"}`, role: "status" },
      verdict.value.good ? t("configGood") : `${verdict.value.key ? verdict.value.key + ": " : ""}${verdict.value.why}`),
  ];
}

// Selects the line that an error is about: by its number, or by the last word of its key.
function point(field, { good, why, key }) {
  if (good) return;
  const lines = field.value.split("\n");
  const number = /line (\d+)/.exec(why)?.[1];
  const name = (key || "").split(".").pop();
  const at = number ? Number(number) - 1 : lines.findIndex((line) => name && line.trim().startsWith(name));
  if (at < 0 || at >= lines.length || document.activeElement === field) return;
  const start = lines.slice(0, at).join("\n").length + (at ? 1 : 0);
  field.setSelectionRange(start, start + lines[at].length);
}
