// Overview: what is wrong and where to look, the numbers of all parts, and how this node does right now.

import { api } from "../api.js";
import { chart } from "../chart.js";
import { h, setText } from "../dom.js";
import { bytes, count, dateTime, duration, millis, percent, rate, relative, units, when } from "../format.js";
import { listen } from "../live.js";
import { notice, openHint, pageHead, problemNotice, tile } from "../notice.js";
import { repeat } from "../queue-words.js";
import { link } from "../router.js";
import { steps } from "../steps.js";
import { troubleList } from "../troubles.js";
import { vitals } from "../vitals.js";

export const page = { "path": "/", "title": "Overview", "order": 0, "needs": "read", "icon": "M4 13h6V4H4zM14 20h6v-9h-6zM14 4v3h6V4zM4 17v3h6v-3z" };

const EVERY = 5; // seconds
const HISTORY_EVERY = 60;

export function mount(root, { session, can, signal, params }) {
  const tiles = {
    requests: tile("Requests"), p99: tile("Latency, p99"), flight: tile("In flight"), memory: tile("Memory"), uptime: tile("Running for"),
  };
  const rates = chart({
    title: "Requests", unit: units.rate, floor: 1,
    series: [{ key: "per_second", label: "All", color: 1, area: true }, { key: "errors_per_second", label: "Errors", color: "bad" }],
  });
  const latencies = chart({
    title: "Latency", unit: units.millis, floor: 0.1, empty: "No requests yet",
    series: [{ key: "p99_ms", label: "p99", color: 2 }, { key: "p50_ms", label: "p50", color: 3, dash: true }],
  });
  // A trouble of the node itself leads to where it is on this page.
  let wanted = ["stores", "node"].find((part) => part === params.get("part"));
  const state = h("div");
  const failed = h("div");
  const wrong = troubleList();
  const parts = vitals();
  const begin = beginning();
  const facts = factList();
  const stores = storeList();
  // Shown as one when the first answer is there: nothing moves while it is read.
  const whole = h("div", { class: "column" }, wrong.element, begin, parts.element);
  const waiting = h("div", { class: "overview-ghost" }, h("span", { class: "ghost" }), h("span", { class: "ghost" }));
  const node = h("div", { class: "column" },
    h("h2", { class: "part-head" }, "This node"),
    h("div", { class: "tiles" }, Object.values(tiles).map((one) => one.element)),
    h("div", { class: "pair" }, rates.element, latencies.element),
    h("div", { class: "pair" },
      h("section", { class: "card", "aria-labelledby": "node-head" }, h("h2", { id: "node-head" }, "Node"), facts.element),
      h("section", { class: "card", "aria-labelledby": "stores-head" }, h("h2", { id: "stores-head" }, "Stores"), stores.element)));
  whole.hidden = true;
  root.append(pageHead("Overview", "What is wrong, what there is, and how this node does right now."), failed, state, waiting, whole,
    session.open ? openHint(can("admin") && h("a", { class: "button", href: link("/keys") }, "Go to the keys")) : "", node);

  function showAll(answer) {
    const { queues, polls, monitors, workers, routes } = answer.numbers;
    const empty = !(queues?.queues || polls?.endpoints || monitors?.servers || workers || routes || answer.unknown.length);
    wrong.set(answer);
    parts.set(answer);
    begin.hidden = !empty;
    parts.element.hidden = empty;
    whole.hidden = false;
    waiting.hidden = true;
    if (wanted) requestAnimationFrame(() => root.querySelector(`#${wanted}-head`)?.scrollIntoView({ block: "center" }));
    wanted = null;
  }

  function showNode(one) {
    tiles.uptime.set(duration(one.uptime_seconds), `since ${dateTime(Date.now() - one.uptime_seconds * 1000).slice(0, 10)}`);
    facts.set(one);
    stores.set(one.stores);
    const words = { starting: "This node is still starting", draining: "This node is draining: it finishes what it has and takes nothing new" };
    const text = one.state === "ready" ? "" : `${words[one.state] ?? one.state}${one.detail ?? ""}`;
    if (state.dataset.text === text) return;
    state.dataset.text = text;
    state.replaceChildren(...(text ? [notice("warn", words[one.state] ?? one.state, one.detail)] : []));
  }

  function showNow({ at, node: one, requests, process }) {
    showNode(one);
    tiles.requests.set(rate(requests.per_second), requests.errors_per_second > 0 ? `${rate(requests.errors_per_second)} errors` : "no errors", requests.errors_per_second > 0);
    tiles.p99.set(millis(requests.p99_ms), `p50 ${millis(requests.p50_ms)}`);
    tiles.flight.set(count(requests.in_flight), "right now");
    tiles.memory.set(bytes(process.resident_bytes), `CPU ${percent(process.cpu_percent)}`);
    facts.setProcess(`${count(process.threads)} threads, ${count(process.open_files)} open files`);
    const point = { at, ...requests };
    rates.add(point);
    latencies.add(point);
  }

  async function look() {
    try {
      showAll(await api.get("/api/v1/overview", { signal }));
      failed.replaceChildren();
    } catch (problem) {
      if (!problem.silent) failed.replaceChildren(problemNotice(problem, load));
    }
  }

  // The lines of the past are worth nothing if they fail: the numbers are there without them.
  async function before() {
    const ask = (path) => api.get(path, { signal }).catch(() => ({}));
    const [{ throughput }, polls, pools, monitors] = await Promise.all(["/api/v1/status", "/api/v1/polls", "/api/v1/pools/history", "/api/v1/monitors/overview"].map(ask));
    if (!signal.aborted) parts.history({ throughput, polls: polls.points, pools: pools.points, monitors: monitors.points });
  }

  async function load() {
    look();
    before();
    try {
      const [one, { points }] = await Promise.all([api.get("/api/v1/node", { signal }), api.get("/api/v1/history", { signal })]);
      showNode(one);
      rates.set(points);
      latencies.set(points);
    } catch (problem) {
      if (!problem.silent) failed.replaceChildren(problemNotice(problem, load));
    }
  }

  const stops = [
    listen("/api/v1/live", "overview", showNow, { onOpen: (again) => again && load() }),
    ...Object.entries(parts.beats).map(([event, hear]) => listen("/api/v1/live", event, hear)),
  ];
  load();
  repeat(signal, EVERY, look);
  repeat(signal, HISTORY_EVERY, before);
  return () => {
    stops.forEach((stop) => stop());
    rates.destroy();
    latencies.destroy();
  };
}

/** What to do on a node that nobody uses yet. */
function beginning() {
  const page = (path, title) => h("a", { href: link(path) }, title);
  return steps({
    title: "What to do first", text: "Nothing uses this node yet. Each of these takes one line, in any order:",
    list: [
      { title: "Push a message, and pop it", command: "skep push orders '{\"id\": 17}' && skep pop orders", text: ["It waits until a consumer has done it: ", page("/queues", "Queues"), "."] },
      { title: "Poll an endpoint", command: "skep polls add shop --http https://shop.example/health --interval 10s", text: ["Exactly one node asks, and tells when something is wrong: ", page("/polls", "Polls"), "."] },
      { title: "Put a route in front of a service", command: "skep routes add hello --host hello.localhost --to 127.0.0.1:9001", text: ["The gateway finds an upstream that is well: ", page("/routes", "Routes"), "."] },
      { title: "Start a worker for sessions", command: "skep worker --kind chromium --url-from-stdout -- node launch-server.js", text: ["Each session gets the right one, and worn-out ones restart in turn: ", page("/sessions", "Sessions"), "."] },
      { title: "Watch a server", command: "skep servers add ntp-1 --ip 192.0.2.17", text: ["Monitors of different networks measure it: ", page("/monitors", "Monitors"), "."] },
    ],
  });
}

// Rows are there from the start and only their text changes, so nothing moves and a selection survives.
function factList() {
  const names = ["Name", "Version", "Listens on", "Data folder", "Installation", "Certificate", "Process"];
  const cells = names.map(() => h("dd", null, "–"));
  const set = (index, text) => setText(cells[index], text);
  let expires;
  return {
    element: h("dl", { class: "facts" }, names.map((name, index) => h("div", null, h("dt", null, name), cells[index]))),
    setProcess: (text) => set(6, text),
    set(node) {
      [node.name, node.version, node.listen, node.data, node.installation ?? "not known yet"].forEach((text, index) => set(index, text));
      cells[5].classList.toggle("bad", node.certificate_ends_soon);
      if (expires === node.certificate_expires_at) return;
      expires = node.certificate_expires_at;
      if (!expires) return set(5, "none, plain HTTP");
      cells[5].replaceChildren("expires ", when(expires, relative(expires)), ", ", dateTime(expires).slice(0, 10));
    },
  };
}

function storeList() {
  const element = h("ul", { class: "stores" }, h("li", null, h("span", { class: "ghost" })), h("li", null, h("span", { class: "ghost" })));
  let known = "";
  let latencies = [];
  return {
    element,
    set(stores) {
      const shape = JSON.stringify(stores.map(({ store, target, ok, error }) => [store, target, ok, error]));
      if (shape !== known) {
        known = shape;
        latencies = stores.map(() => h("span", { class: "num" }));
        element.replaceChildren(...stores.map((store, index) => h("li", null,
          h("div", null, h("strong", null, store.store), h("span", { class: "dim mono small" }, store.target), store.error && h("p", { class: "bad small" }, store.error)),
          h("div", { class: "store-state" }, h("span", { class: store.ok ? "pill good" : "pill bad" }, store.ok ? "answers" : "fails"), latencies[index]))));
      }
      stores.forEach((store, index) => setText(latencies[index], store.ok ? millis(store.latency_ms) : ""));
    },
  };
}
