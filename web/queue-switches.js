// The two switches of maintenance: pushes that are held, pops that get nothing. While one is on, every page of queues says so.

import { api } from "./api.js";
import { confirmDialog } from "./dialog.js";
import { announce, h, setText } from "./dom.js";
import { relative } from "./format.js";
import { notice } from "./notice.js";
import { manyMessages, repeat } from "./queue-words.js";

const PATH = "/api/v1/system/maintenance";
const EVERY = 5;
const SWITCHES = [
  {
    key: "maintenanceMode", path: PATH, label: "Hold pushes", release: "Let pushes through",
    on: "Pushes are held", off: "Pushes go to the store.",
    means: "Every node answers pushes and keeps them in its own buffer; no consumer gets them until this ends.",
  },
  {
    key: "popMaintenanceMode", path: `${PATH}/pop`, label: "Pause pops", release: "Let pops through",
    on: "Pops are paused", off: "Consumers get messages.",
    means: "Consumers get nothing, from any queue, until this ends. What they hold they can still acknowledge.",
  },
];

/** The banner for every page, and the card with the switches for one of them. said: where problems are told. */
export function maintenance({ signal, can, said }) {
  let state = null;
  let drawn = "";
  const banner = h("div", { class: "stack", role: "status" });
  const parts = SWITCHES.map((one) => {
    const text = h("p", { class: "dim small" });
    const button = h("button", { type: "button", class: "quiet", role: "switch", "aria-checked": "false", "aria-label": one.label, onclick: () => change(one, !state?.[one.key]) }, one.label);
    return { one, text, button, element: h("li", null, h("div", null, h("strong", null, one.label), text), button) };
  });
  const card = h("section", { class: "card stack switches" }, h("h2", null, "Maintenance"), h("p", { class: "dim small" }, "For all queues and all nodes."), h("ul", null, parts.map((one) => one.element)));
  card.hidden = !can("admin");

  function show(answer) {
    state = answer;
    const on = SWITCHES.filter(({ key }) => state[key]);
    for (const { one, text, button } of parts) {
      const is = Boolean(state[one.key]);
      setText(text, is ? `${one.on}. ${one.means}` : `${one.off} Switched on: ${one.means[0].toLowerCase()}${one.means.slice(1)}`);
      setText(button, is ? one.release : one.label);
      button.setAttribute("aria-checked", String(is));
      button.classList.toggle("danger", !is);
    }
    const held = state.bufferedMessages ?? 0;
    const unwell = state.bufferHealthy === false;
    const shape = JSON.stringify([on.map(({ key }) => key), state.since, state.by, held, unwell]);
    if (drawn === (drawn = shape)) return;
    banner.replaceChildren(...on.map((one) => {
      const since = [state.since && `Switched on ${relative(state.since)}`, state.by && `by ${state.by}`].filter(Boolean).join(" ");
      const waits = one.key === "maintenanceMode" && held ? ` ${manyMessages(held)} ${held === 1 ? "waits" : "wait"} in this node's buffer.` : "";
      return notice("warn", one.on, `${one.means}${waits}${since && ` ${since}.`}`, ...(can("admin") ? [h("button", { type: "button", onclick: () => change(one, false) }, one.release)] : []));
    }), ...(unwell ? [notice("bad", "The buffer of this node is not well", "Pushes may be refused. The log says why.")] : []));
  }

  async function change(one, enabled) {
    if (enabled && !(await confirmDialog({ title: `${one.label}?`, text: `${one.means} It holds for all nodes.`, action: one.label }))) return;
    try {
      show(await api.post(one.path, { enabled }));
      // The banner says so to those who see.
      announce(enabled ? one.on : one.off);
      said.clear();
    } catch (problem) {
      said.fail(problem);
    }
  }

  async function load() {
    try {
      show(await api.get(PATH, { signal }));
    } catch {
      // The page's own questions say what is wrong; the last known state holds.
    }
  }

  load();
  repeat(signal, EVERY, load);
  return { banner, card };
}
