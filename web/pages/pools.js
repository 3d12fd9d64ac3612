// Pools: the workers of this node, what waits for them, why they come and go, and the tasks that failed.

import { api } from "../api.js";
import { chart } from "../chart.js";
import { copyButton } from "../copy.js";
import { closeDialogs, confirmDialog, openDialog } from "../dialog.js";
import { announce, h, inline, setText, svg } from "../dom.js";
import { explainCell, explainOf } from "../explain.js";
import { bytes, clock, count, dateTime, millis, units, when } from "../format.js";
import { listen } from "../live.js";
import { notice, pageHead, problemNotice } from "../notice.js";
import { pagedTable } from "../paged.js";
import { foldedReason, readReason } from "../reason.js";
import { link } from "../router.js";
import { table } from "../table.js";
import { about } from "../tip.js";

export const page = { "path": "/pools", "title": "Pools", "order": 10, "needs": "read", "icon": "M8 3l4 2v4l-4 2-4-2V5zM16 3l4 2v4l-4 2-4-2V5zM12 11l4 2v5l-4 2-4-2v-5z" };

const TIERS = ["critical", "high", "normal", "low"];
const SPAN = 600000;
const ALERTS = {
  "queue-depth": "the queue is nearly full", "dead-letters": "tasks have failed for good", crashes: "tasks crash",
  timeouts: "tasks run out of time", stuck: "workers hang, and no more of them are replaced",
  "upstreams-out": "upstreams are not used", "certificate-ends": "the certificate ends soon",
  "budget-too-small": "they wear out faster than they may restart", "workers-held": "worn-out ones stand still",
};
// What was done to the workers, and how much it matters.
const ACTIONS = {
  spawn: ["one started", "info"], help: ["a shared one started", "info"], retire: ["one let go", "debug"], "idle-exit": ["an idle one left", "debug"],
  abandon: ["one that hangs given up", "warn"], died: ["one died", "error"], "start-failed": ["one could not be started", "error"],
};
const told = ({ action, workers }) => `${ACTIONS[action]?.[0] ?? action}, now ${workers}`;
const at = (time) => when(time, dateTime(time, true));

/** A decision about workers in the form that all decisions have. */
function why(one) {
  const { rule, numbers, rejected } = readReason(one.reason);
  return { what: `${one.pool}: ${told(one)}`, by: "this node's pools", at: one.at_ms, rule, numbers, rejected, change: one.would_change, explain: one.explain };
}

/** What fires may be about a pool, a kind of workers or a route; each has its page. */
function alertNotice({ pool, kind, since_ms: since, reason }) {
  const [part, name] = pool.includes(":") ? pool.split(/:(.*)/s) : ["pools", pool];
  const place = { routes: ["Go to the route", link("/routes", { route: name })], sessions: ["Go to the workers", link("/sessions", { kind: name })] }[part];
  const title = `${{ routes: `Route ${name}`, sessions: `Workers ${name}` }[part] ?? name}: ${ALERTS[kind] ?? kind}`;
  return notice("bad", title, `${reason}, since ${dateTime(since, true)}`, ...(place ? [h("a", { class: "button", href: place[1] }, place[0])] : []));
}

export function mount(root, { signal, params, noteParams, can }) {
  let decisions = [];
  let beats = 0;
  let firing;
  let dead;
  const cards = new Map([...TIERS, "shared"].map((name) => [name, card(name)]));
  const plot = (title, names) => chart({ title, unit: units.count, span: SPAN, floor: 4, series: names.map((key) => ({ key, label: key })) });
  const plots = { workers: plot("Workers", [...cards.keys()]), pending: plot("Waiting tasks", TIERS) };
  const trouble = h("div");
  const alerts = h("div", { class: "stack" });
  const events = h("ol", { class: "log events", tabindex: "0", "aria-label": "Scaling decisions, newest first", "data-empty": "No worker has come or gone yet." });
  const stuck = table({
    label: "Stuck tasks, the longest first",
    columns: [
      { title: "Task", class: "free", cell: (one) => [h("strong", null, one.kind), h("div", { class: "dim small" }, `${one.id}, attempt ${one.attempt}`), explainOf(one.explain)] },
      { title: "Worker", cell: (one) => `${one.worker} of ${one.pool}${one.pool === one.tier ? "" : `, for ${one.tier}`}` },
      { title: "Runs for", cell: (one) => [`${millis(one.running_ms)} of ${millis(one.timeout_ms)} `, one.abandoned && h("span", { class: "pill bad" }, "given up")] },
    ],
  });
  const stuckPart = h("section", { class: "stack" }, h("h2", null, "Stuck tasks"), stuck.element);
  stuckPart.hidden = true;
  const letters = deadLetters({ signal, params, noteParams, allowed: can("admin") });
  root.append(
    pageHead("Pools", "The workers of this node, and what waits for them. Bars grow by the square root, so that short queues show."), trouble, alerts,
    h("div", { class: "pair pools" }, [...cards.values()].map((one) => one.element)),
    stuckPart,
    h("div", { class: "pair" }, Object.values(plots).map((one) => one.element)),
    h("section", { class: "card" }, h("h2", null, "Scaling decisions"),
      h("p", { class: "dim small" }, "Triangles in the charts: point at one, or go there with Shift and the arrow keys."), events),
    ...letters.elements);

  const showPools = (pools) => pools.forEach((pool) => cards.get(pool.name)?.set(pool));

  function showPoints(points) {
    for (const [field, one] of Object.entries(plots)) {
      one.set(points.map(({ at_ms, pools }) => ({ at: at_ms, ...Object.fromEntries(Object.entries(pools).map(([name, pool]) => [name, pool[field]])) })));
    }
  }

  // Built anew only when one comes or goes: a screen reader reads them aloud.
  function showAlerts(list) {
    const now = list.map(({ pool, kind, since_ms }) => pool + kind + since_ms).join();
    if (now === firing) return;
    firing = now;
    alerts.replaceChildren(...list.map(alertNotice));
  }

  // Numbers begin anew when the node does, so a decision is known by its time too.
  function takeDecisions(list) {
    const known = new Set(decisions.map((one) => `${one.at_ms} ${one.number}`));
    const fresh = list.filter((one) => !known.has(`${one.at_ms} ${one.number}`));
    if (!fresh.length && decisions.length) return;
    decisions = [...decisions, ...fresh].sort((a, b) => a.at_ms - b.at_ms || a.number - b.number).slice(-256);
    const marks = decisions.map((one) => ({ at: one.at_ms, key: one.pool, down: !/spawn|help/.test(one.action), text: `${one.pool}: ${told(one)}. ${one.reason}` }));
    for (const one of Object.values(plots)) one.mark(marks);
    events.classList.toggle("is-empty", !decisions.length);
    events.replaceChildren(...decisions.slice(-20).reverse().map((one) => h("li", { "data-level": ACTIONS[one.action]?.[1] },
      h("span", { class: "log-time" }, when(one.at_ms, clock(one.at_ms))), h("span", { class: "log-level" }, one.pool),
      h("div", { class: "log-text" }, h("span", null, told(one)), " ", h("span", { class: "dim" }, readReason(one.reason).rule), foldedReason(() => why(one))))));
  }

  function showNow({ at_ms, pools, alerts: list, scaling }) {
    showPools(pools);
    showAlerts(list);
    showPoints([{ at_ms, pools: Object.fromEntries(pools.map((one) => [one.name, { workers: one.active_workers, pending: one.pending_tasks }])) }]);
    takeDecisions(scaling);
    if (beats++ % 5) return;
    findStuck(pools);
    const sums = pools.map((one) => [one.failed_tasks, one.total_failed]).join();
    if (!dead || (dead === sums && !letters.unsettled()) || letters.renew()) dead = sums;
  }

  // Only where something runs can something be stuck. Tier and shared pool may both tell of a worker.
  async function findStuck(pools) {
    try {
      const busy = pools.filter((one) => one.processing_tasks || one.totals.abandoned);
      const answers = await Promise.all(busy.map(({ name }) => api.get(`/metrics/pools/${name}/stuck`, { signal })));
      const found = new Map(answers.flatMap((answer) => answer.stuck).map((one) => [one.worker, one]));
      stuckPart.hidden = !found.size;
      stuck.set([...found.values()].sort((a, b) => b.running_ms - a.running_ms));
    } catch (problem) {
      stuckPart.hidden = problem.silent;
      stuck.say(h("p", { class: "empty" }, problem.title));
    }
  }

  async function load() {
    try {
      const [{ pools }, { points, scaling }] = await Promise.all([api.get("/metrics/pools", { signal }), api.get("/api/v1/pools/history", { signal })]);
      trouble.replaceChildren();
      showPools(pools);
      showPoints(points);
      takeDecisions(scaling);
    } catch (problem) {
      if (!problem.silent) trouble.replaceChildren(problemNotice(problem, load));
    }
  }

  const stop = listen("/api/v1/live", "pools", showNow, { onOpen: (again) => again && load() });
  load();
  return () => {
    stop();
    Object.values(plots).forEach((one) => one.destroy());
  };
}

const PLACES = {
  permanent: (pool) => Math.min(pool.active_workers, pool.min_workers),
  temporary: (pool) => Math.max(0, pool.active_workers - pool.min_workers),
  free: (pool) => Math.max(0, pool.max_workers - pool.active_workers),
  helping: (pool) => (pool.name === "shared" ? 0 : pool.shared_helping),
};
const MARKS = { down: ["one worker less below", "scale_down_below"], up: ["one more above", "scale_up_above"], help: ["shared help above", "help_above"] };
const ends = ({ p50, p99 }) => [p50, p99].map((us) => millis(us ? us / 1000 : null)).join(" / ");
const FIGURES = {
  Running: (pool) => count(pool.processing_tasks), Idle: (pool) => count(pool.idle_workers), Done: (pool) => count(pool.total_processed),
  Dead: (pool) => count(pool.failed_tasks), "Wait p50 / p99": (pool) => ends(pool.wait_us), "Run p50 / p99": (pool) => ends(pool.run_us),
};

/** One pool. Its parts are there from the start and only their numbers change. */
function card(name) {
  const tier = name !== "shared";
  const texts = [];
  const live = (tag, write) => {
    const element = h(tag, { class: "num" }, "–");
    texts.push([element, write]);
    return element;
  };
  const keys = (kinds, text) => h("p", { class: "keys small dim" }, kinds.map((kind) => h("span", null, h("i", { class: kind }), text(kind))));
  const picture = h("div", { class: "keys", "aria-hidden": "true" });
  const [late, ready] = ["late", "ready"].map((kind) => svg("rect", { class: kind }));
  const lines = Object.keys(MARKS).map((kind) => svg("line", { class: kind, y2: "100%" }));
  const gauge = svg("svg", { class: "gauge", "aria-hidden": "true" }, svg("rect", { width: "100%" }), late, ready, lines);
  const reason = explainCell();
  const element = h("section", { class: "card pool stack" }, h("h2", null, name), picture,
    keys(Object.keys(PLACES).slice(0, tier ? 4 : 3), (kind) => [live("span", (pool) => count(PLACES[kind](pool))), ` ${kind}`]),
    tier && [live("p", (pool) => `${count(pool.pending_tasks)} waiting and ${count(pool.delayed_tasks)} delayed, of at most ${count(pool.queue_capacity)}`), gauge,
      keys(Object.keys(MARKS), (kind) => [`${MARKS[kind][0]} `, live("span", (pool) => count(pool[MARKS[kind][1]]))])],
    h("dl", { class: "figures" }, Object.entries(FIGURES).slice(0, tier ? 6 : 3).map(([title, write]) => h("div", null, h("dt", null, about(title)), live("dd", write)))), reason.element);
  let drawn;

  return {
    element,
    set(pool) {
      reason.set(pool);
      for (const [part, write] of texts) setText(part, write(pool));
      const places = Object.entries(PLACES).flatMap(([kind, size]) => Array(size(pool)).fill(kind)).slice(0, 64);
      if (drawn !== (drawn = places.join())) picture.replaceChildren(...places.map((kind) => h("i", { class: kind })));
      const along = (length) => `${100 * Math.sqrt(Math.min(1, length / (pool.queue_capacity || 1)))}%`;
      late.setAttribute("width", along(pool.pending_tasks + pool.delayed_tasks));
      ready.setAttribute("width", along(pool.pending_tasks));
      for (const line of lines) for (const end of ["x1", "x2"]) line.setAttribute(end, along(pool[MARKS[line.getAttribute("class")][1]]));
    },
  };
}

/** The tasks that failed: the table, its filter, and what can be done with each. */
function deadLetters({ signal, params, noteParams, allowed }) {
  const place = (id) => `/api/v1/pools/dead/${encodeURIComponent(id)}`;
  const heading = h("h2", { tabindex: "-1" }, "Dead letters");
  const trouble = h("div");
  const tier = h("select", { "aria-label": "Tier", onchange: () => {
    noteParams({ tier: tier.value });
    list.load();
  } }, ["", ...TIERS].map((name) => h("option", { value: name }, name || "All tiers")));
  tier.value = TIERS.includes(params.get("tier")) ? params.get("tier") : "";
  const button = (text, letter, look, onclick, more) => h("button", { type: "button", class: `quiet ${look}`, "aria-label": `${text} ${letter.kind}`, onclick, ...more }, text);
  const cause = (letter) => [h("span", { class: "pill bad" }, letter.cause), ` attempts: ${letter.attempts} `, letter.state !== "dead" && h("span", { class: "pill" }, letter.state)];
  const list = pagedTable({
    path: "/api/v1/pools/dead", rows: "letters", query: () => ({ tier: tier.value }), signal,
    label: "Tasks that failed, newest first",
    empty: () => (tier.value ? `No task of the tier ${tier.value} has failed.` : "No task has failed."),
    rowClass: (letter) => (letter.state === "dead" ? null : "faded"),
    columns: [
      { title: "Died", class: "nowrap", cell: (letter) => at(letter.died_at_ms) },
      { title: "Task", class: "free", cell: (letter) => [h("strong", null, letter.kind), h("div", { class: "dim small" }, letter.tier)] },
      { title: "Why", class: "free", cell: (letter) => [cause(letter), h("div", { class: "small" }, letter.errors.at(-1)?.slice(0, 200))] },
      { title: "Actions", cell: (letter) => h("div", { class: "actions" }, button("Details", letter, "", () => show(letter.id)), actions(letter)) },
    ],
  });

  const obstacle = (letter) => (letter.state === "retrying" ? "It is being retried." : letter.retryable ? null : "It cannot be retried: what it was made from was not kept.");

  function actions(letter) {
    if (!allowed) return null;
    const title = obstacle(letter);
    // Not "disabled": the keyboard must reach it to hear why.
    return [
      button("Retry", letter, "", () => (title ? announce(title) : retry(letter)), title && { title, "aria-disabled": "true" }),
      button("Discard", letter, "danger", () => discard(letter)),
    ];
  }

  async function attempt(work) {
    try {
      await work();
      trouble.replaceChildren();
    } catch (problem) {
      if (!problem.silent) trouble.replaceChildren(problemNotice(problem));
    }
  }

  async function act(work, done) {
    closeDialogs();
    await attempt(async () => {
      await work();
      announce(done);
    });
    if (signal.aborted) return;
    await list.load();
    // The button that had the focus is gone.
    heading.focus();
  }

  const retry = ({ id, kind }) => act(() => api.post(`${place(id)}/retry`), `${kind} is tried again`);

  async function discard({ id, kind }) {
    closeDialogs();
    const yes = await confirmDialog({ title: `Discard “${kind}”?`, text: `The task ${id} and what it was made from are forgotten. This cannot be undone.`, action: "Discard task" });
    if (yes) await act(() => api.delete(place(id)), `${kind} discarded`);
  }

  const show = (id) => attempt(async () => {
    const letter = await api.get(place(id), { signal });
    const payload = letter.payload_text ?? letter.payload_base64 ?? null;
    const facts = { Id: h("code", null, letter.id), Tier: letter.tier, Node: letter.node, Cause: cause(letter), Submitted: at(letter.submitted_at_ms), Died: at(letter.died_at_ms), "What would change it": inline(letter.would_change), Explain: explainOf(letter.explain) };
    const why = allowed && obstacle(letter);
    openDialog({ title: letter.kind, content: h("div", { class: "stack" },
      h("dl", { class: "facts" }, Object.entries(facts).map(([title, value]) => h("div", null, h("dt", null, title), h("dd", null, value)))),
      h("h3", null, letter.errors.length ? "Errors, the first attempt's first" : "No errors: it was never tried"),
      h("ol", { class: "fields mono" }, letter.errors.map((error) => h("li", null, error))),
      h("h3", null, payload === null ? "No payload was kept" : `Payload, ${bytes(letter.payload_bytes)}${payload === letter.payload_text ? "" : ", as base64"}`),
      payload !== null && h("div", { class: "curl" }, h("pre", { tabindex: "0", "aria-label": "Payload" }, payload), copyButton(() => payload)),
      why && h("p", { class: "dim" }, why),
      h("div", { class: "row end" }, actions(letter), h("button", { type: "button", class: "quiet", autofocus: true, onclick: closeDialogs }, "Close"))) });
  });

  return {
    renew: list.renew,
    unsettled: () => list.elements[0].querySelector(".faded"),
    elements: [h("div", { class: "page-head" }, heading, h("div", { class: "row" }, tier, h("button", { type: "button", onclick: list.load }, "Refresh"))), trouble, ...list.elements],
  };
}
