// How this page writes figures, on top of what all pages have in words.js; and how runs are called.

import './words.js';

const dftrace = window.dftrace;
const MINUTE_S = 60, HOUR_S = 3600, DAY_S = 86400;

export const STATES = {running: '▶', ended: '✓', died: '✕', unreadable: '✕', reading: '…', unknown: '?'};
export const MARKS = {critical: '■', warning: '▲', note: '●', info: '●', none: '✓'};

// In the order in which verdicts are sorted.
export const SEVERITIES = ['critical', 'warning', 'note', 'info', 'none'];

export const colour = dftrace.colour;

// To make one for each date takes ten times as long as to write it.
const MOMENT = new Intl.DateTimeFormat('sv', {dateStyle: 'short', timeStyle: 'medium'});

const nothing = (given) => given === null || given === undefined || Number.isNaN(given);

// A time in the unit that fits: 20.9 ms; one that is less than nothing with its sign.
export function time(ns) {
  if (nothing(ns)) return '';
  return ns < 0 ? `−${dftrace.timeText(-ns)}` : dftrace.timeText(ns);
}

export const micros = (us) => nothing(us) ? '' : time(us * 1000);

// A length that may be hours: 3 h 12 min.
export function length(s) {
  if (nothing(s)) return '';
  if (s < MINUTE_S - 0.5) return time(s * 1e9);
  const [size, name, rest, lesser] = s < HOUR_S - 0.5 ? [MINUTE_S, 'min', 1, 's'] :
      s < 2 * DAY_S ? [HOUR_S, 'h', MINUTE_S, 'min'] : [DAY_S, 'days', HOUR_S, 'h'];
  const whole = Math.round(s / rest), of = size / rest;
  return `${Math.floor(whole / of)} ${name} ${whole % of} ${lesser}`;
}

// What lies between two marks on an axis of time, seconds; and what stands at one: 5 min, 2.5 ms.
export const TIMES = [1e-9, 1e-8, 1e-7, 1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, .01, .02, .05,
  .1, .2, .5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400, 432000, 2592000];

export const moment = (s) => length(s).replace(/ 0 (s|min|h)$/, '');

// A place on the time of a run, to the thousandth.
export const place = (s) => `${s.toFixed(3)} s`;

export const share = (given) => nothing(given) ? '' : dftrace.shareText(given);

export const signed = (given) => `${given > 0 ? '+' : given < 0 ? '−' : ''}${share(Math.abs(given))}`;

export const count = (given) => nothing(given) ? '' : Math.round(given).toLocaleString('en-US');

// Words whose figures stand with their units in one line.
export const unbroken = (words) => words.replace(/(\d) (?=%|[mun]?s\b)/g, '$1\u00a0');

export const counted = dftrace.counted;

// What somebody logged: a number in few digits, anything else as it is.
export function value(given) {
  if (typeof given === 'number') {
    const size = Math.abs(given);
    if (Number.isInteger(given) && size < 1e10) return given.toLocaleString('en-US');
    return size >= 1e7 || size < 1e-4 ? given.toExponential(2) : String(Number(given.toPrecision(4)));
  }
  if (nothing(given)) return '';
  return typeof given === 'object' ? JSON.stringify(given) : String(given);
}

const SIZES = [[1e12, 'TB'], [1e9, 'GB'], [1e6, 'MB'], [1e3, 'kB']];

export function bytes(given) {
  for (const [size, name] of SIZES) {
    if (given >= size) return `${Number((given / size).toPrecision(3))} ${name}`;
  }
  return `${value(given)} B`;
}

const PREFIXES = [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e4, 'k', 1e3]];

// A number at an axis: 1.2M.
export function tick(given) {
  const size = Math.abs(given);
  if (size >= 1e15) return given.toExponential(1);
  for (const [least, name, by = least] of PREFIXES) {
    if (size >= least) return `${Number((given / by).toPrecision(3))}${name}`;
  }
  return String(Number(given.toPrecision(4)));
}

export function ago(began, now) {
  if (!began) return '';
  const s = now - began;
  if (s < 1.5 * MINUTE_S) return `${Math.max(0, Math.round(s))} s ago`;
  if (s < 1.5 * HOUR_S) return `${Math.round(s / MINUTE_S)} min ago`;
  if (s < 1.5 * DAY_S) return `${Math.round(s / HOUR_S)} h ago`;
  return date(began).slice(0, 10);
}

// 2026-11-27 02:46:01, as the clock of this machine has it.
export const date = (s) => s ? MOMENT.format(s * 1000) : '';

// A run's name without the date that its folder begins with; and the folder before it.
export function named(run) {
  if (run === '.') return ['this folder', ''];
  const parts = run.split('/');
  const last = parts.pop();
  return [last.replace(/^\d{4}-?\d\d-?\d\d[_T-]\d\d-?\d\d-?\d\d[-_]?/, '') || last, parts.join('/')];
}

// What the parts of a step are called, in the order in which they are stacked; the server says it.
export const parts = new Map();

export function learnParts(told) {
  for (const {part, words} of told || []) parts.set(part, words);
}

export const partColour = (part) => colour(`part-${part}`);
