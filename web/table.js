// Tables with headers, a place held while loading, and words when there is nothing.
// On narrow screens each row becomes a card (narrow.css); the roles keep it a table for screen readers.

import { h } from "./dom.js";
import { about } from "./tip.js";

/** columns: [{ title, cell: (row) => text or element, class, means: its name in meanings.js if not the title }]. empty: what an empty table says, or a function that knows. */
export function table({ label, columns, empty, rowClass = () => null }) {
  const body = h("tbody", { role: "rowgroup" });
  const head = h("tr", { role: "row" }, columns.map(({ title, class: name, means }) => h("th", { role: "columnheader", scope: "col", class: name, "aria-label": title }, about(title, means))));
  const element = h("div", { class: "card table-card" },
    h("table", { role: "table", "aria-label": label, "aria-busy": "true" }, h("thead", { role: "rowgroup" }, head), body));
  const grid = element.firstChild;

  const build = (row) => h("tr", { role: "row", class: rowClass(row) },
    columns.map((column) => h("td", { role: "cell", "data-label": column.title, class: column.class }, h("div", null, column.cell(row)))));
  const wide = (...content) => h("tr", { role: "row" }, h("td", { role: "cell", class: "wide", colspan: columns.length }, content));

  body.append(...[1, 2, 3].map(() => wide(h("span", { class: "ghost" }))));

  return {
    element,
    set(rows) {
      grid.setAttribute("aria-busy", "false");
      body.replaceChildren(...(rows.length ? rows.map(build) : [wide(h("div", { class: "empty" }, typeof empty === "function" ? empty() : empty))]));
    },
    append(rows) {
      body.append(...rows.map(build));
    },
    /** Shows `content` (a problem) in place of the rows. */
    say(content) {
      grid.setAttribute("aria-busy", "false");
      body.replaceChildren(wide(content));
    },
  };
}
