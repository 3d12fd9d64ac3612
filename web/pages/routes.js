// Routes: which requests go where and how that goes. Each route on a page of its own (#/routes?route=…).

import { api } from "../api.js";
import { copyButton } from "../copy.js";
import { h, setText } from "../dom.js";
import { millis, rate, whole } from "../format.js";
import { listen } from "../live.js";
import { notice, pageHead, problemNotice, tile } from "../notice.js";
import { reloadButton } from "../route-actions.js";
import { eventList } from "../route-events.js";
import { mountRoute } from "../route-one.js";
import { routeTable } from "../route-table.js";
import { testForm } from "../route-test.js";
import { isAway, nodeClock } from "../route-words.js";
import { many } from "../session-words.js";

export const page = { "path": "/routes", "title": "Routes", "order": 40, "needs": "read", "icon": "M3 12h5c4 0 4-6 8-6h5M8 12c4 0 4 6 8 6h5M18 3l3 3-3 3M18 15l3 3-3 3" };

// What only the API knows (who made it, what is not used) is asked for every so many beats.
const EVERY = 10;
const ANYWHERE = /^(0\.0\.0\.0|\[::\]):/;
const ADD = "skep routes add hello --host hello.localhost --to 127.0.0.1:9001 --to 127.0.0.1:9002";
const TOML = `[[routes]]
name = "hello"
host = "hello.localhost"
upstreams = ["127.0.0.1:9001", "127.0.0.1:9002"]`;

export function mount(root, context) {
  const name = context.params.get("route");
  return name ? mountRoute(root, { name, ...context }) : mountAll(root, context);
}

function mountAll(root, { signal, params, noteParams, can }) {
  let beats = 0;
  let known = null; // as the API lists them
  let asking = false;
  const time = nodeClock();
  const trouble = h("div");
  const told = h("div");
  const warnings = warningList();
  const line = addressLine();
  const begin = beginning(can("admin"));
  const tiles = { requests: tile("Requests"), errors: tile("5xx"), refused: tile("Refused"), open: tile("Open"), upstreams: tile("Upstreams") };
  const table = routeTable({ params, noteParams });
  const events = eventList({ signal });
  const test = testForm({ signal, params });
  const busy = h("div", { class: "column" }, h("div", { class: "tiles" }, Object.values(tiles).map((one) => one.element)), table.elements);
  const below = h("div", { class: "pair" }, test.element, events.element);
  const ghost = h("span", { class: "ghost" });
  busy.hidden = below.hidden = true;
  root.append(pageHead("Routes", "Which requests of the gateway go to which upstreams.", line.element, can("admin") ? reloadButton({ place: told, done: load }) : ""), trouble, told, warnings.element, ghost, begin.element, busy, below);

  function show(at) {
    ghost.hidden = true;
    begin.element.hidden = known.length > 0;
    busy.hidden = below.hidden = !known.length;
    const rows = table.set(known, at);
    const used = rows.filter((one) => one.now);
    const sum = (pick) => used.reduce((total, one) => total + pick(one), 0);
    const [errors, refused, all, away] = [sum((one) => one.rates.errors), sum((one) => one.rates.refused), sum((one) => one.now.upstreams.length), sum((one) => one.now.upstreams.filter(isAway).length)];
    const slow = used.filter((one) => one.rates.p99 !== null).sort((a, b) => b.rates.p99 - a.rates.p99)[0];
    tiles.requests.set(rate(sum((one) => one.rates.requests)), slow ? `slowest p99: ${slow.name}, ${millis(slow.rates.p99)}` : "no answers just now");
    tiles.errors.set(rate(errors), errors ? many(used.filter((one) => one.rates.errors).length, "route") : "none just now", errors > 0);
    tiles.refused.set(rate(refused), refused ? many(used.filter((one) => one.rates.refused).length, "route") : "none just now", refused > 0);
    tiles.open.set(whole(sum((one) => one.now.open)), "on their way");
    tiles.upstreams.set(whole(all - away), away ? `of ${whole(all)}; ${whole(away)} out or down` : "all are used", away > 0);
  }

  async function load() {
    if (asking) return;
    asking = true;
    try {
      const answer = await api.get("/api/v1/routes", { signal });
      trouble.replaceChildren();
      known = answer.routes;
      line.set(answer);
      warnings.set(answer.warnings);
      show(time.now(known.map((one) => one.now)));
    } catch (problem) {
      if (!problem.silent) trouble.replaceChildren(problemNotice(problem, start));
    }
    asking = false;
  }

  function beat({ at_ms: at, routes, events: fresh }) {
    time.hear(at);
    if (!known) return;
    const heard = new Map(routes.map((one) => [one.name, one]));
    const used = known.filter((one) => !one.unused);
    const same = used.length === heard.size && used.every((one) => heard.has(one.name));
    known = known.map((one) => ({ ...one, now: heard.get(one.name) }));
    show(at);
    events.hear(fresh);
    beats += 1;
    if (document.hidden) return;
    if (!same || beats % EVERY === 0) load();
    if (beats % EVERY === 0) events.renew();
  }

  function start() {
    load();
    events.load();
  }

  const stop = listen("/api/v1/live", "routes", beat, { onOpen: (again) => again && start() });
  start();
  return stop;
}

/** Where clients ask, in the head of the page. */
function addressLine() {
  const words = h("span", { class: "dim small" });
  const address = h("code");
  const secure = h("code");
  const write = (place, scheme, at) => {
    setText(place, at ? `${scheme}://${at.replace(ANYWHERE, `${location.hostname}:`)}` : "");
    place.hidden = !at;
  };
  return {
    element: h("div", { class: "row connect" }, words, address, secure),
    set({ gateway, gateway_tls: tls }) {
      setText(words, gateway || tls ? "Clients ask" : "This node has no gateway; clients ask another");
      write(address, "http", gateway);
      write(secure, "https", tls);
    },
  };
}

/** What works otherwise than somebody will have meant it. */
function warningList() {
  const element = h("div", { class: "stack" });
  let drawn = "";
  return {
    element,
    set(all) {
      if (drawn === (drawn = all.join("\n"))) return;
      const shown = all.slice(0, 10);
      element.replaceChildren(...shown.map((text) => notice("warn", "Not as it may be meant", text)), all.length > shown.length ? `and ${all.length - shown.length} more` : "");
    },
  };
}

/** What to do where there is no route yet. */
function beginning(mayReload) {
  const step = (title, sample, text) => h("li", { class: "stack" }, h("h3", null, title), h("div", { class: "curl" }, h("pre", null, sample), copyButton(() => sample)), h("p", { class: "dim small" }, text));
  const element = h("section", { class: "card stack ways" }, h("h2", null, "No route yet"),
    h("p", { class: "dim" }, "A route says which requests go where: a host and a path prefix, and a group of upstreams that share the work. There are two ways to add the first:"),
    h("ul", { class: "stack" },
      step("On the command line, for all nodes", ADD, ["It is kept in the database, and all nodes serve it within a second. ", h("a", { href: "#/api" }, "The API"), " does the same."]),
      step("In this node's skep.toml, for what belongs to the machine", TOML, ["Then ", h("code", null, "skep routes reload"), mayReload ? ", or the button above" : "", ". If anything in the file is wrong, each line is named and nothing changes."])));
  element.hidden = true;
  return { element };
}
