// One route: what goes over it now and went over it before, its upstreams, its events and how it was written.

import { api } from "./api.js";
import { copyButton } from "./copy.js";
import { h, setText } from "./dom.js";
import { dateTime, duration, millis, rate, when, whole } from "./format.js";
import { liveTable, plain } from "./live-table.js";
import { listen } from "./live.js";
import { notice, pageHead, problemNotice, tile } from "./notice.js";
import { maintenanceButton, reloadButton } from "./route-actions.js";
import { eventList } from "./route-events.js";
import { LIVE_MS, livePlots, rollups } from "./route-plots.js";
import { testForm } from "./route-test.js";
import { isAway, memory, nodeClock, place, routePath, standingsText, standingWord } from "./route-words.js";
import { link } from "./router.js";
import { many } from "./session-words.js";

// The spec and what others have seen are asked for every so many beats.
const EVERY = 10;

export function mountRoute(root, { name, signal, params, can }) {
  let beats = 0;
  let gone = false;
  let checked = false; // are its upstreams asked how they are?
  let used = true;
  let closed = false;
  let shape = "";
  const seen = memory(LIVE_MS);
  const time = nodeClock();
  document.title = `${name} · Routes · Skep`;
  const trouble = h("div");
  const told = h("div");
  const state = h("div");
  const tiles = { requests: tile("Requests"), times: tile("Durations"), errors: tile("5xx"), refused: tile("Refused"), upstreams: tile("Upstreams") };
  const maintenance = maintenanceButton({ name, done: (answer) => { trouble.replaceChildren(); show(answer); }, failed: (problem) => trouble.replaceChildren(problemNotice(problem)) });
  const reload = reloadButton({ place: told, done: load });
  reload.hidden = true;
  const buttons = h("div", { class: "row" }, can("admin") && [h("a", { class: "button", href: link("/access", { route: name }) }, "Access log"), maintenance.element, reload]);
  const head = pageHead(name, "\u00a0", buttons);
  const line = head.querySelector("p");
  const live = livePlots();
  const longer = rollups({ name, signal, now: () => time.now([]) || Date.now(), span: params.get("span") });
  const events = eventList({ route: name, signal });
  const spec = specCard();
  const upstreams = upstreamTable(() => checked);
  const testPlace = h("div");
  const rest = [
    h("div", { class: "tiles" }, Object.values(tiles).map((one) => one.element)), live.element, upstreams.element, longer.element,
    h("div", { class: "pair" }, events.element, h("div", { class: "column" }, testPlace, spec.element)),
  ];
  root.append(h("p", { class: "small" }, h("a", { href: link("/routes") }, "All routes")), head, trouble, told, state, ...rest);

  function showNow(now, at) {
    seen.see(now.seconds, at);
    const rates = seen.now(at);
    const away = now.upstreams.filter(isAway).length;
    tiles.requests.set(rate(rates.requests), `${whole(now.open)} open, ${many(now.retries, "retry", "retries")}`);
    tiles.times.set(millis(rates.p50), rates.p99 === null ? "no answers just now" : `p50; p99 is ${millis(rates.p99)}`);
    tiles.errors.set(rate(rates.errors), rates.errors ? "of upstreams, or for want of one" : "none just now", rates.errors > 0);
    tiles.refused.set(rate(rates.refused), rates.refused ? "at the door, see the events" : "none just now", rates.refused > 0);
    if (now.workers) tiles.upstreams.set(now.workers, "the kind of its workers");
    else tiles.upstreams.set(`${now.upstreams.length - away} of ${now.upstreams.length}`, standingsText(now.upstreams), away > 0);
    upstreams.set(now);
    if (at) live.draw(seen.all(), at);
  }

  function show(answer) {
    const { source, now, unused } = answer;
    checked = Boolean(answer.spec.health);
    const from = source.from === "file" ? source.place : `made by the API, version ${source.version}`;
    setText(line, `${place(answer.spec)}, ${from}`);
    used = !unused;
    closed = Boolean(answer.spec.maintenance?.enabled);
    maintenance.set(source.from, closed);
    reload.hidden = source.from !== "file";
    const drawn = JSON.stringify([unused, closed, source, answer.spec]);
    if (shape !== (shape = drawn)) {
      state.replaceChildren(...[
        unused && notice("warn", "This route is not used", unused),
        used && closed && notice("warn", "Closed for maintenance", source.from === "file" ? "Clients get its maintenance page. To open it, change the file and reload." : "Clients get its maintenance page, and no upstream is asked."),
      ].filter(Boolean));
      spec.set(answer);
    }
    if (!testPlace.firstChild) testPlace.append(testForm({ signal, params, example: exampleOf(answer.spec) }).element);
    if (now) showNow(now, time.now([now]));
  }

  async function load() {
    try {
      const answer = await api.get(routePath(name), { signal });
      trouble.replaceChildren();
      if (gone) for (const one of rest) one.hidden = false;
      gone = false;
      show(answer);
    } catch (problem) {
      if (!problem.silent) fail(problem);
    }
  }

  function fail(problem) {
    gone = problem.status === 404;
    trouble.replaceChildren(gone ? notice("warn", problem.title, `${name} is not there, or no longer.`, h("a", { class: "button", href: link("/routes") }, "All routes")) : problemNotice(problem, load));
    if (!gone) return;
    for (const one of rest) one.hidden = true;
    maintenance.element.hidden = reload.hidden = true;
  }

  function beat({ at_ms: at, routes, events: fresh }) {
    time.hear(at);
    if (gone) return;
    const now = routes.find((one) => one.name === name);
    if (now) showNow(now, at);
    events.hear(fresh);
    beats += 1;
    if (document.hidden) return;
    longer.beat();
    // One that is gone, or closed by somebody else, is told at once.
    if (beats % EVERY === 0 || used !== Boolean(now) || (now && now.maintenance !== closed)) load();
    if (beats % EVERY === 0) events.renew();
  }

  function start() {
    load();
    events.load();
    longer.load();
  }

  const stop = listen("/api/v1/live", "routes", beat, { onOpen: (again) => again && start() });
  start();
  return () => {
    stop();
    live.destroy();
    longer.destroy();
  };
}

/** An address that belongs to it. */
const exampleOf = ({ host, path, tls }) => `${tls ? "https" : "http"}://${host === "*" ? "any.example" : host.replace(/^\*\./, "www.")}${path}`;

/** isChecked(): are upstreams asked how they are? */
function upstreamTable(isChecked) {
  const tally = h("span", { class: "dim small" });
  const list = liveTable({
    label: "Upstreams", key: (one) => one.address, empty: "Its requests go to workers.",
    columns: [
      { title: "Upstream", class: "free", make: () => pair((one) => one.address, (one) => `weight ${whole(one.weight)}`) },
      { title: "Standing", class: "nowrap", make: standingWord },
      { title: "Out for", class: "nowrap num", text: (one) => (one.out_for_ms === undefined ? "–" : duration(Math.ceil(one.out_for_ms / 1000))) },
      { title: "Active", class: "nowrap num", text: (one) => whole(one.active) },
      { title: "Answered", class: "nowrap num", text: (one) => whole(one.answered) },
      { title: "Failed", class: "nowrap num", text: (one) => whole(one.failed) },
      { title: "Last check", class: "free", text: (one) => one.unwell ?? (isChecked() ? "well" : "not checked") },
    ],
  });
  return {
    element: h("section", { class: "column upstreams" }, h("div", { class: "row" }, h("h2", null, "Upstreams"), tally), h("div", { class: "card scroll-box upstreams-box" }, list.element)),
    set(now) {
      list.set(now.upstreams);
      setText(tally, now.workers ? "" : `${many(now.upstreams.length, "upstream")} as this node sees them, ${now.policy}`);
    },
  };
}

function pair(text, more) {
  const parts = [plain(text, "span", "mono"), plain(more, "div", "dim small")];
  return { element: parts.map((one) => one.element), set: (row) => parts.forEach((one) => one.set(row)) };
}

/** How it was written, and by whom. */
function specCard() {
  const facts = h("dl", { class: "facts" }, h("span", { class: "ghost" }));
  const raw = h("pre", { tabindex: "0", "aria-label": "The route as JSON" });
  const element = h("section", { class: "card stack" }, h("h2", null, "What it is"), facts,
    h("details", { class: "more" }, h("summary", null, "All of it, with defaults"), h("div", { class: "curl spec" }, raw, copyButton(() => raw.textContent))));
  return {
    element,
    set({ source, spec }) {
      const parts = {
        For: h("span", { class: "mono" }, place(spec)), Policy: spec.policy,
        From: source.from === "file" ? h("span", { class: "mono" }, source.place) : `the API, version ${source.version}`,
        ...(source.from === "file" ? { "To change it": "edit the file, then reload" } : { Changed: [when(source.updated_at_ms, dateTime(source.updated_at_ms, true)), source.updated_by && ` by ${source.updated_by}`] }),
        Checks: spec.health ? `${spec.health.path} every ${spec.health.every}` : "none; requests find out who is away",
        TLS: spec.tls ? h("span", { class: "mono" }, spec.tls.certificate) : "none of its own",
      };
      facts.replaceChildren(...Object.entries(parts).map(([title, value]) => h("div", null, h("dt", null, title), h("dd", null, value))));
      setText(raw, JSON.stringify(spec, null, 2));
    },
  };
}
