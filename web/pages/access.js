// Access log: who asked for what, of the API and of routes, and what was answered. Newest first, and as it comes.

import { announce, h, setText } from "../dom.js";
import { explainOf } from "../explain.js";
import { bytes, dateTime, millis, when } from "../format.js";
import { listen } from "../live.js";
import { notice, pageHead } from "../notice.js";
import { pagedTable } from "../paged.js";
import { withQuery } from "../router.js";
import { emptyWith } from "../steps.js";
import { table } from "../table.js";

export const page = { "path": "/access", "title": "Access log", "order": 92, "needs": "admin", "icon": "M3 8h14M13 4l4 4-4 4M21 16H7M11 12l-4 4 4 4" };

// Live rows are drawn this often at most, and so many of them are kept.
const DRAW_EVERY = 250;
const LIVE_MOST = 200;

const FILTERS = [
  ["path", "Path contains", "Only paths that contain"],
  ["status", "Status: 404, 5xx, 500-503", "Only this status, class or range"],
  ["route", "Route, - for the API", "Only this route, or a dash for the API's own"],
  ["from", "From: 10m, 2026-11-15T12:00:00Z", "Not before this time, or so long ago"],
  ["to", "To", "Not after this time, or so long ago"],
  ["method", "Method", "Only this method"],
  ["host", "Host", "Only this host"],
  ["upstream", "Upstream", "Only this upstream"],
  ["min_duration", "Took at least: 250ms", "Only what took at least so long"],
  ["address", "Address: 192.0.2.*", "Only from this address, or those that begin like this"],
  ["actor", "Who", "Only requests of"],
];

const small = (...content) => h("div", { class: "dim mono small" }, content);

const columns = [
  { title: "Time", class: "nowrap", cell: (entry) => when(entry.at_ms, dateTime(entry.at_ms, true)) },
  { title: "Request", class: "free", cell: (entry) => [h("span", { class: "mono" }, `${entry.method} ${entry.route ? entry.host : ""}${entry.path}`), small(`on ${entry.node}`), explainOf(entry.explain)] },
  { title: "Route", cell: (entry) => [entry.route || "API", entry.upstream && small(entry.upstream, entry.tries > 1 && `, ${entry.tries} tries`)] },
  { title: "Status", cell: (entry) => [h("span", { class: `num status s${String(entry.status)[0]}` }, entry.status), entry.error && small(entry.error)] },
  { title: "Took", class: "nowrap", cell: (entry) => millis(entry.duration_us / 1000) },
  { title: "Bytes", class: "nowrap", cell: (entry) => [bytes(entry.bytes_out), entry.bytes_in > 0 && small(`${bytes(entry.bytes_in)} in`)] },
  { title: "Who", class: "free", cell: (entry) => [entry.actor || "–", small(entry.address)] },
];

export function mount(root, { signal, params, noteParams }) {
  let waiting;
  let drawing;
  let following = false;
  let stops = [];
  let fresh = [];
  let missed = 0;

  const inputs = Object.fromEntries(FILTERS.map(([name, placeholder, label]) =>
    [name, h("input", { type: "search", placeholder, "aria-label": label, value: params.get(name) ?? "", oninput: settle })]));
  const chosen = () => Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, input.value.trim()]));
  const follow = h("button", { type: "button", onclick: toggle, title: "Shows requests to this node as they are answered", "aria-pressed": "false" }, "Follow");
  const first = Object.values(inputs).slice(0, 4);
  const more = h("details", { open: Object.values(inputs).slice(4).some((input) => input.value) },
    h("summary", null, "More filters"), h("div", { class: "toolbar" }, Object.values(inputs).slice(4)));

  const live = table({ label: "Requests as they come", columns, empty: "Waiting for the next request to this node." });
  const lost = h("div");
  const tail = h("div");
  const early = h("div");
  const list = pagedTable({
    path: "/api/v1/access", rows: "entries", query: chosen, signal, columns,
    label: "Requests, newest first",
    empty: () => (Object.values(chosen()).some(Boolean) ? "No request matches." : emptyWith("Nobody has asked for anything yet. Every request to a node or its gateway is here a moment later:", `curl ${location.origin}/health`)),
    onAnswer(answer) {
      early.replaceChildren(...(answer.stopped_early ? [notice("info", "There may be more", `The search stopped after ${answer.scanned_max.toLocaleString("en")} entries. Go on below, or narrow the time.`)] : []));
      // Only filters that the node understands are listened with.
      if (following) listenAnew();
    },
  });
  root.append(
    pageHead("Access log", "Who asked for what, newest first.", follow, h("button", { type: "button", onclick: list.load }, "Refresh")),
    h("div", { class: "toolbar", role: "group", "aria-label": "What to show" }, first), more, tail, early, ...list.elements);

  // Asks when the typing has stopped.
  function settle() {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      noteParams(chosen());
      list.load();
    }, 300);
  }

  function silence() {
    for (const stop of stops) stop();
    stops = [];
    clearTimeout(drawing);
    drawing = null;
  }

  let heard = null; // the address that is listened to
  function listenAnew() {
    const url = withQuery("/api/v1/access/live", chosen());
    if (url === heard && stops.length) return;
    silence();
    [heard, fresh, missed] = [url, [], 0];
    draw();
    stops = [
      listen(url, "entry", (entry) => later(() => { fresh.unshift(entry); fresh.length = Math.min(fresh.length, LIVE_MOST); })),
      listen(url, "missed", (told) => later(() => { missed += told.missed; })),
    ];
  }

  function later(change) {
    change();
    drawing ??= setTimeout(draw, DRAW_EVERY);
  }

  function draw() {
    drawing = null;
    live.set(fresh);
    lost.replaceChildren(...(missed ? [notice("warn", `${missed.toLocaleString("en")} entries came too fast and are left out`)] : []));
  }

  function toggle() {
    following = !following;
    if (following) {
      tail.replaceChildren(lost, live.element);
      listenAnew();
    } else {
      silence();
      tail.replaceChildren();
      list.load();
    }
    follow.setAttribute("aria-pressed", String(following));
    setText(follow, following ? "Stop following" : "Follow");
    announce(following ? "Following" : "No longer following");
  }

  return () => {
    clearTimeout(waiting);
    silence();
  };
}
