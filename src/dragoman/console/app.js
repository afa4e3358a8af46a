// The shell: sections, keys, theme, language, login.

import { append, computed, effect, h, link, place, replace, signal } from "./ui.js";
import { call, needsLogin } from "./api.js";
import { language, switchLanguage, t } from "./texts.js";
import { traffic } from "./traffic.js";
import { xray } from "./xray.js";
import { translate } from "./translate.js";
import { playground } from "./playground.js";
import { providers } from "./providers.js";
import { mcp } from "./mcp.js";
import { keys } from "./keys.js";
import { config } from "./config.js";

const SECTIONS = { traffic, xray, playground, translate, providers, keys, mcp, config };
const JUMPS = { t: "traffic", x: "xray", p: "playground", r: "translate", v: "providers", k: "keys", m: "mcp", c: "config" };
const helpOpen = signal(false);
const loggedIn = signal(sessionStorage.getItem("session") === "open");

document.documentElement.lang = language.peek();
const theme = localStorage.getItem("theme");
if (theme) document.documentElement.dataset.theme = theme;

function switchTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme || (dark ? "dark" : "light");
  const next = now === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  localStorage.setItem("theme", next);
}

function shell() {
  const main = h("main", { id: "content", tabindex: "-1" });
  const section = computed(() => (SECTIONS[place.value.section] ? place.value.section : "traffic"));
  effect(() => {
    document.title = `${t(section.value)} · dragoman`;
    replace(main, needsLogin.value ? login() : SECTIONS[section.value]());
  });
  return [
    h("a", { class: "skip", href: "#content", onclick: (event) => (event.preventDefault(), main.focus()) }, () => t("skip")),
    h("header", { class: "top" },
      h("h1", null, h("img", { src: "/console/icon.svg", alt: "" }), "dragoman"),
      h("nav", { "aria-label": "sections" }, Object.keys(SECTIONS).map((name) =>
        h("a", { href: link(name), "aria-current": () => (section.value === name ? "page" : null) }, () => t(name)))),
      h("button", { class: "plain", onclick: switchLanguage, lang: () => (language.value === "ko" ? "en" : "ko") }, () => t("language")),
      h("button", { class: "plain", onclick: switchTheme, "aria-label": () => t("theme"), title: () => t("theme") }, "◐"),
      () => loggedIn.value && h("button", { class: "plain", onclick: () => call("/console/session", { method: "DELETE" }).then(() => {
        sessionStorage.removeItem("session");
        location.reload();
      }) }, t("logout")),
      h("button", { class: "plain", onclick: () => (helpOpen.value = true), "aria-label": "?" }, "?")),
    main,
    () => helpOpen.value && help(),
  ];
}

function help() {
  const box = h("dialog", { onclose: () => (helpOpen.value = false) },
    h("p", null, t("help")), h("button", { onclick: () => box.close() }, t("close")));
  queueMicrotask(() => box.showModal());
  return box;
}

function login() {
  const words = signal("");
  const field = h("input", { type: "password", name: "key", autocomplete: "off", required: true, "aria-label": t("key") });
  return h("form", {
    class: "login card",
    onsubmit: async (event) => {
      event.preventDefault();
      try {
        const found = await call("/console/session", { body: { key: field.value } });
        if (found.needed) sessionStorage.setItem("session", "open");
        location.reload();
      } catch (error) {
        words.value = error.message;
      }
    },
  }, h("h2", null, t("login")), field, h("button", { class: "main" }, t("enter")),
  h("p", { class: "quiet small" }, t("loginHelp")), h("p", { class: "bad", role: "alert" }, () => words.value));
}

let leading = false;
addEventListener("keydown", (event) => {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if (event.key === "Escape" && typing) event.target.blur();
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "?") helpOpen.value = true;
  if (event.key === "/") {
    const field = document.querySelector("[type=search]");
    if (field) {
      event.preventDefault();
      field.focus();
    }
  }
  if (leading && JUMPS[event.key]) location.hash = link(JUMPS[event.key]);
  leading = event.key === "g";
});

append(document.body, shell());
