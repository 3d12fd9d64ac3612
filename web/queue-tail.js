// New messages of a queue as they come. Stays still while somebody reads.

import { Problem } from "./api.js";
import { announce, h, setText } from "./dom.js";
import { clock, rate, when, whole } from "./format.js";
import { listen } from "./live.js";
import { problemNotice } from "./notice.js";
import { openMessage } from "./queue-drawer.js";
import { oneLine, payloadOf, queuePath, settled } from "./queue-words.js";
import { withQuery } from "./router.js";

const MOST = 500;
const RATE_MS = 5000;

export function tailTab({ queue, signal, params, note, can, said, reload }) {
  let kept = []; // { message, text, row }, newest first
  let waiting = []; // came while paused, oldest first
  let paused = false;
  let skipped = 0;
  let drawing = 0;
  let open = false;
  let stops = [];
  const came = []; // when the last ones came
  const trouble = h("div");
  const search = h("input", { type: "search", placeholder: "Only with this text", "aria-label": "Only messages that contain", value: params.get("q") ?? "", oninput: settled(filter, 150) });
  const partition = h("input", { type: "search", placeholder: "Partition", "aria-label": "Only of this partition", value: params.get("partition") ?? "", oninput: settled(start) });
  const pause = h("button", { type: "button", "aria-pressed": "false", onclick: toggle }, "Pause");
  const tally = h("p", { class: "dim small log-tally num" }, "\u00a0");
  const list = h("ol", { class: "log tail is-empty", tabindex: "0", "aria-label": "Messages as they come, newest first", "data-empty": "Connecting …" });

  const fits = (one) => !search.value || one.text.includes(search.value.toLowerCase());

  function noteAll() {
    note({ q: search.value, partition: partition.value });
  }

  function filter() {
    noteAll();
    for (const one of kept) one.row.hidden = !fits(one);
    count();
  }

  function count() {
    const now = Date.now();
    while (came.length && came[0] < now - RATE_MS) came.shift();
    const seen = kept.filter((one) => !one.row.hidden).length;
    setText(tally, `${rate((came.length * 1000) / RATE_MS)}, ${seen === kept.length ? "" : `${whole(seen)} of `}${whole(kept.length)} kept${paused ? `, paused, ${whole(waiting.length)} waiting` : ""}${skipped ? `, ${whole(skipped)} passed too fast to be shown` : ""}`);
    list.classList.toggle("is-empty", !seen);
    list.dataset.empty = kept.length ? "No message contains that." : open ? "Waiting for the next message." : "Connecting …";
  }

  function take(message) {
    came.push(Date.now());
    if (came.length > 10000) came.shift();
    waiting.push(message);
    if (waiting.length > MOST) waiting.shift();
    // Many messages in one frame cost one drawing.
    if (!drawing) drawing = requestAnimationFrame(() => {
      drawing = 0;
      if (!paused) flush();
      count();
    });
  }

  function flush() {
    const fresh = waiting.reverse().map((message) => ({ message, text: textOf(message), row: rowOf(message) }));
    waiting = [];
    for (const one of fresh) one.row.hidden = !fits(one);
    const below = list.scrollTop > 8 ? list.scrollHeight - list.scrollTop : null;
    list.prepend(...fresh.map((one) => one.row));
    kept = [...fresh, ...kept];
    for (const one of kept.splice(MOST)) one.row.remove();
    // Whoever reads further down keeps what is read in sight.
    if (below !== null) list.scrollTop = list.scrollHeight - below;
  }

  function rowOf(message) {
    return h("li", null,
      h("span", { class: "log-time num" }, when(message.createdAt, clock(message.createdAt))),
      h("button", { type: "button", class: "plain cut", title: message.partition, "aria-label": `Open ${message.transactionId}`, onclick: () => openMessage({ message, can, said, changed: reload }) }, message.partition),
      h("span", { class: "log-text" }, oneLine(payloadOf(message))));
  }

  function toggle() {
    paused = !paused;
    pause.textContent = paused ? "Resume" : "Pause";
    pause.setAttribute("aria-pressed", String(paused));
    announce(paused ? "Paused" : "Following again");
    if (!paused) flush();
    count();
  }

  function stop() {
    for (const end of stops) end();
    stops = [];
  }

  function start() {
    noteAll();
    stop();
    open = false;
    kept = [];
    waiting = [];
    list.replaceChildren();
    const url = withQuery(queuePath(queue, "/tail"), { partition: partition.value.trim() });
    stops = [
      listen(url, "message", take, { onOpen: opened, onDown: () => why(url) }),
      listen(url, "skipped", (data) => {
        skipped += data.messages;
        count();
      }),
    ];
    count();
  }

  function opened() {
    open = true;
    trouble.replaceChildren();
    count();
  }

  // A stream that was refused does not say why; the same question asked plainly does.
  async function why(url) {
    const ending = new AbortController();
    try {
      const answer = await fetch(url, { signal: ending.signal, cache: "no-store" });
      if (!answer.ok) {
        const { title, detail, error, code } = await answer.json();
        if (!signal.aborted) trouble.replaceChildren(problemNotice(new Problem({ title: title ?? `The node answered ${answer.status}`, detail: detail ?? error, code })));
      }
    } catch {
      // The banner says that the connection is lost.
    }
    ending.abort();
  }

  start();
  const ticking = setInterval(count, 1000);
  signal.addEventListener("abort", () => {
    stop();
    clearInterval(ticking);
    cancelAnimationFrame(drawing);
  });
  return { element: [h("div", { class: "toolbar", role: "group", "aria-label": "What to show" }, search, partition, pause, tally), trouble, h("div", { class: "card log-card tail-card" }, list)] };
}

const textOf = (message) => `${message.partition} ${message.transactionId} ${JSON.stringify(payloadOf(message))}`.toLowerCase();
