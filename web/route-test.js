// Asks what would become of a request: which route, which upstream, why, and why nobody else. Nothing is sent.

import { api } from "./api.js";
import { h } from "./dom.js";
import { field, form } from "./form.js";
import { duration, whole } from "./format.js";
import { CHOSEN, HERE, MATCHED, REJECTED, routeLink } from "./route-words.js";
import { link } from "./router.js";

const METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
// Groups of at most so many are unfolded from the start.
const UNFOLDED = 8;

/** example: an address to begin with. */
export function testForm({ signal, example = "" }) {
  const fields = {
    url: field({ name: "url", label: "Address", hint: "Where somebody would go.", control: h("input", { type: "text", inputmode: "url", autocomplete: "off", autocapitalize: "off", spellcheck: "false", placeholder: "http://shop.example/api/cart", value: example }) }),
    method: field({ name: "method", label: "Method", control: h("select", null, METHODS.map((one) => h("option", { value: one }, one))) }),
  };
  const result = h("div", { class: "stack", role: "status" });
  const parts = form({
    fields: Object.values(fields), submit: "Test",
    onSubmit: async () => {
      const given = fields.url.control.value.trim();
      const url = given && !given.includes("://") ? `http://${given}` : given;
      try {
        show(await api.post("/api/v1/routes/test", { url, method: fields.method.control.value }, { signal }));
      } catch (problem) {
        result.replaceChildren();
        throw problem;
      }
    },
  });
  const halves = h("div", { class: "halves test-fields" }, Object.values(fields).map((one) => one.element));
  parts.element.prepend(halves);

  function show(answer) {
    const { route, route_reason: why } = answer;
    const asked = `${answer.method} ${answer.url}`;
    if (!route) return result.replaceChildren(h("p", null, h("span", { class: "mono" }, asked), " belongs to ", h("strong", null, "no route"), `: ${MATCHED[why.rule] ?? why.rule}.`), ...rejected(why));
    const fits = h("span", { class: "mono" }, `${why.numbers.host}${why.numbers.path}`);
    result.replaceChildren(
      h("p", null, h("span", { class: "mono" }, asked), " belongs to ", h("a", { href: routeLink(route) }, h("strong", null, route)), " (", fits, `): ${MATCHED[why.rule] ?? why.rule}.`),
      ...rejected(why), ...target(answer));
  }

  function target({ upstream, upstream_reason: why, answered_here: here, workers, path, retries }) {
    const told = [];
    const numbers = why?.numbers ?? {};
    if (workers) told.push(h("p", null, "It would get ", h("strong", null, "a worker of the kind "), h("a", { href: link("/sessions", { kind: workers }) }, workers), ", as sessions do."));
    if (upstream) {
      told.push(h("p", null, "It would go to ", h("strong", { class: "mono" }, upstream), `: ${CHOSEN[why.rule] ?? why.rule}.`),
        h("p", { class: "dim small" }, `It is ${numbers.standing}, has ${whole(numbers.active)} open and the weight ${whole(numbers.weight)}${numbers.warmth < 1 ? `, of which ${Math.round(numbers.warmth * 100)} % count while it warms up` : ""}.`));
    }
    if (here) told.push(h("p", null, h("strong", null, "No upstream would be asked"), `: ${HERE[here] ?? here}.`, numbers.retry_after ? ` The client is told to come again in ${duration(numbers.retry_after)}.` : ""));
    if (path) told.push(h("p", { class: "dim small" }, "The upstream would see the path ", h("span", { class: "mono" }, path), "."));
    if (path && retries !== null) told.push(h("p", { class: "dim small" }, retries ? "If an upstream fails after it may have seen it, it is sent again to another." : "If an upstream fails after it may have seen it, it is not sent again."));
    return [...told, ...rejected(why)];
  }

  function rejected(why) {
    const groups = new Map();
    for (const { who, rule } of why?.rejected ?? []) groups.set(rule, [...(groups.get(rule) ?? []), who]);
    const rest = why?.numbers.unlisted;
    const made = [...groups].map(([rule, names]) => h("details", { class: "why-not", open: names.length <= UNFOLDED },
      h("summary", null, h("span", null, "Not ", h("strong", { class: "num" }, whole(names.length)), `: ${rule} `, h("span", { class: "dim small" }, REJECTED[rule] ?? ""))),
      h("p", { class: "chips" }, names.map((name) => h("span", { class: "chip" }, name)))));
    return rest ? [...made, h("p", { class: "dim small" }, `And ${whole(rest)} more.`)] : made;
  }

  return { element: h("section", { class: "card stack explain route-test" }, h("h2", null, "What would become of a request?"), parts.element, result) };
}
