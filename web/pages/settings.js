// Settings: what this node is set to, where each value came from, and what it is for. They are set where the node is started.

import { api } from "../api.js";
import { h, inline, setText } from "../dom.js";
import { pageHead, problemNotice } from "../notice.js";
import { table } from "../table.js";

export const page = { "path": "/settings", "title": "Settings", "order": 98, "needs": "admin", "icon": "M4 7h9M19 7h1M16 4.5v5M4 17h1M11 17h9M8 14.5v5M4 12h4M14 12h6M11 9.5v5" };

const words = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);
// A long name breaks where its parts meet.
const broken = (name) => name.split("__").flatMap((part, index) => (index ? ["__", h("wbr"), part] : [part]));
const fits = (one, wanted) => wanted.every((word) => [one.key, one.value, one.origin, one.help].join("\n").toLowerCase().includes(word));

export function mount(root, { signal, params, noteParams }) {
  let all = [];
  let chosen = params.get("setting") ?? "";
  const search = h("input", { type: "search", placeholder: "Name, value, origin or meaning", "aria-label": "Search in settings", value: params.get("search") ?? "", oninput: filter });
  const changed = h("input", { type: "checkbox", checked: params.has("set"), onchange: filter });
  const tally = h("span", { class: "dim small num", role: "status" });
  const trouble = h("div");
  const list = table({
    label: "Settings", empty: "No setting matches.", rowClass: (one) => (one.key === chosen ? "chosen" : null),
    columns: [
      { title: "Setting", class: "free", cell: (one) => [h("a", { class: "mono", href: `#/settings?setting=${encodeURIComponent(one.key)}`, "aria-current": one.key === chosen ? "true" : null }, h("strong", null, one.key)), h("div", { class: "dim mono small" }, broken(one.environment))] },
      { title: "Value", class: "free", cell: (one) => [h("span", { class: "mono" }, one.value || "–"), one.value !== one.default && h("div", { class: "dim small" }, `usually ${one.default || "not set"}`)] },
      { title: "From", class: "free", cell: (one) => (one.is_set ? h("span", { class: "pill" }, one.origin) : h("span", { class: "dim" }, one.origin)) },
      { title: "What it is for", class: "free", cell: (one) => [inline(one.help), h("div", { class: "dim small" }, inline(`Give ${one.expected}.`))] },
    ],
  });
  root.append(
    pageHead("Settings", "What this node is set to since it started, and where each value came from. Secrets are not shown."), trouble,
    h("div", { class: "toolbar", role: "group", "aria-label": "What to show" }, search, h("label", { class: "choice line" }, changed, h("span", null, "Only what somebody has set")), tally),
    list.element);

  function filter() {
    chosen = "";
    noteParams({ search: search.value.trim(), set: changed.checked ? "1" : "" });
    draw();
  }

  function draw() {
    const wanted = words(search.value);
    const shown = all.filter((one) => fits(one, wanted) && (!changed.checked || one.is_set));
    list.set(shown);
    setText(tally, shown.length === all.length ? `${all.length} settings` : `${shown.length} of ${all.length}`);
    const row = list.element.querySelector("tr.chosen");
    if (!row) return;
    row.scrollIntoView({ block: "center" });
    row.querySelector("a").focus({ preventScroll: true });
  }

  async function load() {
    try {
      ({ settings: all } = await api.get("/api/v1/settings", { signal }));
      trouble.replaceChildren();
      draw();
    } catch (problem) {
      if (!problem.silent) trouble.replaceChildren(problemNotice(problem, load));
    }
  }

  load();
}
