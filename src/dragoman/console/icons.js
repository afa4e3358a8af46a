// Small line drawings, 24 by 24.

import { h } from "./ui.js";

const PATHS = {
  traffic: "M3 12h4l3-8 4 16 3-8h4",
  xray: "M4 7V5a1 1 0 0 1 1-1h2M17 4h2a1 1 0 0 1 1 1v2M20 17v2a1 1 0 0 1-1 1h-2M7 20H5a1 1 0 0 1-1-1v-2M8 9h8M8 12h8M8 15h5",
  playground: "M4 5h16v11H9l-5 4zM8 9h8M8 12h5",
  translate: "M4 8h13l-3-3M20 16H7l3 3",
  providers: "M5 4h14v6H5zM5 14h14v6H5zM8.5 7h.01M8.5 17h.01",
  keys: "M14.5 9.5a4.5 4.5 0 1 0-3.2 4.3L13 15.5h2.5V18H18v2.5h3V17l-6.7-6.5M9 9h.01",
  mcp: "M9 3v5M15 3v5M6 8h12v3a6 6 0 0 1-12 0zM12 17v4",
  config: "M4 7h9M17 7h3M4 17h3M11 17h9M13 4.5v5M9 14.5v5",
  menu: "M4 7h16M4 12h16M4 17h16",
  theme: "M12 3a9 9 0 1 0 9 9 7 7 0 0 1-9-9",
  help: "M9 9a3 3 0 1 1 4.2 2.8c-.8.4-1.2 1-1.2 2M12 17.5h.01M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  close: "M6 6l12 12M18 6L6 18",
  plus: "M12 5v14M5 12h14",
};

export function icon(name) {
  return h("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" }, h("path", { d: PATHS[name] }));
}
