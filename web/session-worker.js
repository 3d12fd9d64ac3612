// One worker: where it stands, how it wears out, what it carries, and what can be done with it.

import { api } from "./api.js";
import { h, inline, setText } from "./dom.js";
import { explainOf } from "./explain.js";
import { bytes, dateTime, duration, percent, when, whole } from "./format.js";
import { listen } from "./live.js";
import { notice, pageHead, problemNotice, tile } from "./notice.js";
import { link } from "./router.js";
import { sessionList } from "./session-lists.js";
import { lives } from "./session-lives.js";
import { sawtooth } from "./session-saw.js";
import { ago, workerActions, workerPath } from "./session-workers.js";
import { many, STANDINGS } from "./session-words.js";

const EVERY = 2;

export function mountWorker(root, { name, signal, can }) {
  let beats = 0;
  let now = null;
  let gone = false;
  let kinds = [];
  let asking = false;
  let shape = "";
  const known = lives();
  document.title = `${name} · Sessions · Skep`;
  const tiles = { standing: tile("Standing"), sessions: tile("Sessions"), life: tile("Life"), memory: tile("Memory"), heard: tile("Last heard") };
  const actions = workerActions({ worker: () => now, can, look: "", failed: (problem) => trouble.replaceChildren(problemNotice(problem)), done: async () => {
    trouble.replaceChildren();
    await refresh();
  } });
  const buttons = h("div", { class: "row" }, actions.elements);
  buttons.hidden = true;
  const head = pageHead(name, "\u00a0", buttons);
  const line = head.querySelector("p");
  const trouble = h("div");
  const meaning = h("p", { class: "dim" }, "\u00a0");
  const facts = h("dl", { class: "facts" }, h("span", { class: "ghost" }));
  const saw = sawtooth({ lives: known, only: name });
  const sessions = sessionList({ state: "open", worker: name, signal, can, changed: refresh });
  const rest = [
    h("div", { class: "tiles" }, Object.values(tiles).map((one) => one.element)), meaning, saw.element,
    h("div", { class: "pair" }, sessions.element, h("section", { class: "card" }, h("h2", null, "What it is"), facts)),
  ];
  root.append(h("p", { class: "small" }, h("a", { href: link("/sessions") }, "All workers and sessions")), head, trouble, ...rest);

  function show(one) {
    const limit = kinds.find(({ kind }) => kind === one.kind)?.lifetime_max;
    now = one;
    setText(line, `${one.kind} at ${one.address}`);
    tiles.standing.set(one.standing, one.drained ? "drained by an operator" : one.permit ? "has its permit to restart" : one.due_by ? `asks to restart: ${one.due_by}` : `runs for ${duration(Math.max(0, Math.round((Date.now() - new Date(one.since)) / 1000)))}`, ["suspect", "down", "lost"].includes(one.standing));
    tiles.sessions.set(`${whole(one.active)} of ${whole(one.slots)}`, one.leaving ? `and ${whole(one.leaving)} on the one before` : one.active < one.slots ? `${many(one.slots - one.active, "slot")} free` : "every slot is taken");
    tiles.life.set(limit ? `${whole(one.lifetime)} of ${whole(limit)}` : whole(one.lifetime), one.due_at ? `due from ${whole(one.due_at)} on` : "it does not wear out");
    tiles.memory.set(bytes(one.rss_bytes), one.rss_bytes === null && one.cpu_percent === null ? "not told to this node" : `CPU ${percent(one.cpu_percent)}`);
    tiles.heard.set(ago(one.heard), one.failures ? `${many(one.failures, "failure")} in a row` : "it answers", one.failures > 0);
    setText(meaning, `${one.standing[0].toUpperCase()}${one.standing.slice(1)}: ${STANDINGS[one.standing] ?? ""}.`);
    actions.set(one);
    buttons.hidden = false;
    const drawn = JSON.stringify([one.worker, one.labels, one.version, one.incarnation, one.since, one.address, one.would_change]);
    if (shape === (shape = drawn)) return;
    const parts = {
      Number: one.worker, Kind: one.kind, Address: h("span", { class: "mono" }, one.address), Version: one.version ?? "any",
      Labels: one.labels.length ? h("span", { class: "chips" }, one.labels.map((label) => h("span", { class: "chip" }, label))) : "none",
      "Runs since": when(one.since, dateTime(one.since, true)), Incarnation: whole(one.incarnation),
      "What would change it": one.would_change ? inline(one.would_change) : "nothing", Explain: explainOf(one.explain),
    };
    facts.replaceChildren(...Object.entries(parts).map(([title, value]) => h("div", null, h("dt", null, title), h("dd", null, value))));
  }

  async function refresh(at = Date.now()) {
    if (gone || asking) return;
    asking = true;
    try {
      const [one] = await Promise.all([api.get(workerPath(name), { signal }), sessions.load()]);
      show(one);
      known.see(at, [one]);
      saw.draw();
    } catch (problem) {
      if (!problem.silent) fail(problem);
    }
    asking = false;
  }

  function fail(problem) {
    gone = problem.status === 404;
    trouble.replaceChildren(gone ? notice("warn", problem.title, `${name} is not there, or no longer.`, h("a", { class: "button", href: link("/sessions") }, "All workers")) : problemNotice(problem, load));
    if (!gone) return;
    buttons.hidden = true;
    for (const one of rest) one.hidden = true;
  }

  async function load() {
    try {
      const [overview, one] = await Promise.all([api.get("/api/v1/sessions/overview", { signal }), api.get(workerPath(name), { signal }), sessions.load()]);
      trouble.replaceChildren();
      kinds = overview.kinds;
      const own = overview.series.workers[name];
      known.remember({ ...overview.series, workers: own ? { [name]: own } : {} });
      known.see(overview.series.at_ms.at(-1) ?? Date.now(), [one]);
      show(one);
      drawLife();
    } catch (problem) {
      if (!problem.silent) fail(problem);
    }
  }

  const drawLife = () => saw.draw(kinds.filter(({ kind }) => kind === now?.kind));

  function beat({ at_ms: at, kinds: heard }) {
    if (!heard || gone) return;
    kinds = heard;
    drawLife();
    beats += 1;
    if (!document.hidden && beats % EVERY === 0) refresh(at);
  }

  const stop = listen("/api/v1/live", "sessions", beat, { onOpen: (again) => again && load() });
  load();
  return () => {
    stop();
    saw.destroy();
  };
}
