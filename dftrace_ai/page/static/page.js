// What every page does: its theme, tables that sort, and words at the pointer, by keyboard and by finger.
//
// A plain script; it needs tables.js before it. An element of a plot with `data-tip` is told of in #tip
// while the pointer is over it, or a finger has come down near it. A plot takes the focus: Left and Right
// go through what it tells of, with Shift by ten, Home and End to the first and the last; in heat maps Up
// and Down go to other rows; Escape hides the words. What the keyboard comes to goes to #heard, too.
// `dftrace.heatOf(svg)`, where a page has one, gives {rows, columns, words(row, column)} of a heat map.
'use strict';
(() => {
  const dftrace = window.dftrace;
  const root = document.documentElement;
  const tip = document.getElementById('tip'), heard = document.getElementById('heard');
  // As far as a finger may miss what it points at.
  const NEAR = 24;

  for (const table of document.querySelectorAll('table.sorts')) dftrace.sortable(table);

  const isDark = () => getComputedStyle(root).colorScheme.includes('dark');
  document.getElementById('theme').addEventListener('click', () => {
    root.dataset.theme = isDark() ? 'light' : 'dark';
  });

  function show(words, x, y, above) {
    tip.hidden = !words;
    if (!words) return;
    tip.textContent = words;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(0, Math.min(x + 14, innerWidth - box.width - 6))}px`;
    const below = y + 16, over = y - box.height - (above ? 22 : 8);
    tip.style.top = `${(above && over > 0) || below + box.height > innerHeight ? over : below}px`;
  }

  const grid = (svg) => ['left', 'top', 'wide', 'tall'].map((name) => Number(svg.dataset[name]));

  function cellAt(svg, x, y) {
    const heat = dftrace.heatOf(svg), [left, top, wide, tall] = grid(svg);
    const at = new DOMPoint(x, y).matrixTransform(svg.getScreenCTM().inverse());
    const column = Math.floor((at.x - left) / wide), row = Math.floor((at.y - top) / tall);
    const inside = column >= 0 && column < heat.columns && row >= 0 && row < heat.rows;
    return inside ? heat.words(row, column) : '';
  }

  function wordsAt(target, x, y) {
    const named = target.closest('[data-tip]'), heat = target.closest('svg[data-heat]');
    return named ? named.dataset.tip : heat ? cellAt(heat, x, y) : '';
  }

  function nearest(svg, x, y) {
    let found = null, least = NEAR;
    for (const one of svg.querySelectorAll('[data-tip]')) {
      const box = one.getBoundingClientRect();
      const away = Math.hypot(Math.max(box.left - x, 0, x - box.right),
          Math.max(box.top - y, 0, y - box.bottom));
      if (away < least) [found, least] = [one, away];
    }
    return found ? found.dataset.tip : '';
  }

  document.addEventListener('pointermove', (event) => {
    if (event.pointerType === 'touch') return;
    const {target, clientX: x, clientY: y} = event;
    show(target instanceof Element ? wordsAt(target, x, y) : '', x, y);
  });
  document.addEventListener('pointerdown', (event) => {
    if (event.pointerType !== 'touch') return;
    const {target, clientX: x, clientY: y} = event;
    const svg = target instanceof Element && target.closest('svg');
    show(svg ? wordsAt(target, x, y) || nearest(svg, x, y) : '', x, y, true);
  });
  document.addEventListener('pointerleave', (event) => {
    // A finger leaves whenever it is lifted.
    if (event.pointerType !== 'touch') show('');
  });
  addEventListener('scroll', () => show(''), {passive: true});

  // On paper nothing can be opened.
  let opened = [];
  addEventListener('beforeprint', () => {
    opened = [...document.querySelectorAll('details:not([open])')];
    for (const one of opened) one.open = true;
  });
  addEventListener('afterprint', () => {
    for (const one of opened) one.open = false;
  });

  // What a plot tells of, from left to right, and a mark around where the keyboard is.
  function placesOf(svg) {
    const placed = [...svg.querySelectorAll('[data-tip]')].map((one) => {
      const box = one.getBBox();
      return {one, x: box.x, y: box.y};
    });
    return placed.sort((a, b) => a.x - b.x || a.y - b.y).map(({one}) => one);
  }

  // A line among others is seen by what the others lack.
  function markLine(svg, line) {
    unmark(svg);
    line.classList.add('told');
    const place = line.getBoundingClientRect();
    return [place.left + place.width / 2, place.top];
  }

  function mark(svg, box) {
    unmark(svg);
    const made = document.createElementNS(svg.namespaceURI, 'rect');
    made.setAttribute('class', 'here');
    for (const name of ['x', 'y', 'width', 'height']) made.setAttribute(name, box[name]);
    svg.append(made);
    const place = made.getBoundingClientRect();
    return [place.right, place.top + Math.min(place.height / 2, 40)];
  }

  function unmark(svg) {
    for (const one of svg.querySelectorAll('.here')) one.remove();
    for (const one of svg.querySelectorAll('.told')) one.classList.remove('told');
  }

  function tell(words, [x, y]) {
    show(words, x, y);
    heard.textContent = words.replaceAll('\n', ', ');
  }

  const JUMPS = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]};

  function toCell(svg, event, state) {
    const heat = dftrace.heatOf(svg), [left, top, wide, tall] = grid(svg);
    const jump = JUMPS[event.key], many = event.shiftKey ? 10 : 1;
    if (jump && state.row !== undefined) {
      state.row += jump[0] * many;
      state.column += jump[1] * many;
    } else if (event.key === 'Home' || state.row === undefined) {
      Object.assign(state, {row: state.row || 0, column: 0});
    } else {
      state.column = heat.columns - 1;
    }
    state.row = Math.max(0, Math.min(state.row, heat.rows - 1));
    state.column = Math.max(0, Math.min(state.column, heat.columns - 1));
    tell(heat.words(state.row, state.column), mark(svg, {x: left + state.column * wide,
      y: top + state.row * tall, width: wide, height: tall}));
  }

  function toPlace(svg, event, state) {
    state.places = state.places || placesOf(svg);
    const {places} = state, last = places.length - 1, many = event.shiftKey ? 10 : 1;
    const first = state.at === undefined;
    const next = {ArrowLeft: (first ? last + 1 : state.at) - many,
      ArrowRight: (first ? -1 : state.at) + many, Home: 0, End: last};
    state.at = Math.max(0, Math.min(next[event.key], last));
    const place = places[state.at];
    tell(place.dataset.tip, place.tagName === 'g' ? markLine(svg, place) : mark(svg, place.getBBox()));
  }

  for (const svg of document.querySelectorAll('svg')) {
    const heat = 'heat' in svg.dataset;
    if (!heat && !svg.querySelector('[data-tip]')) continue;
    const state = {};
    svg.setAttribute('tabindex', '0');
    svg.setAttribute('role', 'application');
    svg.setAttribute('aria-roledescription', 'plot; arrows read its values');
    svg.addEventListener('keydown', (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === 'Escape') {
        show('');
        unmark(svg);
        return;
      }
      const ends = event.key === 'Home' || event.key === 'End';
      if (!ends && !(event.key in JUMPS && (heat || JUMPS[event.key][1]))) return;
      event.preventDefault();
      (heat ? toCell : toPlace)(svg, event, state);
    });
    svg.addEventListener('blur', () => {
      show('');
      unmark(svg);
    });
  }
})();
