// The one time-series chart of the dashboard: lines over time in SVG, with crosshair and legend.
//
//   const plot = chart({ title: "Requests", unit: units.rate, series: [{ key: "ok", label: "Requests" }] });
//   root.append(plot.element); plot.set(history); plot.add({ at: Date.now(), ok: 3 }); ... plot.destroy();
//
// A point is { at: milliseconds, [key]: number or null }. null, or a pause longer than `gap`, breaks the line.
// A mark is an event that belongs to a line: { at, key, text, down: pointing down? }, read at the crosshair.

import { freshId, h, setText, svg } from "./dom.js";
import { clock, dateTime, duration } from "./format.js";
import { timeTicks, valueTicks } from "./scale.js";
import { about } from "./tip.js";

const TOP = 10;
const BOTTOM = 24;
const RIGHT = 10;
// A mark this near to the cursor is read, so many at once.
const NEAR = 6;
const READ = 3;

/**
 * series: [{ key, label, color: 1..6 or "bad", area: fill below?, dash: dashed? }].
 * span: milliseconds shown. floor: the axis reaches at least this value, so that noise stays small.
 */
export function chart({ title, unit, series, span = 300000, gap = 3500, height = 200, floor = 0, empty = "No data yet" }) {
  let points = [];
  let marks = [];
  let width = 0;
  let scale = null;
  let cursor = null; // { at } follows a moment (keyboard), { x } stays under the pointer
  let due = 0;
  const moment = (at) => (span > 86400000 ? dateTime(at) : clock(at));
  const lines = series.map((one, index) => new Line(one, index));

  const grid = svg("g", { class: "chart-grid" });
  const cross = svg("g", { class: "chart-cross" }, svg("line"), lines.map((line) => line.dot));
  const picture = svg("svg", { role: "img", "aria-label": title, height }, grid, lines.map((line) => [line.area, line.path]), lines.map((line) => line.marks), cross);
  const note = h("p", { class: "chart-empty" }, empty);
  const tipTime = h("div", { class: "dim" });
  const tipMarks = h("div", { class: "chart-tip-marks" });
  const tip = h("div", { class: "chart-tip", hidden: true }, tipTime, lines.map((line) => line.tip), tipMarks);
  // A slider is what screen readers know as "move through values with the arrow keys".
  const handle = h("div", {
    class: "chart-handle", role: "slider", tabindex: "0", "aria-label": `${title}: values over time`,
    "aria-valuenow": 0, "aria-valuetext": empty,
    onpointermove: point, onpointerdown: point, onpointerleave: release, onpointercancel: release,
    onkeydown: key, onfocus: () => { if (handle.matches(":focus-visible")) move(points.length - 1); }, onblur: release,
  });
  const heading = freshId("chart");
  const plot = h("div", { class: "chart-plot" }, picture, note, tip, handle);
  plot.style.height = `${height}px`;
  const element = h("figure", { class: "card chart", "aria-labelledby": heading },
    h("figcaption", { class: "chart-head" }, h("h2", { id: heading }, about(title)),
      h("div", { class: "chart-legend", role: "group", "aria-label": "Lines shown" }, lines.map((line) => line.button))),
    plot);

  for (const line of lines) {
    line.button.addEventListener("click", () => {
      line.shown = !line.shown;
      line.button.setAttribute("aria-pressed", line.shown);
      schedule();
    });
  }
  const observer = new ResizeObserver(([entry]) => {
    width = Math.floor(entry.contentRect.width);
    schedule();
  });
  observer.observe(plot);

  function schedule() {
    if (!due) due = requestAnimationFrame(draw);
  }

  function draw() {
    due = 0;
    const shown = lines.filter((line) => line.shown);
    const highest = Math.max(floor, ...points.flatMap((one) => shown.map((line) => one[line.key] ?? 0)));
    const hasData = points.some((one) => shown.some((line) => typeof one[line.key] === "number"));
    setText(note, shown.length ? empty : "All lines are switched off");
    note.hidden = hasData;
    for (const line of lines) setText(line.latest, unit.write(points.at(-1)?.[line.key]));
    if (!width) return;

    const ticks = valueTicks(highest, 4, unit.base);
    const labels = ticks.map((tick) => unit.write(tick));
    const left = 14 + 6.6 * Math.max(5, ...labels.map((label) => label.length));
    const end = points.at(-1)?.at ?? Date.now();
    const begin = end - span;
    scale = {
      left, begin, end,
      x: (at) => left + ((at - begin) / span) * (width - left - RIGHT),
      y: (value) => height - BOTTOM - (value / ticks.at(-1)) * (height - TOP - BOTTOM),
      at: (x) => begin + ((x - left) / (width - left - RIGHT)) * span,
    };
    picture.setAttribute("width", width);
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    drawGrid(ticks, labels, hasData);
    for (const line of lines) {
      line.draw(points, scale, gap);
      line.drawMarks(marks, scale);
    }
    drawCursor(hasData);
    describe(hasData, shown);
  }

  function drawGrid(ticks, labels, hasData) {
    const parts = (hasData ? ticks : [0]).map((tick, index) => {
      const y = Math.round(scale.y(tick)) + 0.5;
      return [
        svg("line", { x1: scale.left, x2: width - RIGHT, y1: y, y2: y, class: index ? null : "base" }),
        hasData && svg("text", { x: scale.left - 8, y: y + 4, "text-anchor": "end" }, labels[index]),
      ];
    });
    const { step, times } = timeTicks(scale.begin, scale.end, Math.max(1, Math.floor((width - scale.left) / 70)));
    // Midnight is named by its day.
    const label = (time) => (clock(time) === "00:00:00" ? dateTime(time).slice(5, 10) : clock(time, step < 60000));
    const fitting = times.filter((time) => scale.x(time) > scale.left + 16 && scale.x(time) < width - 26);
    if (hasData) parts.push(fitting.map((time) => svg("text", { x: scale.x(time), y: height - 6, "text-anchor": "middle" }, label(time))));
    grid.replaceChildren(...parts.flat(2).filter(Boolean));
  }

  // The point nearest to the cursor, or none.
  function chosen() {
    if (!cursor || !scale || !points.length) return null;
    const at = cursor.at ?? scale.at(cursor.x);
    let low = 0;
    let high = points.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (points[middle].at < at) low = middle;
      else high = middle;
    }
    return Math.abs(points[low].at - at) <= Math.abs(points[high].at - at) ? low : high;
  }

  const visible = () => marks.filter((mark) => lines.some((line) => line.shown && line.key === mark.key));

  // What the marks beside the cursor say.
  function toRead() {
    const x = cursor?.at ? scale.x(cursor.at) : cursor?.x;
    const near = visible().filter((mark) => Math.abs(scale.x(mark.at) - x) <= NEAR).map((mark) => mark.text);
    return near.length > READ ? [...near.slice(0, READ), `and ${near.length - READ} more`] : near;
  }

  function drawCursor(hasData) {
    const index = hasData ? chosen() : null;
    const texts = toRead();
    cross.classList.toggle("on", index !== null);
    tip.hidden = index === null;
    const one = points[index ?? points.length - 1];
    if (one) {
      handle.setAttribute("aria-valuemin", points[0].at);
      handle.setAttribute("aria-valuemax", points.at(-1).at);
      handle.setAttribute("aria-valuenow", one.at);
      const values = lines.filter((line) => line.shown).map((line) => `${line.label} ${unit.write(one[line.key])}`);
      handle.setAttribute("aria-valuetext", `${moment(one.at)}: ${[values.join(", "), ...texts].join(". ")}`);
    }
    if (index === null) return;
    const x = scale.x(one.at);
    const hair = cross.firstChild;
    for (const [name, value] of Object.entries({ x1: x, x2: x, y1: TOP, y2: height - BOTTOM })) hair.setAttribute(name, value);
    setText(tipTime, moment(one.at));
    setText(tipMarks, texts.join("\n"));
    for (const line of lines) line.mark(one, x, scale, unit);
    // On the side with more room, so that it never hides the point or leaves the card.
    const wide = tip.offsetWidth;
    tip.style.transform = `translate(${Math.max(0, Math.min(x > width / 2 ? x - wide - 14 : x + 14, width - wide))}px, ${TOP}px)`;
  }

  function describe(hasData, shown) {
    const parts = shown.map((line) => {
      const values = points.map((one) => one[line.key]).filter((value) => typeof value === "number");
      if (!values.length) return `${line.label}: no data`;
      const [low, high] = [Math.min(...values), Math.max(...values)].map(unit.write);
      return `${line.label}: now ${unit.write(values.at(-1))}, between ${low} and ${high}`;
    });
    picture.setAttribute("aria-label", hasData ? `${title}, last ${duration(span / 1000)}. ${parts.join(". ")}.` : `${title}. ${empty}.`);
  }

  function point(event) {
    cursor = { x: event.clientX - plot.getBoundingClientRect().left };
    schedule();
  }

  function release(event) {
    // A finger that lifts also "leaves"; keep the values readable until the next touch.
    if (event.type === "pointerleave" && event.pointerType === "touch") return;
    cursor = null;
    schedule();
  }

  function move(index) {
    if (!points.length) return;
    cursor = { at: points[Math.max(0, Math.min(points.length - 1, index))].at };
    schedule();
  }

  // With Shift, from mark to mark.
  function leap(left) {
    const from = cursor?.at ?? points.at(-1)?.at;
    const mark = left ? visible().findLast((one) => one.at < from) : visible().find((one) => one.at > from);
    if (mark) cursor = { at: mark.at };
    schedule();
  }

  function key(event) {
    const here = chosen() ?? points.length - 1;
    const steps = { ArrowLeft: here - 1, ArrowDown: here - 1, ArrowRight: here + 1, ArrowUp: here + 1, PageUp: here + 30, PageDown: here - 30, Home: 0, End: points.length - 1 };
    if (event.key === "Escape") release(event);
    else if (event.shiftKey && /^Arrow(Left|Right)$/.test(event.key)) leap(event.key === "ArrowLeft");
    else if (event.key in steps) move(steps[event.key]);
    else return;
    event.preventDefault();
  }

  function trim() {
    const oldest = (points.at(-1)?.at ?? 0) - span;
    points = points.filter((one) => one.at >= oldest);
    marks = marks.filter((one) => one.at >= oldest);
    schedule();
  }

  return {
    element,
    /** Takes `given` as the truth for its stretch of time and keeps what lies before and after. */
    set(given) {
      if (!given.length) return schedule();
      const [first, last] = [given[0].at, given.at(-1).at];
      points = [...points.filter((one) => one.at < first), ...given, ...points.filter((one) => one.at > last)];
      trim();
    },
    add(one) {
      if (points.length && one.at <= points.at(-1).at) return;
      points.push(one);
      trim();
    },
    /** Takes `given`, oldest first, in place of all marks. */
    mark(given) {
      marks = given;
      trim();
    },
    destroy() {
      observer.disconnect();
      cancelAnimationFrame(due);
    },
  };
}

/** One series: its path, its filled area, its dot at the crosshair, its legend button. */
class Line {
  constructor({ key, label, color, area = false, dash = false }, index) {
    Object.assign(this, { key, label, shown: true });
    const paint = (element) => {
      element.style.setProperty("--c", color === "bad" ? "var(--bad)" : `var(--series-${color ?? index + 1})`);
      return element;
    };
    this.path = paint(svg("path", { class: dash ? "chart-line dash" : "chart-line" }));
    this.area = area ? paint(svg("path", { class: "chart-area" })) : [];
    this.marks = paint(svg("path", { class: "chart-mark" }));
    this.dot = paint(svg("circle", { r: 4 }));
    const swatch = () => paint(h("span", { class: dash ? "swatch dash" : "swatch" }));
    this.latest = h("span", { class: "num" });
    this.button = h("button", { type: "button", class: "legend", "aria-pressed": "true" }, swatch(), h("span", null, label), this.latest);
    this.value = h("span", { class: "num" });
    this.tip = h("div", { class: "chart-tip-line" }, swatch(), h("span", null, label), this.value);
  }

  draw(points, scale, gap) {
    let stroke = "";
    let filled = "";
    let run = [];
    const close = () => {
      if (!run.length) return;
      const trace = run.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L");
      // A lonely point is a short dash instead of nothing.
      stroke += `M${trace}${run.length === 1 ? "m-2 0h3" : ""}`;
      filled += `M${run[0][0].toFixed(1)} ${scale.y(0)}L${trace}V${scale.y(0)}Z`;
      run = [];
    };
    let before = null;
    for (const one of this.shown ? points : []) {
      const value = one[this.key];
      const known = typeof value === "number";
      if (!known || (before !== null && one.at - before > gap)) close();
      if (known) run.push([scale.x(one.at), scale.y(value)]);
      before = one.at;
    }
    close();
    this.path.setAttribute("d", stroke);
    if (this.area.setAttribute) this.area.setAttribute("d", filled);
  }

  // Small triangles above the lines.
  drawMarks(marks, scale) {
    const own = this.shown ? marks.filter((mark) => mark.key === this.key && mark.at >= scale.begin) : [];
    this.marks.setAttribute("d", own.map((mark) => `M${scale.x(mark.at).toFixed(1)} ${mark.down ? "9l-4-7h8z" : "2l-4 7h8z"}`).join(""));
  }

  mark(one, x, scale, unit) {
    const known = this.shown && typeof one[this.key] === "number";
    this.tip.hidden = !this.shown;
    setText(this.value, unit.write(one[this.key]));
    this.dot.classList.toggle("on", known);
    if (!known) return;
    this.dot.setAttribute("cx", x);
    this.dot.setAttribute("cy", scale.y(one[this.key]));
  }
}
