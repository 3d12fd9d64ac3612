// Audit: who changed what on this node, newest first.

import { h } from "../dom.js";
import { explainOf } from "../explain.js";
import { dateTime, when } from "../format.js";
import { pageHead } from "../notice.js";
import { pagedTable } from "../paged.js";

export const page = { "path": "/audit", "title": "Audit", "order": 95, "needs": "admin", "icon": "M7 3h10v18H7zM10 8h4M10 12h4M10 16h2" };

export function mount(root, { signal }) {
  const list = pagedTable({
    path: "/api/v1/audit", rows: "entries", limit: 100, signal,
    label: "Audit entries, newest first",
    empty: "Nothing has been changed yet. Every change to keys and settings is noted here.",
    columns: [
      { title: "Time", class: "nowrap", cell: (entry) => when(entry.at, dateTime(entry.at, true)) },
      { title: "Who", cell: (entry) => [entry.actor, h("div", { class: "dim mono small" }, entry.address)] },
      { title: "Did", cell: (entry) => h("code", null, entry.action) },
      { title: "To", class: "free", cell: (entry) => h("span", { class: "mono small" }, entry.target) },
      { title: "Detail", class: "free", cell: (entry) => [entry.detail || "–", h("div", null, explainOf(entry.explain))] },
    ],
  });
  root.append(pageHead("Audit", "Who changed what on this node, newest first.", h("button", { type: "button", onclick: list.load }, "Refresh")), ...list.elements);
}
