// How pages write times, shares and counts, and which colour a part of a step has in the theme shown.
//
// A plain script; the others of this folder need it:
//
//   dftrace.plain(name)     a name with escapes in place of what acts, such as what turns the direction
//   dftrace.timeText(ns), dftrace.shareText(share), dftrace.counted(number, noun)
//   dftrace.colour(name)    what `--name` of palette.css is now, as a canvas takes it
//   dftrace.inkOn(colour)   black or white, whichever can be read on it
//   dftrace.onTheme(draw)   calls it whenever the colours change
'use strict';
(() => {
  const dftrace = window.dftrace = window.dftrace || {};
  const root = document.documentElement;
  const UNITS = [[1e9, 's'], [1e6, 'ms'], [1e3, 'us']];

  const digits = (value, most) => String(Number(value.toPrecision(most)));
  const grouped = (value) => Math.round(value).toLocaleString('en-US');

  // Persian, Hindi and joined emoji need the two that join.
  dftrace.plain = (name) => name.replace(/(?![\u200c\u200d])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu,
      (one) => {
        const code = one.codePointAt(0).toString(16);
        return code.length > 2 ? `\\u${code.padStart(4, '0')}` : `\\x${code.padStart(2, '0')}`;
      });

  dftrace.timeText = (ns) => {
    for (const [size, unit] of UNITS) {
      if (ns >= size) {
        const value = ns / size;
        return `${value >= 100 ? grouped(value) : digits(value, 3)} ${unit}`;
      }
    }
    return `${Math.round(ns)} ns`;
  };

  dftrace.shareText = (share) => {
    const percent = 100 * share;
    return `${percent > 0 && percent < 9.95 ? percent.toFixed(1) : grouped(percent)} %`;
  };

  dftrace.counted = (number, noun) => `${grouped(number)} ${noun}${number === 1 ? '' : 's'}`;

  // A variable may stand for another one.
  dftrace.colour = (name) => {
    let value = `var(--${name})`;
    for (let found; (found = /^var\((--[a-z-]+)\)$/.exec(value));) {
      value = getComputedStyle(root).getPropertyValue(found[1]).trim();
    }
    return value;
  };

  dftrace.inkOn = (colour) => {
    const found = /^#(..)(..)(..)$/.exec(colour);
    if (!found) return dftrace.colour('ink');
    const [red, green, blue] = found.slice(1).map((two) => parseInt(two, 16));
    return 0.299 * red + 0.587 * green + 0.114 * blue > 105 ? '#000' : '#fff';
  };

  const drawn = new Set();
  const redraw = () => { for (const draw of drawn) draw(); };
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
  new MutationObserver(redraw).observe(root, {attributes: true, attributeFilter: ['data-theme']});
  // Gives what ends it, for pages whose parts come and go.
  dftrace.onTheme = (draw) => {
    drawn.add(draw);
    return () => drawn.delete(draw);
  };
})();
