// Signals and elements: everything the pages are made of. Text is always set as text, never as HTML.

let running = null; // the effect that reads signals now

export function signal(first) {
  let value = first;
  const readers = new Set();
  return {
    get value() {
      if (running) {
        readers.add(running);
        running.sources.add(readers);
      }
      return value;
    },
    set value(next) {
      if (Object.is(next, value)) return;
      value = next;
      for (const reader of [...readers]) reader.run();
    },
    peek: () => value,
  };
}

export function effect(work) {
  const self = { sources: new Set(), inner: [], cleanups: [], parent: running, ended: false };
  self.end = () => {
    for (const readers of self.sources) readers.delete(self);
    for (const one of self.inner) {
      one.ended = true;
      one.end();
    }
    for (const cleanup of self.cleanups) cleanup();
    self.sources.clear();
    self.inner = [];
    self.cleanups = [];
  };
  self.run = () => {
    if (self.ended) return;
    self.end();
    const before = running;
    running = self;
    try {
      work();
    } finally {
      running = before;
    }
  };
  if (running) running.inner.push(self);
  self.run();
  return () => {
    self.ended = true;
    self.end();
  };
}

export function computed(work) {
  const result = signal(undefined);
  effect(() => {
    result.value = work();
  });
  return result;
}

// Runs when the part of the page that is being built goes away.
export function onRemove(cleanup) {
  if (running) running.cleanups.push(cleanup);
}

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "path", "rect", "line", "polyline", "polygon", "circle", "g"]);

// h("p", {class: "note", onclick: act}, "words", () => count.value): a function as a child or an attribute follows its signals.
export function h(tag, attributes, ...children) {
  const element = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) set(element, name, value);
  append(element, children);
  return element;
}

function set(element, name, value) {
  if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
  else if (name === "ref") value(element);
  else if (typeof value === "function") effect(() => put(element, name, value()));
  else put(element, name, value);
}

function put(element, name, value) {
  if (name === "value" || name === "checked") element[name] = value ?? "";
  else if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? "" : String(value));
}

export function append(element, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    if (typeof child === "function") follow(element, child);
    else element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

function follow(element, work) {
  const start = document.createComment("");
  const end = document.createComment("");
  element.append(start, end);
  effect(() => {
    const fresh = document.createDocumentFragment();
    append(fresh, [work()]);
    while (start.nextSibling && start.nextSibling !== end) start.nextSibling.remove();
    end.before(fresh);
  });
}

export function replace(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

// ---------------------------------------------------------------- the address: #/section/detail?filter=x

export const place = signal(readPlace());

function readPlace() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [section, ...rest] = path.split("/").map(decodeURIComponent);
  return { section: section || "traffic", detail: rest.join("/"), query: new URLSearchParams(query || "") };
}

addEventListener("hashchange", () => {
  place.value = readPlace();
});

export function link(section, detail = "", query = null) {
  const words = query ? new URLSearchParams(Object.entries(query).filter(([, value]) => value)).toString() : "";
  return `#/${section}${detail ? "/" + encodeURIComponent(detail) : ""}${words ? "?" + words : ""}`;
}

export function setQuery(name, value) {
  const { section, detail, query } = readPlace();
  const next = Object.fromEntries(query);
  next[name] = value;
  history.replaceState(null, "", link(section, detail, next));
  place.value = readPlace();
}
