// Reads OpenAPI 3.1: follows references, draws schemas as indented lists of fields, makes curl lines.

import { h, inline } from "./dom.js";

const DEEPEST = 6;

/** Follows $ref until there is something real. */
export function resolve(value, spec) {
  for (let hops = 0; value?.$ref && hops < 20; hops += 1) {
    const path = value.$ref.replace(/^#\//, "").split("/").map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));
    const { $ref, ...beside } = value;
    value = { ...path.reduce((at, part) => at?.[part], spec), ...beside };
  }
  return value;
}

/** The scope an operation needs, or null where no key is needed. */
export function scopeOf(operation) {
  const scope = operation["x-scope"];
  return scope && scope !== "none" ? scope : null;
}

/** Text with `code` and empty lines, the part of Markdown that descriptions use. */
export function prose(text) {
  if (!text) return null;
  return text.split(/\n\s*\n/).map((paragraph) => h("p", { class: "prose" }, inline(paragraph)));
}

// allOf becomes one object; everything else stays as it is.
function merged(schema, spec) {
  const whole = resolve(schema, spec) ?? {};
  if (!whole.allOf) return whole;
  return whole.allOf.map((part) => merged(part, spec)).reduce((sum, part) => ({
    ...part, ...sum,
    properties: { ...sum.properties, ...part.properties },
    required: [...(sum.required ?? []), ...(part.required ?? [])],
  }), { ...whole, allOf: undefined });
}

const variants = (schema, spec) => (schema.oneOf ?? schema.anyOf ?? []).map((one) => merged(one, spec));

/** The type in a few words: "string (date-time) or null", "list of object". */
function typeName(given, spec, depth = 0) {
  const schema = merged(given, spec);
  if (depth > DEEPEST) return "…";
  const choices = variants(schema, spec);
  if (choices.length) return [...new Set(choices.map((one) => typeName(one, spec, depth + 1)))].join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  const types = [schema.type ?? (schema.properties ? "object" : schema.enum ? "string" : "anything")].flat();
  return types.map((type) => {
    if (type === "array") return `list of ${schema.items ? typeName(schema.items, spec, depth + 1) : "anything"}`;
    if (type === "object" && typeof schema.additionalProperties === "object" && !schema.properties) return `map to ${typeName(schema.additionalProperties, spec, depth + 1)}`;
    return schema.format && type !== "null" ? `${type} (${schema.format})` : type;
  }).join(" or ");
}

// The objects inside a schema, whose fields are worth a list of their own.
function objectsIn(given, spec) {
  const schema = merged(given, spec);
  if (schema.properties) return [schema];
  if (schema.items) return objectsIn(schema.items, spec);
  if (typeof schema.additionalProperties === "object") return objectsIn(schema.additionalProperties, spec);
  return variants(schema, spec).flatMap((one) => objectsIn(one, spec));
}

function limits(schema, spec) {
  const words = [];
  if (schema.items) words.push(...[limits(merged(schema.items, spec), spec)].filter(Boolean).map((text) => `each ${text}`));
  if (schema.enum) words.push(`one of ${schema.enum.map((value) => JSON.stringify(value)).join(", ")}`);
  if (schema.default !== undefined) words.push(`default ${JSON.stringify(schema.default)}`);
  if (schema.minimum !== undefined) words.push(`at least ${schema.minimum}`);
  if (schema.maximum !== undefined) words.push(`at most ${schema.maximum}`);
  if (schema.maxLength !== undefined) words.push(`at most ${schema.maxLength} characters`);
  if (schema.pattern) words.push(`matches ${schema.pattern}`);
  return words.join(", ");
}

/** A schema as nested lists. */
export function schemaList(schema, spec) {
  const whole = merged(schema, spec);
  if (whole.properties) return fieldList(whole, spec, 0, [whole.properties]);
  return [
    h("p", { class: "small" }, h("span", { class: "type" }, typeName(whole, spec)), ` ${limits(whole, spec)}`),
    objectsIn(whole, spec).map((one) => fieldList(one, spec, 0, [one.properties])),
  ];
}

function fieldList(schema, spec, depth, above) {
  return h("ul", { class: "fields" }, Object.entries(schema.properties).map(([name, given]) => {
    const one = merged(given, spec);
    // A schema that contains itself would never end.
    const inner = depth < DEEPEST ? objectsIn(given, spec).filter((object) => !above.includes(object.properties)) : [];
    const about = [one.description?.trim(), limits(one, spec)].filter(Boolean).join(" · ");
    return h("li", null,
      h("code", { class: "field-name" }, name), " ", h("span", { class: "type" }, typeName(given, spec)),
      schema.required?.includes(name) && [" ", h("span", { class: "required" }, "required")],
      about && h("span", { class: "about" }, prose(about)),
      inner.map((object) => fieldList(object, spec, depth + 1, [...above, object.properties])));
  }));
}

/** A value that fits the schema, preferring the examples its author gave. */
function example(given, spec, depth = 0) {
  const schema = merged(given, spec);
  const told = schema.example ?? schema.examples?.[0] ?? schema.default ?? schema.const ?? schema.enum?.[0];
  if (told !== undefined || depth > DEEPEST) return told ?? null;
  const choices = variants(schema, spec);
  if (choices.length) return example(choices.find((one) => one.type !== "null") ?? choices[0], spec, depth + 1);
  const type = [schema.type].flat()[0];
  if (schema.properties) {
    // Only what must be there, or everything if nothing must.
    const names = schema.required?.length ? schema.required : Object.keys(schema.properties);
    return Object.fromEntries(names.filter((name) => schema.properties[name]).map((name) => [name, example(schema.properties[name], spec, depth + 1)]));
  }
  if (type === "array") return schema.items ? [example(schema.items, spec, depth + 1)] : [];
  return { integer: schema.minimum ?? 1, number: schema.minimum ?? 1, boolean: true, object: {}, null: null }[type] ?? "text";
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** A curl line that works after filling in what is in capitals. */
export function curl(operation, parameters, request, spec) {
  // Braces mean something to curl, so {id} becomes ID.
  const path = operation.path.replace(/\{([^}]+)\}/g, (_, name) => name.replace(/\W/g, "").toUpperCase());
  const query = parameters.filter((one) => one.in === "query" && one.required)
    .map((one) => `${one.name}=${encodeURIComponent(one.example ?? example(one.schema, spec))}`).join("&");
  const parts = ["curl"];
  const answers = Object.values(operation.responses ?? {}).map((one) => resolve(one, spec));
  if (answers.some((one) => one.content?.["text/event-stream"])) parts.push("-N");
  if (operation.method !== "get") parts.push("-X", operation.method.toUpperCase());
  parts.push(query || /[^\w/:.-]/.test(path) ? quoted(`${location.origin}${path}${query ? `?${query}` : ""}`) : location.origin + path);
  if (scopeOf(operation)) parts.push("\\\n  -H", "\"Authorization: Bearer $SKEP_KEY\"");
  const [kind, body] = Object.entries(request?.content ?? {})[0] ?? [];
  if (kind) parts.push("\\\n  -H", quoted(`Content-Type: ${kind}`), "\\\n  -d", quoted(kind.includes("json") ? JSON.stringify(body.example ?? example(body.schema, spec)) : "..."));
  return parts.join(" ");
}
