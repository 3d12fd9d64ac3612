// Light, dark or as the system says. The choice stays in this browser.
// Loaded before the first paint; the colours themselves are in style.css (light-dark()).

const names = { auto: "Theme: automatic", light: "Theme: light", dark: "Theme: dark" };

// Storage can be forbidden (private windows, strict settings); then the choice lasts for this visit.
let chosen = "auto";
try {
  chosen = localStorage.getItem("skep.theme") ?? "auto";
} catch {}
if (!(chosen in names)) chosen = "auto";

function apply() {
  if (chosen === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
}

/** Makes `button` step through automatic, light and dark. */
export function themeButton(button) {
  const order = Object.keys(names);
  button.textContent = names[chosen];
  button.addEventListener("click", () => {
    chosen = order[(order.indexOf(chosen) + 1) % order.length];
    try {
      localStorage.setItem("skep.theme", chosen);
    } catch {}
    button.textContent = names[chosen];
    apply();
  });
}

apply();
