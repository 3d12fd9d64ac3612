// One server: its monitors by status, why each is what it is and what would change that, its measurements and its history.

import { api } from "./api.js";
import { chart } from "./chart.js";
import { openDialog } from "./dialog.js";
import { h, setText } from "./dom.js";
import { dateTime, relative, units, whole } from "./format.js";
import { listen } from "./live.js";
import { serverButtons } from "./monitor-actions.js";
import { assignmentTables } from "./monitor-assignments.js";
import { explainCell } from "./explain.js";
import { explained } from "./monitor-explain.js";
import { changeTable } from "./monitor-history.js";
import { fixed, path, probeText, ruleText, serverState, step } from "./monitor-words.js";
import { notice, pageHead, problemNotice, tile } from "./notice.js";
import { repeat } from "./queue-words.js";
import { link } from "./router.js";
import { many } from "./session-words.js";

const EVERY = 5;
const SAMPLES = 500;
const HOUR = 3600000;
// The plot has so many points at most.
const POINTS = 120;

export function mountServer(root, { id, signal, params, noteParams, can }) {
  let gone = false;
  let drawn = "";
  let plot = null;
  let span = 0;
  document.title = `${id} · Monitors · Skep`;
  const tiles = { active: tile("Active"), testing: tile("Testing"), score: tile("Score"), reviewed: tile("Reviewed"), next: tile("Next review") };
  const buttons = h("div", { class: "row" });
  const head = pageHead(id, "\u00a0", buttons);
  const line = head.querySelector("p");
  const trouble = h("div");
  const planned = h("div");
  const why = explainCell();
  const place = h("div", { class: "plot-place" });
  const tables = assignmentTables({ explain });
  const history = changeTable({ path: path("servers", id, "/history"), other: "monitor", signal });
  const rest = [planned, h("div", { class: "tiles" }, Object.values(tiles).map((one) => one.element)), tables.element, h("h2", null, "Measurements"), place, h("h2", null, "History"), ...history.elements];
  root.append(h("p", { class: "small" }, h("a", { href: link("/monitors") }, "All servers")), head, why.element, trouble, ...rest);

  function show({ server, plan, assignments }) {
    why.set(server);
    const { counts, targets } = server;
    const [state, look] = serverState(server);
    setText(line, `${probeText(server.probe)}, address ${server.ip}${server.account ? `, account ${server.account}` : ""}`);
    const missing = targets.active - counts.active;
    tiles.active.set(`${whole(counts.active)} of ${whole(targets.active)}`, state === "paused" ? "it is paused" : missing > 0 ? `${whole(missing)} missing` : "as it should be", look === "bad");
    tiles.testing.set(`${whole(counts.testing)} of ${whole(targets.testing)}`, `${many(counts.candidate, "candidate")}, ${whole(counts.paused)} paused`);
    tiles.score.set(fixed(server.score, 1), "20 is perfect", server.score !== null && server.score < 10);
    tiles.reviewed.set(server.reviewed_at ? relative(server.reviewed_at) : "never", server.changed_at ? `changed ${relative(server.changed_at)}` : "nothing changed yet");
    tiles.next.set(server.paused ? "–" : relative(server.next_review_at), server.paused ? "not while it is paused" : dateTime(server.next_review_at, true).slice(11));
    showPlan(server, plan);
    tables.set(assignments);
    // Only when something changed: a button that has the focus keeps it.
    if (can("admin") && drawn !== (drawn = String(server.paused))) {
      const held = buttons.contains(document.activeElement);
      buttons.replaceChildren(...serverButtons(server, { look: "", failed, done: acted, removing }));
      if (held) buttons.firstChild.focus();
    }
  }

  // What the next review would do, if it were now.
  function showPlan(server, plan) {
    const { changes, emergency } = plan;
    const key = JSON.stringify([server.paused, changes, emergency]);
    if (planned.dataset.key === key) return;
    planned.dataset.key = key;
    const parts = [];
    if (server.paused) parts.push(notice("info", "This server is paused", "It is neither measured nor reviewed."));
    if (emergency && !server.paused) parts.push(notice("warn", "Nobody is active", "A monitor may become active against account limits and the spread over networks, but never one of the server's own network or account."));
    if (changes.length) {
      parts.push(h("section", { class: "card stack planned" }, h("h2", null, changes.length === 1 ? "A review now would make a change" : `A review now would make ${whole(changes.length)} changes`),
        h("ul", { class: "stack" }, changes.map((one) => h("li", null, h("strong", null, String(one.id)), " ", step(one), h("span", { class: "dim" }, ` ${one.reason} (${ruleText(one.rule)})`))))));
    }
    planned.replaceChildren(...parts);
  }

  function showSamples(samples) {
    const oldest = [...samples].reverse();
    // How long it shows follows from how much there is, which is known only now.
    if (!plot) {
      span = Math.min(24 * HOUR, Math.max(HOUR, oldest.length ? Date.now() - oldest[0].at : 0));
      plot = chart({ title: "Round trips", unit: units.millis, span, gap: span / 4, floor: 1, height: 160, empty: "No measurement yet",
        series: [{ key: "middle", label: "Median", color: 3, area: true }, { key: "slowest", label: "Slowest", color: 5, dash: true }] });
      place.replaceChildren(plot.element);
    }
    plot.set(gathered(oldest, span / POINTS));
    plot.mark(oldest.filter((one) => one.error).map((one) => ({ at: one.at, key: "middle", down: true, text: `${one.monitor}: ${one.error}` })));
    tables.samples(samples);
  }

  async function load() {
    if (gone) return;
    try {
      const [answer, measured] = await Promise.all([api.get(path("servers", id, "/monitors"), { signal }), api.get(path("servers", id, `/samples?limit=${SAMPLES}`), { signal })]);
      if (trouble.dataset.from === "load") trouble.replaceChildren();
      show(answer);
      showSamples(measured.samples);
    } catch (problem) {
      if (problem.silent || gone) return;
      gone = problem.status === 404;
      trouble.dataset.from = "load";
      trouble.replaceChildren(gone ? notice("warn", problem.title, `${id} is not there, or no longer.`, h("a", { class: "button", href: link("/monitors") }, "All servers")) : problemNotice(problem, load));
      if (gone) for (const one of [...rest, buttons, why.element]) one.hidden = true;
    }
  }

  /** Why a monitor is what it is, in full. The address leads there. */
  function explain(monitor) {
    noteParams({ server: id, explain: monitor });
    const content = h("div", { class: "stack" }, h("span", { class: "ghost" }));
    const dialog = openDialog({ title: `${monitor} and ${id}`, content: [content, h("div", { class: "row end" }, h("button", { type: "button", onclick: () => dialog.close() }, "Close"))], onClose: () => { if (!signal.aborted) noteParams({ server: id }); } });
    api.get(`/api/v1/monitoring/explain/${encodeURIComponent(id)}/${encodeURIComponent(monitor)}`, { signal }).then(
      (answer) => content.replaceChildren(...explained(answer)),
      (problem) => { if (!problem.silent) content.replaceChildren(problemNotice(problem)); });
  }

  // Nobody wants to hear that it is gone from a question that was asked a moment before.
  function removing() {
    gone = true;
  }

  function failed(problem) {
    gone = false;
    trouble.dataset.from = "action";
    trouble.replaceChildren(problemNotice(problem));
  }

  async function acted(text) {
    trouble.replaceChildren();
    if (text.endsWith("deleted")) return location.assign(link("/monitors"));
    await load();
    history.renew();
  }

  const stop = listen("/api/v1/live", "monitors", ({ changes }) => {
    if (!changes?.some((one) => one.server === id) || document.hidden) return;
    load();
    history.renew();
  });
  load();
  if (params.get("explain")) explain(params.get("explain"));
  repeat(signal, EVERY, () => Promise.all([load(), history.renew()]));
  return () => {
    stop();
    plot?.destroy();
  };
}

/** The round trips of each stretch of time as one point: those of several monitors do not come at the same moment. */
function gathered(samples, width) {
  const groups = new Map();
  for (const { at, rtt_ms: rtt } of samples) {
    const place = Math.floor(at / width);
    if (!groups.has(place)) groups.set(place, []);
    if (rtt !== null && rtt !== undefined) groups.get(place).push(rtt);
  }
  return [...groups].map(([place, all]) => {
    const sorted = all.sort((a, b) => a - b);
    return { at: Math.round((place + 0.5) * width), middle: sorted.length ? sorted[sorted.length >> 1] : null, slowest: sorted.length ? sorted.at(-1) : null };
  });
}
