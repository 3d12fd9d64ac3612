// What a number means: shown when its label is pointed at, focused or tapped. One box for all, above everything else.
// It can be pointed at itself, and Escape closes it.

import { freshId, h } from "./dom.js";
import { meaningOf } from "./meanings.js";

const LINGER = 150; // milliseconds in which the pointer may go from the label to the box
const EDGE = 8;
let box = null;
let shown = null;
let placed = null; // where the label was when the box was placed beside it
let leaving = 0;

function make() {
  box = h("div", { class: "tip", id: freshId("tip"), role: "tooltip", popover: "manual", onpointerenter: () => clearTimeout(leaving), onpointerleave: leave });
  addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !shown) return;
    // A dialog below it stays open.
    event.preventDefault();
    event.stopPropagation();
    hide();
  }, { capture: true });
  addEventListener("pointerdown", (event) => { if (shown && !shown.contains(event.target) && !box.contains(event.target)) hide(); });
  addEventListener("hashchange", hide);
  addEventListener("scroll", scrolled, { capture: true, passive: true });
}

function place() {
  placed = shown.getBoundingClientRect();
  const [wide, high] = [box.offsetWidth, box.offsetHeight];
  const below = placed.bottom + 6 + high < innerHeight || placed.top < high;
  box.style.left = `${Math.max(EDGE, Math.min(placed.left, document.documentElement.clientWidth - wide - EDGE))}px`;
  box.style.top = `${below ? placed.bottom + 6 : placed.top - 6 - high}px`;
}

// The browser tells of a scroll a frame later: a label that the keyboard reached by scrolling is shown by then, and so
// may be one that the pointer came to after the page had come to rest. Only a label that moves away takes its box along.
function scrolled(event) {
  if (!shown || event.target === box) return;
  const now = shown.getBoundingClientRect();
  if (now.left === placed.left && now.top === placed.top) return;
  if (shown.matches(":focus-visible")) place();
  else hide();
}

function show(label, { what, over, metric }) {
  clearTimeout(leaving);
  if (shown === label) return;
  if (!box) make();
  hide();
  shown = label;
  box.replaceChildren(h("p", null, what), over ? h("p", { class: "dim" }, `Over: ${over}`) : "", metric ? h("p", { class: "dim mono" }, metric) : "");
  // Inside the dialog, where the rest of the page cannot be reached.
  (label.closest("dialog") ?? document.body).append(box);
  box.showPopover();
  label.setAttribute("aria-describedby", box.id);
  place();
}

function hide() {
  clearTimeout(leaving);
  if (!shown) return;
  shown.removeAttribute("aria-describedby");
  shown = null;
  if (box.isConnected) box.hidePopover();
}

function leave() {
  clearTimeout(leaving);
  leaving = setTimeout(() => { if (!shown?.matches(":focus-visible")) hide(); }, LINGER);
}

/** A label that says what its number means, or just the text where there is nothing to say. key: by which name that is known, if not by the label. */
export function about(label, key = label) {
  const meaning = meaningOf(key);
  if (!meaning) return label;
  const element = h("button", { type: "button", class: "meaning",
    onpointerenter: (event) => { if (event.pointerType === "mouse") show(element, meaning); }, onpointerleave: leave,
    onfocus: () => { if (element.matches(":focus-visible")) show(element, meaning); }, onblur: hide,
    onclick: (event) => {
      event.stopPropagation();
      show(element, meaning);
    } }, label);
  return element;
}
