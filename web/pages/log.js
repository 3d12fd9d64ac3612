// Log: what the node writes, as it writes it. Stays still while somebody reads.

import { api } from "../api.js";
import { announce, h } from "../dom.js";
import { clock, when } from "../format.js";
import { listen } from "../live.js";
import { pageHead, problemNotice } from "../notice.js";

export const page = { "path": "/log", "title": "Log", "order": 90, "needs": "admin", "icon": "M4 6h16M4 10h10M4 14h16M4 18h8" };

const MOST = 2000;
const LEVELS = ["error", "warn", "info", "debug", "trace"];
const rank = (level) => LEVELS.indexOf(level.toLowerCase());
const capital = (word) => word[0].toUpperCase() + word.slice(1);

export function mount(root, { signal, params, noteParams, can }) {
  const kept = []; // { line, row }, oldest first: what is in the list
  let waiting = []; // lines that came while paused or while the reader had scrolled up
  let paused = false;
  let drawing = 0;
  let last = { seq: 0, time: 0 };
  let held = null; // live lines that wait until the history before them is here

  const list = h("ol", { class: "log", tabindex: "0", "aria-label": "Log lines, oldest first", onscroll: () => { if (atEnd()) flush(); } });
  const jump = h("button", { type: "button", class: "primary jump", onclick: follow });
  jump.hidden = true;
  const pause = h("button", { type: "button", onclick: () => setPaused(!paused) }, "Pause");
  const level = h("select", { onchange: filter }, h("option", { value: "" }, "All levels"), LEVELS.slice(0, -1).map((name) => h("option", { value: name }, name === "error" ? "Error" : `${capital(name)} and above`)));
  const search = h("input", { type: "search", placeholder: "Search", "aria-label": "Search in the lines", oninput: filter });
  const tally = h("p", { class: "dim small log-tally" }, "\u00a0");
  const trouble = h("div");
  level.value = LEVELS.includes(params.get("level")) ? params.get("level") : "";
  search.value = params.get("q") ?? "";

  root.classList.add("page-fill");
  root.append(
    pageHead("Log", "What this node writes, as it writes it.", levelSetting(can("admin"), signal, trouble)),
    h("div", { class: "toolbar", role: "group", "aria-label": "What to show" }, search,
      h("label", null, h("span", { class: "unseen" }, "Least level shown"), level), pause, tally),
    trouble,
    h("div", { class: "card log-card" }, list, jump));

  const atEnd = () => list.scrollHeight - list.scrollTop - list.clientHeight < 24;

  function matches(line) {
    const least = level.value === "" ? Infinity : rank(level.value);
    return rank(line.level) <= least && (!search.value || textOf(line).includes(search.value.toLowerCase()));
  }

  function filter() {
    noteParams({ level: level.value, q: search.value });
    for (const one of kept) one.row.hidden = !matches(one.line);
    list.scrollTop = list.scrollHeight;
    count();
  }

  function count() {
    const seen = kept.filter((one) => !one.row.hidden).length;
    const fresh = waiting.filter(matches).length;
    tally.textContent = `${seen === kept.length ? "" : `${seen} of `}${kept.length} lines${paused ? `, paused, ${fresh} waiting` : ""}`;
    jump.hidden = fresh === 0 || paused;
    jump.textContent = fresh === 1 ? "1 new line ↓" : `${fresh} new lines ↓`;
    list.classList.toggle("is-empty", seen === 0);
    list.dataset.empty = kept.length ? "No line matches." : "The node has written nothing yet.";
  }

  function take(line) {
    const time = Date.parse(line.at);
    // History and live lines overlap. A low number with a later time is no repetition: the node restarted.
    if (line.seq <= last.seq && time <= last.time) return;
    last = { seq: line.seq, time: Math.max(time, last.time) };
    waiting.push(line);
    if (waiting.length > MOST) waiting.splice(0, waiting.length - MOST);
    // Many lines in one frame cost one drawing.
    if (!drawing) drawing = requestAnimationFrame(() => {
      drawing = 0;
      if (!paused && atEnd()) flush();
      else count();
    });
  }

  function flush() {
    if (paused || !waiting.length) return;
    const fresh = waiting.map((line) => ({ line, row: rowOf(line) }));
    waiting = [];
    for (const one of fresh) one.row.hidden = !matches(one.line);
    kept.push(...fresh);
    list.append(...fresh.map((one) => one.row));
    for (const one of kept.splice(0, Math.max(0, kept.length - MOST))) one.row.remove();
    list.scrollTop = list.scrollHeight;
    count();
  }

  function follow() {
    flush();
    list.scrollTop = list.scrollHeight;
    list.focus();
  }

  function setPaused(on) {
    paused = on;
    pause.textContent = on ? "Resume" : "Pause";
    announce(on ? "Paused" : "Following again");
    flush();
    count();
  }

  async function load() {
    held ??= [];
    try {
      const { lines } = await api.get("/api/v1/log?limit=500", { signal });
      trouble.replaceChildren();
      lines.forEach(take);
      count();
    } catch (problem) {
      if (!problem.silent) trouble.replaceChildren(problemNotice(problem, load));
    }
    held?.forEach(take);
    held = null;
  }

  // Loaded at once for the eye, and when the connection stands, so that nothing falls in between.
  const stop = listen("/api/v1/log/live", "line", (line) => (held ? held.push(line) : take(line)), { onOpen: load });
  load();
  return () => {
    stop();
    cancelAnimationFrame(drawing);
  };
}

function textOf(line) {
  const fields = Object.entries(line.fields ?? {}).map(([name, value]) => `${name}=${plain(value)}`);
  return [line.message, line.target, line.level, ...fields].join(" ").toLowerCase();
}

const plain = (value) => (typeof value === "string" ? value : JSON.stringify(value));

function rowOf(line) {
  return h("li", { "data-level": line.level.toLowerCase() },
    h("span", { class: "log-time" }, when(line.at, clock(line.at))),
    h("span", { class: "log-level" }, line.level),
    h("span", { class: "log-text" }, h("span", null, line.message), " ",
      Object.entries(line.fields ?? {}).map(([name, value]) => [h("span", { class: "log-field" }, h("span", null, `${name}=`), plain(value)), " "]),
      h("span", { class: "log-target" }, line.target)));
}

/** The select that changes what the node writes at all. */
function levelSetting(allowed, signal, trouble) {
  const select = h("select", { disabled: true, onchange: change }, LEVELS.map((name) => h("option", { value: name }, capital(name))));
  let present = "";

  function show(level) {
    // A node may run with a finer filter than one word.
    if (![...select.options].some((option) => option.value === level)) select.append(h("option", { value: level }, level));
    present = level;
    select.value = level;
  }

  async function change() {
    try {
      const { value } = select;
      await api.put("/api/v1/log/level", { level: value }, { signal });
      present = value;
      announce(`The node now writes ${value}`);
    } catch (problem) {
      select.value = present;
      if (!problem.silent) trouble.replaceChildren(problemNotice(problem));
    }
  }

  api.get("/api/v1/log/level", { signal }).then(({ level }) => {
    show(level);
    select.disabled = !allowed;
  }, () => {});
  return h("label", { class: "inline", title: allowed ? null : "Changing this needs a key with the scope admin" }, "The node writes", select);
}
