// Sessions: the workers that wear out, who has which session, and why. Each worker on a page of its own (#/sessions?worker=…).

import { api } from "../api.js";
import { copyButton } from "../copy.js";
import { h, setText } from "../dom.js";
import { listen } from "../live.js";
import { pageHead, problemNotice } from "../notice.js";
import { choiceList, explainForm } from "../session-choices.js";
import { kindCards } from "../session-kinds.js";
import { sessionList } from "../session-lists.js";
import { lives } from "../session-lives.js";
import { sawtooth } from "../session-saw.js";
import { firstWorkers, workerTable } from "../session-workers.js";
import { mountWorker } from "../session-worker.js";

export const page = { "path": "/sessions", "title": "Sessions", "order": 30, "needs": "read", "icon": "M3 19L9 7v12l6-12v12l6-12M3 4h18" };

// Workers and sessions are asked for every so many beats. What the node remembers is heavy in a large fleet, and asked for less often there.
const ROWS_EVERY = 2;
const MEMORY_EVERY = [5, 20];
const HEAVY = 20000; // points
const WORKER = "skep worker --kind chromium --url-from-stdout -- node launch-server.js";
const ANYWHERE = /^(0\.0\.0\.0|\[::\]):/;

export function mount(root, context) {
  const name = context.params.get("worker");
  return name ? mountWorker(root, { name, ...context }) : mountAll(root, context);
}

function mountAll(root, { signal, params, noteParams, can, session }) {
  let beats = 0;
  let memory = MEMORY_EVERY[0];
  let kinds = [];
  let asking = false;
  const known = lives();
  const trouble = h("div");
  const line = connectLine();
  const begin = beginning(session);
  const cards = kindCards();
  const saw = sawtooth({ lives: known });
  const limitOf = (name) => kinds.find(({ kind }) => kind === name)?.lifetime_max ?? 0;
  const workers = workerTable({ signal, params, noteParams, can, limitOf, changed: rows });
  const lists = ["open", "waiting"].map((state) => sessionList({ state, signal, can, changed: rows }));
  const choices = choiceList();
  const explain = explainForm({ signal, params });
  const busy = h("div", { class: "column" }, cards.element, saw.element, workers.elements, h("div", { class: "pair session-pair" }, lists.map((one) => one.element)));
  const reasons = h("div", { class: "pair" }, choices.element, explain.element);
  busy.hidden = reasons.hidden = true;
  const ghost = h("span", { class: "ghost" });
  root.append(pageHead("Sessions", "Every session finds its worker, and workers that wear out are restarted a few at a time.", line.element), trouble, ghost, begin.element, busy, reasons);

  function showKinds(now) {
    kinds = now;
    const some = kinds.some(({ workers: all, waiting }) => waiting || Object.values(all).some(Boolean));
    ghost.hidden = true;
    begin.element.hidden = some;
    busy.hidden = !some;
    reasons.hidden = !some && !choices.element.querySelector("li");
    cards.set(kinds);
    workers.kinds(kinds);
    explain.kinds(kinds);
    saw.draw(kinds.filter((one) => Object.values(one.workers).some(Boolean)));
  }

  function showGateway(address) {
    const gateway = address && `ws://${address.replace(ANYWHERE, `${location.hostname}:`)}`;
    line.set(gateway);
    begin.set(gateway);
  }

  // Workers as they are now, for table and drawing; one question where one answer serves both.
  async function rows(at = Date.now()) {
    if (asking) return;
    asking = true;
    const first = workers.usual() ? workers.load() : Promise.all([firstWorkers(signal).catch(() => null), workers.load()]).then(([answer]) => answer);
    const [answer] = await Promise.all([first, ...lists.map((one) => one.load())]);
    asking = false;
    if (!answer || signal.aborted) return;
    known.see(at, answer.workers);
    saw.draw();
  }

  async function load() {
    try {
      const answer = await api.get("/api/v1/sessions/overview", { signal });
      trouble.replaceChildren();
      const { at_ms: times, workers: all } = answer.series;
      memory = MEMORY_EVERY[Number(times.length * Object.keys(all).length > HEAVY)];
      known.remember(answer.series);
      showGateway(answer.gateway);
      choices.set(answer.choices);
      showKinds(answer.kinds);
      return answer;
    } catch (problem) {
      if (!problem.silent) trouble.replaceChildren(problemNotice(problem, start));
      return null;
    }
  }

  async function start() {
    const answer = await load();
    if (answer) await rows(answer.series.at_ms.at(-1));
  }

  function beat({ at_ms: at, kinds: heard }) {
    // A node that is starting has nothing to say yet.
    if (!heard) return;
    showKinds(heard);
    beats += 1;
    if (document.hidden) return;
    if (beats % memory === 0) load();
    if (beats % ROWS_EVERY === 0) rows(at);
  }

  const stop = listen("/api/v1/live", "sessions", beat, { onOpen: (again) => again && start() });
  start();
  return () => {
    stop();
    workers.destroy();
    saw.destroy();
  };
}

/** Where clients connect, in the head of the page. */
function connectLine() {
  const address = h("code");
  const words = h("span", { class: "dim small" }, "Clients connect to");
  const copy = copyButton(() => address.textContent);
  const element = h("div", { class: "row connect" }, words, address, copy);
  return {
    element,
    set(url) {
      setText(words, url ? "Clients connect to" : "This node has no gateway; clients connect to another");
      setText(address, url ?? "");
      address.hidden = copy.hidden = !url;
    },
  };
}

/** What to do where there is no worker yet. */
function beginning(session) {
  const code = h("pre");
  const step = (title, sample, text) => h("li", { class: "stack" }, h("h3", null, title), h("div", { class: "curl" }, sample, copyButton(() => sample.textContent)), h("p", { class: "dim small" }, text));
  const element = h("section", { class: "card stack begin" }, h("h2", null, "No worker yet"),
    h("p", { class: "dim" }, "A worker is a program that serves sessions and wears out, such as a browser. Skep gives each session the right one and restarts them in time."),
    h("ol", { class: "stack" },
      step("Start a worker", h("pre", null, WORKER), "It starts the program, learns its address from what it prints, registers it here and restarts it when it is due. Start as many as you like, on any machine that reaches this node."),
      step("Connect a client", code, ["The gateway finds a free worker and carries the session. ", !session.open && ["With a key of the scope session: ", h("code", null, "?token=…"), ". "], "A kind, labels and a version are asked for in the address: ", h("code", null, "?browser=firefox&label=eu"), "."])));
  element.hidden = true;
  return { element, set: (url) => setText(code, `const browser = await chromium.connect('${url ?? "ws://GATEWAY"}');`) };
}
