// API: the node's own description of its interface (OpenAPI), made readable.

import { api } from "../api.js";
import { copyButton } from "../copy.js";
import { announce, h, inline } from "../dom.js";
import { pageHead, problemNotice } from "../notice.js";
import { curl, prose, resolve, schemaList, scopeOf } from "../openapi.js";

export const page = { "path": "/api", "title": "API", "order": 99, "icon": "M9 7l-5 5 5 5M15 7l5 5-5 5" };

const METHODS = ["get", "post", "put", "patch", "delete", "head", "options"];

export function mount(root, { signal, params, noteParams }) {
  const search = h("input", { type: "search", placeholder: "Search", "aria-label": "Search in the interface", oninput: filter });
  const place = h("div", { class: "api-list", "aria-busy": "true" }, [1, 2, 3, 4].map(() => h("div", { class: "card op" }, h("span", { class: "ghost" }))));
  let entries = [];
  search.value = params.get("q") ?? "";
  root.append(
    pageHead("API", ["Everything here can be done by programs too. The whole description: ", h("a", { href: "/api/openapi.json" }, "openapi.json"), "."]),
    h("div", { class: "toolbar" }, search), place);

  function note() {
    if (signal.aborted) return;
    const open = entries.filter(({ element }) => element.open).map(({ id }) => id);
    noteParams({ q: search.value, op: open.join(",") });
  }

  function filter() {
    const wanted = search.value.toLowerCase();
    for (const { element, text } of entries) element.hidden = !text.includes(wanted);
    for (const group of place.querySelectorAll("section")) group.hidden = !group.querySelector("details:not([hidden])");
    note();
  }

  async function load() {
    try {
      const spec = await api.get("/api/openapi.json", { signal });
      if (!spec?.paths) throw { title: "The description is not readable", detail: "openapi.json came without paths." };
      place.setAttribute("aria-busy", "false");
      draw(spec);
    } catch (problem) {
      if (!problem.silent) place.replaceChildren(problemNotice(problem, load));
    }
  }

  function draw(spec) {
    const operations = Object.entries(spec.paths).flatMap(([path, item]) =>
      METHODS.filter((method) => item[method]).map((method) => ({ path, method, item, ...item[method], tag: item[method].tags?.[0] ?? "Other" })));
    // The order of the description's own tag list, then whatever else is used.
    const tags = [...new Set([...(spec.tags ?? []).map(({ name }) => name), ...operations.map(({ tag }) => tag)])];
    const wanted = (params.get("op") ?? "").split(",");
    place.replaceChildren(...tags.filter((tag) => operations.some((one) => one.tag === tag)).map((tag) => h("section", { "aria-label": tag },
      h("h2", null, tag[0].toUpperCase() + tag.slice(1)),
      prose(spec.tags?.find(({ name }) => name === tag)?.description),
      operations.filter((one) => one.tag === tag).map((one) => entry(one, spec, wanted)))));
    if (search.value) filter();
    const first = entries.find(({ element }) => element.open);
    first?.element.scrollIntoView({ block: "start" });
    announce(`${operations.length} operations`);
  }

  function entry(operation, spec, wanted) {
    const id = operation.operationId ?? `${operation.method}${operation.path}`;
    const scope = scopeOf(operation);
    // Built when first opened: a long description costs nothing until somebody reads it.
    const build = () => { if (element.children.length === 1) element.append(body(operation, spec)); };
    const element = h("details", { class: "card op", ontoggle: () => {
      if (element.open) build();
      note();
    } }, h("summary", null,
      h("span", { class: `method ${operation.method}` }, operation.method.toUpperCase()),
      h("code", { class: "op-path" }, operation.path),
      h("span", { class: "op-summary" }, inline(operation.summary ?? "")),
      scope && h("span", { class: "chip" }, scope)));
    entries.push({ id, element, text: [id, operation.method, operation.path, operation.summary, operation.description, operation.tag, scope].join(" ").toLowerCase() });
    if (wanted.includes(id)) {
      build();
      element.open = true;
    }
    return element;
  }

  load();
  return () => {};
}

function body(operation, spec) {
  const scope = scopeOf(operation);
  const parameters = [...(operation.item.parameters ?? []), ...(operation.parameters ?? [])].map((one) => resolve(one, spec));
  const request = resolve(operation.requestBody, spec);
  const command = curl(operation, parameters, request, spec);
  return h("div", { class: "op-body" },
    prose(operation.description),
    h("p", null, scope ? ["Needs a key with the scope ", h("code", null, scope), "."] : "Needs no key."),
    h("div", { class: "curl" }, h("pre", { tabindex: "0", "aria-label": "curl command" }, h("code", null, command)), copyButton(() => command)),
    parameters.length > 0 && [h("h3", null, "Parameters"), parameterList(parameters, spec)],
    request && [h("h3", null, "Request"), content(request, spec)],
    h("h3", null, "Answers"),
    Object.entries(operation.responses ?? {}).map(([status, one]) => {
      const answer = resolve(one, spec);
      return h("div", { class: "answer" }, h("p", null, h("code", { class: `status s${status[0]}` }, status), " ", inline(answer.description ?? "")), content(answer, spec));
    }));
}

function parameterList(parameters, spec) {
  const properties = Object.fromEntries(parameters.map((one) => [one.name, { ...resolve(one.schema, spec), description: `${one.description ?? ""} (in the ${one.in})`.trim() }]));
  return schemaList({ type: "object", properties, required: parameters.filter((one) => one.required).map((one) => one.name) }, spec);
}

// One list per kind of content; its name only where there is something to choose or it is not JSON.
function content(holder, spec) {
  const kinds = Object.entries(holder.content ?? {});
  return kinds.map(([kind, { schema }]) => [
    (kinds.length > 1 || kind !== "application/json") && h("p", { class: "dim small mono" }, kind),
    schema && schemaList(schema, spec),
  ]);
}
