// Statistics of tensors: layers by iterations, those that change most first.
// Those that a report does not draw are asked for when they are chosen.

import {ask, fill, fit, h, narrow, say} from './dom.js';
import {colour, count, counted, value} from './figures.js';

const ROW = 15, FOOT = 18;
// Of even steps of lightness, so that it also reads in grey.
const VALUES = [[13, 27, 66], [31, 60, 118], [41, 99, 142], [45, 140, 147], [79, 178, 134], [150, 208, 106], [232, 228, 94]];
const BY_LOGARITHM = 50;

// The least and greatest of what is finite, and by how much it changes: more where something is not.
function rangeOf(map) {
  let low = Infinity, high = -Infinity, bad = false;
  for (const row of map.values) {
    for (const one of row) {
      if (typeof one === 'number') {
        low = Math.min(low, one);
        high = Math.max(high, one);
      } else if (one !== null) {
        bad = true;
      }
    }
  }
  const size = (one) => Math.log10(Math.abs(one) + 1e-30);
  const change = low < high ? Math.abs(size(high) - size(low)) : 0;
  return {map, low, high, bad, change: change + (bad ? 1000 : 0)};
}

const name = ({map}) => `${map.statistic} of ${map.tensor}`;

const wordsOf = (error) => `This cannot be shown: ${error.message}`;

export class Tensors {
  constructor(run) {
    this.run = run;
    this.element = h('section');
    this.column = this.row = 0;
    this.canvas = h('canvas', {className: 'tensors', tabIndex: 0, role: 'application', 'aria-roledescription': 'heat map'});
    this.read = h('div', {className: 'read'});
    this.canvas.addEventListener('pointermove', (event) => this.pointed(event));
    this.canvas.addEventListener('pointerdown', (event) => this.pointed(event));
    this.canvas.addEventListener('keydown', (event) => this.key(event));
  }

  take(told) {
    const {tensors} = told.figures;
    this.element.hidden = !tensors;
    if (!tensors) return;
    const all = tensors.maps.map(rangeOf).sort((a, b) => b.change - a.change);
    const still = all.filter((one) => one.low === one.high && !one.bad);
    const further = told.tensor_maps.map((map, at) => ({map, at}));
    this.maps = [...all.filter((one) => !still.includes(one)), ...further];
    const chosen = this.chosen && this.maps.find((one) => name(one) === this.chosen) || this.maps[0];
    this.shown = null;
    const menu = h('select', {'aria-label': 'Which statistic of which tensor', onchange: () => {
      const one = this.maps[menu.value];
      this.chosen = name(one);
      this.show(one);
    }}, this.maps.map((one, i) => h('option', {value: i, selected: one === chosen}, name(one))));
    const left = tensors.maps_left_out - further.length;
    fill(this.element, h('h2', {}, 'Tensors ', h('small', {},
        `${counted(tensors.layers, 'layer')} · ${tensors.statistics.join(', ')}`)),
    tensors.non_finite ? h('div', {className: 'loss'}, h('b', {}, 'Not finite: '), wordsOfBad(tensors)) : '',
    h('div', {className: 'bar'}, this.maps.length > 0 && menu,
        left > 0 && h('span', {className: 'faint'}, `${count(left)} more are in the trace`),
        still.length > 0 && h('span', {className: 'faint constant'},
            `constant: ${still.map((one) => `${name(one)} = ${value(one.low)}`).join(', ')}`)),
    chosen ? [this.read, this.canvas] : '');
    if (chosen) this.show(chosen);
  }

  async show(one) {
    this.wanted = one;
    let found = one;
    if (!one.map.values) {
      try {
        found = rangeOf(await ask('tensors', {id: this.run.id, at: one.at}, this.run.signal));
      } catch (error) {
        if (this.wanted === one) this.read.textContent = wordsOf(error);
        return;
      }
    }
    if (this.wanted !== one) return;
    this.shown = found;
    this.column = this.row = 0;
    this.draw();
  }

  get left() {
    return narrow() ? 140 : 230;
  }

  draw() {
    if (!this.shown || this.element.hidden) return;
    const {map, low, high} = this.shown, {left} = this;
    const width = Math.max(200, this.element.clientWidth);
    const logarithmic = low > 0 && high / low > BY_LOGARITHM;
    const on = (one) => logarithmic ? Math.log(one) : one;
    // Zero stands at the dark end.
    const first = on(logarithmic ? low : Math.min(0, low)), last = on(high);
    const pen = fit(this.canvas, width, map.layers.length * ROW + FOOT);
    const wide = (width - left) / map.first.length;
    pen.font = '11px system-ui, sans-serif';
    map.values.forEach((row, r) => {
      pen.fillStyle = colour('ink');
      pen.textAlign = 'right';
      pen.fillText(ended(pen, map.layers[r], left - 10), left - 6, r * ROW + 11);
      row.forEach((one, c) => {
        if (one === null) return;
        pen.fillStyle = typeof one === 'number' ? shade((on(one) - first) / (last - first || 1)) : colour('odd');
        pen.fillRect(left + c * wide, r * ROW, wide + .3, ROW - 1);
      });
    });
    pen.fillStyle = colour('faint');
    pen.textAlign = 'left';
    for (const part of narrow() ? [0, .5] : [0, .25, .5, .75]) {
      const c = Math.floor(part * (map.first.length - 1));
      pen.fillText(`iteration ${count(map.first[c])}`, left + c * wide, map.layers.length * ROW + 13);
    }
    this.legend = `${name(this.shown)}: ${value(low)} (dark) to ${value(high)} (yellow)${logarithmic ? ', by logarithm' : ''}` +
        (this.shown.bad ? '; magenta is NaN or infinite' : '') +
        (map.layers_left_out ? `; ${counted(map.layers_left_out, 'more layer')} not shown` : '');
    this.read.textContent = this.legend;
    this.canvas.ariaLabel = `${this.legend}. Arrows read cells.`;
  }

  pointed(event) {
    if (!this.shown) return;
    const {map} = this.shown;
    const column = Math.floor((event.offsetX - this.left) / (this.canvas.clientWidth - this.left) * map.first.length);
    const row = Math.floor(event.offsetY / ROW);
    if (row >= map.layers.length || column < 0 || column >= map.first.length) this.read.textContent = this.legend;
    else this.tell(row, column);
  }

  tell(row, column) {
    const {map} = this.shown, given = map.values[row][column];
    const [first, last] = [map.first[column], map.last[column]];
    this.read.textContent = `${map.layers[row]} · iteration ${count(first)}${last > first ? ` to ${count(last)}` : ''} · ` +
        (given === null ? 'nothing' : value(given));
  }

  key(event) {
    const by = event.shiftKey ? 10 : 1;
    if (!this.shown) return;
    const go = {ArrowUp: [-by, 0], ArrowDown: [by, 0], ArrowLeft: [0, -by], ArrowRight: [0, by]}[event.key];
    if (!go) return;
    event.preventDefault();
    event.stopPropagation();
    const {map} = this.shown;
    this.row = Math.max(0, Math.min(map.layers.length - 1, this.row + go[0]));
    this.column = Math.max(0, Math.min(map.first.length - 1, this.column + go[1]));
    this.tell(this.row, this.column);
    say(this.read.textContent);
  }

  redraw() {
    this.draw();
  }

  moved() {}
}

function wordsOfBad({stopped, non_finite: values, first_non_finite: first}) {
  const [one] = stopped;
  if (!one) return `${counted(values, 'value')}, first ${first}`;
  const when = one.iteration === null ? '' : `, in iteration ${count(one.iteration)}`;
  const many = [one.n_nan && `${count(one.n_nan)} NaN`, one.n_inf && `${count(one.n_inf)} infinite`].filter(Boolean).join(', ');
  return `${one.tensor} of ${one.layer} was first${when}${many ? ` (${many})` : ''}; ${counted(values, 'value')} since.`;
}

function shade(part) {
  const at = Math.max(0, Math.min(1, part)) * (VALUES.length - 1), low = Math.min(VALUES.length - 2, Math.floor(at));
  const mixed = VALUES[low].map((from, k) => Math.round(from + (VALUES[low + 1][k] - from) * (at - low)));
  return `rgb(${mixed.join(', ')})`;
}

// The end of a name says more of a layer than its beginning.
function ended(pen, words, room) {
  if (pen.measureText(words).width <= room) return words;
  let cut = words;
  while (cut.length > 3 && pen.measureText(`…${cut}`).width > room) cut = cut.slice(1);
  return `…${cut}`;
}
