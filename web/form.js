// Forms that send JSON: labels, hints, a busy state, and the node's objections beside the field they are about.

import { freshId, h, inline } from "./dom.js";
import { problemNotice } from "./notice.js";

/** A control with label, hint and a place for its error. */
export function field({ name, label, hint, control }) {
  const id = freshId(name);
  const error = h("p", { class: "field-error", id: `${id}-error` });
  control.id = id;
  control.name = name;
  control.setAttribute("aria-describedby", `${id}-hint ${id}-error`);
  const element = h("div", { class: "field" }, h("label", { for: id }, label), control,
    h("p", { class: "dim small", id: `${id}-hint` }, hint), error);
  return { name, element, control, error };
}

/** Several checkboxes under one heading. options: [{ value, label, hint, checked }]. */
export function choices({ name, label, hint, options }) {
  const id = freshId(name);
  const error = h("p", { class: "field-error", id: `${id}-error` });
  const boxes = options.map((option) => h("input", { type: "checkbox", name, value: option.value, checked: option.checked }));
  const element = h("fieldset", { class: "field", "aria-describedby": `${id}-error` }, h("legend", null, label), hint && h("p", { class: "dim small" }, hint),
    h("div", { class: "choices" }, options.map((option, index) => h("label", { class: "choice" }, boxes[index],
      h("span", null, h("strong", null, option.label), h("span", { class: "dim small" }, option.hint))))),
    error);
  return { name, element, control: boxes[0], boxes, error };
}

/** onSubmit may throw a Problem: it, or each of its flaws, is shown at its field, or else above the buttons. */
export function form({ fields, submit, onSubmit, onCancel }) {
  const general = h("div", { class: "form-problem" });
  const button = h("button", { type: "submit", class: "primary" }, submit);
  let busy = false;

  function clear() {
    general.replaceChildren();
    for (const one of fields) {
      one.error.textContent = "";
      one.control.removeAttribute("aria-invalid");
    }
  }

  function show(problem) {
    if (problem.silent) return;
    const whole = { field: problem.field, detail: problem.detail ? `${problem.title}: ${problem.detail}` : problem.title };
    const flaws = (problem.flaws?.length ? problem.flaws : [whole]).map(({ field: name, detail }) => ({ at: fieldOf(name), name, detail }));
    if (flaws.some(({ at }) => !at)) general.replaceChildren(problemNotice(problem));
    for (const { at, name, detail } of flaws.filter((one) => one.at)) {
      // The label names the field already.
      const text = at.name === name && detail.startsWith(name) ? detail.slice(name.length).replace(/^:? /, "") : detail;
      at.error.append(at.error.firstChild ? ". " : "", ...inline(text[0].toUpperCase() + text.slice(1)));
      at.control.setAttribute("aria-invalid", "true");
    }
    fields.find((one) => flaws.some(({ at }) => at === one))?.control.focus();
  }

  // "scopes[0]" or "scopes.0" belong to the field "scopes". What is hidden cannot say anything.
  function fieldOf(name = null) {
    const fits = (one) => name === one.name || name?.startsWith(`${one.name}.`) || name?.startsWith(`${one.name}[`);
    return fields.find((one) => fits(one) && !one.element.hidden);
  }

  async function send(event) {
    event.preventDefault();
    // Not "disabled": that would throw the keyboard focus away while we wait.
    if (busy || button.getAttribute("aria-disabled") === "true") return;
    busy = true;
    button.setAttribute("aria-busy", "true");
    clear();
    try {
      await onSubmit();
    } catch (problem) {
      show(problem);
    }
    busy = false;
    button.removeAttribute("aria-busy");
  }

  const element = h("form", { novalidate: true, onsubmit: send }, fields.map((one) => one.element), general,
    h("div", { class: "row end" }, onCancel && h("button", { type: "button", onclick: onCancel }, "Cancel"), button));
  return { element, button };
}
