// What consumers have noted about messages, as a line through time.

import { h } from "./dom.js";
import { clock, dateTime, millis, when, whole } from "./format.js";
import { groupText, queueLink, traceLink } from "./queue-words.js";
import { many } from "./session-words.js";

const DAY = 86400000;
const LANES = 30;
const LEVELS = { error: "error", failed: "error", warn: "warn", warning: "warn", retry: "warn" };
const looks = (type) => LEVELS[type] ?? "info";

/** Traces of one thing, oldest first. since: what the times are counted from. across: they may be of several queues. */
export function timeLine(traces, { since = null, across = false } = {}) {
  const ordered = [...traces].sort((a, b) => new Date(a.createdAt) - new Date(b.createdAt));
  const begin = since ? new Date(since) : new Date(ordered[0]?.createdAt);
  const step = (one) => h("li", { "data-level": looks(one.eventType) },
    h("div", { class: "time-line-head" },
      h("strong", null, one.eventType), " ",
      h("span", { class: "dim small num" }, when(one.createdAt, Date.now() - new Date(one.createdAt) < DAY / 2 ? clock(one.createdAt) : dateTime(one.createdAt, true)), `, ${after(new Date(one.createdAt) - begin)}`)),
    h("div", { class: "dim small" }, [
      across && one.queue && [h("a", { href: queueLink(one.queue, "messages", { partition: one.partition }) }, one.queue), ` / ${one.partition}, ${one.transactionId}`],
      one.consumerGroup && `${across ? ", " : ""}group ${groupText(one.consumerGroup)}`, one.workerId && ` on ${one.workerId}`,
    ].filter(Boolean)),
    hasData(one.data) && h("pre", null, typeof one.data === "string" ? one.data : JSON.stringify(one.data, null, 1)),
    one.traceNames?.length > 0 && h("div", { class: "chips" }, one.traceNames.map((name) => h("a", { class: "chip", href: traceLink(name) }, name))));
  return h("ol", { class: "time-line", "aria-label": "Traces, oldest first" }, ordered.map(step));
}

const hasData = (data) => data !== null && data !== undefined && JSON.stringify(data) !== "{}";
const after = (time) => (time > 0 ? `${millis(time)} after` : "at the beginning");

/** Which queues a trace went through and when: a lane for each, a mark for every note. */
export function lanesOf(traces) {
  const times = traces.map((one) => new Date(one.createdAt).getTime());
  const [begin, end] = [Math.min(...times), Math.max(...times)];
  const lanes = new Map();
  for (const one of [...traces].reverse()) {
    if (!lanes.has(one.queue)) lanes.set(one.queue, []);
    lanes.get(one.queue).push(one);
  }
  const place = (one) => (end > begin ? ((new Date(one.createdAt) - begin) / (end - begin)) * 100 : 50);
  const lane = ([queue, own]) => h("li", null,
    h("a", { class: "cut", href: queueLink(queue) }, queue),
    h("span", { class: "lane-line", role: "img", "aria-label": many(own.length, "note") }, own.map((one) => {
      const mark = h("i", { "data-level": looks(one.eventType), title: `${one.eventType}, ${dateTime(one.createdAt, true)}` });
      mark.style.left = `${place(one)}%`;
      return mark;
    })));
  const all = [...lanes];
  return h("section", { class: "card stack" }, h("div", { class: "event-head" }, h("h2", null, "Across queues"), h("span", { class: "dim small num" }, end > begin ? `${millis(end - begin)} from the first note to the last` : "")),
    h("ol", { class: "trace-lanes" }, all.slice(0, LANES).map(lane)), all.length > LANES && h("p", { class: "dim small" }, `and ${whole(all.length - LANES)} more queues`));
}
