// A table that the node gives out in pages: the further rows come when somebody asks for them.

import { api } from "./api.js";
import { announce, h } from "./dom.js";
import { problemNotice } from "./notice.js";
import { withQuery } from "./router.js";
import { table } from "./table.js";

/**
 * path: where the rows are asked for. rows: their name in the answer, which also has `next`.
 * query(): the filters as they are now. cursor: the parameter that takes `next`. entries: what the further rows are called.
 * onAnswer(answer): called with each. The other options are those of table().
 */
export function pagedTable({ path, rows, query = () => ({}), limit = 50, cursor = "before", entries = "older entries", onAnswer = () => {}, signal, ...options }) {
  let next = null;
  let turn = 0; // an answer that was overtaken by a newer question is dropped
  let deep = false;
  const list = table(options);
  const older = h("button", { type: "button", onclick: () => load(true) }, `Show ${entries}`);
  const foot = h("div", { class: "foot" });

  async function load(more = false) {
    const mine = (turn += 1);
    try {
      const answer = await api.get(withQuery(path, { limit, ...query(), [cursor]: more ? next : "" }), { signal });
      if (mine !== turn) return;
      list[more ? "append" : "set"](answer[rows]);
      next = answer.next;
      onAnswer(answer);
      deep = more;
      if (more) announce(`${answer[rows].length} ${entries}`);
      const end = h("p", { class: "dim", tabindex: "-1" }, cursor === "before" ? "That was the first entry." : "That was the last one.");
      const focused = older.contains(document.activeElement);
      foot.replaceChildren(...(next !== null ? [older] : more ? [end] : []));
      // The button that had the focus may be gone.
      if (focused) (next === null ? end : older).focus();
    } catch (problem) {
      if (problem.silent || mine !== turn) return;
      if (more) foot.replaceChildren(older, problemNotice(problem));
      else list.say(problemNotice(problem, () => load()));
    }
  }

  load();
  return {
    /** Two elements: the table, and the button below it. */
    elements: [list.element, foot],
    load: () => load(),
    /** Loads anew unless that would take something away from the reader. Was it done? */
    renew() {
      if (deep || document.hidden || list.element.contains(document.activeElement) || document.querySelector("dialog[open]")) return false;
      load();
      return true;
    },
  };
}
