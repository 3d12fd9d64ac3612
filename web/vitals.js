// The numbers of all parts with how they went lately; each leads to its page.

import { h, setText } from "./dom.js";
import { count, rate, whole } from "./format.js";
import { minutesOf } from "./queue-plots.js";
import { link } from "./router.js";
import { many } from "./session-words.js";
import { spark } from "./spark.js";
import { about } from "./tip.js";

const POINTS = 120;
const MEAN = 3; // seconds

/** A number that is a link, with its line below. */
function vital(label, path, what, options) {
  const value = h("a", { class: "tile-value", href: link(path), "aria-label": label }, "–");
  const more = h("p", { class: "tile-more" }, "\u00a0");
  const line = what ? spark({ what, ...options }) : null;
  return {
    element: h("section", { class: "card tile vital", "aria-label": label }, h("h2", null, about(label)), value, more, line?.element ?? ""),
    line,
    set(text, below, bad = false) {
      setText(value, text);
      value.setAttribute("aria-label", `${label}: ${text}, ${below}`);
      setText(more, below);
      more.classList.toggle("bad", bad);
    },
  };
}

/** So many points that a small line can show, each the mean of its stretch. */
function thin(values) {
  const size = Math.ceil(values.length / POINTS) || 1;
  const means = [];
  for (let from = 0; from < values.length; from += size) {
    const part = values.slice(from, from + size);
    means.push(part.reduce((sum, one) => sum + one, 0) / part.length);
  }
  return means;
}

/** Values by their time, the last so many milliseconds. */
function series(span) {
  let points = [];
  return {
    add(at, value) {
      if (points.length && at <= points.at(-1).at) return;
      points = [...points.filter((one) => one.at > at - span), { at, value }];
    },
    put(given) {
      const last = given.at(-1)?.at ?? 0;
      points = [...given, ...points.filter((one) => one.at > last)];
    },
    values: () => thin(points.map((one) => one.value)),
  };
}

export function vitals() {
  const tiles = {
    queues: vital("Queues", "/queues", "Messages pushed", { write: rate }),
    polls: vital("Polls", "/polls", "Polls of this node", { write: rate }),
    sessions: vital("Sessions", "/sessions", "Sessions", { write: count }),
    routes: vital("Routes", "/routes", "Requests of routes", { write: rate }),
    monitors: vital("Monitors", "/monitors", "Servers below target", { write: count, bad: true }),
    pools: vital("Pools", "/pools", "Tasks that wait", { write: count }),
    dead: vital("Dead letters", "/dead", "Messages given up", { write: rate, bad: true }),
    nodes: vital("Nodes", "/cluster"),
  };
  const seen = { polls: series(600000), sessions: series(120000), monitors: series(3600000), pools: series(600000) };
  const draw = (name) => tiles[name].line.set(seen[name].values());
  let requests = [];

  return {
    element: h("div", { class: "tiles vitals" }, Object.values(tiles).map((one) => one.element)),
    set({ numbers: { queues, polls, monitors, ...all } }) {
      const none = "none yet";
      if (queues) tiles.queues.set(count(queues.pending), queues.queues ? `pending in ${many(queues.queues, "queue")}` : none);
      if (queues) tiles.dead.set(count(queues.dead), queues.dead ? "wait for somebody" : "no message given up", queues.dead > 0);
      if (polls) tiles.polls.set(count(polls.endpoints), polls.endpoints ? (polls.failing ? `${count(polls.failing)} failing` : "all are well") : none, polls.failing > 0);
      if (monitors) tiles.monitors.set(count(monitors.servers), monitors.servers ? (monitors.below_target ? `${count(monitors.below_target)} below target` : `watched by ${many(monitors.monitors, "monitor")}`) : none, monitors.below_target > 0);
      tiles.sessions.set(count(all.sessions), all.workers ? `on ${many(all.workers, "worker")}${all.sessions_waiting ? `; ${count(all.sessions_waiting)} wait` : ""}` : "no worker yet", all.sessions_waiting > 0);
      tiles.pools.set(whole(all.pool_workers), all.pool_waiting ? `${many(all.pool_waiting, "task")} wait` : "nothing waits");
      tiles.nodes.set(whole(all.nodes_alive), all.nodes_alive === all.nodes ? (all.nodes === 1 ? "it is alone" : "all are heard of") : `of ${whole(all.nodes)}`, all.nodes_alive < all.nodes);
      if (!all.routes) tiles.routes.set(rate(0), none);
    },
    /** What was before this page was opened. */
    history({ throughput, polls, pools, monitors }) {
      if (throughput) {
        tiles.queues.line.set(minutesOf(throughput).map((one) => one.pushed));
        tiles.dead.line.set(minutesOf(throughput).map((one) => one.deadLetter));
      }
      if (polls) seen.polls.put(polls.map((one) => ({ at: one.at, value: one.polls })));
      if (pools) seen.pools.put(pools.map((one) => ({ at: one.at_ms, value: Object.values(one.pools).reduce((sum, pool) => sum + pool.pending, 0) })));
      if (monitors) seen.monitors.put(monitors.map((one) => ({ at: one.at, value: one.below_target })));
      for (const name of ["polls", "pools", "monitors"]) draw(name);
    },
    beats: {
      polls({ at_ms: at, point }) {
        if (point) seen.polls.add(point.at ?? at, point.polls);
        draw("polls");
      },
      pools({ at_ms: at, pools }) {
        seen.pools.add(at, pools.reduce((sum, one) => sum + one.pending_tasks, 0));
        draw("pools");
      },
      sessions({ at_ms: at, kinds = [] }) {
        seen.sessions.add(at, kinds.reduce((sum, one) => sum + one.active, 0));
        draw("sessions");
      },
      monitors({ point }) {
        if (point) seen.monitors.add(point.at, point.below_target);
        draw("monitors");
      },
      routes({ at_ms: at, routes = [] }) {
        if (!routes.length) return;
        const second = (one) => one.seconds.filter((two) => two.at_ms > at - MEAN * 1000);
        const sum = (pick) => routes.reduce((total, one) => total + second(one).reduce((some, two) => some + pick(two), 0), 0) / MEAN;
        requests = [...requests.slice(1 - POINTS), sum((one) => one.requests)];
        const errors = sum((one) => one.errors);
        tiles.routes.set(rate(requests.at(-1)), errors ? `${rate(errors)} answered with 5xx` : `over ${many(routes.length, "route")}`, errors > 0);
        tiles.routes.line.set(requests);
      },
    },
  };
}
