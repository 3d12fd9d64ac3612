// The sawtooth: how workers wear out and begin anew, how many are out at once, and when each restarted.

import { freshId, h, setText, svg } from "./dom.js";
import { clock, whole } from "./format.js";
import { timeTicks, valueTicks } from "./scale.js";
import { many } from "./session-words.js";
import { about } from "./tip.js";

const TOP = 14;
const RESTARTS = 20; // the line of restarts, below the plot
const AXIS = 22;
const GAP = 30; // between two plots, with a caption in it
// Up to so many workers each has a colour and its name at the end of its line. Blue is kept for those who are out.
const NAMED = 5;
const COLORS = [1, 3, 4, 5, 6];
const NEAR = 6;
const READ = 4;
const DIAMONDS = 40;
// Pixels that a line may be beside the truth: for few workers, and for many.
const SLACK = [0.5, 2.5];
const round = (pixels) => Math.round(pixels * 10) / 10;

/** lives: what is known of workers. only: draw this worker alone. */
export function sawtooth({ lives, only = null }) {
  let kind = null;
  let width = 0;
  let due = 0;
  let scale = null;
  let names = [];
  let cursor = null; // { x, y } under the pointer, or { at, name } by keyboard
  let drawn = "";
  const lines = new Map();

  const grid = svg("g", { class: "chart-grid" });
  const zones = svg("g");
  const strokes = svg("g");
  const labels = svg("g", { class: "saw-labels" });
  const outs = svg("path", { class: "saw-out-area" });
  const ceiling = svg("path", { class: "saw-ceiling" });
  const marks = svg("path", { class: "saw-restart" });
  const hair = svg("line");
  const dot = svg("circle", { r: 4 });
  const cross = svg("g", { class: "chart-cross" }, hair, dot);
  const picture = svg("svg", { role: "img" }, zones, grid, outs, ceiling, strokes, marks, labels, cross);
  const note = h("p", { class: "chart-empty" }, "The first lines appear in a moment");
  const tip = h("div", { class: "chart-tip saw-tip", hidden: true });
  const handle = h("div", {
    class: "chart-handle", role: "slider", tabindex: "0", "aria-label": "Lives of workers: left and right move in time, up and down from worker to worker, with Shift from restart to restart",
    "aria-valuenow": 0, "aria-valuetext": "No data yet", onpointermove: point, onpointerdown: point, onpointerleave: release, onpointercancel: release,
    onkeydown: key, onblur: release,
  });
  const plot = h("div", { class: "chart-plot" }, picture, note, tip, handle);
  const legend = h("p", { class: "keys small dim saw-keys" },
    [["life", "sessions in a worker's life"], ["out", "out: drains or restarts"], ["limit", "limit"], ["due", "due: to be restarted soon"], ["restart", "restarted"]]
      .map(([name, text]) => h("span", null, h("i", { class: name }), text)));
  const remark = h("p", { class: "dim small" });
  const heading = freshId("saw");
  const choice = h("select", { "aria-label": "Kind of worker", onchange: () => {
    kind = null;
    schedule();
  } });
  choice.hidden = true;
  const element = h("figure", { class: "card chart saw", "aria-labelledby": heading },
    h("figcaption", { class: "chart-head" }, h("h2", { id: heading }, about(only ? "Its lives" : "Lives of workers", "Lives of workers")), choice, legend), plot, remark);
  let kinds = [];
  const observer = new ResizeObserver(([entry]) => {
    width = Math.floor(entry.contentRect.width);
    schedule();
  });
  observer.observe(plot);

  function schedule() {
    if (!due) due = requestAnimationFrame(draw);
  }

  const everybody = () => Object.values(kind.workers).reduce((sum, count) => sum + count, 0);
  const sizes = () => ({ upper: only ? 190 : width < 600 ? 210 : 270, lower: only ? 0 : 52 });

  function draw() {
    due = 0;
    kind = kinds.find((one) => one.kind === choice.value) ?? kinds[0];
    const { upper, lower } = sizes();
    const height = TOP + upper + (lower ? GAP + lower : 0) + RESTARTS + AXIS;
    if (plot.dataset.height !== String(height)) {
      plot.dataset.height = height;
      plot.style.height = `${height}px`;
    }
    if (!width || !kind) return;
    names = only ? [only].filter((name) => lives.line(name)) : lives.names(kind.kind).sort(byNumber);
    const { times } = lives;
    note.hidden = names.length > 0 && times.length > 1;
    const limit = kind.lifetime_max;
    const highest = Math.max(4, limit, ...names.map((name) => Math.max(0, ...lives.line(name).lifetime.filter(Number.isFinite))));
    const ticks = valueTicks(highest, 4).filter((tick) => !limit || tick <= highest);
    const top = limit ? highest * 1.06 : ticks.at(-1);
    const few = names.length <= NAMED;
    const left = 14 + 6.6 * Math.max(2, ...ticks.map((tick) => whole(tick).length));
    const right = width < 600 ? 10 : few && !only ? 20 + 6.4 * Math.min(16, Math.max(0, ...names.map((name) => name.length))) : only ? 12 : 96;
    const end = times.at(-1) ?? Date.now();
    const begin = end - lives.SPAN;
    const floor = TOP + upper;
    const base = floor + (lower ? GAP + lower : 0);
    // Where not all are drawn, how many of them are out says nothing about the budget.
    const bounded = kind.policy === "budgeted" && everybody() <= names.length;
    const most = Math.max(1, bounded ? kind.out_max : 0, ...outAt(times));
    scale = {
      left, right, bounded, begin, end, floor, base, height, most, lower, top,
      x: (at) => left + ((at - begin) / (end - begin)) * (width - left - right),
      y: (value) => floor - (value / top) * upper,
      out: (count) => base - (count / (most + 0.35)) * lower,
      at: (x) => begin + ((x - left) / (width - left - right)) * (end - begin),
    };
    picture.setAttribute("width", width);
    picture.setAttribute("height", height);
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    drawZones(limit);
    drawGrid(ticks, limit);
    drawLines(few);
    drawOuts();
    drawLabels(few);
    drawCursor();
    describe();
  }

  // How many of those drawn were out, at each time.
  let counted = { of: null, times: 0, counts: [] };
  function outAt(times) {
    const of = names.join();
    if (counted.of === of && counted.last === times.at(-1) && counted.times === times.length) return counted.counts;
    const counts = times.map((_, index) => names.reduce((sum, name) => sum + (lives.line(name).out[index] ? 1 : 0), 0));
    counted = { of, times: times.length, last: times.at(-1), counts };
    return counts;
  }

  // In its first life each has a point of its own, so that they do not all end together.
  const ownPoints = () => [...new Set(names.map((name) => lives.worker(name)?.due_at).filter((at) => at && at !== dueFrom()))];
  const dueFrom = () => Math.max(0, ...names.map((name) => lives.worker(name)?.due_at ?? 0));

  function drawZones(limit) {
    const parts = [];
    const from = dueFrom();
    const span = { x: scale.left, width: Math.max(0, width - scale.left - scale.right) };
    if (limit && from) parts.push(svg("rect", { class: "saw-due", ...span, y: scale.y(limit), height: Math.max(0, scale.y(from) - scale.y(limit)) }));
    if (limit && from) parts.push(...ownPoints().map((at) => svg("line", { class: "saw-own", x1: width - scale.right - 7, x2: width - scale.right, y1: scale.y(at), y2: scale.y(at) })));
    if (limit) parts.push(svg("line", { class: "saw-limit", x1: scale.left, x2: width - scale.right, y1: scale.y(limit), y2: scale.y(limit) }));
    zones.replaceChildren(...parts);
  }

  function drawGrid(ticks, limit) {
    const far = width - scale.right;
    const across = (y, name) => svg("line", { x1: scale.left, x2: far, y1: Math.round(y) + 0.5, y2: Math.round(y) + 0.5, class: name });
    const text = (x, y, anchor, content, name) => svg("text", { x, y, "text-anchor": anchor, class: name }, content);
    const rows = ticks.filter((tick) => !limit || tick === 0 || Math.abs(scale.y(tick) - scale.y(limit)) > 14);
    const parts = rows.flatMap((tick) => [across(scale.y(tick), tick ? null : "base"), text(scale.left - 8, scale.y(tick) + 4, "end", whole(tick))]);
    if (limit) parts.push(text(scale.left - 8, scale.y(limit) + 4, "end", whole(limit), "saw-limit-text"));
    if (scale.lower) {
      const told = scale.bounded ? `Out at once, at most ${whole(kind.out_max)}`
        : kind.policy !== "budgeted" ? "Out at once, any number with this policy" : `Out at once of those drawn; of all, ${whole(kind.out)} of at most ${whole(kind.out_max)} now`;
      parts.push(across(scale.base, "base"), text(scale.left - 8, scale.base + 3, "end", "0"),
        text(scale.left - 8, scale.out(scale.most) + 4, "end", whole(scale.most)),
        text(scale.left, scale.base - scale.lower - 8, "start", told, "saw-caption"));
    }
    const line = scale.base + RESTARTS / 2 + 4;
    parts.push(across(line, null));
    const { step, times } = timeTicks(scale.begin, scale.end, Math.max(1, Math.floor((far - scale.left) / 70)));
    parts.push(...times.filter((time) => scale.x(time) > scale.left + 16 && scale.x(time) < far - 10).map((time) => text(scale.x(time), scale.height - 6, "middle", clock(time, step < 60000))));
    grid.replaceChildren(...parts);
    const recent = lives.restarts.filter(({ at, worker }) => at >= scale.begin && names.includes(worker));
    // Many would hide each other, and are ticks.
    const shape = recent.length > DIAMONDS ? [-0.75, "v10h1.5v-10z"] : [0, "l4 5-4 5-4-5z"];
    marks.setAttribute("d", recent.map(({ at }) => `M${(scale.x(at) + shape[0]).toFixed(1)} ${line - 5}${shape[1]}`).join(""));
  }

  function drawLines(few) {
    for (const [name, one] of lines) {
      if (names.includes(name)) continue;
      one.forEach((path) => path.remove());
      lines.delete(name);
    }
    names.forEach((name, index) => {
      if (!lines.has(name)) {
        const made = [svg("path", { class: "saw-line" }), svg("path", { class: "saw-out" })];
        lines.set(name, made);
        strokes.append(...made);
      }
      const [path, out] = lines.get(name);
      path.classList.toggle("faint", !few);
      // The more there are, the fainter each, so that what is out stands out.
      path.style.setProperty("--faint", Math.max(0.2, Math.min(0.5, 6 / names.length)).toFixed(2));
      path.style.setProperty("--c", few ? `var(--series-${COLORS[index % COLORS.length]})` : "var(--series-1)");
      const { lifetime, out: away } = lives.line(name);
      const slack = few ? SLACK[0] : SLACK[1];
      path.setAttribute("d", trace(lifetime, () => true, slack));
      out.setAttribute("d", trace(lifetime, (at) => away[at], SLACK[0]));
    });
  }

  // A point that lies on the way from the one before to the one after, give or take `slack` pixels, is left out:
  // many lives are ten thousands of points, and most of them say nothing.
  function trace(values, shown, slack) {
    const { times } = lives;
    let d = "";
    let from = null; // the last point that was drawn
    let last = null;
    let low = 0; // between these slopes a straight line passes everything since
    let high = 0;
    const put = (letter, [x, y]) => { d += `${letter}${round(x)} ${round(y)}`; };
    const close = () => {
      if (last) put("L", last);
      // Whoever was out for one point only is a short dash.
      else if (from) d += "h2";
      from = last = null;
    };
    for (let index = 0; index < times.length; index += 1) {
      const value = values[index];
      if (!Number.isFinite(value) || !shown(index)) {
        close();
        continue;
      }
      const here = [scale.x(times[index]), scale.y(value)];
      if (!from) {
        put("M", (from = here));
        continue;
      }
      const wide = (point) => Math.max(0.01, point[0] - from[0]);
      if (last) {
        const slope = (here[1] - from[1]) / wide(here);
        if (slope < low || slope > high) {
          put("L", (from = last));
          last = null;
        }
      }
      const [lower, upper] = [here[1] - from[1] - slack, here[1] - from[1] + slack].map((rise) => rise / wide(here));
      low = last ? Math.max(low, lower) : lower;
      high = last ? Math.min(high, upper) : upper;
      last = here;
    }
    close();
    return d;
  }

  function drawOuts() {
    outs.setAttribute("d", "");
    ceiling.setAttribute("d", "");
    const { times } = lives;
    if (!scale.lower || times.length < 2) return;
    const counts = outAt(times);
    let d = `M${scale.x(times[0]).toFixed(1)} ${scale.base}`;
    counts.forEach((count, index) => {
      if (index && count === counts[index - 1] && index < counts.length - 1) return;
      d += `H${scale.x(times[index]).toFixed(1)}V${scale.out(count).toFixed(1)}`;
    });
    outs.setAttribute("d", `${d}V${scale.base}Z`);
    if (scale.bounded) ceiling.setAttribute("d", `M${scale.left} ${scale.out(kind.out_max).toFixed(1)}H${width - scale.right}`);
  }

  // Names at the ends of the lines; in a crowd only of those who are out.
  function drawLabels(few) {
    if (only || width < 600) return labels.replaceChildren();
    const ends = names.map((name, index) => ({ name, index, value: lives.line(name).lifetime.at(-1), out: lives.line(name).out.at(-1) }))
      .filter(({ value, out }) => Number.isFinite(value) && (few || out)).sort((a, b) => b.value - a.value).slice(0, 16);
    let last = -Infinity;
    const spread = ends.map((one) => {
      last = Math.max(scale.y(one.value), last + 13);
      return { ...one, y: last };
    });
    labels.replaceChildren(...spread.map(({ name, index, y, out }) => {
      const made = svg("text", { x: width - scale.right + 8, y: y + 4, class: out ? "out" : null }, name.length > 16 ? `${name.slice(0, 15)}…` : name);
      made.style.setProperty("--c", few ? `var(--series-${COLORS[index % COLORS.length]})` : "var(--dim)");
      return made;
    }));
  }

  // The time nearest to the cursor, and whose line is nearest there.
  function chosen() {
    const { times } = lives;
    if (!cursor || !scale || times.length < 2 || !names.length) return null;
    const at = cursor.at ?? scale.at(cursor.x);
    let low = 0;
    let high = times.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (times[middle] < at) low = middle;
      else high = middle;
    }
    const index = Math.abs(times[low] - at) <= Math.abs(times[high] - at) ? low : high;
    if (cursor.name) return { index, name: cursor.name };
    const there = names.filter((name) => Number.isFinite(lives.line(name).lifetime[index]));
    const far = (name) => Math.abs(scale.y(lives.line(name).lifetime[index]) - cursor.y);
    return { index, name: there.reduce((best, name) => (best === null || far(name) < far(best) ? name : best), null) };
  }

  function reading({ index, name }) {
    const at = lives.times[index];
    const one = name && lives.line(name);
    const known = one && Number.isFinite(one.lifetime[index]);
    const x = scale.x(at);
    const near = lives.restarts.filter(({ at: when, worker }) => names.includes(worker) && Math.abs(scale.x(when) - x) <= NEAR)
      .map(({ worker, lifetime }) => `${worker} restarted after ${many(lifetime, "session")}`);
    return {
      at, time: clock(at), name, value: known ? one.lifetime[index] : null,
      parts: [
        known && `${many(one.lifetime[index], "session")} in its life, ${whole(one.active[index])} at once${one.out[index] ? "; it is out" : ""}`,
        !only && `${many(outAt(lives.times)[index], "worker")} out`,
        ...near.slice(0, READ), near.length > READ && `and ${near.length - READ} more restarts`,
      ].filter(Boolean),
    };
  }

  function drawCursor() {
    const found = chosen();
    cross.classList.toggle("on", Boolean(found));
    tip.hidden = !found;
    for (const [name, paths] of lines) paths[0].classList.toggle("chosen", found?.name === name && names.length > 1);
    if (!found) return;
    const told = reading(found);
    const x = scale.x(told.at);
    for (const [name, value] of Object.entries({ x1: x, x2: x, y1: TOP, y2: scale.base + RESTARTS })) hair.setAttribute(name, value);
    dot.classList.toggle("on", told.value !== null);
    if (told.value !== null) {
      dot.setAttribute("cx", x);
      dot.setAttribute("cy", scale.y(told.value));
      strokes.append(...lines.get(told.name));
    }
    tip.replaceChildren(h("div", { class: "dim" }, told.time), told.name && h("strong", null, told.name), ...told.parts.map((text) => h("div", null, text)));
    handle.setAttribute("aria-valuemin", lives.times[0]);
    handle.setAttribute("aria-valuemax", lives.times.at(-1));
    handle.setAttribute("aria-valuenow", told.at);
    handle.setAttribute("aria-valuetext", [told.time, told.name, ...told.parts].filter(Boolean).join(". "));
    const wide = tip.offsetWidth;
    tip.style.transform = `translate(${Math.max(0, Math.min(x > width / 2 ? x - wide - 14 : x + 14, width - wide))}px, ${TOP}px)`;
  }

  function describe() {
    const counts = outAt(lives.times);
    const limit = kind.lifetime_max ? `limit ${whole(kind.lifetime_max)}` : "no limit";
    const peak = Math.max(0, ...counts);
    const told = only ? `Sessions in the lives of ${only}, last ten minutes, ${limit}`
      : `Lives of ${many(names.length, "worker")} of kind ${kind.kind}, last ten minutes, ${limit}. At most ${whole(peak)} were out at once${scale.bounded ? `, ${whole(kind.out_max)} may be` : ""}.`;
    if (picture.getAttribute("aria-label") !== told) picture.setAttribute("aria-label", told);
    const all = everybody();
    const restarted = lives.restarts.filter(({ worker }) => names.includes(worker)).length;
    const drawn = all > names.length ? `The ${whole(names.length)} with the lowest numbers are drawn, of ${whole(all)}. ` : "";
    setText(remark, only ? `${many(restarted, "restart")} in the last ten minutes.` : `${drawn}${many(restarted, "restart")} in the last ten minutes, at most ${whole(peak)} out at once.${ownPoints().length ? " Ticks at the right end: in its first life a worker is due at a point of its own, so that they do not end together." : ""}`);
  }

  function point(event) {
    const box = plot.getBoundingClientRect();
    cursor = { x: event.clientX - box.left, y: event.clientY - box.top };
    schedule();
  }

  function release(event) {
    // A finger that lifts also "leaves"; keep the values readable until the next touch.
    if (event.type === "pointerleave" && event.pointerType === "touch") return;
    cursor = null;
    schedule();
  }

  function key(event) {
    if (event.key === "Escape") return release(event);
    const { times } = lives;
    const step = { ArrowLeft: -1, ArrowRight: 1, PageDown: -30, PageUp: 30, Home: -Infinity, End: Infinity }[event.key];
    const turn = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if ((!step && !turn) || !times.length || !names.length) return;
    event.preventDefault();
    const here = chosen() ?? { index: times.length - 1, name: names[0] };
    let { index, name } = here;
    if (step && event.shiftKey) {
      const own = lives.restarts.filter((one) => names.includes(one.worker)).sort((a, b) => a.at - b.at);
      const next = step < 0 ? own.findLast((one) => one.at < times[index]) : own.find((one) => one.at > times[index]);
      if (next) return jump({ at: next.at, name: next.worker });
    } else if (step) index = Math.max(0, Math.min(times.length - 1, index + step));
    if (turn) name = names[(names.indexOf(name) + turn + names.length) % names.length];
    jump({ at: times[index], name });
  }

  function jump(to) {
    cursor = to;
    schedule();
  }

  return {
    element,
    /** The kinds there are, with their rules; null draws what is new with those known. */
    draw(now = null) {
      if (now) {
        const rules = now.map((one) => [one.kind, one.lifetime_max, one.out, one.out_max, one.live].join()).join(" ");
        kinds = now;
        if (rules === drawn) return;
        drawn = rules;
        const list = kinds.map((one) => one.kind);
        if (choice.dataset.list !== list.join()) {
          const { value } = choice;
          choice.dataset.list = list.join();
          choice.replaceChildren(...list.map((name) => h("option", { value: name }, name)));
          if (list.includes(value)) choice.value = value;
          choice.hidden = list.length < 2;
        }
      }
      if (!document.hidden) schedule();
    },
    destroy() {
      observer.disconnect();
      cancelAnimationFrame(due);
    },
  };
}

// worker-2 before worker-10.
const byNumber = new Intl.Collator("en", { numeric: true }).compare;
