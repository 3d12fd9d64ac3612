// Keys in a lane of cells: one stop for the Tab key in each lane, and from there the arrows.

const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity };

/** For the keydown of a lane whose cells are links. */
export function walk(event) {
  const step = STEPS[event.key];
  const own = [...event.currentTarget.querySelectorAll("a")];
  const here = own.indexOf(event.target);
  if (!step || here < 0) return;
  const next = own[Math.max(0, Math.min(own.length - 1, here + step))];
  event.preventDefault();
  stopAt(own, next);
  next.focus();
}

/** Of a lane's cells, lets the Tab key stop at the chosen one alone. */
export const stopAt = (own, chosen) => own.forEach((one) => { one.tabIndex = one === chosen ? 0 : -1; });
