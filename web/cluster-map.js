// The affinity map: a lane for each node, a cell for each key, cells that change lanes, and why they did.

import { api } from "./api.js";
import { h, setText } from "./dom.js";
import { keyText, score } from "./cluster-words.js";
import { explainOf } from "./explain.js";
import { clock, duration, when, whole } from "./format.js";
import { stopAt, walk } from "./lane-keys.js";
import { problemNotice } from "./notice.js";
import { link } from "./router.js";
import { table } from "./table.js";

const KEYS_MAX = 1000;
const MOVES_SHOWN = 100;
const FRESH = 4000;
const WORDS = { migrate: ["info", "migrated"], break: ["warn", "broken off"] };

/** open(key): somebody wants to know more of it. */
export function affinityMap({ signal, open }) {
  const lanes = new Map();
  const cells = new Map();
  const owners = new Map();
  let entries = [];
  let total = 0;
  let fresh = [];
  let asking = false;
  let loaded = false;
  const trouble = h("div");
  const readout = h("p", { class: "dim small readout", "aria-live": "off" });
  const rows = h("div", { class: "lanes", "aria-busy": "true" }, h("span", { class: "ghost" }));
  const list = table({
    label: "Keys and their nodes", empty: "Nobody has popped anything lately.",
    columns: [
      { title: "Key", class: "free", cell: ({ key, explain }) => [h("span", { class: "mono" }, keyText(key)), explainOf(explain)] },
      { title: "Node", cell: ({ node }) => node },
      { title: "By", cell: ({ moved }) => (moved ? "a move" : "its name") },
      { title: "Requests", class: "num", cell: ({ requests }) => whole(requests) },
      { title: "Since", cell: ({ assigned_at_ms: at }) => when(at) },
      { title: "Last used", class: "num", cell: ({ last_used_ms: ms }) => `${duration(ms / 1000)} ago` },
    ],
  });
  const as = h("details", { class: "as-table", ontoggle: () => as.open && list.set(entries) }, h("summary", null, "The same as a table"), list.element);
  const element = h("section", { class: "card stack affinity-box" }, h("h2", null, "Which keys belong to which node"), readout, trouble, rows, as);

  function hint() {
    setText(readout, !loaded ? "A lane for each node, a cell for each key that is asked for."
      : !entries.length ? "Nobody has popped anything lately, so no key is known."
        : `${total > entries.length ? `The ${whole(entries.length)} keys used last, of ${whole(total)}. ` : ""}A cell is a key; one with a corner cut off was moved. Point at one to see which, press it to see why it is there.`);
  }

  function tell(event) {
    const one = entries.find(({ key }) => key === event.target.dataset?.key);
    if (one) setText(readout, `${keyText(one.key)}: ${one.node}, ${one.moved ? "moved there" : "by its name"}, ${whole(one.requests)} requests, last ${duration(one.last_used_ms / 1000)} ago`);
  }

  function lane(name) {
    if (lanes.has(name)) return lanes.get(name);
    const made = { name, tally: h("p", { class: "small num" }), field: h("div", { class: "cells", role: "group", "aria-label": `Keys of ${name}`, onkeydown: walk, onpointerover: tell, onfocusin: tell, onpointerleave: hint }) };
    made.element = h("div", { class: "lane", "data-node": name }, h("div", { class: "lane-head" }, h("p", { class: "lane-name" }, h("strong", null, name)), made.tally), made.field);
    lanes.set(name, made);
    return made;
  }

  function cell({ key, moved }) {
    if (!cells.has(key)) {
      cells.set(key, h("a", { class: "cell", href: link("/cluster", { key }), "data-key": key, "aria-label": keyText(key), tabindex: "-1", onclick: (event) => {
        event.preventDefault();
        open(key);
      } }));
    }
    cells.get(key).classList.toggle("moved", moved);
    return cells.get(key);
  }

  function draw() {
    const focused = document.activeElement?.dataset?.key;
    const names = [...lanes.keys()].sort();
    rows.setAttribute("aria-busy", String(!loaded));
    rows.dataset.size = entries.length > 600 ? "small" : entries.length > 120 ? "middle" : "large";
    rows.replaceChildren(...names.map((name) => lanes.get(name).element));
    for (const name of names) {
      const one = lanes.get(name);
      const own = entries.filter((entry) => entry.node === name).sort((a, b) => (a.key < b.key ? -1 : 1)).map(cell);
      one.field.replaceChildren(...own);
      stopAt(own, own.find((link) => link.tabIndex === 0) ?? own[0]);
      setText(one.tally, own.length === 1 ? "1 key" : `${whole(own.length)} keys`);
    }
    if (focused) cells.get(focused)?.focus({ preventScroll: true });
    if (!rows.querySelector("a:is(:hover, :focus)")) hint();
  }

  function highlight(keys) {
    for (const key of keys) cells.get(key)?.classList.add("fresh");
    fresh.push(setTimeout(() => {
      fresh.shift();
      for (const key of keys) cells.get(key)?.classList.remove("fresh");
    }, FRESH));
  }

  async function load() {
    if (asking) return;
    asking = true;
    try {
      const answer = await api.get(`/api/v1/cluster/affinity?limit=${KEYS_MAX}`, { signal });
      trouble.replaceChildren();
      ({ entries, total } = answer);
      loaded = true;
      const flown = entries.filter(({ key, node }) => owners.has(key) && owners.get(key) !== node).map((one) => one.key);
      owners.clear();
      for (const { key, node } of entries) {
        owners.set(key, node);
        lane(node);
      }
      for (const key of [...cells.keys()].filter((one) => !owners.has(one))) cells.delete(key);
      draw();
      if (flown.length) highlight(flown);
      if (as.open) list.set(entries);
    } catch (problem) {
      if (!problem.silent) trouble.replaceChildren(problemNotice(problem, load));
    }
    asking = false;
  }

  hint();
  return {
    element, load,
    /** The nodes there are. One that has gone keeps its lane as long as it has keys. */
    nodes(names) {
      const before = lanes.size;
      names.forEach(lane);
      const owning = new Set(owners.values());
      for (const name of [...lanes.keys()]) if (!names.includes(name) && !owning.has(name)) lanes.delete(name);
      if (lanes.size !== before) draw();
    },
    destroy: () => fresh.forEach(clearTimeout),
  };
}

/** Migrations and breaks as they happen, newest first. fresh(): there were some. */
export function moveList({ signal, fresh }) {
  let after = 0;
  let asking = false;
  let again = false;
  const rows = h("ol", { class: "log events moves is-empty", tabindex: "0", "aria-label": "Last moves, newest first", "data-empty": "No key has moved." });
  const element = h("section", { class: "card stack" }, h("h2", null, "Migrations and breaks"), rows);

  function row({ at_ms: at, key, from, to, kind, load, best, improvement, by, explain }) {
    const [level, word] = WORDS[kind] ?? ["info", kind];
    return h("li", { "data-level": level }, h("span", { class: "log-time" }, when(at, clock(at))), h("span", { class: "mono" }, keyText(key)),
      h("span", { class: "log-text" }, h("span", { class: "log-level" }, word), h("span", null, from === null ? `to ${to}` : `${from} → ${to}`), h("span", { class: "dim" }, `${load === null ? "" : `${score(load)} to ${score(best)}, better by ${score(improvement)}, `}by ${by}`), explainOf(explain)));
  }

  async function load() {
    if (asking) return;
    asking = true;
    try {
      const { moves, next } = await api.get(`/api/v1/cluster/moves?after=${after}`, { signal });
      after = next;
      if (again) rows.replaceChildren();
      again = false;
      if (moves.length) {
        rows.prepend(...moves.slice(-MOVES_SHOWN).reverse().map(row));
        while (rows.children.length > MOVES_SHOWN) rows.lastChild.remove();
        fresh();
      }
      rows.classList.toggle("is-empty", !rows.children.length);
    } catch {
      // The nodes' own question tells what is wrong.
    }
    asking = false;
  }

  return {
    element, load,
    /** The node may be another one now, with numbers of its own. */
    reset() {
      after = 0;
      again = true;
    },
  };
}
