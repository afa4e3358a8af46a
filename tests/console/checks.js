// What every section of the console is held to. Each function returns what is wrong, or nothing.

// The page, or a control, that is wider than the window. Tables and code may scroll inside their boxes.
function findWide() {
  const wide = [];
  if (document.documentElement.scrollWidth > innerWidth) wide.push("page " + document.documentElement.scrollWidth);
  const main = document.querySelector("main");
  if (main.scrollWidth > main.clientWidth) wide.push("main " + main.scrollWidth);
  for (const node of main.querySelectorAll("button, select, input, textarea, h2, h3, dd, label, .pill")) {
    const box = node.getBoundingClientRect();
    if (box.width && box.right > innerWidth + 1 && !node.closest(".wide-table, .json, .table, .snippet, .tabs")) wide.push(node.outerHTML.slice(0, 100));
  }
  return wide;
}

// Names of controls, one heading, no id twice, and the contrast of every text with what is behind it (WCAG 2.2, 1.4.3).
function findFlaws() {
  const flaws = [];
  const seen = (node) => node.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  const nameOf = (node) => node.getAttribute("aria-label") || node.labels?.[0]?.textContent || node.textContent || node.title || node.alt || "";
  for (const node of document.querySelectorAll("a, button, input, select, textarea, summary, [role=img], [role=meter], [role=region], [tabindex='0']"))
    if (seen(node) && !nameOf(node).trim()) flaws.push("no name: " + node.outerHTML.slice(0, 120));
  for (const node of document.querySelectorAll("img")) if (!node.hasAttribute("alt")) flaws.push("no alt");
  if (document.querySelectorAll("main h2").length !== 1) flaws.push("headings: " + document.querySelectorAll("main h2").length);
  if (!document.documentElement.lang || !document.title) flaws.push("no language or title");
  const ids = [...document.querySelectorAll("[id]")].map((node) => node.id);
  if (new Set(ids).size !== ids.length) flaws.push("an id stands twice");
  const paint = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const colour = (text) => {
    paint.clearRect(0, 0, 1, 1);
    paint.fillStyle = text;
    paint.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = paint.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const behind = (node) => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) layers.push(colour(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const light = ([r, g, b]) => [r, g, b].map((part) => part / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)).reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const told = new Set();
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !seen(node) || node.closest("[disabled], .frame.later, noscript, option")) continue;
    const style = getComputedStyle(node);
    const back = behind(node);
    const [a, b] = [light(over(colour(style.color), back)), light(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const words = `contrast ${ratio.toFixed(2)} of ${style.color} on ${back.map(Math.round)}: ${walker.currentNode.data.trim().slice(0, 30)} (${node.className})`;
    if (ratio < (large ? 3 : 4.5) && !told.has(node.className)) told.add(node.className), flaws.push(words);
  }
  return flaws.slice(0, 20);
}
