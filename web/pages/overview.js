// Overview: how the node does right now, and how it did during the last five minutes.

import { api } from "../api.js";
import { chart } from "../chart.js";
import { h, setText } from "../dom.js";
import { bytes, count, dateTime, duration, millis, percent, rate, relative, units, when } from "../format.js";
import { listen } from "../live.js";
import { notice, openHint, pageHead, problemNotice, tile } from "../notice.js";

export const page = { "path": "/", "title": "Overview", "order": 0, "needs": "read", "icon": "M4 13h6V4H4zM14 20h6v-9h-6zM14 4v3h6V4zM4 17v3h6v-3z" };

const SOON = 14 * 86400000;

export function mount(root, { session, can, signal }) {
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
  const state = h("div");
  const trouble = h("div");
  const facts = factList();
  const stores = storeList();

  root.append(
    pageHead("Overview", "How this node does right now."),
    session.open ? openHint(can("admin") && h("a", { class: "button", href: "#/keys" }, "Go to the keys")) : "",
    trouble, state,
    h("div", { class: "tiles" }, Object.values(tiles).map((one) => one.element)),
    h("div", { class: "pair" }, rates.element, latencies.element),
    h("div", { class: "pair" },
      h("section", { class: "card", "aria-labelledby": "node-head" }, h("h2", { id: "node-head" }, "Node"), facts.element),
      h("section", { class: "card", "aria-labelledby": "stores-head" }, h("h2", { id: "stores-head" }, "Stores"), stores.element)));

  function showNode(node) {
    tiles.uptime.set(duration(node.uptime_seconds), `since ${dateTime(Date.now() - node.uptime_seconds * 1000).slice(0, 10)}`);
    facts.set(node);
    stores.set(node.stores);
    const words = { starting: "This node is still starting", draining: "This node is draining: it finishes what it has and takes nothing new" };
    const text = node.state === "ready" ? "" : `${words[node.state] ?? node.state}${node.detail ?? ""}`;
    if (state.dataset.text === text) return;
    state.dataset.text = text;
    state.replaceChildren(...(text ? [notice("warn", words[node.state] ?? node.state, node.detail)] : []));
  }

  function showNow({ at, node, requests, process }) {
    showNode(node);
    tiles.requests.set(rate(requests.per_second), requests.errors_per_second > 0 ? `${rate(requests.errors_per_second)} errors` : "no errors", requests.errors_per_second > 0);
    tiles.p99.set(millis(requests.p99_ms), `p50 ${millis(requests.p50_ms)}`);
    tiles.flight.set(count(requests.in_flight), "right now");
    tiles.memory.set(bytes(process.resident_bytes), `CPU ${percent(process.cpu_percent)}`);
    facts.setProcess(`${count(process.threads)} threads, ${count(process.open_files)} open files`);
    const one = { at, ...requests };
    rates.add(one);
    latencies.add(one);
  }

  async function load() {
    try {
      const [node, { points }] = await Promise.all([api.get("/api/v1/node", { signal }), api.get("/api/v1/history", { signal })]);
      trouble.replaceChildren();
      showNode(node);
      rates.set(points);
      latencies.set(points);
    } catch (problem) {
      if (!problem.silent) trouble.replaceChildren(problemNotice(problem, load));
    }
  }

  const stop = listen("/api/v1/live", "overview", showNow, { onOpen: (again) => again && load() });
  load();
  return () => {
    stop();
    rates.destroy();
    latencies.destroy();
  };
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
      if (expires === node.certificate_expires_at) return;
      expires = node.certificate_expires_at;
      if (!expires) return set(5, "none, plain HTTP");
      const late = new Date(expires) - Date.now() < SOON;
      cells[5].replaceChildren("expires ", when(expires, relative(expires)), ", ", dateTime(expires).slice(0, 10));
      cells[5].classList.toggle("bad", late);
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
