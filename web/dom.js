// Builds elements. Text always goes in as text, so data can never become markup.

const SVG = "http://www.w3.org/2000/svg";

/** h("p", { class: "dim", onclick: f }, "text", element, [more]): an HTML element. */
export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** The same for SVG. */
export function svg(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "indeterminate") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Sets text only when it differs: no needless layout, and a selection survives. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** An icon from the path data of a 24 x 24 drawing with lines. Decoration only. */
export function icon(path) {
  return svg("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" }, svg("path", { d: path }));
}

/** Text in which `these` marks mean code, as in the node's messages. */
export function inline(text) {
  return text.split("`").map((part, index) => (index % 2 ? h("code", null, part) : part));
}

let ids = 0;
/** A fresh id, to tie labels and hints to their element. */
export function freshId(prefix) {
  ids += 1;
  return `${prefix}-${ids}`;
}

/** Tells screen readers something that sighted readers see anyway. */
export function announce(text) {
  const place = document.getElementById("announcer");
  place.textContent = "";
  // A second step, because the same text twice would not be read twice.
  setTimeout(() => { place.textContent = text; }, 50);
}
