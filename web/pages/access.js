// Access log: who asked this node for what, and what it answered. Newest first.

import { announce, h, setText } from "../dom.js";
import { dateTime, millis, when } from "../format.js";
import { pageHead } from "../notice.js";
import { pagedTable } from "../paged.js";

export const page = { "path": "/access", "title": "Access log", "order": 92, "needs": "admin", "icon": "M3 8h14M13 4l4 4-4 4M21 16H7M11 12l-4 4 4 4" };

const EVERY = 3000;

export function mount(root, { signal, params, noteParams }) {
  let waiting;
  let following;
  const search = (name, placeholder, label) => h("input", { type: "search", placeholder, "aria-label": label, value: params.get(name) ?? "", oninput: settle });
  const filters = {
    path: search("path", "Path contains", "Only paths that contain"),
    status: search("status", "Status: 404, 5xx", "Only this status, like 404, or class, like 5xx"),
    actor: search("actor", "Who", "Only requests of"),
  };
  const chosen = () => Object.fromEntries(Object.entries(filters).map(([name, input]) => [name, input.value.trim()]));
  const follow = h("button", { type: "button", onclick: toggle, title: "Looks for new requests every few seconds" }, "Follow");

  const list = pagedTable({
    path: "/api/v1/access", rows: "entries", query: chosen, signal,
    label: "Requests, newest first",
    empty: () => (Object.values(chosen()).some(Boolean) ? "No request matches." : "Nobody has asked for anything yet."),
    columns: [
      { title: "Time", class: "nowrap", cell: (entry) => when(entry.at_ms, dateTime(entry.at_ms, true)) },
      { title: "Request", class: "free", cell: (entry) => [h("span", { class: "mono" }, `${entry.method} ${entry.path}`), h("div", { class: "dim mono small" }, `${entry.request_id} on ${entry.node}`)] },
      { title: "Status", cell: (entry) => h("span", { class: `num status s${String(entry.status)[0]}` }, entry.status) },
      { title: "Took", class: "nowrap", cell: (entry) => millis(entry.duration_us / 1000) },
      { title: "Who", class: "free", cell: (entry) => [entry.actor ?? "–", h("div", { class: "dim mono small" }, entry.address)] },
    ],
  });
  root.append(
    pageHead("Access log", "Who asked this node for what, newest first.", follow, h("button", { type: "button", onclick: list.load }, "Refresh")),
    h("div", { class: "toolbar", role: "group", "aria-label": "What to show" }, Object.values(filters)),
    ...list.elements);

  // Asks when the typing has stopped, and not for half a status.
  function settle() {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      const fine = /^([1-5](xx|\d\d))?$/i.test(filters.status.value.trim());
      if (!fine) return filters.status.setAttribute("aria-invalid", "true");
      filters.status.removeAttribute("aria-invalid");
      noteParams(chosen());
      list.load();
    }, 300);
  }

  function toggle() {
    clearInterval(following);
    following = following ? null : setInterval(list.renew, EVERY);
    setText(follow, following ? "Stop following" : "Follow");
    announce(following ? "Following" : "No longer following");
  }

  return () => {
    clearTimeout(waiting);
    clearInterval(following);
  };
}
