// Tabs as the keyboard knows them: arrows move, and the panel belongs to its tab.

import { freshId, h, setText } from "./dom.js";
import { count, whole } from "./format.js";

/** tabs: [[key, label]]. wanted: the one to begin with, if there is such. chose(key): another was chosen; it shows what belongs to it. */
export function tabList({ tabs, label: name, wanted }, chose) {
  let chosen = tabs.some(([key]) => key === wanted) ? wanted : tabs[0][0];
  const panel = h("div", { class: "column", role: "tabpanel", id: freshId("panel"), tabindex: "-1" });
  const buttons = new Map(tabs.map(([key, label]) => {
    const tally = h("span", { class: "pill" });
    tally.hidden = true;
    const button = h("button", { type: "button", role: "tab", id: freshId("tab"), "aria-controls": panel.id, onclick: () => choose(key), onkeydown: move }, label, tally);
    return [key, { button, tally }];
  }));

  function move(event) {
    const keys = [...buttons.keys()];
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const to = event.key === "Home" ? 0 : event.key === "End" ? keys.length - 1 : step && (keys.indexOf(chosen) + step + keys.length) % keys.length;
    if (to === undefined) return;
    event.preventDefault();
    choose(keys[to]);
    buttons.get(keys[to]).button.focus();
  }

  function choose(key) {
    if (key === chosen) return;
    chosen = key;
    chose(key);
  }

  return {
    element: h("div", { class: "column" }, h("div", { class: "tabs", role: "tablist", "aria-label": name }, [...buttons.values()].map((one) => one.button)), panel),
    chosen: () => chosen,
    show(name, content) {
      for (const [key, { button }] of buttons) {
        button.setAttribute("aria-selected", String(key === name));
        button.tabIndex = key === name ? 0 : -1;
      }
      // On a narrow screen the tabs do not all fit.
      const { button } = buttons.get(name);
      requestAnimationFrame(() => { button.parentElement.scrollLeft = button.offsetLeft - button.parentElement.offsetLeft - 40; });
      panel.setAttribute("aria-labelledby", buttons.get(name).button.id);
      panel.replaceChildren(...[content].flat());
    },
    count(name, number) {
      const { tally } = buttons.get(name);
      tally.hidden = !number;
      setText(tally, count(number));
      tally.title = whole(number);
    },
  };
}
