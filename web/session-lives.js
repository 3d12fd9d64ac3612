// The lives of workers as they are known: what the node remembers, and what has been seen since.

const SPAN = 600000;
const OUT = new Set(["draining", "restarting"]);

/** Lives by name, all with one entry for each of `times`; undefined where a worker was not there. */
export function lives() {
  let times = [];
  let lines = new Map();
  let restarts = [];
  let seen = new Map(); // the workers as they were last heard of

  const line = (name) => {
    if (!lines.has(name)) lines.set(name, { lifetime: Array(times.length), active: Array(times.length), out: Array(times.length) });
    return lines.get(name);
  };

  function trim() {
    const first = times.findIndex((at) => at >= times.at(-1) - SPAN);
    if (first <= 0) return;
    times = times.slice(first);
    for (const one of lines.values()) for (const field of Object.keys(one)) one[field] = one[field].slice(first);
    restarts = restarts.filter(({ at }) => at >= times[0]);
  }

  return {
    SPAN,
    get times() { return times; },
    get restarts() { return restarts; },
    worker: (name) => seen.get(name),
    line: (name) => lines.get(name),
    /** Names of those there are, of a kind, as many as are drawn. */
    names: (kind) => [...lines.keys()].filter((name) => seen.get(name)?.kind === kind),
    /** Takes what the node remembers in place of everything. A shorter line belongs to somebody who came later. */
    remember({ at_ms: at, workers, restarts: known }) {
      times = [...at];
      const align = (values) => [...Array(Math.max(0, times.length - values.length)), ...values.slice(-times.length)];
      lines = new Map(Object.entries(workers).map(([name, one]) => [name, { lifetime: align(one.lifetime), active: align(one.active), out: align(one.out) }]));
      restarts = known.map((one) => ({ at: one.at_ms, worker: one.worker, lifetime: one.lifetime }));
      if (times.length) trim();
    },
    /** Takes workers as they are now, in place of who was there before. */
    see(at, workers) {
      const before = seen;
      seen = new Map(workers.map((one) => [one.name, one]));
      // The node's memory may be ahead of what was asked for a moment ago.
      if (times.length && at <= times.at(-1)) return;
      for (const name of seen.keys()) line(name);
      times.push(at);
      for (const [name, one] of lines) {
        const now = seen.get(name);
        one.lifetime.push(now?.lifetime);
        one.active.push(now?.active);
        one.out.push(now && OUT.has(now.standing));
        const last = before.get(name);
        if (now && last && last.incarnation !== now.incarnation) restarts.push({ at, worker: name, lifetime: last.lifetime });
      }
      trim();
    },
  };
}
