// Ranks by time: a row for each rank, those that differ first, of very many in groups; a cell is its
// longest step of that moment, held against the median rank of the moment.

import {askBytes, fit, gutter, h, say} from './dom.js';
import {colour, count, counted, parts, place, time} from './figures.js';

const ODD = 13, GAP = 6, MOST_REST = 340, ROW = 11;
const LEAST_COLUMNS = 60, MOST_COLUMNS = 640;
const NOTHING = 255, STEPS = 200, OCTAVES = 4;
const NAMED = 4;
// From a quarter over equal, which is paper, to four times.
const LIGHT = ['#0b3c6f', '#5aa2d6', null, '#f0a35a', '#8c2d04'];
const DARK = ['#56b4e9', '#2c608a', null, '#aa5c1e', '#ffaa5a'];
const HINT = 'A cell is the longest step of its moment, beside the median rank of that moment. A click on a row shows that rank.';

const measureName = (name) => name === 'own' ? 'own time (without communication)' :
  name === 'time' ? 'step time' : parts.get(name) || name;

const byHost = (groups) => new Set(groups.map((one) => one.host)).size === groups.length;

const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

function stops() {
  const dark = document.documentElement.dataset.theme === 'dark';
  return (dark ? DARK : LIGHT).map((one) => one || colour('shade'));
}

// The colour of each byte, as a picture has it.
function colours() {
  const between = stops().map(rgb), made = new Uint32Array(256);
  for (let i = 0; i <= STEPS; i++) {
    const at = i / STEPS * (between.length - 1), low = Math.min(between.length - 2, Math.floor(at));
    const [red, green, blue] = between[low].map((from, k) => Math.round(from + (between[low + 1][k] - from) * (at - low)));
    made[i] = 0xff000000 | blue << 16 | green << 8 | red;
  }
  return made;
}

export class Ranks {
  // `run` has {id, rank, span, showRank(rank)}; `measures` are names of what can be shown.
  constructor(run, measures) {
    Object.assign(this, {run, what: measures[0], row: 0, column: 0});
    this.about = h('small');
    this.read = h('div', {className: 'read'}, HINT);
    this.scale = h('i', {className: 'scale', 'aria-hidden': 'true'});
    this.names = h('div', {className: 'names', 'aria-hidden': 'true'});
    this.canvas = h('canvas', {tabIndex: 0, role: 'application', 'aria-roledescription': 'heat map'});
    const menu = h('select', {'aria-label': 'What the map shows', onchange: () => {
      this.what = menu.value;
      this.load();
    }}, measures.map((name) => h('option', {value: name}, measureName(name))));
    this.element = h('section', {}, h('h2', {}, 'Ranks by time ', this.about),
        h('div', {className: 'bar'}, menu, h('span', {className: 'legend'},
            h('span', {}, 'a quarter ', this.scale, ' four times the median rank'))),
        this.read, h('div', {className: 'heat'}, this.names, this.canvas));
    this.listen();
  }

  async load(signal) {
    const {id, span} = this.run;
    const columns = Math.max(LEAST_COLUMNS, Math.min(MOST_COLUMNS, (this.element.clientWidth - gutter()) >> 1));
    [this.head, this.cells] = await askBytes('heat', {id, what: this.what, a: span.from, b: span.to, cols: columns}, signal);
    this.draw();
  }

  // Where a row is: its upper edge and its height.
  place(row) {
    const {odd} = this.head;
    return row < odd ? [row * ODD, ODD] : [this.begin + (row - odd) * this.tall, this.tall];
  }

  rowAt(y) {
    const {odd, rows} = this.head;
    if (y < odd * ODD) return Math.floor(y / ODD);
    return Math.max(0, Math.min(rows.length - 1, odd + Math.max(0, Math.floor((y - this.begin) / this.tall))));
  }

  draw() {
    const {head} = this;
    if (!head) return;
    const rest = head.rows.length - head.odd;
    const room = Math.min(rest * ROW, MOST_REST);
    this.tall = rest ? room / rest : 0;
    this.begin = head.odd * ODD + (head.odd && rest ? GAP : 0);
    const width = Math.max(100, this.element.clientWidth - gutter()), height = this.begin + room;
    const pen = fit(this.canvas, width, height);
    const picture = this.picture();
    pen.imageSmoothingEnabled = false;
    if (head.odd) pen.drawImage(picture, 0, 0, head.cols, head.odd, 0, 0, width, head.odd * ODD);
    if (rest) pen.drawImage(picture, 0, head.odd, head.cols, rest, 0, this.begin, width, room);
    const shown = head.rows.indexOf(this.run.rank);
    if (shown >= 0) {
      const [y, tall] = this.place(shown);
      pen.strokeStyle = colour('ink');
      pen.lineWidth = 1.5;
      pen.strokeRect(.75, y + .75, width - 1.5, Math.max(3, tall - 1.5));
    }
    this.drawNames(height, rest ? Math.ceil(rest / (room / ODD)) : 1);
    this.scale.style.background = `linear-gradient(90deg, ${stops().join(', ')})`;
    this.about.textContent = this.words();
    this.canvas.ariaLabel = `Ranks by time: ${this.words()}. Arrows read cells, Enter shows the rank.`;
  }

  picture() {
    const {head, cells} = this, paint = colours();
    const image = new ImageData(head.cols, Math.max(1, head.rows.length));
    const pixels = new Uint32Array(image.data.buffer);
    for (let i = 0; i < cells.length; i++) pixels[i] = cells[i] === NOTHING ? 0 : paint[cells[i]];
    const made = new OffscreenCanvas(image.width, image.height);
    made.getContext('2d').putImageData(image, 0, 0);
    return made;
  }

  drawNames(height, each) {
    const {head} = this, named = head.rows.map((rank, row) => [head.groups[row - head.odd]?.first ?? rank, row])
        .filter(([, row]) => row < head.odd || (row - head.odd) % each === 0);
    this.names.style.height = `${height}px`;
    this.names.replaceChildren(...named.map(([rank, row]) => {
      const [y, tall] = this.place(row), differs = row < head.odd;
      return h('span', {className: differs ? 'odd' : '', style: {top: `${y + tall / 2}px`}}, `${differs ? '▸ ' : ''}${rank}`);
    }));
  }

  words() {
    const {odd, rows, median_us: medians, mid_us: middle, ranks, groups} = this.head;
    const us = (value) => value === null ? 'nothing' : time(value * 1000);
    const named = rows.slice(0, Math.min(NAMED, odd)).map((rank, i) => `rank ${rank} (${us(medians[i])} against ${us(middle)})`);
    return `${count(ranks)} ranks · ` + (odd ? `${count(odd)} ${odd === 1 ? 'differs and stands' : 'differ and stand'} first: ` +
        named.join(', ') : 'none differs from the others') +
        (groups.length ? ` · the others share ${count(groups.length)} rows, ${byHost(groups) ? 'one for each host' : 'as they follow each other'}; ` +
          'a row has the longest step of any of them' : '');
  }

  tell(row, column) {
    const {head, cells, run} = this;
    const code = cells[row * head.cols + column];
    const t = head.a + (column + .5) / head.cols * (head.b - head.a);
    const times = 2 ** (code / STEPS * OCTAVES - OCTAVES / 2);
    const median = head.median_us[row];
    this.read.textContent = `${this.called(row)} at ${place(Math.min(t, run.span.end))}: ` +
        (code === NOTHING ? 'nothing' : `${code === 0 ? 'at most ' : code === STEPS ? 'at least ' : ''}${times.toFixed(2)} times the median rank`) +
        (median === null ? '' : ` · its median ${time(median * 1000)}`);
  }

  called(row) {
    const rank = `rank ${this.head.rows[row]}`, group = this.head.groups[row - this.head.odd];
    if (!group) return rank;
    const {host, first, last, count: many} = group;
    return `${rank}, the slowest of ${counted(many, 'rank')} from ${first} to ${last}${host && ` of ${host}`},`;
  }

  listen() {
    const {canvas} = this;
    const columnAt = (event) => Math.max(0, Math.min(this.head.cols - 1,
        Math.floor(event.offsetX / canvas.clientWidth * this.head.cols)));
    const read = (event) => {
      if (this.head?.rows.length) this.tell(this.rowAt(event.offsetY), columnAt(event));
    };
    canvas.addEventListener('pointermove', read);
    canvas.addEventListener('pointerdown', read);
    canvas.addEventListener('click', (event) => {
      if (!this.head?.rows.length) return;
      this.row = this.rowAt(event.offsetY);
      this.run.showRank(this.head.rows[this.row]);
    });
    canvas.addEventListener('keydown', (event) => this.key(event));
  }

  key(event) {
    const {head} = this;
    if (!head?.rows.length) return;
    const by = event.shiftKey ? 10 : 1;
    const go = {ArrowUp: [0, -by], ArrowDown: [0, by], ArrowLeft: [-by, 0], ArrowRight: [by, 0]}[event.key];
    if (event.key === 'Enter') this.run.showRank(head.rows[this.row]);
    else if (!go) return;
    event.preventDefault();
    event.stopPropagation();
    if (!go) return;
    this.column = Math.max(0, Math.min(head.cols - 1, this.column + go[0]));
    this.row = Math.max(0, Math.min(head.rows.length - 1, this.row + go[1]));
    this.tell(this.row, this.column);
    say(this.read.textContent);
  }

  redraw() {
    this.draw();
  }

  moved() {}
}
