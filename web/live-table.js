// Tables that live: a row is known by its key, stays where it is, and only what has changed in it is touched.
// So nothing flickers, a selection survives, and a button keeps the focus.

import { h, setText } from "./dom.js";
import { about } from "./tip.js";

/**
 * columns: [{ title, class, means, text: (row) => text }] or, for more than text, [{ title, class, make: () => ({ element, set(row) }) }].
 * means: the name of the column in meanings.js, if not its title. key(row): what it is known by. empty: what an empty table says, or a function that knows.
 */
export function liveTable({ label, columns, key, empty, rowClass = () => "" }) {
  const rows = new Map();
  const body = h("tbody", { role: "rowgroup" });
  const head = h("tr", { role: "row" }, columns.map(({ title, class: name, means }) => h("th", { role: "columnheader", scope: "col", class: name, "aria-label": title }, about(title, means))));
  const grid = h("table", { role: "table", "aria-label": label, "aria-busy": "true" }, h("thead", { role: "rowgroup" }, head), body);
  const element = h("div", { class: "card table-card", tabindex: "-1" }, grid);
  const wide = (...content) => h("tr", { role: "row" }, h("td", { role: "cell", class: "wide", colspan: columns.length }, content));
  let filler = [1, 2, 3].map(() => wide(h("span", { class: "ghost" })));
  body.append(...filler);

  function make() {
    const cells = columns.map((column) => column.make?.() ?? plain(column.text));
    const line = h("tr", { role: "row" }, columns.map((column, index) => h("td", { role: "cell", "data-label": column.title, class: column.class }, h("div", null, cells[index].element))));
    return {
      element: line,
      set(row) {
        cells.forEach((cell) => cell.set(row));
        const name = rowClass(row);
        if (line.className !== name) line.className = name;
      },
    };
  }

  function fill(...content) {
    filler.forEach((one) => one.remove());
    filler = content;
    body.append(...content);
    grid.setAttribute("aria-busy", "false");
  }

  function set(list) {
    const held = body.contains(document.activeElement);
    const keys = new Set(list.map(key));
    for (const [id, row] of rows) {
      if (keys.has(id)) continue;
      row.element.remove();
      rows.delete(id);
    }
    if (list.length) fill();
    else if (filler[0]?.className !== "vacant") {
      fill(wide(h("div", { class: "empty" }, typeof empty === "function" ? empty() : empty)));
      filler[0].className = "vacant";
    }
    let place = body.firstChild;
    for (const row of list) {
      const id = key(row);
      if (!rows.has(id)) rows.set(id, make());
      const one = rows.get(id);
      one.set(row);
      if (one.element === place) place = place.nextSibling;
      else body.insertBefore(one.element, place);
    }
    // The row that had the focus may be gone.
    if (held && !body.contains(document.activeElement)) element.focus({ preventScroll: true });
  }

  return {
    element,
    set,
    /** Shows `content` (a problem) in place of the rows. */
    say(content) {
      set([]);
      fill(wide(content));
    },
    /** Says anew why there is nothing, because the filters are others. */
    renew() {
      if (filler[0]?.className === "vacant") fill();
    },
  };
}

/** A cell of text that is touched only if it differs. */
export function plain(text, tag = "span", name = null) {
  const element = h(tag, { class: name });
  return { element, set: (row) => setText(element, text(row)) };
}
