// Looks at the open page as somebody with a screen reader, weak eyes, a phone or only a keyboard
// would, and returns what is wrong, a line each. An expression: its value is the list.
(() => {
  const wrong = [];
  const say = (what, element) => wrong.push(`${what}: ${element.outerHTML.replace(/\s+/g, " ").slice(0, 180)}`);
  const seen = (element) => element.checkVisibility({ checkOpacity: false, checkVisibilityCSS: true }) && !element.closest(".unseen");
  const hidden = (element) => element.closest('[aria-hidden="true"]');
  const all = (selector) => [...document.querySelectorAll(selector)].filter(seen);
  const text = (ids) => (ids ?? "").split(/\s+/).map((id) => document.getElementById(id)?.textContent ?? "").join(" ");
  const FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex]";

  // Every control has a name; what is typed into it is none, and a placeholder goes away.
  const nameOf = (one) => one.ariaLabel || text(one.getAttribute("aria-labelledby")) || [...(one.labels ?? [])].map((label) => label.textContent).join(" ")
    || one.textContent || [...one.querySelectorAll("img[alt], svg[aria-label]")].map((image) => image.alt || image.ariaLabel).join(" ") || one.title;
  for (const one of all(`${FOCUSABLE}, [role="tab"], [role="option"], [role="combobox"]`)) {
    if (one === document.body || one.matches('main, [tabindex="-1"]:not([role])')) continue;
    if (!nameOf(one).trim()) say("a control without a name", one);
    if (hidden(one) && one.tabIndex >= 0) say("can be focused, but is hidden from screen readers", one);
    if (one.tabIndex > 0) say("a tab order of its own", one);
  }
  for (const one of all("img:not([alt])")) say("a picture without words", one);
  for (const one of all("svg")) if (!hidden(one) && !(one.getAttribute("role") === "img" && one.getAttribute("aria-label"))) say("a drawing without words", one);

  // Whatever is pointed to is there, and nothing is there twice.
  const ids = new Map();
  for (const one of document.querySelectorAll("[id]")) ids.set(one.id, (ids.get(one.id) ?? 0) + 1);
  for (const [id, count] of ids) if (count > 1) wrong.push(`the id ${id} is there ${count} times`);
  for (const name of ["aria-labelledby", "aria-describedby", "aria-controls", "aria-activedescendant", "for"]) {
    for (const one of all(`[${name}]`)) for (const id of one.getAttribute(name).split(/\s+/)) if (!ids.has(id)) say(`${name} leads to nothing`, one);
  }

  // One first heading, and none skips a level.
  const heads = all("main :is(h1, h2, h3, h4)").filter((one) => !one.closest("dialog"));
  if (heads.filter((one) => one.tagName === "H1").length !== 1) wrong.push("there is not just one h1");
  heads.forEach((one, index) => {
    const [level, before] = [Number(one.tagName[1]), Number(heads[index - 1]?.tagName[1] ?? 0)];
    if (level > before + 1) say(`a heading that skips from ${before} to ${level}`, one);
  });
  for (const [selector, least] of [["main", 1], ["nav[aria-label]", document.body.dataset.view === "pages" ? 1 : 0], ["[role=status]", 1]]) {
    if (document.querySelectorAll(selector).length < least) wrong.push(`there is no ${selector}`);
  }

  // Text can be told from its ground: 4.5 to 1, large text 3 to 1.
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const colors = new Map();
  const rgba = (color) => {
    if (!colors.has(color)) {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = color;
      canvas.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
      colors.set(color, [r, g, b, a / 255]);
    }
    return colors.get(color);
  };
  const over = ([r, g, b, a], [x, y, z]) => [r * a + x * (1 - a), g * a + y * (1 - a), b * a + z * (1 - a), 1];
  const grounds = new Map();
  const groundOf = (element) => {
    if (!element) return rgba("Canvas");
    if (!grounds.has(element)) {
      const style = getComputedStyle(element);
      const drawn = style.backgroundImage !== "none" && !style.backgroundImage.includes("linear-gradient(rgb");
      // In the top layer nothing of the page is below.
      const below = element.matches("dialog, [popover]") ? rgba("Canvas") : groundOf(element.parentElement);
      grounds.set(element, drawn ? null : below && over(rgba(style.backgroundColor), below));
    }
    return grounds.get(element);
  };
  const light = ([r, g, b]) => {
    const part = (value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const told = new Set();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT, (node) => (node.data.trim() ? NodeFilter.FILTER_ACCEPT : NodeFilter.FILTER_REJECT));
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!seen(element) || element.closest("option, script, style, noscript, [aria-disabled=true]")) continue;
    if (texts.currentNode.data.includes("`") && !element.closest("pre, code")) say("a backtick where code should be", element);
    const style = getComputedStyle(element);
    const ground = groundOf(element);
    if (!ground) continue;
    let strength = 1;
    for (let up = element; up; up = up.parentElement) strength *= Number(getComputedStyle(up).opacity);
    const [r, g, b, a] = rgba(element instanceof SVGElement ? style.fill : style.color);
    const ink = over([r, g, b, a * strength], ground);
    const [high, low] = [light(ink), light(ground)].sort((x, y) => y - x);
    const ratio = (high + 0.05) / (low + 0.05);
    const size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    const key = `${element.className} ${ratio.toFixed(2)}`;
    if (ratio < least && !told.has(key)) {
      told.add(key);
      say(`a contrast of ${ratio.toFixed(2)} ("${texts.currentNode.data.trim().slice(0, 30)}")`, element);
    }
  }

  // What can be pressed or scrolled can be so by keyboard too.
  for (const one of all("main *, dialog *")) {
    const style = getComputedStyle(one);
    if (style.cursor === "pointer" && !one.closest(`${FOCUSABLE}, label`)) say("can be pressed by a pointer alone", one);
    const scrolls = (/auto|scroll/.test(style.overflowY) && one.scrollHeight > one.clientHeight + 2) || (/auto|scroll/.test(style.overflowX) && one.scrollWidth > one.clientWidth + 2);
    if (scrolls && one.tabIndex < 0 && !all(FOCUSABLE).some((inner) => one.contains(inner) && inner.tabIndex >= 0)) say("can be scrolled by a pointer alone", one);
  }

  // Every number explains itself.
  for (const one of all(".tile h2, th.num")) if (!one.querySelector(".meaning")) say("a number without a meaning", one);
  // What others have named stays text.
  for (const one of document.querySelectorAll('[src="x"], main script')) say("data that became markup", one);

  const wide = document.documentElement.scrollWidth - innerWidth;
  if (wide > 0) wrong.push(`the page is ${wide} too wide`);
  return wrong;
})()
