// One endpoint: how it is asked, who asks, what came of it, and who asked before.

import { api } from "./api.js";
import { chart } from "./chart.js";
import { copyButton } from "./copy.js";
import { h, setText } from "./dom.js";
import { explainOf } from "./explain.js";
import { dateTime, duration, millis, relative, units, when } from "./format.js";
import { listen } from "./live.js";
import { notice, pageHead, problemNotice, tile } from "./notice.js";
import { actionButtons, endpointPath } from "./poll-actions.js";
import { foldedReason } from "./reason.js";
import { link } from "./router.js";
import { table } from "./table.js";

const RESULTS = 50;
// So many of them are in the table at first.
const ROWS = 15;
// What came of a poll.
const VERDICTS = {
  ok: "as it should be", status: "another status than expected", body: "the answer lacks what it should contain", timeout: "out of time", dns: "the name leads nowhere",
  refused: "nobody listens there", unreachable: "no way leads there", reset: "ended too early", tls: "the handshake failed, or the certificate is not trusted",
  expiry: "the certificate has expired, or will too soon", protocol: "it does not speak HTTP as it should", local: "this node could not ask", aborted: "given up before its end",
};
// Why an endpoint has another owner.
const RULES = {
  unowned: "nobody had it", "unowned-overflow": "nobody had it, and better places were full", "unowned-under-floor": "nobody had it, and this node had too few",
  draining: "the one before is leaving", "over-cap": "the one before had too many", "under-floor": "this node had too few",
  "handed-over": "the one before handed it over", "found-ours": "it was this node's already", "still-ours": "this node goes on with it",
};
const UNITS = { d: 86400, h: 3600, m: 60, s: 1, ms: 0.001 };

export const target = (one) => one.url ?? one.address;
export const took = (us) => millis(us === null || us === undefined ? null : us / 1000);
/** "1m" as people read it, in seconds. */
export const seconds = (span) => [...String(span).matchAll(/([\d.]+)(ms|[dhms])/g)].reduce((sum, [, number, unit]) => sum + number * UNITS[unit], 0);

/** ok, or how it fails and since when. */
export function stateOf(one) {
  const text = one.state === "failing" ? `failing, ${one.failures} in a row` : one.state;
  return h("span", { class: `pill ${{ ok: "good", failing: "bad" }[one.state] ?? ""}` }, text);
}

/** For how long it has been ok or failing, and how it fails. */
export function howLong(one) {
  const span = one.since_ms && `for ${duration(Math.max(0, Math.round((Date.now() - one.since_ms) / 1000)))}`;
  if (one.state === "failing") return [one.last?.verdict, span].filter(Boolean).join(" ");
  return one.state === "ok" ? span : null;
}

const at = (time) => when(time, dateTime(time, true));

export function mountEndpoint(root, { id, signal, can }) {
  let plot = null;
  let beats = 0;
  let every = 5;
  let gone = false;
  let reading = new AbortController();
  let all = false;
  let drawn = "";
  const told = {};
  document.title = `${id} · Polls · Skep`;
  const tiles = { state: tile("State"), owner: tile("Polled by"), last: tile("Last poll"), every: tile("Every") };
  const buttons = h("div", { class: "row" });
  const head = pageHead(id, "\u00a0", buttons);
  const line = head.querySelector("p");
  const trouble = h("div");
  const place = h("div", { class: "plot-place" });
  const strip = h("div", { class: "strip", role: "img", "aria-label": "Last results" });
  const more = h("button", { type: "button" });
  more.hidden = true;
  const facts = h("dl", { class: "facts" }, h("span", { class: "ghost" }));
  const raw = h("pre", { tabindex: "0", "aria-label": "The endpoint as JSON" });
  const results = table({
    label: "Last results, newest first", empty: "It has not been polled yet.",
    columns: [
      { title: "Time", class: "nowrap", cell: (one) => at(one.at_ms) },
      { title: "Result", class: "free", cell: (one) => [h("span", { class: one.ok ? "pill good" : "pill bad", title: VERDICTS[one.verdict] }, one.verdict), one.status && ` ${one.status}`, one.detail && h("div", { class: "dim small" }, one.detail)] },
      { title: "Took", class: "nowrap", cell: (one) => took(one.latency_us) },
      { title: "Late by", class: "nowrap", cell: (one) => took(one.late_us) },
      { title: "Node and grant", class: "free", cell: (one) => [`${one.node} `, h("span", { class: "dim mono small nowrap" }, one.token)] },
    ],
  });
  const history = table({
    label: "Owners, newest first", empty: "Nobody has owned it yet.",
    columns: [
      { title: "Since", class: "nowrap", cell: (one) => at(one.at_ms) },
      { title: "Owner", class: "free", cell: (one) => [h("strong", null, one.node), h("div", { class: "dim small" }, one.from ? `after ${one.from}` : "after nobody")] },
      { title: "Why", class: "free", cell: (one) => [RULES[one.reason.rule] ?? String(one.reason.rule ?? one.reason), foldedReason(() => moved(id, one), "Why exactly")] },
      { title: "Grant", cell: (one) => h("code", null, one.token) },
    ],
  });
  root.append(
    h("p", { class: "small" }, h("a", { href: link("/polls") }, "All endpoints")), head, trouble,
    h("div", { class: "tiles" }, Object.values(tiles).map((one) => one.element)),
    h("div", { class: "pair" },
      h("div", { class: "column" }, place, h("section", { class: "card stack" }, h("h2", null, "Last results, newest last"), strip)),
      h("section", { class: "card" }, h("h2", null, "How it is asked"), facts, h("details", { class: "more" }, h("summary", null, "As JSON"), h("div", { class: "curl" }, raw, copyButton(() => raw.textContent))))),
    h("h2", null, "Owners"), history.element, h("h2", null, "Results"), results.element, h("div", { class: "foot" }, more));

  function showEndpoint(one) {
    setText(line, `${one.kind.toUpperCase()} ${target(one)}`);
    every = Math.max(2, Math.min(15, seconds(one.interval)));
    const failing = one.state === "failing";
    tiles.state.set(one.state, failing ? `${one.failures} in a row ${howLong({ ...one, last: null })}` : howLong(one) ?? (one.state === "paused" ? "nobody polls it" : "not polled yet"), failing);
    tiles.owner.set(one.owner ?? "nobody", one.token ? `grant ${one.token}` : "no grant");
    tiles.last.set(one.last ? took(one.last.latency_us) : "–", one.last ? `${one.last.verdict}, ${relative(one.last.at_ms)}` : "not yet", one.last && !one.last.ok);
    tiles.every.set(duration(seconds(one.interval)), `at most ${duration(seconds(one.timeout))} each`);
    const shape = `${one.version} ${one.state}`;
    if (shape === drawn) return;
    const { version, created_at_ms, updated_at_ms, owner, token, state, failures, since_ms, last, explain, ...spec } = one;
    // Only when something changed: a button that has the focus keeps it.
    if (can("poll")) {
      const held = buttons.contains(document.activeElement);
      buttons.replaceChildren(...actionButtons(one, { look: "", failed, done: acted, removing }).filter(Boolean));
      if (held) buttons.firstChild.focus();
    }
    drawn = shape;
    const parts = {
      Target: h("span", { class: "mono" }, target(one)), Method: one.method, "Expected status": one.expect && listed(one.expect.status), "Contains": one.expect?.body,
      Headers: one.headers && h("span", { class: "mono" }, Object.entries(one.headers).map(([name, value]) => h("div", null, `${name}: ${value}`))),
      "Sent body": one.body && h("span", { class: "mono" }, one.body.slice(0, 200)), "Certificate": one.verify === undefined ? null : `${one.verify ? "must be trusted" : "may be anyone's"}${one.expires_in ? `, good for ${one.expires_in} or more` : ""}`,
      "Name in it": one.server_name, Weight: one.weight, Labels: one.labels && h("span", { class: "chips" }, Object.entries(one.labels).map(([name, value]) => h("span", { class: "chip" }, value ? `${name}=${value}` : name))),
      "Why its node": explainOf(explain), "Publishes to": one.publish_to, Created: at(created_at_ms), Changed: [at(updated_at_ms), `, version ${version}`],
    };
    facts.replaceChildren(...Object.entries(parts).filter(([, value]) => value !== null && value !== undefined && value !== "").map(([title, value]) => h("div", null, h("dt", null, title), h("dd", null, value))));
    setText(raw, JSON.stringify(spec, null, 2));
  }

  function showResults(list, interval) {
    // How long it shows follows from how often it is polled, which is known only now.
    if (!plot) {
      plot = chart({ title: "Answer time", unit: units.millis, span: Math.max(60000, interval * 1000 * RESULTS), gap: Math.max(3500, interval * 2500), floor: 1, empty: "No answer yet",
        series: [{ key: "ok", label: "Good", color: 3, area: true }, { key: "bad", label: "Failed", color: "bad" }] });
      place.replaceChildren(plot.element);
    }
    const oldest = [...list].reverse();
    plot.set(oldest.map((one) => ({ at: one.at_ms, [one.ok ? "ok" : "bad"]: one.latency_us === null ? null : one.latency_us / 1000 })));
    plot.mark(oldest.filter((one) => !one.ok).map((one) => ({ at: one.at_ms, key: "bad", down: true, text: [one.verdict, one.status, one.detail].filter(Boolean).join(" ") })));
    strip.replaceChildren(...oldest.map((one) => h("i", { class: one.ok ? "ok" : "bad", title: `${dateTime(one.at_ms, true)}: ${one.verdict}` })));
    const failed = list.filter((one) => !one.ok).length;
    strip.setAttribute("aria-label", list.length ? `Of the last ${list.length} polls ${failed || "none"} failed` : "No results yet");
    if (!list.length) strip.replaceChildren(h("span", { class: "dim" }, "None yet."));
    results.set(all ? list : list.slice(0, ROWS));
    more.hidden = all || list.length <= ROWS;
    setText(more, `Show all ${list.length} results`);
    more.onclick = () => {
      all = true;
      showResults(list, interval);
      // The button that had the focus is gone.
      root.querySelector("h1").focus({ preventScroll: true });
    };
  }

  async function load() {
    if (gone) return;
    const both = AbortSignal.any([signal, reading.signal]);
    const get = (rest) => api.get(endpointPath(id, rest), { signal: both });
    try {
      const [one, found, moved] = await Promise.all([get(""), get(`/results?limit=${RESULTS}`), get("/moves")]);
      if (trouble.dataset.from === "load") trouble.replaceChildren();
      showEndpoint(one);
      // Only what has changed is drawn anew.
      if (told.results !== (told.results = JSON.stringify(found))) showResults(found.results, seconds(one.interval));
      if (told.moves !== (told.moves = JSON.stringify(moved))) history.set(moved.moves);
    } catch (problem) {
      if (problem.silent) return;
      gone = problem.status === 404;
      trouble.dataset.from = "load";
      trouble.replaceChildren(gone ? notice("warn", problem.title, `${id} is not there, or no longer.`, h("a", { class: "button", href: link("/polls") }, "All endpoints")) : problemNotice(problem, load));
      if (gone) [...root.children].filter((one) => one !== trouble && one !== head && one.tagName !== "P").forEach((one) => { one.hidden = true; });
      if (gone) buttons.replaceChildren();
    }
  }

  // Nobody wants to hear that it is gone from a question that was asked a moment before.
  function removing() {
    gone = true;
    reading.abort();
  }

  function failed(problem) {
    if (gone) reading = new AbortController();
    gone = false;
    trouble.replaceChildren(problemNotice(problem));
  }

  async function acted(text) {
    trouble.replaceChildren();
    if (text.endsWith("deleted")) return location.assign(link("/polls"));
    await load();
    // The poll that was asked for takes a moment.
    setTimeout(() => { if (!signal.aborted) load(); }, 1200);
  }

  function beat({ moves = [] }) {
    beats += 1;
    const busy = results.element.contains(document.activeElement) || !getSelection().isCollapsed || document.hidden;
    if (moves.some((one) => one.id === id) || (beats % Math.round(every) === 0 && !busy)) load();
  }

  const stop = listen("/api/v1/live", "polls", beat, { onOpen: (again) => again && load() });
  load();
  return () => {
    stop();
    plot?.destroy();
  };
}

const listed = (statuses) => [statuses].flat().join(", ");

/** A change of owner in the form that all decisions have. */
const moved = (id, { node, from, at_ms: time, token, reason, explain, would_change: change }) => ({
  what: [h("strong", null, node), ` polls ${id}, after ${from ?? "nobody"}`], by: `${node}, in the store where nodes agree`, at: time,
  rule: reason.rule, because: RULES[reason.rule], numbers: reason.numbers, rejected: reason.rejected, change, explain, facts: { Grant: h("code", null, token) },
});
