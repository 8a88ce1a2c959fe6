// The page: which of its pages an address shows, the theme, the keys, and what asks again as time goes by.

import {Answered, byId, fill, h} from './dom.js';
import {place} from './first.js';

const PAGES = {
  run: () => import('./run.js'),
  compare: () => import('./compare.js'),
};

const KEYS = {
  'Runs': [
    ['/', 'filter'], ['j k', 'next, previous run'], ['Enter', 'open'], ['x', 'choose for comparing'],
    ['c', 'compare those chosen'], ['s', 'sort by steps a second'],
  ],
  'A run': [
    ['← →', 'move the window'], ['+ −', 'zoom'], ['0', 'the whole run'], ['n', 'next slow step'],
    ['p', 'this window in Perfetto'], ['f', 'search the flame graph'], ['u', 'all runs'],
    ['space', 'hold a running job still'],
  ],
  'A plot, a map, the flame graph (Tab goes to them)': [
    ['arrows', 'to the next column, row or span; with Shift by ten'], ['Enter', 'show that rank, zoom'],
    ['Escape', 'back'],
  ],
};

// One page as it is shown: what it does by keys, how it is drawn anew, what it does until it is left.
class Shown {
  keys = {};
  redrawn = [];
  // Whether a finger or a button of the mouse is down: nothing is put anew under it.
  pressed = false;
  ended = new AbortController();

  get left() {
    return this.ended.signal.aborted;
  }

  // Does something each so many seconds while the tab is seen; never twice at once.
  every(seconds, act) {
    let busy = false;
    const timer = setInterval(async () => {
      if (document.hidden || busy) return;
      busy = true;
      try {
        await act();
      } finally {
        busy = false;
      }
    }, seconds * 1000);
    this.ended.signal.addEventListener('abort', () => clearInterval(timer));
  }

  // Draws now, with another theme, and when the width of something has changed.
  drawn(draw, within) {
    this.redrawn.push(draw);
    let width = within.clientWidth, later;
    const watch = new ResizeObserver(() => {
      if (Math.abs(within.clientWidth - width) < 2) return;
      width = within.clientWidth;
      clearTimeout(later);
      later = setTimeout(() => this.left || draw(), 60);
    });
    watch.observe(within);
    this.ended.signal.addEventListener('abort', () => watch.disconnect());
  }
}

let shown = new Shown();

async function route() {
  shown.ended.abort();
  const mine = shown = new Shown();
  byId('age').textContent = '';
  const {page, names, asked} = place();
  try {
    const {open} = await (PAGES[page] || (() => import('./runs.js')))();
    if (!mine.left) await open(mine, names, asked);
  } catch (error) {
    if (mine.left) return;
    fill(byId('main'), h('div', {className: 'empty'}, h('h2', {}, 'This cannot be shown'),
        h('p', {}, error.message), h('p', {}, h('a', {href: '#/'}, 'All runs'))));
    if (!(error instanceof Answered)) reportError(error);
  }
}

function theme() {
  const chosen = localStorage.getItem('theme');
  const dark = chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
  shown.redrawn.forEach((draw) => draw());
}

function otherTheme() {
  localStorage.setItem('theme', document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark');
  theme();
}

function tellKeys() {
  const close = h('button', {type: 'button', onclick: () => byId('keys').close()}, 'Close');
  fill(byId('keys'), Object.entries(KEYS).map(([where, keys]) => [
    h('h2', {}, where),
    h('dl', {}, keys.map(([key, does]) => [h('dt', {}, h('kbd', {}, key)), h('dd', {}, does)])),
  ]), close);
  byId('keys').showModal();
}

// A key does what the page says, unless what has the focus has a use of its own for it.
function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const at = event.target;
  if (at.closest('dialog')) return;
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(at.tagName) && at.type !== 'checkbox') {
    if (event.key === 'Escape') at.blur();
    return;
  }
  if (/^(Enter| )$/.test(event.key) && at.closest('button, summary, a, input')) return;
  if (event.key === '?') {
    tellKeys();
    return;
  }
  const act = shown.keys[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

byId('theme').onclick = otherTheme;
byId('help').onclick = tellKeys;
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', theme);
addEventListener('hashchange', route);
addEventListener('pointerdown', () => { shown.pressed = true; });
for (const end of ['pointerup', 'pointercancel']) addEventListener(end, () => { shown.pressed = false; });
addEventListener('keydown', onKey);
theme();
route();
