// The shell: sections, keys, theme, language, login.

import { append, computed, effect, h, link, place, replace, signal } from "./ui.js";
import { call, me, needsLogin } from "./api.js";
import { icon } from "./icons.js";
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
const menuOpen = signal(false);
const dark = matchMedia("(prefers-color-scheme: dark)");

function showTheme() {
  document.documentElement.dataset.theme = localStorage.getItem("theme") || (dark.matches ? "dark" : "light");
}

function switchTheme() {
  localStorage.setItem("theme", document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  showTheme();
}

function shell() {
  const main = h("main", { id: "content", tabindex: "-1" });
  const section = computed(() => (SECTIONS[place.value.section] ? place.value.section : "traffic"));
  effect(() => {
    const name = section.value;
    document.title = `${t(name)} · dragoman`;
    menuOpen.value = false;
    main.scrollTop = 0;
    replace(main, needsLogin.value ? login() : me.value === null ? null : SECTIONS[name]());
  });
  return [
    h("a", { class: "skip", href: "#content", onclick: (event) => (event.preventDefault(), main.focus()) }, () => t("skip")),
    h("header", { class: () => (menuOpen.value ? "side open" : "side") },
      h("a", { class: "brand", href: link("traffic") }, h("img", { src: "/console/icon.svg", alt: "" }), h("span", null, "dragoman")),
      h("button", { class: "menu", "aria-expanded": () => String(menuOpen.value), onclick: () => (menuOpen.value = !menuOpen.peek()) }, icon("menu"), () => t(section.value)),
      h("nav", { "aria-label": () => t("sections") }, Object.keys(SECTIONS).map((name) =>
        h("a", { href: link(name), "aria-current": () => (section.value === name ? "page" : null) }, icon(name), h("span", null, () => t(name))))),
      h("div", { class: "tools" },
        () => me.value?.session && h("div", { class: "who" }, me.value.name, me.value.read_only ? ` · ${t("readOnly")}` : ""),
        h("button", { class: "plain", onclick: switchLanguage, lang: () => (language.value === "ko" ? "en" : "ko") }, () => t("language")),
        h("button", { class: "plain", onclick: switchTheme, "aria-label": () => t("theme"), title: () => t("theme") }, icon("theme")),
        h("button", { class: "plain", onclick: () => (helpOpen.value = true), "aria-label": () => t("helpTitle"), title: () => t("helpTitle") }, icon("help")),
        () => me.value?.session && h("button", { class: "plain", onclick: logout }, t("logout")))),
    main,
    () => helpOpen.value && help(),
  ];
}

async function logout() {
  await call("/console/session", { method: "DELETE" });
  me.value = null;
  needsLogin.value = true;
}

function help() {
  const rows = [["/", "helpSearch"], ["j k", "helpMove"], ["Enter", "helpOpen"], ["Esc", "helpLeave"], ...Object.entries(JUMPS).map(([key, name]) => [`g ${key}`, name]), ["?", "helpTitle"]];
  const box = h("dialog", { "aria-label": t("helpTitle"), onclose: () => (helpOpen.value = false) },
    h("h2", null, t("helpTitle")),
    h("dl", { class: "help" }, rows.map(([key, words]) => [h("dt", null, key.split(" ").map((one) => [h("kbd", null, one), " "])), h("dd", null, t(words))])),
    h("button", { onclick: () => box.close() }, t("close")));
  queueMicrotask(() => box.showModal());
  return box;
}

function login() {
  const words = signal("");
  const field = h("input", { type: "password", name: "key", autocomplete: "off", required: true, placeholder: "dka-…", "aria-label": t("adminKey") });
  return h("form", {
    class: "login card",
    onsubmit: async (event) => {
      event.preventDefault();
      try {
        await call("/console/session", { body: { key: field.value } });
        await hello();
      } catch (error) {
        words.value = error.message;
      }
    },
  }, h("h2", null, t("login")), h("p", { class: "quiet" }, t("loginHelp")), h("pre", { class: "snippet" }, "dragoman keys new --admin"),
  field, h("button", { class: "main" }, t("enter")), h("p", { class: "bad", role: "alert" }, () => words.value));
}

// Who am I? Everything else waits for the answer, so that no call fails for want of a login.
async function hello() {
  const found = await call("/console/session");
  if (found.other_port) {
    replace(document.getElementById("content"), h("div", { class: "card notice" }, t("otherPort"), " ", h("a", { href: `${location.protocol}//${location.hostname}:${found.other_port}/console` }, `:${found.other_port}/console`)));
    return;
  }
  me.value = found.open ? found : null;
  needsLogin.value = !found.open;
}

let leading = false;
addEventListener("keydown", (event) => {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if (event.key === "Escape" && typing && !event.defaultPrevented) event.target.blur();
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "?") helpOpen.value = true;
  if (event.key === "/") {
    const field = document.querySelector("main [type=search]");
    if (field) {
      event.preventDefault();
      field.focus();
    }
  }
  if (leading && JUMPS[event.key]) location.hash = link(JUMPS[event.key]);
  leading = event.key === "g";
});

showTheme();
dark.addEventListener("change", showTheme);
document.documentElement.lang = language.peek();
append(document.body, shell());
hello();
