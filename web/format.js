// Numbers, sizes, durations and times as people read them. An unknown value is a dash.

import { h } from "./dom.js";

const DASH = "–";
const PARTS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
const missing = (value) => value === null || value === undefined || Number.isNaN(value);

// Three digits are enough to read, and keep widths steady.
function digits(value) {
  const size = Math.abs(value);
  return String(Number(size >= 100 ? value.toFixed(0) : value.toPrecision(size >= 1 ? 3 : 2)));
}

function scaled(value, base, names) {
  let power = 0;
  while (Math.abs(value) >= base * 0.9995 && power < names.length - 1) {
    value /= base;
    power += 1;
  }
  return `${digits(value)}${names[power]}`;
}

export const count = (value) => (missing(value) ? DASH : scaled(value, 1000, ["", "k", "M", "G"]));
/** Every digit, for what people compare one by one. */
export const whole = (value) => (missing(value) ? DASH : value.toLocaleString("en"));
export const rate = (value) => (missing(value) ? DASH : `${count(value)}/s`);
export const percent = (value) => (missing(value) ? DASH : `${digits(value)} %`);
export const bytes = (value) => (missing(value) ? DASH : scaled(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB"]));

export function millis(value) {
  if (missing(value)) return DASH;
  return value >= 1000 ? duration(value / 1000) : `${digits(value)} ms`;
}

/** 42 s, 3 min 4 s, 2 h 5 min, 3 d 4 h: the two largest parts. */
export function duration(seconds) {
  if (missing(seconds)) return DASH;
  if (seconds < 60) return `${digits(seconds < 10 ? seconds : Math.round(seconds))} s`;
  const whole = Math.round(seconds);
  const first = PARTS.findIndex(([size]) => whole >= size);
  const [size, name] = PARTS[first];
  const rest = PARTS[first + 1] ? Math.floor((whole % size) / PARTS[first + 1][0]) : 0;
  return `${Math.floor(whole / size)} ${name}${rest ? ` ${rest} ${PARTS[first + 1][1]}` : ""}`;
}

const two = (number) => String(number).padStart(2, "0");

/** 04:05:06, in the reader's time zone. */
export function clock(time, seconds = true) {
  const date = new Date(time);
  return `${two(date.getHours())}:${two(date.getMinutes())}${seconds ? `:${two(date.getSeconds())}` : ""}`;
}

/** 2026-11-15 04:05, in the reader's time zone: the same everywhere, and it sorts. */
export function dateTime(time, seconds = false) {
  const date = new Date(time);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock(date, seconds)}`;
}

/** "in 3 d" or "5 min ago". */
export function relative(time) {
  const seconds = (new Date(time) - Date.now()) / 1000;
  const size = Math.abs(seconds);
  if (size < 1) return "now";
  const [unit, name] = PARTS.find(([part]) => size >= part * 0.99);
  const text = `${Math.round(size / unit)} ${name}`;
  return seconds > 0 ? `in ${text}` : `${text} ago`;
}

/** A <time> element that shows `text` (by default the local time) and gives UTC on hover. */
export function when(time, text = null) {
  if (missing(time)) return DASH;
  const iso = new Date(time).toISOString();
  return h("time", { datetime: iso, title: iso.replace("T", " ").replace(/\.\d+Z$/, " UTC") }, text ?? dateTime(time));
}

/** What a chart must know of a unit: how to write a value, and how its axis counts. */
export const units = {
  count: { write: count, base: 10 },
  rate: { write: rate, base: 10 },
  millis: { write: millis, base: 10 },
  percent: { write: percent, base: 10 },
  bytes: { write: bytes, base: 1024 },
};
