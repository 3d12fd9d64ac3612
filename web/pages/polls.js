// Polls: what is polled, by which node, how it goes, and each endpoint on a page of its own (#/polls?id=…).

import { api } from "../api.js";
import { chart } from "../chart.js";
import { copyButton } from "../copy.js";
import { h } from "../dom.js";
import { duration, relative, units, when, whole } from "../format.js";
import { listen } from "../live.js";
import { notice, pageHead, problemNotice, tile } from "../notice.js";
import { pagedTable } from "../paged.js";
import { actionButtons, askForEndpoint } from "../poll-actions.js";
import { howLong, mountEndpoint, seconds, stateOf, target, took } from "../poll-endpoint.js";
import { ownersMap } from "../poll-map.js";
import { link } from "../router.js";

export const page = { "path": "/polls", "title": "Polls", "order": 20, "needs": "read", "icon": "M3 12h4l3-8 4 16 3-8h4" };

const KIND = "poll";
const SPAN = 600000;
// Rows and counts are asked for every so many beats.
const ROWS_EVERY = 5;
const COUNTS_EVERY = 10;
// So many results that are not written yet are worth a word.
const BACKLOG = 1000;
const SAMPLE = "skep polls add shop --http https://shop.example/health --interval 10s";
const STORES = { memory: "Memory", redis: "Redis", postgres: "PostgreSQL" };
const STANDINGS = {
  outside: ["warn", "This node is outside", "It has no session with the others: it has just started, or where nodes agree does not answer. It polls nothing until it is inside."],
  "name-taken": ["bad", "Another node has this node's name", "It polls nothing. Give it another `node.name` and start it again."],
  left: ["warn", "This node has left", "It has given away what it polled and takes nothing more."],
};

export function mount(root, context) {
  const id = context.params.get("id");
  return id ? mountEndpoint(root, { id, ...context }) : mountAll(root, context);
}

function mountAll(root, { signal, params, noteParams, can }) {
  let beats = 0;
  let missed = [];
  const allowed = can("poll");
  const tiles = { endpoints: tile("Endpoints"), failing: tile("Failing"), nobody: tile("Nobody's"), here: tile("This node polls"), store: tile("Nodes agree in") };
  const plots = {
    polls: chart({ title: "Polls of this node", unit: units.rate, span: SPAN, floor: 2, empty: "No polls yet",
      series: [{ key: "polls", label: "All", color: 1, area: true }, { key: "failures", label: "Failed", color: "bad" }] }),
    late: chart({ title: "Lateness", unit: units.millis, span: SPAN, gap: 65000, floor: 10, empty: "No polls yet",
      series: [{ key: "late_max", label: "Latest", color: 5, dash: true }, { key: "late_p99", label: "p99", color: 2 }] }),
  };
  const trouble = h("div");
  const standing = standingNotice();
  const map = ownersMap({ kind: KIND, signal });
  const list = endpointTable({ signal, params, noteParams, allowed, add, changed });
  root.append(
    pageHead("Polls", "What is polled, and by which node.", allowed ? h("button", { type: "button", class: "primary", onclick: add }, "Add an endpoint") : ""),
    trouble, standing.element,
    h("div", { class: "tiles" }, Object.values(tiles).map((one) => one.element)),
    map.element,
    h("div", { class: "pair" }, Object.values(plots).map((one) => one.element)),
    ...list.elements);

  function add() {
    askForEndpoint(changed);
  }

  async function changed() {
    await Promise.all([list.load(), counts()]);
    // A node takes what is new, and drops what is gone, within a second or so.
    setTimeout(() => { if (!signal.aborted) map.load(); }, 1500);
  }

  function showPoints(points) {
    plots.polls.set(points);
    plots.late.set(points.filter((one) => one.polls));
    const news = points.filter((one) => one.missed && !missed.some((mark) => mark.at === one.at));
    if (!news.length) return;
    missed = [...missed, ...news.map((one) => ({ at: one.at, key: "polls", down: true, text: `${whole(one.missed)} slots missed: polls that were still going on, or came too late` }))].sort((a, b) => a.at - b.at).slice(-SPAN / 1000);
    plots.polls.mark(missed);
  }

  function showCounts({ endpoints, paused, failing }) {
    tiles.endpoints.set(whole(endpoints), paused ? `${whole(paused)} of them paused` : "none paused");
    tiles.failing.set(whole(failing), failing ? `of ${whole(endpoints - paused)} polled` : "all is well", failing > 0);
    list.know(endpoints);
  }

  function showNow(event) {
    // A node that is starting has nothing to say yet.
    if (!event.nodes) return;
    showFleet(event.here, event.nodes);
    map.beat(event);
    if (event.point) showPoints([event.point]);
    beats += 1;
    if (document.hidden) return;
    if (beats % COUNTS_EVERY === 0) counts();
    if (beats % ROWS_EVERY === 0) list.renew();
  }

  function showFleet(here, nodes) {
    const owned = nodes.nodes.reduce((sum, one) => sum + (one.owns[KIND] ?? 0), 0);
    const nobody = Math.max(0, here.endpoints - here.paused - owned);
    tiles.nobody.set(whole(nobody), nobody ? "wait for an owner" : "all have an owner", nobody > 0);
    tiles.here.set(whole(here.owned), here.waiting < BACKLOG ? `${whole(here.in_flight)} in flight` : `${whole(here.waiting)} to be written`, here.waiting >= BACKLOG);
    tiles.store.set(STORES[nodes.store] ?? nodes.store, `epoch ${nodes.epoch}, ${nodes.nodes.length === 1 ? "1 node" : `${nodes.nodes.length} nodes`}`);
    standing.set(nodes);
    list.owners(nodes.nodes.map((one) => one.name));
  }

  async function counts() {
    try {
      const answer = await api.get("/api/v1/polls", { signal });
      trouble.replaceChildren();
      showCounts(answer);
      return answer;
    } catch (problem) {
      if (!problem.silent) trouble.replaceChildren(problemNotice(problem, load));
      return null;
    }
  }

  async function load() {
    map.load();
    // The next event may be a second away.
    const [answer, nodes] = await Promise.all([counts(), api.get("/api/v1/nodes", { signal }).catch(() => null)]);
    if (!answer || !nodes) return;
    showPoints(answer.points);
    showFleet(answer.here, nodes);
    map.nodes(nodes.nodes);
  }

  const stop = listen("/api/v1/live", "polls", showNow, { onOpen: (again) => again && load() });
  load();
  return () => {
    stop();
    list.destroy();
    map.destroy();
    Object.values(plots).forEach((one) => one.destroy());
  };
}

/** What keeps this node from polling, if anything does. */
function standingNotice() {
  const element = h("div", { class: "stack" });
  let known = "";
  let most = 0;
  const rest = h("span", { class: "num" });
  return {
    element,
    set({ standing, settled, settles_in_ms: settles, trust_left_ms: trust }) {
      most = Math.max(most, trust ?? 0);
      // A renewal every second keeps it near the most; below half of that several have failed.
      const short = standing === "inside" && trust !== null && trust < most / 2;
      const unsettled = standing === "inside" && !settled;
      const state = [standing, unsettled, short, unsettled && settles === null].join();
      rest.textContent = duration(Math.ceil((unsettled ? settles ?? 0 : trust ?? 0) / 1000));
      if (state === known) return;
      known = state;
      const parts = [];
      if (STANDINGS[standing]) parts.push(notice(...STANDINGS[standing]));
      if (unsettled) parts.push(timed("Nothing is claimed yet", "The store is new or has lost something: nothing is claimed for another ", ", until all trust from before has run out. What nodes still have they go on polling."));
      else if (short) parts.push(timed("This node could not renew its session lately", "Where nodes agree does not answer. If that goes on, this node stops polling in ", ", and others take over."));
      element.replaceChildren(...parts);
    },
  };

  function timed(title, before, after) {
    const made = notice("warn", title, " ");
    made.querySelector("p").replaceChildren(before, rest, after);
    return made;
  }
}

/** The endpoints with their filters. */
function endpointTable({ signal, params, noteParams, allowed, add, changed }) {
  let waiting;
  let total = null;
  let names = "";
  const heading = h("h2", { tabindex: "-1" }, "Endpoints");
  const trouble = h("div");
  const choose = (label, options) => h("select", { "aria-label": label, onchange: settle }, options.map(([value, text]) => h("option", { value }, text)));
  const filters = {
    search: h("input", { type: "search", placeholder: "Id contains", "aria-label": "Only ids that contain", oninput: settle }),
    kind: choose("Kind", [["", "All kinds"], ...["http", "https", "tcp", "tls"].map((kind) => [kind, kind.toUpperCase()])]),
    state: choose("State", [["", "Well or not"], ["failing", "Failing"]]),
    paused: choose("Paused or not", [["", "Paused or not"], ["false", "Not paused"], ["true", "Paused"]]),
    owner: choose("Owner", [["", "All owners"]]),
  };
  knowOwners(params.get("owner") ? [params.get("owner")] : []);
  for (const [name, control] of Object.entries(filters)) control.value = params.get(name) ?? "";
  const chosen = () => Object.fromEntries(Object.entries(filters).map(([name, control]) => [name, control.value.trim()]));
  const filtered = () => Object.values(chosen()).some(Boolean);
  const tally = h("span", { class: "dim small num" });

  const list = pagedTable({
    path: "/api/v1/polls/endpoints", rows: "endpoints", query: chosen, cursor: "after", entries: "more endpoints", signal,
    label: "Endpoints, by id",
    onAnswer: ({ total: found }) => { tally.textContent = filtered() ? `${whole(found)} match` : `${whole(found)} in all`; },
    empty: () => (filtered() ? "No endpoint matches." : [
      h("p", null, allowed ? ["Nothing is polled yet. ", h("button", { type: "button", class: "plain", onclick: add }, "Add an endpoint"), " here, or on the command line:"] : "Nothing is polled yet. Somebody with a key of the scope poll can add an endpoint:"),
      h("div", { class: "curl" }, h("pre", null, SAMPLE), copyButton(() => SAMPLE)),
      h("p", { class: "small" }, "Many at once: ", h("code", null, "skep polls import endpoints.ndjson"), ", a line of JSON for each."),
    ]),
    rowClass: (one) => (one.state === "paused" ? "faded" : one.state === "failing" ? "failing" : null),
    columns: [
      { title: "Id", class: "short", cell: (one) => h("a", { href: link("/polls", { id: one.id }) }, h("strong", null, one.id)) },
      { title: "Target, every", class: "free", cell: (one) => [h("span", { class: "mono" }, target(one)), h("div", { class: "dim small" }, `${one.kind.toUpperCase()} every ${duration(seconds(one.interval))}`)] },
      { title: "Owner", class: "short", cell: (one) => one.owner ?? h("span", { class: "dim" }, one.state === "paused" ? "–" : "nobody") },
      { title: "State", class: "nowrap", cell: (one) => [stateOf(one), h("div", { class: one.state === "failing" ? "bad small" : "dim small" }, howLong(one))] },
      { title: "Last, took", class: "nowrap num", cell: (one) => (one.last ? [when(one.last.at_ms, relative(one.last.at_ms)), h("div", { class: "dim small" }, took(one.last.latency_us))] : "–") },
      ...(allowed ? [{ title: "Actions", cell: (one) => h("div", { class: "actions wrap" }, actionButtons(one, { done: acted, failed: (problem) => trouble.replaceChildren(problemNotice(problem)) })) }] : []),
    ],
  });

  async function acted() {
    trouble.replaceChildren();
    await changed();
    // The button that had the focus is gone.
    if (!signal.aborted) heading.focus();
  }

  // Asks when the typing has stopped.
  function settle(event) {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      noteParams(chosen());
      list.load();
    }, event.type === "input" ? 300 : 0);
  }

  function knowOwners(known) {
    const now = [...new Set([...known, filters.owner.value].filter(Boolean))].sort();
    if (names === (names = now.join())) return;
    const { value } = filters.owner;
    filters.owner.replaceChildren(...[["", "All owners"], ...now.map((name) => [name, name])].map(([name, text]) => h("option", { value: name }, text)));
    filters.owner.value = value;
  }

  return {
    elements: [
      h("div", { class: "page-head" }, heading, tally),
      h("div", { class: "toolbar", role: "group", "aria-label": "What to show" }, Object.values(filters)), trouble, ...list.elements,
    ],
    load: list.load,
    renew: () => getSelection().isCollapsed && list.renew(),
    owners: knowOwners,
    // Endpoints that came or went elsewhere.
    know(now) {
      if (total !== null && total !== now) list.renew();
      total = now;
    },
    destroy: () => clearTimeout(waiting),
  };
}
