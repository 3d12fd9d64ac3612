// Search in everything: pages, queues, endpoints, routes, workers, sessions, monitors, servers, accounts, nodes, settings.
// Opened by "/" or Ctrl-K, used by keyboard alone: type, arrows, Enter.

import { api } from "./api.js";
import { openDialog } from "./dialog.js";
import { freshId, h, inline, setText } from "./dom.js";
import { link, withQuery } from "./router.js";
import * as session from "./session.js";

const EACH = 6; // of each sort
const PAUSE = 150; // milliseconds without a key before the node is asked
const KEPT = 10000; // milliseconds for which a list that cannot be searched is kept

const fits = (text, wanted) => text.toLowerCase().includes(wanted.toLowerCase());

/** Lists without a search of their own are asked for once and looked through here. */
function listed(path, pick) {
  let kept = null;
  let at = 0;
  return async (wanted, signal) => {
    if (!kept || Date.now() - at > KEPT) [kept, at] = [pick(await api.get(path, { signal })), Date.now()];
    return kept.filter((one) => fits(one.title, wanted));
  };
}

const SORTS = {
  Queues: async (wanted, signal) => (await api.get(withQuery("/api/v1/resources/queues", { search: wanted, limit: EACH }), { signal })).queues
    .map(({ name }) => ({ title: name, href: link("/queues", { queue: name }) })),
  Endpoints: async (wanted, signal) => (await api.get(withQuery("/api/v1/polls/endpoints", { search: wanted, limit: EACH }), { signal })).endpoints
    .map(({ id, url, address }) => ({ title: id, more: url ?? address, href: link("/polls", { id }) })),
  Routes: listed("/api/v1/routes", ({ routes }) => routes.map(({ name, now }) => ({ title: name, more: now ? `${now.host}${now.path}` : "", href: link("/routes", { route: name }) }))),
  Workers: listed("/api/v1/sessions/workers?limit=1000", ({ workers }) => workers.map(({ name, kind }) => ({ title: name, more: kind, href: link("/sessions", { worker: name }) }))),
  Sessions: listed("/api/v1/sessions?limit=1000", ({ sessions }) => sessions.map(({ id, kind, worker }) => ({ title: id, more: `${kind}, ${worker ? `on ${worker}` : "waiting"}`, href: worker ? link("/sessions", { worker }) : link("/sessions") }))),
  Servers: async (wanted, signal) => (await api.get(withQuery("/api/v1/servers", { search: wanted, limit: EACH }), { signal })).servers
    .map(({ id, ip }) => ({ title: id, more: ip, href: link("/monitors", { server: id }) })),
  Monitors: async (wanted, signal) => (await api.get(withQuery("/api/v1/monitors", { search: wanted, limit: EACH }), { signal })).monitors
    .map(({ id, ip }) => ({ title: id, more: ip, href: link("/monitors", { monitor: id }) })),
  Accounts: async (wanted, signal) => (await api.get(withQuery("/api/v1/accounts", { search: wanted, limit: EACH }), { signal })).accounts
    .map(({ id }) => ({ title: id, href: link("/monitors", { view: "accounts", search: id }) })),
  Nodes: listed("/api/v1/cluster/balance?own=true", ({ servers }) => servers.map(({ server_id: name, url }) => ({ title: name, more: url.replace(/^https?:\/\//, ""), href: link("/cluster") }))),
  Settings: async (wanted, signal) => (session.can("admin") ? (await api.get(withQuery("/api/v1/settings", { search: wanted }), { signal })).settings : [])
    .sort((a, b) => fits(b.key, wanted) - fits(a.key, wanted))
    .map(({ key, value, is_set: set, origin, help }) => ({ title: key, more: `${value || "not set"}${set ? `, from ${origin}` : ""}. ${help}`, href: link("/settings", { setting: key }) })),
  Schedules: listed("/api/v1/schedules?limit=1000", ({ schedules }) => schedules.map(({ name, queue }) => ({ title: name, more: `pushes to ${queue}`, href: link("/schedules", { queue }) }))),
};

/** Lets "/" and Ctrl-K open the search, and the button. pages(): those there are. */
export function preparePalette(button, pages) {
  button.addEventListener("click", () => openPalette(pages));
  addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
    const wanted = (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) || (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey);
    if (!wanted || !pages() || session.locked() || document.querySelector("dialog[open]")) return;
    event.preventDefault();
    openPalette(pages);
  });
}

function openPalette(pages) {
  let found = [];
  let at = 0;
  let turn = 0;
  let pause = 0;
  const ending = new AbortController();
  const [listId, hintId] = [freshId("found"), freshId("hint")];
  const input = h("input", { type: "search", role: "combobox", autocomplete: "off", autocapitalize: "off", spellcheck: "false", placeholder: "Queue, endpoint, route, worker, server, setting, page…", "aria-label": "Search in everything",
    "aria-expanded": "true", "aria-controls": listId, "aria-describedby": hintId, "aria-autocomplete": "list", oninput: later, onkeydown: key });
  const list = h("div", { class: "found", role: "listbox", id: listId, "aria-label": "What was found" });
  const hint = h("p", { class: "dim small", id: hintId, role: "status" }, "\u00a0");
  const dialog = openDialog({ title: "Search", content: [input, hint, list], onClose: () => {
    clearTimeout(pause);
    ending.abort();
  } });
  dialog.element.classList.add("palette");
  dialog.element.addEventListener("click", (event) => { if (event.target === dialog.element) dialog.close(); });
  search();

  function later() {
    clearTimeout(pause);
    pause = setTimeout(search, PAUSE);
  }

  async function search() {
    const mine = (turn += 1);
    const wanted = input.value.trim();
    const own = pages().filter((page) => session.can(page.needs) && fits(page.title, wanted)).map(({ title, path }) => ({ sort: "Pages", title, href: link(path) }));
    // What is known here is there at once; the rest comes as it is found, and in one order.
    draw(own);
    if (!wanted || !session.can("read")) return setText(hint, wanted ? told(own.length) : "Type to search in everything; arrows and Enter choose.");
    setText(hint, "Searching…");
    const answers = await Promise.all(Object.entries(SORTS).map(async ([sort, ask]) => {
      try {
        return (await ask(wanted, ending.signal)).slice(0, EACH).map((one) => ({ sort, ...one }));
      } catch {
        return null;
      }
    }));
    if (mine !== turn || ending.signal.aborted) return;
    draw([...own, ...answers.flatMap((one) => one ?? [])]);
    const lost = Object.keys(SORTS).filter((_, index) => answers[index] === null);
    setText(hint, `${told(found.length)}${lost.length ? `; not searched: ${lost.join(", ").toLowerCase()}` : ""}`);
  }

  function told(number) {
    return number ? `${number === 1 ? "1 was" : `${number} were`} found` : "Nothing was found";
  }

  function draw(all) {
    found = all;
    at = 0;
    const parts = [];
    let sort = null;
    let group = null;
    all.forEach((one, index) => {
      if (one.sort !== sort) {
        sort = one.sort;
        const id = freshId("sort");
        parts.push(group = h("div", { role: "group", "aria-labelledby": id }, h("div", { class: "found-sort", id, role: "presentation" }, sort)));
      }
      one.element = h("a", { role: "option", id: `${listId}-${index}`, href: one.href, tabindex: "-1", "aria-selected": "false", onclick: () => dialog.close(), onpointermove: () => choose(index) }, h("span", { class: "cut" }, one.title), one.more && h("span", { class: "dim small cut" }, inline(one.more)));
      group.append(one.element);
    });
    list.replaceChildren(...parts);
    choose(0);
  }

  function choose(index) {
    found[at]?.element.setAttribute("aria-selected", "false");
    at = index;
    const one = found[at];
    if (!one) return input.removeAttribute("aria-activedescendant");
    one.element.setAttribute("aria-selected", "true");
    one.element.scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", one.element.id);
  }

  function key(event) {
    // A browser would only empty the field, and take another one to close.
    if (event.key === "Escape") {
      event.preventDefault();
      return dialog.close();
    }
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + EACH, PageUp: at - EACH }[event.key];
    if (to !== undefined && found.length) {
      event.preventDefault();
      choose(event.key.startsWith("Arrow") ? (to + found.length) % found.length : Math.max(0, Math.min(found.length - 1, to)));
    } else if (event.key === "Enter" && found[at]) {
      event.preventDefault();
      const { href } = found[at];
      dialog.close();
      location.hash = href;
    }
  }
}
