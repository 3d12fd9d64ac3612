// The workers: a table of them, a page at a time, and what can be done with each.

import { api } from "./api.js";
import { confirmDialog } from "./dialog.js";
import { announce, h, setText } from "./dom.js";
import { bytes, percent, relative, whole } from "./format.js";
import { liveTable, plain } from "./live-table.js";
import { problemNotice } from "./notice.js";
import { link, withQuery } from "./router.js";
import { many, STANDINGS, standingWord } from "./session-words.js";

// As many as the node remembers the lives of, so that one question serves table and drawing.
export const WORKERS_SHOWN = 60;
// Up to so many slots each is drawn.
const SLOTS_DRAWN = 12;
const PATH = "/api/v1/sessions/workers";
export const workerPath = (name, rest = "") => `${PATH}/${encodeURIComponent(name)}${rest}`;
export const workerLink = (name) => link("/sessions", { worker: name });
/** "5 s ago", never in the future: clocks differ a little. */
export const ago = (time) => (new Date(time) > Date.now() - 1000 ? "just now" : relative(time));

const ASKS = {
  drain: ({ name, active }) => ({ title: `Drain “${name}”?`, text: `It gets no new sessions until it is undrained. ${active ? `The ${many(active, "session")} it has may go on.` : "It has none now."}`, action: "Drain worker" }),
  remove: ({ name, active, leaving }) => ({ title: `Remove “${name}”?`, text: `It is told to stop and is forgotten. ${active + leaving ? `Its ${many(active + leaving, "session")} end at once.` : "It has no sessions now."} Its supervisor ends too.`, action: "Remove worker" }),
};

/** worker(): as it is now. done(): something was done. failed(problem): it was not. */
export function workerActions({ worker, can, done, failed, look = "quiet" }) {
  const act = async (verb, said) => {
    const one = worker();
    if (ASKS[verb] && !(await confirmDialog(ASKS[verb](one)))) return;
    try {
      await api.post(workerPath(one.name, `/${verb}`));
      announce(`${one.name} ${said}`);
      await done(verb);
    } catch (problem) {
      if (!problem.silent) failed(problem);
    }
  };
  const drain = h("button", { type: "button", class: look, onclick: () => (worker().drained ? act("undrain", "takes sessions again") : act("drain", "gets no new sessions")) });
  const remove = h("button", { type: "button", class: `${look} danger`, onclick: () => act("remove", "is sent away") }, "Remove");
  return {
    elements: [can("worker") && drain, can("admin") && remove].filter(Boolean),
    set({ name, drained }) {
      const text = drained ? "Undrain" : "Drain";
      setText(drain, text);
      drain.setAttribute("aria-label", `${text} ${name}`);
      remove.setAttribute("aria-label", `Remove ${name}`);
    },
  };
}

/** Slots filled and free. */
export function slotCells() {
  const picture = h("span", { class: "slots", "aria-hidden": "true" });
  const text = h("span", { class: "num small" });
  const more = h("div", { class: "dim small" });
  let drawn = "";
  return {
    element: [picture, text, more],
    set({ active, slots, leaving }) {
      setText(text, `${whole(active)} of ${whole(slots)}`);
      setText(more, leaving ? `and ${whole(leaving)} on the one before` : "");
      if (drawn === (drawn = `${active}/${slots}`)) return;
      const cells = slots <= SLOTS_DRAWN ? slots : 0;
      if (picture.children.length !== cells) picture.replaceChildren(...Array.from({ length: cells }, () => h("i")));
      [...picture.children].forEach((cell, index) => cell.classList.toggle("taken", index < active));
      picture.hidden = !cells;
    },
  };
}

/** A life as a bar up to the limit, with a mark where it is due. limitOf(kind): 0 is none. */
export function lifeBar(limitOf) {
  const fill = h("i");
  const mark = h("b");
  const bar = h("div", { class: "life", "aria-hidden": "true" }, fill, mark);
  const text = h("span", { class: "num small" });
  let drawn = "";
  return {
    element: [text, bar],
    set({ kind, lifetime, due_at: due, due_by: by }) {
      const limit = limitOf(kind);
      setText(text, `${whole(lifetime)}${limit ? ` of ${whole(limit)}` : ""}${by ? `, due by ${by}` : ""}`);
      if (drawn === (drawn = [limit, lifetime, due, by].join())) return;
      bar.hidden = !limit;
      bar.title = due ? `due from ${due} on, worn out at ${limit}` : "";
      bar.dataset.state = limit && lifetime >= limit ? "over" : by || (due && lifetime >= due) ? "due" : "";
      fill.style.width = `${limit ? Math.min(100, (100 * lifetime) / limit) : 0}%`;
      mark.hidden = !due;
      mark.style.left = `${limit && due ? (100 * due) / limit : 0}%`;
    },
  };
}

function nameCell(severalKinds) {
  const anchor = h("a", null, h("strong"));
  const more = h("div", { class: "dim small" });
  const sort = h("div", { class: "dim small" });
  return {
    element: [anchor, sort, more],
    set({ name, kind, address }) {
      setText(anchor.firstChild, name);
      if (anchor.dataset.name !== name) anchor.href = workerLink((anchor.dataset.name = name));
      setText(sort, severalKinds() ? kind : "");
      setText(more, address);
    },
  };
}

function labelCell() {
  const element = h("span", { class: "chips" });
  let drawn = null;
  return {
    element,
    set({ labels, version }) {
      if (drawn === (drawn = [version, ...labels].join())) return;
      element.replaceChildren(...labels.map((label) => h("span", { class: "chip" }, label)), version ? h("span", { class: "pill" }, `v${version}`) : "", !version && !labels.length ? "–" : "");
    },
  };
}

/** limitOf(kind): sessions in a life, 0 is any number. changed(): something was done. */
export function workerTable({ signal, params, noteParams, can, limitOf, changed }) {
  let pages = [""]; // where each page so far begins
  let turn = 0;
  let next = null;
  let waiting;
  let total = 0;
  const heading = h("h2", { tabindex: "-1" }, "Workers");
  const trouble = h("div");
  const select = (label, options) => h("select", { "aria-label": label, onchange: settle }, options.map(([value, text]) => h("option", { value }, text)));
  const filters = {
    kind: select("Kind", [["", "All kinds"]]),
    standing: select("Standing", [["", "Any standing"], ...Object.keys(STANDINGS).map((one) => [one, one])]),
    label: h("input", { type: "search", placeholder: "Has the label", "aria-label": "Only workers with the label", oninput: settle }),
  };
  knowKinds(params.get("kind") ? [params.get("kind")] : []);
  for (const [name, control] of Object.entries(filters)) control.value = params.get(name) ?? "";
  const chosen = () => Object.fromEntries(Object.entries(filters).map(([name, control]) => [name, control.value.trim()]));
  const filtered = () => Object.values(chosen()).some(Boolean);
  const acts = can("worker") || can("admin");
  const list = liveTable({
    label: "Workers by number", key: (one) => one.name,
    empty: () => (filtered() ? "No worker matches." : "There is no worker."),
    rowClass: ({ standing }) => (["removed", "lost"].includes(standing) ? "faded" : ""),
    columns: [
      { title: "Worker", make: () => nameCell(() => !filters.kind.hidden) },
      { title: "Standing", class: "nowrap", make: standingWord },
      { title: "Sessions", make: slotCells },
      { title: "Life", class: "life-cell", make: () => lifeBar(limitOf) },
      { title: "Labels", make: labelCell },
      { title: "Memory", class: "nowrap num", make: () => pair(({ rss_bytes: size }) => bytes(size), ({ cpu_percent: cpu }) => (cpu === null ? "" : `CPU ${percent(cpu)}`)) },
      { title: "Heard", class: "nowrap num", make: () => pair(({ heard }) => ago(heard), ({ failures }) => (failures ? `${many(failures, "failure")} in a row` : "")) },
      ...(acts ? [{ title: "Actions", make: actionCell }] : []),
    ],
  });
  const tally = h("span", { class: "dim small num" });
  const back = h("button", { type: "button", onclick: () => turnTo(-1) }, "Previous");
  const on = h("button", { type: "button", onclick: () => turnTo(1) }, `Next ${WORKERS_SHOWN}`);
  const foot = h("div", { class: "row" }, back, on);
  foot.hidden = true;

  function actionCell() {
    let now = null;
    const actions = workerActions({ worker: () => now, can, failed: (problem) => trouble.replaceChildren(problemNotice(problem)), done: async () => {
      trouble.replaceChildren();
      await changed();
    } });
    return {
      element: h("div", { class: "actions" }, actions.elements),
      set(row) {
        if (now?.name !== row.name || now.drained !== row.drained) actions.set(row);
        now = row;
      },
    };
  }

  function knowKinds(names) {
    const now = [...new Set([...names, filters.kind.value].filter(Boolean))].sort();
    if (filters.kind.dataset.list === now.join()) return;
    const { value } = filters.kind;
    filters.kind.dataset.list = now.join();
    filters.kind.replaceChildren(...[["", "All kinds"], ...now.map((name) => [name, name])].map(([name, text]) => h("option", { value: name }, text)));
    filters.kind.value = value;
    filters.kind.hidden = now.length < 2;
  }

  // Asks when the typing has stopped.
  function settle(event) {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      noteParams(chosen());
      pages = [""];
      list.renew();
      load();
    }, event.type === "input" ? 300 : 0);
  }

  async function turnTo(step) {
    if (step > 0 && next === null) return;
    pages = step > 0 ? [...pages, next] : pages.slice(0, -1);
    await load();
    heading.focus();
  }

  function show(answer) {
    next = answer.next;
    list.set(answer.workers);
    const first = (pages.length - 1) * WORKERS_SHOWN;
    const shown = answer.workers.length;
    foot.hidden = next === null && pages.length === 1;
    back.disabled = pages.length === 1;
    on.disabled = next === null;
    setText(tally, foot.hidden ? many(shown, "worker") : `${whole(first + 1)} to ${whole(first + shown)}${filtered() ? "" : ` of ${whole(total)}`}`);
  }

  /** Is it the question that anybody would ask first? Then its answer serves others too. */
  const usual = () => !filtered() && pages.length === 1;

  async function load() {
    const mine = (turn += 1);
    try {
      const answer = await api.get(withQuery(PATH, { limit: WORKERS_SHOWN, ...chosen(), from: pages.at(-1) }), { signal });
      if (mine !== turn) return null;
      show(answer);
      return answer;
    } catch (problem) {
      if (!problem.silent && mine === turn) list.say(problemNotice(problem, load));
      return null;
    }
  }

  return {
    elements: [h("div", { class: "page-head" }, h("div", { class: "row" }, heading, tally), h("div", { class: "toolbar", role: "group", "aria-label": "Which workers to show" }, Object.values(filters))), trouble, h("div", { class: "card scroll-box workers-box" }, list.element), foot],
    usual, show, load,
    kinds(all) {
      knowKinds(all.map((one) => one.kind));
      total = all.reduce((sum, one) => sum + Object.values(one.workers).reduce((a, b) => a + b, 0), 0);
    },
    destroy: () => clearTimeout(waiting),
  };
}

/** The workers with the lowest numbers, whose lives are drawn. */
export const firstWorkers = (signal) => api.get(withQuery(PATH, { limit: WORKERS_SHOWN }), { signal });

function pair(text, more) {
  const parts = [plain(text), plain(more, "div", "dim small")];
  return { element: parts.map((one) => one.element), set: (row) => parts.forEach((one) => one.set(row)) };
}
