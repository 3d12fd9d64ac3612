// Dead letters, of one queue or of all: what was given up and why, and sending it back.

import { api } from "./api.js";
import { confirmDialog } from "./dialog.js";
import { announce, h, inline, setText } from "./dom.js";
import { explainOf } from "./explain.js";
import { whole } from "./format.js";
import { plain } from "./live-table.js";
import { facts, openDrawer, payloadCard } from "./queue-drawer.js";
import { pagedRows } from "./queue-pages.js";
import { redriveDialog, redriveList } from "./queue-redrives.js";
import { chosenOf, exactly, groupText, letterPath, linkCell, momentInput, moreFilters, payloadOf, queueLink, repeat, settled, timeCell, twoLines, typedDialog } from "./queue-words.js";
import { withQuery } from "./router.js";
import { many } from "./session-words.js";
import { emptyWith } from "./steps.js";

const LIMIT = 100;
const EVERY = 5;
const PICKED = 500; // so many are done one by one; more are a redrive
const PATH = "/api/v1/dlq";

/** queue: only of this one; otherwise of all. */
export function deadLetters({ queue = "", signal, params, note, can, said, reload = () => {} }) {
  const picked = new Map();
  const text = (name, placeholder, label) => h("input", { type: "search", placeholder, "aria-label": label, value: params.get(name) ?? "", oninput: later });
  const later = settled(filter);
  const inputs = {
    ...(queue ? {} : { queue: text("queue", "Queue", "Only of this queue") }),
    consumerGroup: text("consumerGroup", "Group", "Only of this group"), partition: text("partition", "Partition", "Only of this partition"),
    error: text("error", "Error contains", "Only where the error contains"), transactionId: text("transactionId", "Transaction", "Only with this transaction id"),
    from: momentInput("From", params.get("from"), filter), to: momentInput("To", params.get("to"), filter),
  };
  const first = ["queue", "consumerGroup", "error"].filter((name) => name in inputs);
  const rarer = ["partition", "transactionId", "from", "to"];
  const total = h("span", { class: "dim small num" });
  const chosen = () => chosenOf(inputs);
  const where = () => ({ queue, ...chosen() });
  const act = (label, onclick, look = "") => h("button", { type: "button", class: look, onclick }, label);
  const tally = h("span", { class: "small num" });
  const bar = h("div", { class: "toolbar", role: "group", "aria-label": "What is chosen" }, tally, act("Retry", () => each("/retry")), act("Discard", () => each(""), "danger"), act("Choose none", () => pick([])));
  const buttons = h("div", { class: "toolbar", role: "group", "aria-label": "All of them" },
    act("Choose all shown", () => pick(list.all().slice(0, PICKED))), act("Redrive…", () => redriveDialog({ filter: where(), said, done: redrives.load })), act("Discard all that match…", discardAll, "danger"));
  const redrives = redriveList({ queue, signal, can, said, moved: () => Promise.all([list.renew(), reload()]) });

  const list = pagedRows({
    path: PATH, rows: (answer) => answer.messages, query: where, limit: LIMIT, cursor: "before", signal,
    next: (answer, found) => (answer.next === undefined ? (found.length === LIMIT ? found.at(-1).id : null) : answer.next),
    label: "Dead letters, newest first", boxClass: "dead-box", key: (one) => one.id, open: show,
    empty: () => (Object.values(chosen()).some(Boolean) ? "No dead letter matches." : emptyWith("No message was given up. One is when it has failed more often than its queue allows:", "skep queues configure orders --set retryLimit=5")),
    onAnswer: (answer) => setText(total, answer.total === undefined ? "" : `${many(answer.total, "dead letter")}${Object.values(chosen()).some(Boolean) ? " match" : ""}`),
    columns: [
      ...(can("admin") ? [{ title: "Choose", class: "pick", make: pickCell }] : []),
      { title: "Given up", class: "nowrap num time", make: () => timeCell((one) => one.failedAt) },
      ...(queue ? [] : [{ title: "Queue", class: "free", make: () => linkCell((one) => one.queue, (one) => queueLink(one.queue, "dead")) }]),
      { title: "Transaction", class: "free", make: () => twoLines(opener(), (one) => one.partition) },
      { title: "Group", class: "free", make: () => plain((one) => groupText(one.consumerGroup), "span", "cut") },
      { title: "Error", class: "free", make: () => twoLines(plain((one) => one.errorMessage ?? "–", "span", "cut"), (one) => (one.retryCount ? `after ${many(one.retryCount, "retry", "retries")}` : "")) },
    ],
  });

  function opener() {
    let now = null;
    const element = h("button", { type: "button", class: "plain cut mono", onclick: () => show(now) });
    return { element, set: (row) => { now = row; setText(element, row.transactionId); } };
  }

  function pickCell() {
    let now = null;
    const box = h("input", { type: "checkbox", onchange: () => {
      if (box.checked && picked.size >= PICKED) {
        box.checked = false;
        return announce(`At most ${whole(PICKED)} at once; redrive takes any number`);
      }
      if (box.checked) picked.set(now.id, now);
      else picked.delete(now.id);
      settle();
    } });
    return {
      element: box,
      set(row) {
        now = row;
        box.checked = picked.has(row.id);
        box.setAttribute("aria-label", `Choose ${row.transactionId}`);
      },
    };
  }

  function pick(letters) {
    picked.clear();
    for (const one of letters) picked.set(one.id, one);
    settle();
    list.draw();
  }

  function settle() {
    bar.hidden = !picked.size;
    setText(tally, `${whole(picked.size)} chosen`);
  }

  // rest: what follows in the path, nothing to delete. One after the other, so that what has happened so far is clear when one fails.
  async function each(rest, letters = [...picked.values()]) {
    if (!rest && !(await confirmDialog({ title: `Discard ${many(letters.length, "dead letter")}?`, text: "This cannot be undone.", action: "Discard" }))) return false;
    const done = new Set();
    let failed = null;
    for (const one of letters) {
      try {
        await (rest ? api.post(letterPath(one.id, rest)) : api.delete(letterPath(one.id)));
      } catch (problem) {
        // One that is gone meanwhile is as it was wanted.
        if (problem.status !== 404) {
          failed = problem;
          break;
        }
      }
      done.add(one.id);
      picked.delete(one.id);
      if (done.size % 20 === 0) setText(tally, `${whole(done.size)} of ${whole(letters.length)} done`);
    }
    list.drop(done);
    settle();
    if (done.size) said.say(rest ? `${many(done.size, "dead letter")} sent back` : `${many(done.size, "dead letter")} discarded`);
    if (failed) said.fail(failed);
    await Promise.all([list.renew(), reload()]);
    return !failed;
  }

  function discardAll() {
    const filter = where();
    if (!filter.queue) return said.say("Choose a queue first", "All dead letters of all queues cannot be discarded at once.");
    typedDialog({
      title: "Discard dead letters", name: filter.queue, action: "Discard them",
      text: `All dead letters of ${filter.queue}${Object.values(chosen()).some(Boolean) ? " that match the filters" : ""} are deleted. This cannot be undone.`,
      onSubmit: async () => {
        let sum = 0;
        // The node deletes so many at a time.
        for (let more = true; more;) {
          const answer = await api.delete(withQuery(PATH, filter), { signal });
          sum += answer.deleted;
          more = answer.more && answer.deleted > 0;
        }
        said.say(`${many(sum, "dead letter")} discarded`);
        picked.clear();
        settle();
        await Promise.all([list.load(), reload()]);
      },
    });
  }

  function show(letter) {
    const end = async (rest) => (await each(rest, [letter])) && dialog.close();
    const payload = h("div", null, payloadCard(payloadOf(letter)));
    const dialog = openDrawer(letter.transactionId, [
      can("admin") && h("div", { class: "row" }, act("Retry", () => end("/retry")), act("Discard", () => end(""), "danger")),
      payload,
      h("h3", null, "Why"), h("pre", { class: "payload-text" }, letter.errorMessage ?? "Its consumer gave no reason."),
      facts([
        ["Queue", h("a", { href: queueLink(letter.queue) }, letter.queue)], ["Partition", letter.partition], ["Group", groupText(letter.consumerGroup)], ["Retries", whole(letter.retryCount ?? 0)],
        ["Pushed", exactly(letter.createdAt)], ["Given up", exactly(letter.failedAt)], ["By", letter.producerSub], ["Trace id", letter.traceId && h("code", null, letter.traceId)], ["Message id", letter.messageId && h("code", null, letter.messageId)], ["Partition id", h("code", null, letter.partitionId)],
        ["What would change it", letter.wouldChange && inline(letter.wouldChange)], ["Explain", explainOf(letter.explain)],
      ]),
    ].filter(Boolean));
    // With all digits of its numbers.
    api.get(letterPath(letter.id), { signal, exact: true }).then((one) => payload.replaceChildren(payloadCard(payloadOf(one))), () => {});
  }

  function filter() {
    note(chosen());
    pick([]);
    list.load();
  }

  settle();
  list.load();
  repeat(signal, EVERY, list.renew);
  return {
    element: [
      h("div", { class: "toolbar filters", role: "group", "aria-label": "What to show" }, first.map((name) => inputs[name]), total), moreFilters(...rarer.map((name) => inputs[name].element ?? inputs[name])),
      can("admin") && buttons, can("admin") && bar, list.element, redrives.element,
    ].filter(Boolean),
  };
}
