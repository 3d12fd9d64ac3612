// What went through queues in the last hour, minute by minute.

import { chart } from "./chart.js";
import { units } from "./format.js";

const MINUTE = 60000;
const HOUR = 60 * MINUTE;
const KINDS = ["pushed", "popped", "acked", "failed", "deadLetter"];

/** The minutes of the last hour that are over, those without anything too, as rates. */
export function minutesOf(points, now = Date.now()) {
  const known = new Map(points.map((one) => [Math.floor(new Date(one.timestamp) / MINUTE), one]));
  const last = Math.floor(now / MINUTE) - 1;
  return Array.from({ length: 60 }, (_, index) => {
    const minute = last - 59 + index;
    const one = known.get(minute);
    return { at: minute * MINUTE, ...Object.fromEntries(KINDS.map((kind) => [kind, (one?.[kind] ?? 0) / 60])) };
  });
}

/** The rates of the last minute that is over; of the one that goes on, where nothing is older. Which of them is in `of`. */
export function ratesOf(points, now = Date.now()) {
  const whole = minutesOf(points, now).at(-1);
  const running = points.find((one) => Math.floor(new Date(one.timestamp) / MINUTE) === Math.floor(now / MINUTE));
  if (!running || KINDS.some((kind) => whole[kind] > 0)) return { ...whole, of: "last whole minute" };
  const seconds = Math.max(5, (now % MINUTE) / 1000);
  return { at: now, of: "this minute so far", ...Object.fromEntries(KINDS.map((kind) => [kind, (running[kind] ?? 0) / seconds])) };
}

export function hourPlot() {
  return chart({
    title: "Messages, last hour", unit: units.rate, span: HOUR - MINUTE, gap: 1.5 * MINUTE, floor: 0.5, height: 180, empty: "Nothing in this hour",
    series: [{ key: "pushed", label: "Pushed", color: 1, area: true }, { key: "popped", label: "Popped", color: 2 }, { key: "acked", label: "Acknowledged", color: 3 }, { key: "failed", label: "Failed", color: "bad" }],
  });
}
