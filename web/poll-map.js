// Who owns what: a lane for each node, a cell for each endpoint, and cells that change lanes while one looks.

import { api } from "./api.js";
import { h, setText } from "./dom.js";
import { clock, duration, percent, when, whole } from "./format.js";
import { stopAt, walk } from "./lane-keys.js";
import { problemNotice } from "./notice.js";
import { link } from "./router.js";
import { table } from "./table.js";

// Beyond so many endpoints a lane is a bar of stripes, each for a stretch of the ids.
const CELLS_MAX = 2000;
const STRIPES = 120;
// Up to so many places (endpoints times lanes) an endpoint has the same place in every lane.
const PLACES_MAX = 4000;
const FLIGHTS_MAX = 150;
const FRESH = 4000;
const MOVES_SHOWN = 30;
const GONE = 60000;
// The owners are asked for again if the counts have not agreed for so many beats, but not more often than every so many.
const DOUBTS = 2;
const PAUSE = 5;
const NOBODY = "\u0000nobody"; // sorts apart from every name

const still = matchMedia("(prefers-reduced-motion: reduce)");

/** kind: the name of the endpoints among all that nodes own. */
export function ownersMap({ kind, signal }) {
  const owners = new Map(); // id: name of the node, or NOBODY
  const lanes = new Map();
  const cells = new Map();
  let ids = [];
  let fresh = [];
  let doubts = 0;
  let rest = 0;
  let loaded = false;
  let asking = false;
  let known = [];
  let moves = [];

  const trouble = h("div");
  const readout = h("p", { class: "dim small readout", "aria-live": "off" });
  const rows = h("div", { class: "lanes", "aria-busy": "true" }, h("span", { class: "ghost" }), h("span", { class: "ghost" }));
  const list = table({
    label: "Nodes and what they own", empty: "No node is known yet.",
    columns: [
      { title: "Node", class: "free", cell: ({ title }) => h("strong", null, title) },
      { title: "Status", cell: ({ status }) => status },
      { title: "Endpoints", means: "Endpoints of a node", cell: ({ owned, total }) => `${whole(owned)} of ${whole(total)}` },
      { title: "Share", cell: ({ share }) => percent(share * 100) },
      { title: "Weight", cell: ({ weight }) => weight ?? "–" },
    ],
  });
  const events = h("ol", { class: "log events moves is-empty", tabindex: "0", "aria-label": "Last moves, newest first", "data-empty": "Nothing has moved while you were looking." });
  const element = h("section", { class: "card stack", "aria-labelledby": "owners-head" },
    h("h2", { id: "owners-head" }, "Who owns what"), readout, trouble, rows,
    h("details", { class: "as-table" }, h("summary", null, "The same as a table"), list.element),
    h("h3", null, "Last moves"), events);
  hint();

  function hint() {
    const stripes = ids.length > CELLS_MAX;
    setText(readout, !ids.length ? "A lane for each node, a cell for each endpoint that is polled."
      : stripes ? `${whole(ids.length)} endpoints: each stripe stands for about ${Math.round(ids.length / STRIPES)} of them, by id; the stronger its colour, the more of them a node has.`
        : "A cell is an endpoint. Point at one to see which; the arrow keys lead from cell to cell.");
  }

  function tell(event) {
    const id = event.target.dataset?.id;
    if (id) setText(readout, `${id}: ${nameOf(owners.get(id))}`);
  }

  function lane(name) {
    if (lanes.has(name)) return lanes.get(name);
    const made = { name, status: h("span", { class: "pill" }), here: h("span", { class: "pill" }, "this node"), tally: h("span", { class: "num" }, "–"), more: h("p", { class: "dim small num" }, "\u00a0"), fill: h("i"), mark: h("b"), holes: [] };
    made.here.hidden = made.mark.hidden = true;
    made.fill.style.width = 0;
    made.field = h("div", { class: "cells", role: "group", onkeydown: walk, onpointerover: tell, onfocusin: tell, onpointerleave: hint });
    made.element = h("div", { class: name === NOBODY ? "lane nobody" : "lane", "data-node": name === NOBODY ? "" : name },
      h("div", { class: "lane-head" }, h("p", { class: "lane-name" }, h("strong", null, nameOf(name)), made.here, made.status),
        h("p", { class: "small" }, made.tally), name !== NOBODY && h("div", { class: "share", "aria-hidden": "true" }, made.fill, made.mark), made.more),
      made.field);
    lanes.set(name, made);
    return made;
  }

  const cell = (id) => {
    if (!cells.has(id)) cells.set(id, h("a", { class: "cell", href: link("/polls", { id }), "data-id": id, "aria-label": id, tabindex: "-1" }));
    return cells.get(id);
  };

  /** Puts every cell in its lane. Those in `moved` fly there. */
  function draw(moved = []) {
    const stripes = ids.length > CELLS_MAX;
    const flying = stripes || still.matches ? [] : moved.slice(0, FLIGHTS_MAX).filter((id) => cells.get(id)?.isConnected);
    const from = flying.map((id) => cells.get(id).getBoundingClientRect());
    const focused = document.activeElement?.dataset?.id;
    const order = [...lanes.keys()].filter((name) => name !== NOBODY).sort();
    const shown = [...order, NOBODY].map(lane);
    if (rows.children.length !== shown.length || shown.some((one, index) => rows.children[index] !== one.element)) rows.replaceChildren(...shown.map((one) => one.element));
    rows.setAttribute("aria-busy", String(!loaded));
    rows.dataset.size = ids.length > 600 ? "small" : ids.length > 120 ? "middle" : "large";
    const fixed = ids.length * shown.length <= PLACES_MAX;
    for (const one of shown) (stripes ? drawStripes : drawCells)(one, fixed, new Set(moved));
    if (focused) cells.get(focused)?.focus({ preventScroll: true });
    flying.forEach((id, index) => {
      const to = cells.get(id).getBoundingClientRect();
      cells.get(id).animate([{ transform: `translate(${from[index].x - to.x}px, ${from[index].y - to.y}px)`, zIndex: 1 }, { transform: "none", zIndex: 1 }], { duration: 700, easing: "ease-in-out" });
    });
    if (!rows.querySelector("a:is(:hover, :focus)")) hint();
  }

  function drawCells(one, fixed) {
    const hole = (index) => (one.holes[index] ??= h("i"));
    // Nobody's cells are few as a rule, and a whole grid of holes for them would only take room.
    const kept = fixed && one.name !== NOBODY;
    const own = ids.filter((id) => owners.get(id) === one.name);
    one.field.replaceChildren(...(kept ? ids.map((id, index) => (owners.get(id) === one.name ? cell(id) : hole(index))) : own.map(cell)));
    const links = own.map(cell);
    stopAt(links, links.find((link) => link.tabIndex === 0) ?? links[0]);
    one.field.setAttribute("role", "group");
    one.field.setAttribute("aria-label", `Endpoints of ${nameOf(one.name)}`);
    one.field.className = "cells";
  }

  function drawStripes(one, _, moved) {
    const tallies = Array.from({ length: STRIPES }, () => [0, 0, false]);
    ids.forEach((id, index) => {
      const tally = tallies[Math.floor((index * STRIPES) / ids.length)];
      tally[0] += 1;
      if (owners.get(id) === one.name) tally[1] += 1;
      tally[2] ||= moved.has(id);
    });
    one.stripes ??= tallies.map(() => h("i"));
    one.stripes.forEach((stripe, index) => {
      const [all, own, touched] = tallies[index];
      stripe.style.setProperty("--full", all ? own / all : 0);
      stripe.classList.toggle("fresh", touched);
    });
    if (one.field.firstChild !== one.stripes[0]) one.field.replaceChildren(...one.stripes);
    one.field.className = "cells stripes";
    one.field.setAttribute("role", "img");
    one.field.setAttribute("aria-label", `Where the endpoints of ${nameOf(one.name)} lie among all, by id`);
  }

  function showNodes(nodes) {
    known = nodes;
    const now = Date.now();
    const tallies = new Map();
    for (const name of owners.values()) tallies.set(name, (tallies.get(name) ?? 0) + 1);
    const weights = nodes.reduce((sum, one) => sum + (one.status === "online" ? one.weight : 0), 0);
    const here = new Map(nodes.map((one) => [one.name, one]));
    for (const name of here.keys()) lane(name).seen = now;
    // A node that has gone stays for a while, so that one sees where its cells went.
    for (const [name, one] of lanes) {
      if (name === NOBODY || here.has(name) || tallies.get(name) || now - (one.seen ??= now) < GONE) continue;
      one.element.remove();
      lanes.delete(name);
    }
    lane(NOBODY);
    const facts = [...lanes.values()].map((one) => {
      const node = here.get(one.name);
      const owned = tallies.get(one.name) ?? 0;
      const status = one.name === NOBODY ? "" : node?.status ?? "gone";
      return { one, node, title: nameOf(one.name), status, owned, total: ids.length, share: ids.length ? owned / ids.length : 0, weight: node?.weight };
    });
    for (const { one, node, status, owned, share } of facts) {
      one.here.hidden = !node?.here;
      setText(one.status, status);
      one.status.className = `pill ${{ online: "good", draining: "warn", gone: "bad" }[status] ?? ""}`;
      one.element.classList.toggle("gone", status === "gone");
      setText(one.tally, loaded ? `${whole(owned)} of ${whole(ids.length)}${ids.length ? `, ${percent(share * 100)}` : ""}` : "–");
      one.fill.style.width = `${share * 100}%`;
      const fair = node?.status === "online" && weights ? node.weight / weights : null;
      one.mark.hidden = fair === null;
      if (fair !== null) one.mark.style.left = `${fair * 100}%`;
      setText(one.more, node ? `weight ${node.weight}, ${node.here ? "it is the one you ask" : `heard ${duration(node.heard_ms / 1000)} ago`}` : one.name !== NOBODY ? "no longer heard of" : owned ? "waiting for an owner" : "every endpoint has an owner");
    }
    facts.sort((a, b) => (a.one.name === NOBODY) - (b.one.name === NOBODY) || (a.one.name < b.one.name ? -1 : 1));
    const shape = JSON.stringify(facts.map(({ title, status, owned, total, weight }) => [title, status, owned, total, weight]));
    if (shape === list.shape) return;
    list.shape = shape;
    list.set(facts.map((fact) => ({ ...fact, status: fact.status || "–" })));
  }

  function highlight(moved) {
    for (const id of moved) cells.get(id)?.classList.add("fresh");
    fresh.push(setTimeout(() => {
      fresh.shift();
      for (const id of moved) cells.get(id)?.classList.remove("fresh");
      for (const stripe of rows.querySelectorAll(".stripes .fresh")) stripe.classList.remove("fresh");
    }, FRESH));
  }

  /** Notes who owns what now. What was not known before has not moved, it has come. */
  function take(changes, at) {
    const noted = [];
    for (const [id, owner] of changes) {
      const before = owners.get(id);
      if (before === owner) continue;
      owners.set(id, owner);
      noted.push({ id, from: before, to: owner, at });
    }
    if (noted.some(({ from }) => from === undefined)) sort();
    return noted;
  }

  const sort = () => { ids = [...owners.keys()].sort(); };

  function show(noted) {
    if (!noted.length) return;
    for (const { to } of noted) lane(to);
    const moved = noted.map(({ id }) => id);
    draw(moved);
    highlight(moved);
    const rest = noted.length - MOVES_SHOWN;
    const told = rest > 0 ? [...noted.slice(0, MOVES_SHOWN - 1).reverse(), { at: noted[0].at, rest: rest + 1 }] : noted.reverse();
    moves = [...told, ...moves].slice(0, MOVES_SHOWN);
    events.classList.remove("is-empty");
    events.replaceChildren(...moves.map(({ id, from, to, at, rest: others }) => h("li", null, h("span", { class: "log-time" }, when(at, clock(at))),
      others ? h("span", null, `and ${whole(others)} more`) : h("a", { href: link("/polls", { id }) }, id),
      !others && h("span", { class: "log-text" }, h("span", { class: "dim" }, from === undefined ? "new" : nameOf(from)), " → ", nameOf(to)))));
  }

  async function load() {
    if (asking) return;
    asking = true;
    doubts = 0;
    rest = PAUSE;
    try {
      const { nodes, nobody } = await api.get("/api/v1/polls/owners", { signal });
      trouble.replaceChildren();
      const first = !loaded;
      loaded = true;
      const now = new Map([...Object.entries(nodes).flatMap(([name, own]) => own.map((id) => [id, name])), ...nobody.map((id) => [id, NOBODY])]);
      for (const name of Object.keys(nodes)) lane(name);
      for (const id of [...owners.keys()].filter((one) => !now.has(one))) {
        owners.delete(id);
        cells.delete(id);
      }
      const noted = take(now, Date.now());
      sort();
      if (first || !noted.length) draw();
      else show(noted);
      showNodes(known);
    } catch (problem) {
      if (!problem.silent) trouble.replaceChildren(problemNotice(problem, load));
    }
    asking = false;
  }

  // Moves tell most of it. They do not tell why somebody has none any more (paused, deleted, or waiting), nor of what is new and waits.
  function doubt({ here, nodes }) {
    const tallies = new Map();
    for (const name of owners.values()) tallies.set(name, (tallies.get(name) ?? 0) + 1);
    const agree = owners.size === here.endpoints - here.paused && nodes.nodes.every((one) => (one.owns[kind] ?? 0) === (tallies.get(one.name) ?? 0));
    doubts = agree ? 0 : doubts + 1;
    rest -= 1;
    if (doubts >= DOUBTS && rest <= 0) load();
  }

  return {
    element,
    load,
    /** The nodes there are. */
    nodes(list) {
      const before = lanes.size;
      showNodes(list);
      if (loaded && lanes.size !== before) draw();
    },
    /** The event of a second. */
    beat(event) {
      if (loaded) show(take(event.moves.map(({ id, owner }) => [id, owner ?? NOBODY]), event.at_ms));
      this.nodes(event.nodes.nodes);
      if (loaded) doubt(event);
    },
    destroy() {
      fresh.forEach(clearTimeout);
    },
  };
}

const nameOf = (name) => (name === NOBODY ? "Nobody" : name);
