// Why sessions got their workers: the latest choices, and whom a session would get now.

import { api } from "./api.js";
import { h, setText } from "./dom.js";
import { clock, millis, when, whole } from "./format.js";
import { field, form } from "./form.js";
import { foldedReason, reasonOf } from "./reason.js";
import { addParams, withQuery } from "./router.js";
import { CHOSEN, many, REFUSED, REJECTED, STANDINGS } from "./session-words.js";
import { workerLink } from "./session-workers.js";

const SHOWN = 30;

/** What a choice says: a sentence, and the numbers it stands on. */
function told({ worker, reason, waited_ms: waited, kind }) {
  const { lifetime, lifetime_max: limit, active, slots, why } = reason.numbers;
  const wait = waited >= 1 ? `Waited ${millis(waited)}.` : "";
  if (!worker) return [REFUSED[reason.rule] ?? reason.rule, [why ? `${why[0].toUpperCase()}${why.slice(1)}.` : "", wait]];
  const counts = Object.keys(STANDINGS).filter((one) => reason.numbers[one]).map((one) => [one, reason.numbers[one]]);
  const total = counts.reduce((sum, [, count]) => sum + count, 0);
  const free = (reason.numbers.ready ?? 0) + (reason.numbers.due ?? 0);
  const others = total > 1 ? `Of ${whole(total)} ${kind} workers ${whole(free)} ${free === 1 ? "was" : "were"} free (${counts.map(([standing, count]) => `${whole(count)} ${standing}`).join(", ")}).` : `It was the only ${kind} worker.`;
  return [CHOSEN[reason.rule] ?? reason.rule, [`It had ${whole(active)} of ${many(slots, "slot")} taken and ${whole(lifetime)}${limit ? ` of ${whole(limit)}` : ""} sessions behind it.`, others, wait]];
}

/** A choice in the form that all decisions have. */
const why = ({ worker, session, kind, at_ms: at, reason, explain, would_change: change }) => ({
  what: worker ? [`${session}, a ${kind} session, got `, h("strong", null, worker)] : `${session}, a ${kind} session, got nobody`,
  by: "this node's gateway, on what the store of sessions answered", at, rule: reason.rule, because: CHOSEN[reason.rule] ?? REFUSED[reason.rule],
  numbers: reason.numbers, rejected: reason.rejected, ruled: REJECTED, linkOf: workerLink, change, explain,
});

const keyOf = (one) => `${one.at_ms} ${one.session}`;

/** The latest choices of this node, newest first. */
export function choiceList() {
  let all = [];
  let most = SHOWN;
  let known = null;
  const items = new Map();
  const list = h("ol", { class: "log events choices-made is-empty", tabindex: "0", "aria-label": "Latest choices, newest first", "data-empty": "No session has asked for a worker yet." });
  const more = h("button", { type: "button", class: "quiet", onclick: () => {
    most = Infinity;
    known = null;
    draw();
  } });
  more.hidden = true;

  const item = (one) => {
    const [sentence, numbers] = told(one);
    const who = one.worker ? h("a", { href: workerLink(one.worker) }, h("strong", null, one.worker)) : h("span", { class: "pill bad" }, "nobody");
    return h("li", { "data-level": one.worker ? null : "warn" }, h("span", { class: "log-time num" }, when(one.at_ms, clock(one.at_ms))),
      h("div", { class: "log-text" }, h("p", null, who, `: ${sentence}.`), h("p", { class: "dim" }, numbers.filter(Boolean).join(" ")), h("p", { class: "dim mono" }, `${one.session}, ${one.reason.rule}`), foldedReason(() => why(one))));
  };

  function draw() {
    const shown = all.slice(0, most);
    const now = shown.map(keyOf);
    if (known === (known = now.join())) return;
    list.classList.toggle("is-empty", !shown.length);
    for (const [key, element] of items) {
      if (now.includes(key)) continue;
      element.remove();
      items.delete(key);
    }
    let place = list.firstChild;
    // Whoever reads further down keeps what is read in sight.
    const below = list.scrollTop > 8 ? list.scrollHeight - list.scrollTop : null;
    for (const one of shown) {
      const key = keyOf(one);
      if (!items.has(key)) items.set(key, item(one));
      const element = items.get(key);
      if (element === place) place = place.nextSibling;
      else list.insertBefore(element, place);
    }
    if (below !== null) list.scrollTop = list.scrollHeight - below;
    more.hidden = all.length <= most;
    setText(more, `Show all ${all.length}`);
  }

  return {
    element: h("section", { class: "card stack" }, h("h2", null, "Latest choices"), h("p", { class: "dim small" }, "Who got which worker through this node's gateway, and why."), list, h("div", { class: "foot" }, more)),
    set(choices) {
      all = choices;
      draw();
    },
  };
}

/** Asks whom a session would get now, and why nobody else. */
export function explainForm({ signal, params }) {
  const asked = new URLSearchParams(params.get("ask") ?? "");
  const text = (name, label, hint, placeholder) => field({ name, label, hint, control: h("input", { type: "text", autocomplete: "off", autocapitalize: "off", spellcheck: "false", placeholder }) });
  const fields = {
    kind: field({ name: "kind", label: "Kind", control: h("select", null, h("option", { value: "" }, "Usual")) }),
    label: text("label", "Labels", "It must have all of them.", "eu, gpu"),
    version: text("version", "Client's version", "Two numbers must agree.", "1.62"),
  };
  const result = h("div", { class: "stack", role: "status" });
  const read = (name) => fields[name].control.value.trim();
  const parts = form({
    fields: Object.values(fields), submit: "Explain",
    onSubmit: async () => {
      const label = read("label").split(/[\s,]+/).filter(Boolean).join(",");
      addParams({ ask: withQuery("", { kind: read("kind"), label, version: read("version") }).slice(1) || "anything" });
      try {
        show(await api.get(withQuery("/api/v1/sessions/explain", { kind: read("kind"), label, version: read("version") }), { signal }));
      } catch (problem) {
        result.replaceChildren();
        problem.field ??= Object.keys(fields).find((name) => problem.detail?.startsWith(`${name}:`));
        throw problem;
      }
    },
  });
  const halves = h("div", { class: "halves thirds" });
  parts.element.prepend(halves);
  halves.append(...Object.values(fields).map((one) => one.element));

  function show({ kind, want, chosen, reason, explain, would_change: change }) {
    const { lifetime, lifetime_max: limit, active, slots } = reason.numbers;
    const rejected = reason.rejected ?? [];
    const wish = want === "anything" ? `A ${kind} session that asks for nothing special` : `A ${kind} session with ${want}`;
    const what = chosen
      ? [`${wish} would get `, h("a", { href: workerLink(chosen) }, h("strong", null, chosen)), `: ${CHOSEN[reason.rule] ?? reason.rule}. It has ${whole(active)} of ${many(slots, "slot")} taken and ${whole(lifetime)}${limit ? ` of ${whole(limit)}` : ""} sessions behind it.`]
      : [h("strong", null, rejected.length ? `${wish} would have to wait` : `${wish} would be refused`), rejected.length ? `: none of ${many(rejected.length, "worker")} could have it now.` : `: there is no ${kind} worker.`];
    result.replaceChildren(reasonOf({ what, by: "the rules of sessions, as this node knows the workers", rule: reason.rule, numbers: reason.numbers, rejected, ruled: REJECTED, linkOf: workerLink, change, explain }));
  }

  if (params.has("ask")) {
    for (const name of ["label", "version"]) fields[name].control.value = asked.get(name) ?? "";
    const kind = asked.get("kind");
    if (kind) fields.kind.control.append(h("option", { value: kind }, kind));
    fields.kind.control.value = kind ?? "";
    queueMicrotask(() => parts.element.requestSubmit());
  }
  return {
    element: h("section", { class: "card stack explain" }, h("h2", null, "Which worker would a session get now?"), parts.element, result),
    kinds(all) {
      const names = all.map((one) => one.kind);
      const { control } = fields.kind;
      if (control.dataset.list === names.join()) return;
      const { value } = control;
      control.dataset.list = names.join();
      control.replaceChildren(h("option", { value: "" }, "Usual"), ...names.map((name) => h("option", { value: name }, name)));
      if (names.includes(value)) control.value = value;
    },
  };
}
