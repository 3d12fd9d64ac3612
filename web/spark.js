// A small line that says how a number went. Its top is the largest value it has.

import { svg } from "./dom.js";

const [WIDTH, HEIGHT] = [120, 28];

/** what: how its values are called, for screen readers. write: how one is written. */
export function spark({ what, write = String, bad = false }) {
  const line = svg("path", { class: "spark-line" });
  const area = svg("path", { class: "spark-area" });
  const element = svg("svg", { class: "spark wide", role: "img", "aria-label": what, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none" }, area, line);
  if (bad) element.dataset.level = "high";
  return {
    element,
    /** values: the oldest first, null where nothing is known. */
    set(values) {
      const known = values.filter((one) => typeof one === "number");
      const top = Math.max(1, ...known);
      const at = (value, index) => `${((index / Math.max(1, values.length - 1)) * WIDTH).toFixed(1)} ${(HEIGHT - 1.5 - (value / top) * (HEIGHT - 4)).toFixed(1)}`;
      const path = values.map((value, index) => (typeof value === "number" ? at(value, index) : null));
      let stroke = "";
      path.forEach((point, index) => { if (point) stroke += `${path[index - 1] ? "L" : "M"}${point}`; });
      line.setAttribute("d", stroke);
      area.setAttribute("d", known.length === values.length && known.length > 1 ? `${stroke}V${HEIGHT}H0Z` : "");
      element.setAttribute("aria-label", known.length ? `${what}: now ${write(known.at(-1))}, between ${write(Math.min(...known))} and ${write(Math.max(...known))}` : `${what}: nothing yet`);
    },
  };
}
