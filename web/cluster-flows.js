// Who forwards to whom: a row for each node that forwards, a column for each it forwards to.

import { h, setText } from "./dom.js";
import { rate, whole } from "./format.js";

// Beyond so many nodes the matrix is a list of the largest flows.
const MATRIX_MAX = 12;
const LARGEST = 50;

export function flowMatrix() {
  let shape = "";
  let before = null; // the counts of the last beat, for rates
  const cells = new Map();
  const place = h("div");
  const hint = h("p", { class: "dim small" });
  const element = h("section", { class: "card stack flows-box" }, h("h2", null, "Who forwards to whom"), hint, place);
  const id = (from, to) => JSON.stringify([from, to]);

  function build(names) {
    cells.clear();
    const cell = (from, to) => {
      if (from === to) return h("td", { role: "cell", "data-label": to, class: "self" }, h("div", null, "–"));
      const made = { total: h("span", { class: "num" }), now: h("div", { class: "dim small num" }) };
      made.element = h("td", { role: "cell", "data-label": `to ${to}` }, h("div", null, made.total, made.now));
      cells.set(id(from, to), made);
      return made.element;
    };
    place.replaceChildren(h("div", { class: "table-card", tabindex: "0", role: "group", "aria-label": "Requests from node to node" }, h("table", { role: "table", class: "flows", "aria-label": "Requests from node to node" },
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, h("th", { role: "columnheader", scope: "col" }, "from \\ to"), names.map((to) => h("th", { role: "columnheader", scope: "col" }, to)))),
      h("tbody", { role: "rowgroup" }, names.map((from) => h("tr", { role: "row" }, h("th", { role: "rowheader", scope: "row" }, from), names.map((to) => cell(from, to))))))));
  }

  function showMatrix(names, flows, rates) {
    if (shape !== (shape = JSON.stringify(names))) build(names);
    const most = Math.max(1, ...flows.map((one) => one.forwarded));
    const known = new Map(flows.map((one) => [id(one.from, one.to), one.forwarded]));
    for (const [key, cell] of cells) {
      const total = known.get(key) ?? 0;
      setText(cell.total, whole(total));
      setText(cell.now, rates.get(key) ? rate(rates.get(key)) : "");
      cell.element.style.setProperty("--full", total / most);
    }
  }

  function showList(flows, rates) {
    shape = "";
    const largest = [...flows].sort((a, b) => b.forwarded - a.forwarded).slice(0, LARGEST);
    place.replaceChildren(h("ol", { class: "flow-list" }, largest.map(({ from, to, forwarded }) => h("li", null, h("strong", null, from), " → ", h("strong", null, to), ` ${whole(forwarded)} `, h("span", { class: "dim small num" }, rates.get(id(from, to)) ? rate(rates.get(id(from, to))) : "")))));
  }

  return {
    element,
    /** at: when this was so, in milliseconds. */
    set({ servers, flows }, at) {
      const names = [...new Set([...servers.map((one) => one.server_id), ...flows.flatMap((one) => [one.from, one.to])])].sort();
      const counts = new Map(flows.map((one) => [id(one.from, one.to), one.forwarded]));
      // A count that has fallen is one of a node that has started anew.
      const rates = new Map(before && at > before.at ? [...counts].map(([key, count]) => [key, Math.max(0, count - (before.counts.get(key) ?? 0)) / ((at - before.at) / 1000)]) : []);
      before = { at, counts };
      setText(hint, flows.length ? "Requests since each node started, and how many a second now." : "Nothing was forwarded yet: every request was cheapest where it came in.");
      if (names.length > MATRIX_MAX) showList(flows, rates);
      else showMatrix(names, flows, rates);
    },
  };
}
