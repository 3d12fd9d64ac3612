// Asks where a request would go, and why. Nothing is sent.

import { api } from "./api.js";
import { h } from "./dom.js";
import { field, form } from "./form.js";
import { keyText, REJECTED, RULES } from "./cluster-words.js";
import { reasonOf } from "./reason.js";
import { withQuery } from "./router.js";

/** key: one to begin with. note(key): it was asked about. */
export function explainForm({ signal, key = "", note }) {
  const fields = {
    key: field({ name: "key", label: "Key", hint: "queue:group, queue:partition:group or namespace:task:group.", control: h("input", { type: "text", autocomplete: "off", autocapitalize: "off", spellcheck: "false", placeholder: "orders:mail", value: key }) }),
    for: field({ name: "for", label: "For", control: h("select", null, [["pop", "a pop"], ["push", "a push"]].map(([value, text]) => h("option", { value }, text))) }),
  };
  const result = h("div", { class: "stack", role: "status" });
  const parts = form({
    fields: Object.values(fields), submit: "Explain",
    onSubmit: async () => {
      const asked = { key: fields.key.control.value.trim(), for: fields.for.control.value };
      note(asked.key);
      try {
        show(await api.get(withQuery("/api/v1/cluster/explain", asked), { signal }));
      } catch (problem) {
        result.replaceChildren();
        throw problem;
      }
    },
  });
  parts.element.prepend(h("div", { class: "halves test-fields" }, Object.values(fields).map((one) => one.element)));

  function show({ key: asked, for: purpose, place, here, text, reason, explain, would_change: change }) {
    const { unlisted, ...numbers } = reason?.numbers ?? {};
    result.replaceChildren(reasonOf({
      what: [`A ${purpose} of `, h("span", { class: "mono" }, keyText(asked)), " would go to ", h("strong", null, place), `${here ? ", this node" : ""}: ${RULES[reason?.rule] ?? text}.`],
      by: "this node, on what it has heard of the others", rule: reason?.rule, numbers, rejected: reason?.rejected, ruled: REJECTED, rest: unlisted, change, explain,
    }));
  }

  const element = h("section", { class: "card stack explain cluster-explain" }, h("h2", null, "Where would a request go?"), parts.element, result);
  return {
    element,
    ask(about) {
      fields.key.control.value = about;
      parts.element.requestSubmit();
      element.scrollIntoView({ block: "nearest" });
    },
  };
}
