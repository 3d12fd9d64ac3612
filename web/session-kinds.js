// Each kind of worker: how many stand where, how much room there is, and whether restarts keep up.

import { h, inline, setText } from "./dom.js";
import { explainCell } from "./explain.js";
import { duration, whole } from "./format.js";
import { notice, tile } from "./notice.js";
import { many, POLICIES, STANDINGS, USUAL } from "./session-words.js";

// Workers that only wait for a permit are nothing to worry about before so long.
const LONG = 20000;

export function kindCards() {
  const cards = new Map();
  const places = h("div", { class: "stack kinds" });
  const meanings = h("details", { class: "as-table" }, h("summary", null, "What the words mean"),
    h("dl", { class: "facts small" }, Object.entries(STANDINGS).map(([standing, text]) => h("div", null, h("dt", null, h("span", { class: "standing", "data-standing": standing }, standing)), h("dd", null, text)))));
  return {
    element: h("div", { class: "stack" }, places, meanings),
    set(kinds) {
      const shown = kinds.filter(({ workers, waiting }) => waiting || Object.values(workers).some(Boolean));
      const names = shown.map(({ kind }) => kind);
      for (const [name, one] of cards) {
        if (names.includes(name)) continue;
        one.element.remove();
        cards.delete(name);
      }
      for (const kind of shown) {
        if (!cards.has(kind.kind)) {
          cards.set(kind.kind, card(kind.kind));
          places.append(cards.get(kind.kind).element);
        }
        cards.get(kind.kind).set(kind);
      }
    },
  };
}

function card(name) {
  const tiles = { workers: tile("Workers"), sessions: tile("Sessions"), waiting: tile("Waiting"), out: tile("Out"), held: tile("Held") };
  const alarm = h("div");
  const rules = h("p", { class: "dim small" });
  const segments = new Map(Object.keys(STANDINGS).map((standing) => [standing, h("i", { "data-standing": standing })]));
  const bar = h("div", { class: "standings", role: "img" }, [...segments.values()]);
  const keys = new Map(Object.keys(STANDINGS).map((standing) => {
    const count = h("span", { class: "num" });
    return [standing, { count, element: h("span", { title: STANDINGS[standing] }, h("i", { "data-standing": standing }), count, ` ${standing}`) }];
  }));
  const element = h("section", { class: "stack kind", "data-kind": name },
    h("div", { class: "kind-head" }, h("h2", null, name), rules), alarm,
    h("div", { class: "tiles" }, Object.values(tiles).map((one) => one.element)),
    h("div", { class: "card standings-card stack" }, bar, h("p", { class: "keys small" }, [...keys.values()].map((one) => one.element))));
  const why = explainCell();
  element.append(why.element);
  let idleSince = null;
  let alarmed = "";

  // A short wait for a permit is how the budget works. A long one means that it is too small.
  function watch({ held_idle: idle, out_max: most, budget }) {
    const now = performance.now();
    idleSince = idle ? idleSince ?? now : null;
    const long = idleSince !== null && now - idleSince >= LONG;
    const text = long ? many(idle, "worker") : "";
    if (text === alarmed) return long;
    alarmed = text;
    alarm.replaceChildren(...(long ? [notice("bad", `Restarts do not keep up: ${text} worn out and idle`,
      `They take no sessions and only wait for a permit, because ${most === 1 ? "one may be" : `${whole(most)} may be`} out at once. Raise \`sessions.budget\` (now ${budget}) or \`sessions.lifetime_max\`, start more workers, or let them restart faster.`)] : []));
    return long;
  }

  return {
    element,
    set(kind) {
      const { workers, live, slots, active, free, waiting, out, out_max: outMax, held, held_idle: idle, recycled } = kind;
      const long = watch(kind);
      why.set(kind);
      const bounded = kind.policy === "budgeted";
      const text = `${POLICIES[kind.policy] ?? kind.policy} ${kind.lifetime_max ? `A worker restarts after ${many(kind.lifetime_max, "session")}${bounded ? `; the budget is ${kind.budget}` : ""}.` : "Workers do not wear out."}`;
      if (rules.dataset.text !== text) rules.replaceChildren(...inline((rules.dataset.text = text)));
      const away = live - workers.ready - workers.due - workers.full;
      tiles.workers.set(whole(live), away ? `${whole(away)} ${away === 1 ? "takes" : "take"} nothing now` : "all of them serve");
      tiles.sessions.set(whole(active), `of ${many(slots, "slot")}, ${whole(free)} free`, live > 0 && free === 0);
      tiles.waiting.set(whole(waiting), `of at most ${whole(kind.waiting_max)}`, waiting > 0);
      const each = recycled ? `, ${duration(Math.round(kind.out_ms / recycled / 100) / 10)} each` : "";
      tiles.out.set(bounded ? `${whole(out)} of ${whole(outMax)}` : whole(out), `${whole(recycled)} recycled${each}`);
      tiles.held.set(whole(held), held ? (idle ? `${whole(idle)} idle${long ? " for too long" : ""}` : "with their last sessions") : "none waits to restart", long);
      const total = Object.values(workers).reduce((sum, count) => sum + count, 0);
      for (const [standing, count] of Object.entries(workers)) {
        const segment = segments.get(standing);
        if (segment.dataset.count !== String(count)) {
          segment.dataset.count = count;
          segment.style.flexGrow = count;
          segment.hidden = !count;
          segment.title = `${count} ${standing}: ${STANDINGS[standing]}`;
        }
        const key = keys.get(standing);
        setText(key.count, whole(count));
        key.element.hidden = !count && !USUAL.includes(standing);
        key.element.classList.toggle("none", !count);
      }
      const told = `${many(total, "worker")}: ${Object.entries(workers).filter(([, count]) => count).map(([standing, count]) => `${count} ${standing}`).join(", ")}`;
      if (bar.getAttribute("aria-label") !== told) bar.setAttribute("aria-label", told);
    },
  };
}
