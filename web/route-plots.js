// A route over time: its last two minutes as they come, and what all nodes have written down.

import { api } from "./api.js";
import { chart } from "./chart.js";
import { h, setText } from "./dom.js";
import { millis, units, whole } from "./format.js";
import { problemNotice } from "./notice.js";
import { routePath } from "./route-words.js";
import { addParams } from "./router.js";

export const LIVE_MS = 120000;
const SECOND = 1000;
const MINUTE = 60000;
// A pause longer than this between two seconds was one without requests.
const PAUSE = 1500;
const CLASSES = ["2xx", "3xx", "4xx", "5xx"];
const DURATIONS = [{ key: "p99", label: "p99", color: 5 }, { key: "p50", label: "p50", color: 2 }];

// Nodes write down what they have seen every ten seconds: a point that has only begun says nothing yet.
const BEGUN = 20 * SECOND;

// minutes: how far back. step: minutes that are one point. every: seconds until it is asked for again.
const SPANS = {
  hour: { label: "1 hour", minutes: 60, step: 1, every: 10 },
  day: { label: "24 hours", minutes: 1440, step: 5, every: 60 },
  week: { label: "7 days", minutes: 10080, step: 30, every: 600 },
  month: { label: "30 days", minutes: 43200, step: 120, every: 600 },
};

/** Seconds with a request, and between them the ends of the pauses, where the rate is zero. */
function filled(seconds, at) {
  const zero = (time) => ({ at: time, requests: 0, errors: 0, refused: 0, p50: null, p99: null });
  const points = [];
  let before = at - LIVE_MS;
  const pause = (last) => {
    const first = points.length ? before + SECOND : before;
    points.push(...(first < last ? [zero(first), zero(last)] : [zero(last)]));
  };
  for (const one of seconds) {
    if (one.at_ms - before > PAUSE) pause(one.at_ms - SECOND);
    points.push({ at: one.at_ms, requests: one.requests, errors: one.errors, refused: one.refused, p50: one.p50_ms, p99: one.p99_ms });
    before = one.at_ms;
  }
  if (at - before > PAUSE) pause(at);
  return points;
}

/** The last two minutes on this node. */
export function livePlots() {
  const plots = [
    chart({ title: "Requests, last two minutes", unit: units.rate, span: LIVE_MS, gap: LIVE_MS, floor: 2, empty: "No requests yet",
      series: [{ key: "requests", label: "All", color: 1, area: true }, { key: "errors", label: "5xx", color: "bad" }, { key: "refused", label: "Refused", color: 4, dash: true }] }),
    chart({ title: "Durations, last two minutes", unit: units.millis, span: LIVE_MS, gap: LIVE_MS, floor: 1, empty: "No answers yet", series: DURATIONS }),
  ];
  return {
    element: h("div", { class: "pair" }, plots.map((one) => one.element)),
    draw(seconds, at) {
      const points = filled(seconds, at);
      plots.forEach((one) => one.set(points));
    },
    destroy: () => plots.forEach((one) => one.destroy()),
  };
}

/** All points of the time, those without a request too. */
function steps({ from_ms: from, minutes, step, points }, now) {
  const size = step * MINUTE;
  const first = Math.floor(from / size) * size;
  const known = new Map(points.map((one) => [one.at_ms, one]));
  const starts = Array.from({ length: Math.ceil((from + minutes * MINUTE - first) / size) }, (_, index) => first + index * size);
  return starts.filter((at) => now - at >= BEGUN).map((at) => {
    const one = known.get(at);
    // The last one is not over.
    const lasted = Math.min(size, now - at) / SECOND;
    return {
      at, refused: (one?.refused ?? 0) / lasted, p50: one?.p50_ms ?? null, p99: one?.p99_ms ?? null,
      ...Object.fromEntries(CLASSES.map((name) => [name, (one?.answers[name] ?? 0) / lasted])),
    };
  });
}

/** What went over it on all nodes, for the last hour, day, week or month. now(): the node's time. */
export function rollups({ name, signal, now, span = null }) {
  let chosen = span in SPANS ? span : "hour";
  let plots = [];
  let asked = 0;
  let turn = 0;
  const place = h("div", { class: "column" });
  const trouble = h("div");
  const summary = h("p", { class: "dim small num" }, "\u00a0");
  const buttons = Object.entries(SPANS).map(([key, { label }]) => h("button", { type: "button", class: "quiet", "aria-pressed": String(key === chosen), onclick: () => choose(key) }, label));

  function choose(key) {
    chosen = key;
    addParams({ span: key });
    buttons.forEach((one, index) => one.setAttribute("aria-pressed", String(Object.keys(SPANS)[index] === key)));
    build();
    load();
  }

  function build() {
    destroy();
    const { minutes, step } = SPANS[chosen];
    const shape = { span: (minutes - step) * MINUTE, gap: step * MINUTE * 1.5, height: 160 };
    plots = [
      chart({ title: "Answers by class", unit: units.rate, floor: 0.1, empty: "No requests in this time", ...shape,
        series: [{ key: "2xx", label: "2xx", color: 3, area: true }, { key: "3xx", label: "3xx", color: 2 }, { key: "4xx", label: "4xx", color: 1 }, { key: "5xx", label: "5xx", color: "bad" }, { key: "refused", label: "Refused", color: 4, dash: true }] }),
      chart({ title: "Durations", unit: units.millis, floor: 1, empty: "No answers in this time", ...shape, series: DURATIONS }),
    ];
    place.replaceChildren(...plots.map((one) => one.element));
  }

  async function load() {
    const mine = (turn += 1);
    const { minutes, step, label } = SPANS[chosen];
    asked = Date.now();
    try {
      const answer = await api.get(`${routePath(name, "/stats")}?minutes=${minutes}&step=${step}`, { signal });
      if (mine !== turn) return;
      trouble.replaceChildren();
      const points = steps(answer, now());
      plots.forEach((one) => one.set(points));
      const { requests, refused, answers, p50_ms: half, p99_ms: most } = answer.total;
      setText(summary, `${whole(requests)} requests in ${label}, ${whole(answers["5xx"] ?? 0)} answered 5xx, ${whole(refused)} refused. p50 ${millis(half)}, p99 ${millis(most)}.${answer.complete ? "" : " There was more than is added up at once; this is a part."}`);
    } catch (problem) {
      if (!problem.silent && mine === turn) trouble.replaceChildren(problemNotice(problem, load));
    }
  }

  function destroy() {
    plots.forEach((one) => one.destroy());
  }

  build();
  return {
    element: h("section", { class: "column tight", "aria-label": "Over a longer time" }, h("div", { class: "page-head" }, h("div", null, h("h2", null, "All nodes, over a longer time"), summary), h("div", { class: "row", role: "group", "aria-label": "How far back" }, buttons)), trouble, place),
    load, destroy,
    /** Loads anew when it is time to. */
    beat: () => Date.now() - asked >= SPANS[chosen].every * SECOND && load(),
  };
}
