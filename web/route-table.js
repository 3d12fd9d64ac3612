// The routes: a table of them that changes every second, with a filter.

import { h, setText } from "./dom.js";
import { millis, rate, whole } from "./format.js";
import { liveTable, plain } from "./live-table.js";
import { isAway, memory, place, routeLink, sourceText, STANDINGS, standingsText } from "./route-words.js";
import { link } from "./router.js";

const DRAWN = 200;
// Up to so many upstreams have a mark each.
const MARKS = 16;
const KEPT_MS = 5000;

const STATES = {
  unwell: ["With upstreams away", ({ now }) => now?.upstreams.some(isAway)],
  errors: ["With 5xx or refusals", ({ rates }) => rates.errors + rates.refused > 0],
  maintenance: ["Closed", ({ now }) => now?.maintenance],
  unused: ["Not used", ({ unused }) => unused],
};

/** Marks coloured by standing, and the same in words. */
export function upstreamMarks() {
  const picture = h("span", { class: "marks", "aria-hidden": "true" });
  const text = h("span", { class: "small" });
  let drawn = "";
  return {
    element: [picture, text],
    set({ now }) {
      const list = now?.upstreams ?? [];
      const key = now?.workers ? `workers ${now.workers}` : list.map((one) => `${one.address} ${one.standing}`).join();
      if (drawn === key) return;
      drawn = key;
      if (now?.workers) {
        picture.replaceChildren();
        return text.replaceChildren("workers ", h("a", { href: link("/sessions", { kind: now.workers }) }, now.workers));
      }
      // Whoever is not well is shown for certain.
      const order = Object.keys(STANDINGS);
      const shown = list.length > MARKS ? [...list].sort((a, b) => order.indexOf(b.standing) - order.indexOf(a.standing)).slice(0, MARKS) : list;
      picture.replaceChildren(...shown.map((one) => h("i", { "data-standing": one.standing, title: `${one.address}: ${one.standing}` })));
      setText(text, standingsText(list) || "–");
    },
  };
}

function nameCell() {
  const anchor = h("a", null, h("strong"));
  const closed = h("span", { class: "pill warn" }, "maintenance");
  const source = h("div", { class: "dim small" });
  return {
    element: [anchor, " ", closed, source],
    set({ name, now, source: from }) {
      setText(anchor.firstChild, name);
      if (anchor.dataset.name !== name) anchor.href = routeLink((anchor.dataset.name = name));
      closed.hidden = !now?.maintenance;
      setText(source, sourceText(from));
      source.title = from.place ?? "";
    },
  };
}

function pair(text, more, look = "dim small") {
  const parts = [plain(text), plain(more, "div", look)];
  return { element: parts.map((one) => one.element), set: (row) => parts.forEach((one) => one.set(row)) };
}

// A number that is red as soon as it is not zero.
function badRate(key) {
  const element = h("span");
  return {
    element,
    set({ rates, now }) {
      setText(element, now ? rate(rates[key]) : "–");
      element.className = rates[key] > 0 ? "bad" : "";
    },
  };
}

/** rows: routes as the API lists them, each with `rates`. */
export function routeTable({ params, noteParams }) {
  let all = [];
  const memories = new Map();
  const search = h("input", { type: "search", placeholder: "Filter routes", "aria-label": "Only routes whose name, host, path or upstream contains", value: params.get("search") ?? "", oninput: settle });
  const state = h("select", { "aria-label": "State", onchange: settle }, h("option", { value: "" }, "Any state"), Object.entries(STATES).map(([value, [text]]) => h("option", { value }, text)));
  state.value = params.get("state") in STATES ? params.get("state") : "";
  const tally = h("span", { class: "dim small num", role: "status" });
  const list = liveTable({
    label: "Routes, live", key: (one) => one.name, empty: "No route matches.",
    rowClass: ({ now, unused }) => (unused ? "faded" : now?.upstreams.length && now.upstreams.every(isAway) ? "failing" : ""),
    columns: [
      { title: "Route", class: "short", make: nameCell },
      { title: "For", class: "free", make: () => pair(({ now }) => (now ? place(now) : "–"), ({ now, unused }) => unused ?? now?.policy ?? "") },
      { title: "Requests", class: "nowrap num", text: ({ rates, now }) => (now ? rate(rates.requests) : "–") },
      { title: "p50, p99", class: "nowrap num", make: () => pair(({ rates }) => millis(rates.p50), ({ rates }) => millis(rates.p99)) },
      { title: "5xx", class: "nowrap num", make: () => badRate("errors") },
      { title: "Refused", class: "nowrap num", make: () => badRate("refused") },
      { title: "Open", class: "nowrap num", text: ({ now }) => whole(now?.open) },
      { title: "Upstreams", make: upstreamMarks },
    ],
  });

  function settle() {
    noteParams({ search: search.value.trim(), state: state.value });
    list.renew();
    draw();
  }

  function draw() {
    const text = search.value.trim().toLowerCase();
    const fits = ({ name, now }) => [name, now && place(now), now?.workers, ...(now?.upstreams ?? []).map((one) => one.address)].some((part) => part?.toLowerCase().includes(text));
    const found = all.filter((one) => (!text || fits(one)) && (!state.value || STATES[state.value][1](one)));
    list.set(found.slice(0, DRAWN));
    const most = found.length > DRAWN ? `the first ${DRAWN} of ${whole(found.length)} are shown; filter to see others` : found.length < all.length ? `${whole(found.length)} of ${whole(all.length)}` : whole(all.length);
    setText(tally, most);
  }

  return {
    elements: [h("div", { class: "page-head" }, h("div", { class: "row" }, h("h2", null, "All routes"), tally), h("div", { class: "toolbar", role: "group", "aria-label": "Which routes to show" }, search, state)), h("div", { class: "card scroll-box routes-box" }, list.element)],
    /** Takes what is true at the time `at`, and gives it back with rates. */
    set(routes, at) {
      for (const name of memories.keys()) if (!routes.some((one) => one.name === name)) memories.delete(name);
      all = routes.map((one) => {
        if (!memories.has(one.name)) memories.set(one.name, memory(KEPT_MS));
        const seen = memories.get(one.name);
        seen.see(one.now?.seconds ?? [], at);
        return { ...one, rates: seen.now(at) };
      });
      draw();
      return all;
    },
  };
}
