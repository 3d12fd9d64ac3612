// Where the ticks of a chart go: round values that people count in.

/** Round steps from 0 up to at least `max`, about `wanted` of them. base 1024 for bytes, else 10. */
export function valueTicks(max, wanted, base = 10) {
  const top = max > 0 ? max : 1;
  const rough = top / wanted;
  const unit = base === 1024 ? 1024 ** Math.max(0, Math.floor(Math.log(rough) / Math.log(1024))) : 10 ** Math.floor(Math.log10(rough));
  const nice = base === 1024 ? [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024] : [1, 2, 5, 10];
  const step = unit * nice.find((factor) => factor * unit >= rough * 0.999);
  const ticks = [];
  // Counted, not added up: sums of 0.1 drift away from round.
  for (let index = 0; index === 0 || ticks[index - 1] < top; index += 1) ticks.push(Number((index * step).toPrecision(12)));
  return ticks;
}

const SECOND = 1000;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800]
  .map((seconds) => seconds * SECOND);

/** Times between `from` and `to` on round minutes or hours of the reader's clock, at most `room` of them. */
export function timeTicks(from, to, room) {
  const step = STEPS.find((size) => (to - from) / size <= room) ?? STEPS.at(-1);
  const zone = new Date(to).getTimezoneOffset() * 60 * SECOND;
  const times = [];
  for (let time = Math.ceil((from - zone) / step) * step + zone; time <= to; time += step) times.push(time);
  return { step, times };
}
