// A table of any length: the node gives it out in pages, and only the rows in sight are drawn.

import { api } from "./api.js";
import { announce, h, setText } from "./dom.js";
import { whole } from "./format.js";
import { liveTable } from "./live-table.js";
import { problemNotice } from "./notice.js";
import { withQuery } from "./router.js";

const GUESS = 44; // the height of a row before one was measured
const OVER = 8; // rows drawn above and below what is in sight
const AHEAD = 20; // so near to the end the next page is fetched
const MOST = 20000; // rows kept; whoever wants more narrows it down
const DRY = 5; // pages without a row that are passed over, where filters find little

/**
 * path: where rows are asked for; without it they are given to set(). rows(answer), next(answer): what is in an answer.
 * query(): the filters as they are now. cursor: the parameter that takes `next`.
 * place(row): the cursor of a row, where it is known: then the rows in sight are renewed, however many there are.
 * open(row): a row was clicked. The other options are those of liveTable().
 */
export function pagedRows({ path = null, rows, next = (answer) => answer.next ?? null, query = () => ({}), limit = 100, cursor = "after", place = null, open = null, onAnswer = () => {}, signal, label, boxClass = "", key, ...options }) {
  let items = [];
  let token = null;
  let turn = 0;
  let asking = false;
  let deep = false;
  let dry = 0;
  let height = GUESS;
  let range = [0, 0];
  let due = 0;
  const list = liveTable({ label, key, ...options });
  const grid = list.element.firstChild;
  const body = grid.tBodies[0];
  const box = h("div", { class: `card scroll-box row-box ${boxClass}`, tabindex: "0", role: "group", "aria-label": label, onscroll: schedule, onclick: clicked }, list.element);
  const tally = h("span", { class: "dim small num" });
  const more = h("button", { type: "button", class: "quiet", onclick: () => load(true) }, "Show more");
  const trouble = h("div");
  const foot = h("div", { class: "row-foot" }, tally, more);
  more.hidden = true;
  const observer = new ResizeObserver(schedule);
  observer.observe(box);
  signal.addEventListener("abort", () => {
    observer.disconnect();
    cancelAnimationFrame(due);
  });

  function schedule() {
    if (!due) due = requestAnimationFrame(() => {
      due = 0;
      draw();
      if (path && token !== null && range[1] > items.length - AHEAD && box.scrollTop > 0) load(true);
    });
  }

  function draw(again = true) {
    const top = Math.max(0, box.scrollTop - grid.tHead.offsetHeight);
    const seen = box.clientHeight || 640;
    const last = Math.min(items.length, Math.ceil((top + seen) / height) + OVER);
    const first = Math.max(0, Math.min(Math.floor(top / height) - OVER, last - 1));
    range = [first, last];
    list.element.style.paddingTop = `${first * height}px`;
    list.element.style.paddingBottom = `${(items.length - last) * height}px`;
    list.set(items.slice(first, last));
    if (!items.length) return;
    grid.setAttribute("aria-rowcount", token === null ? items.length + 1 : -1);
    [...body.rows].forEach((row, index) => row.setAttribute("aria-rowindex", first + index + 2));
    const measured = body.getBoundingClientRect().height / (last - first);
    if (!again || measured < 8 || Math.abs(measured - height) < 1) return;
    height = measured;
    draw(false);
  }

  function clicked(event) {
    const line = event.target.closest("tbody tr");
    if (!open || !line || event.target.closest("a, button, input, label") || String(getSelection())) return;
    const row = items[range[0] + [...body.rows].indexOf(line)];
    if (row) open(row);
  }

  function show() {
    draw();
    const full = items.length >= MOST;
    const held = more === document.activeElement;
    more.hidden = token === null || full;
    setText(tally, !items.length ? "" : `${whole(items.length)}${token === null ? " in all" : full ? " shown; narrow it down to see others" : " shown, there are more"}`);
    // The button that had the focus may be gone.
    if (held && more.hidden) box.focus({ preventScroll: true });
  }

  async function load(further = false) {
    if (further && (asking || token === null || items.length >= MOST)) return;
    const mine = (turn += 1);
    asking = true;
    try {
      const answer = await api.get(withQuery(path, { ...query(), limit, [cursor]: further ? token : "" }), { signal });
      if (mine !== turn) return;
      const found = rows(answer);
      trouble.replaceChildren();
      if (further) {
        const known = new Set(items.map(key));
        items = [...items, ...found.filter((one) => !known.has(key(one)))];
      } else {
        items = found;
        list.renew();
      }
      token = next(answer, found);
      deep = further;
      onAnswer(answer, further);
      show();
      dry = found.length || !further ? 0 : dry + 1;
      if (further && found.length) announce(`${whole(found.length)} more`);
    } catch (problem) {
      if (problem.silent || mine !== turn) return;
      if (further || items.length) trouble.replaceChildren(problemNotice(problem, () => load(further)));
      else list.say(problemNotice(problem, () => load()));
    } finally {
      if (mine === turn) asking = false;
    }
    if (mine === turn && !items.length && token !== null && dry < DRY && !signal.aborted) await load(true);
  }

  // The rows in sight, as they are now. Those around them stay as they were.
  async function renewRange() {
    const mine = turn;
    const [first, last] = range;
    const wanted = Math.min(200, last - first + 10);
    try {
      const answer = await api.get(withQuery(path, { ...query(), limit: wanted, [cursor]: first ? place(items[first - 1]) : "" }), { signal });
      if (mine !== turn || asking) return;
      const found = rows(answer);
      const fresh = new Set(found.map(key));
      const rest = items.slice(last).filter((one) => !fresh.has(key(one)));
      const ended = next(answer, found) === null;
      items = [...items.slice(0, first), ...found, ...(ended ? [] : rest)];
      if (ended) token = null;
      trouble.replaceChildren();
      show();
    } catch (problem) {
      if (!problem.silent) trouble.replaceChildren(problemNotice(problem));
    }
  }

  return {
    element: h("div", { class: "column rows" }, trouble, box, foot),
    load: () => {
      box.scrollTop = 0;
      return load();
    },
    /** Takes rows that came otherwise. */
    set(given) {
      items = given;
      show();
    },
    all: () => items,
    draw: schedule,
    say: (content) => list.say(content),
    /** Takes away what is no longer there. */
    drop(gone) {
      items = items.filter((one) => !gone.has(key(one)));
      show();
    },
    /** Asks anew, unless that would take something away from the reader. */
    async renew() {
      if (asking || !items.length && token !== null) return;
      if (place) return renewRange();
      if (deep || box.scrollTop > 0 || document.querySelector("dialog[open]")) return;
      await load();
    },
  };
}
