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

/** onSubmit may throw a Problem: it is shown at its field, or else above the buttons. */
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
    // "scopes[0]" or "scopes.0" belong to the field "scopes".
    const at = fields.find((one) => one.name === problem.field?.split(/[.[]/)[0]);
    if (!at) return general.replaceChildren(problemNotice(problem));
    at.error.replaceChildren(...inline(problem.detail ? `${problem.title}: ${problem.detail}` : problem.title));
    at.control.setAttribute("aria-invalid", "true");
    at.control.focus();
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
