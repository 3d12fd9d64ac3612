// Asks what would become of a request: which route, which upstream, why, and why nobody else. Nothing is sent.

import { api } from "./api.js";
import { h } from "./dom.js";
import { field, form } from "./form.js";
import { duration, whole } from "./format.js";
import { CHOSEN, HERE, MATCHED, REJECTED, routeLink } from "./route-words.js";
import { reasonOf } from "./reason.js";
import { addParams, link } from "./router.js";

const METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/** params: those of the address, where a question is noted. example: an address to begin with. */
export function testForm({ signal, params, example = "" }) {
  const asked = new URLSearchParams(params.get("test") ?? "");
  const fields = {
    url: field({ name: "url", label: "Address", hint: "Where somebody would go.", control: h("input", { type: "text", inputmode: "url", autocomplete: "off", autocapitalize: "off", spellcheck: "false", placeholder: "http://shop.example/api/cart", value: asked.get("url") ?? example }) }),
    method: field({ name: "method", label: "Method", control: h("select", null, METHODS.map((one) => h("option", { value: one }, one))) }),
  };
  const result = h("div", { class: "stack", role: "status" });
  const parts = form({
    fields: Object.values(fields), submit: "Test",
    onSubmit: async () => {
      const given = fields.url.control.value.trim();
      const url = given && !given.includes("://") ? `http://${given}` : given;
      addParams({ test: new URLSearchParams({ url: given, method: fields.method.control.value }).toString() });
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

  // Two decisions: which route it belongs to, and who of it gets the request.
  function show(answer) {
    const { route, route_reason: why } = answer;
    const { unlisted, ...numbers } = why.numbers ?? {};
    const which = reasonOf({
      what: [h("span", { class: "mono" }, `${answer.method} ${answer.url}`), " belongs to ", route ? h("a", { href: routeLink(route) }, h("strong", null, route)) : h("strong", null, "no route"), `: ${MATCHED[why.rule] ?? why.rule}.`],
      by: "the table of routes on this node", rule: why.rule, numbers, rejected: why.rejected, ruled: REJECTED, linkOf: routeLink, rest: unlisted, change: answer.route_would_change, explain: route ? null : answer.explain,
    });
    result.replaceChildren(which, ...(route ? [target(answer)] : []));
  }

  function target({ upstream, upstream_reason: why, answered_here: here, workers, path, retries, explain, would_change: change }) {
    const { unlisted, retry_after: after, ...numbers } = why?.numbers ?? {};
    const what = [];
    if (workers) what.push("It would get ", h("strong", null, "a worker of the kind "), h("a", { href: link("/sessions", { kind: workers }) }, workers), ", as sessions do.");
    if (upstream) what.push("It would go to ", h("strong", { class: "mono" }, upstream), `: ${CHOSEN[why.rule] ?? why.rule}. It is ${numbers.standing}, has ${whole(numbers.active)} open and the weight ${whole(numbers.weight)}${numbers.warmth < 1 ? `, of which ${Math.round(numbers.warmth * 100)} % count while it warms up` : ""}.`);
    if (here) what.push(h("strong", null, "No upstream would be asked"), `: ${HERE[here] ?? here}.${after ? ` The client is told to come again in ${duration(after)}.` : ""}`);
    return reasonOf({
      what, by: "the route on this node", rule: why?.rule, numbers, rejected: why?.rejected, ruled: REJECTED, rest: unlisted, change, explain,
      facts: {
        Path: path && ["The upstream would see the path ", h("span", { class: "mono" }, path), "."],
        "If it fails": path && retries !== null && (retries ? "If an upstream fails after it may have seen it, it is sent again to another." : "If an upstream fails after it may have seen it, it is not sent again."),
      },
    });
  }

  if (asked.has("url")) {
    fields.method.control.value = METHODS.includes(asked.get("method")) ? asked.get("method") : "GET";
    // Once it is in the page: it shows what comes of it beside its fields.
    queueMicrotask(() => parts.element.requestSubmit());
  }
  return { element: h("section", { class: "card stack explain route-test" }, h("h2", null, "What would become of a request?"), parts.element, result) };
}
