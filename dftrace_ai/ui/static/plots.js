// Lines and areas over time, drawn by uPlot: one crosshair through all of them, a drag chooses the window.
//
// uPlot has neither fingers nor keys; those are here. A build may lack it, and says so once on the page.

import {gutter, h, say, svg} from './dom.js';
import {TIMES, colour, moment, tick} from './figures.js';

const FONT = '11px system-ui, sans-serif';
// So many pixels a drag must have to be one.
const LEAST_DRAG = 4;
// So much a mark's words need to the right of it.
const ROOM = 20;
// What lies between two marks of an axis of steps or epochs, of which there are no parts.
const WHOLE = Array.from({length: 16}, (_, i) => [1, 2, 5].map((one) => one * 10 ** i)).flat();

let loading = null;

// Loads uPlot; says whether it is there: where a build lacks it the script is empty.
export function loadPlots() {
  loading ??= new Promise((done) => {
    const script = h('script', {src: 'uplot.js', onload: () => done(Boolean(window.uPlot)), onerror: () => done(false)});
    document.head.append(h('link', {rel: 'stylesheet', href: 'uplot.css'}), script);
  });
  return loading;
}

// How a line of a plot looks, to stand before its name.
export const lineSample = (paint, dash) => svg('svg', {class: 'sample', width: 22, height: 8, 'aria-hidden': 'true'},
    svg('line', {x1: 0, x2: 22, y1: 4, y2: 4, stroke: `var(--${paint})`, 'stroke-width': 2, 'stroke-dasharray': (dash || []).join(' ')}));

export const lackOfPlots = () => h('p', {className: 'faint'},
    'Plots of lines need uPlot, which this build lacks.');

// A plot over the window of time that all panels share, or over another axis of its own.
//
// `span` is {from, to, end, set(from, to)}. Of options: height; title for who cannot see it; series
// [{label, colour, fill, dash, width, points, stepped, gaps}]; said(index or null), which words stand
// above; format of the figures at the left; low, whether it is one of many; logarithmic; room at the right.
export class Plot {
  constructor(holder, read, span, options) {
    Object.assign(this, {holder, read, span, options, at: 0, marks: () => {}});
    this.made = null;
  }

  // Shows columns, the first of them the place on the axis; draws them anew where others are asked for.
  show(data, series, {range = null, marks = () => {}} = {}) {
    const same = this.made && JSON.stringify(series) === JSON.stringify(this.series);
    Object.assign(this, {data, series, range, marks});
    if (same) this.made.setData(data);
    else this.draw();
    this.tell(null);
  }

  draw() {
    if (!this.data) return;
    this.made?.destroy();
    this.made = new window.uPlot(this.asked(), this.data, this.holder);
    // What is drawn is told by the element that lies over it.
    this.made.ctx.canvas.ariaHidden = 'true';
    this.listen(this.made.over);
    this.tell(null);
  }

  // Only the axis is another; the columns are those that were there.
  moved() {
    this.made?.setScale('x', {min: this.span.from, max: this.span.to});
  }

  end() {
    this.made?.destroy();
    this.made = null;
  }

  asked() {
    const {options, span} = this;
    const axis = {stroke: colour('faint'), font: FONT, ticks: {show: false}, grid: {stroke: colour('grid'), width: 1}};
    const low = options.low, incrs = options.unit === '' ? WHOLE : TIMES;
    return {
      width: Math.max(200, this.holder.clientWidth),
      height: options.height,
      padding: [6, options.room ?? 0, 0, 0],
      legend: {show: false},
      scales: {
        x: {time: false, range: () => [span.from, span.to]},
        y: options.logarithmic ? {distr: 3, range: (u, least, most) => decades(least, most)} :
            {range: (u, least, most) => this.range || around(least, most)},
      },
      series: [{}, ...this.series.map((one) => seriesOf(one))],
      axes: [
        {...axis, size: low ? 6 : 24, space: 70, incrs, values: (u, ticks) => ticks.map((t) => low ? '' : this.tick(t, ticks, u.width))},
        {...axis, size: gutter(), space: low ? 18 : 28, grid: {...axis.grid, show: !options.logarithmic},
          values: (u, ticks) => ticks.map((t) => this.figure(t))},
      ],
      cursor: {
        y: false, points: {show: false},
        sync: {key: options.sync || 'run', setSeries: false, scales: ['x', null]},
        drag: {x: true, y: false, setScale: false, dist: LEAST_DRAG},
      },
      hooks: {
        setSelect: [(u) => this.dragged(u)],
        setCursor: [(u) => this.tell(u.cursor.left < 0 ? null : u.cursor.idx)],
        draw: [(u) => this.marks(u)],
      },
    };
  }

  // Nothing where it would be cut; minutes where all are whole seconds.
  tick(t, all, width) {
    const {span, options} = this;
    if ((span.to - t) / (span.to - span.from) * (width - gutter()) + (options.room ?? 0) < ROOM) return '';
    if (options.unit === undefined && t >= 60 && all.every(Number.isInteger)) return moment(t);
    return `${Number(t.toPrecision(7))}${options.unit ?? ' s'}`;
  }

  figure(t) {
    if (t === null) return '';
    if (this.options.logarithmic && Math.abs(Math.log10(t) - Math.round(Math.log10(t))) > 1e-6) return '';
    return (this.options.format || tick)(t);
  }

  tell(index) {
    const words = this.options.said(index ?? null);
    if (this.read.textContent !== words) this.read.textContent = words;
  }

  dragged(u) {
    const {left, width} = u.select;
    if (width < LEAST_DRAG) return;
    const [from, to] = [left, left + width].map((x) => u.posToVal(x, 'x'));
    u.setSelect({left: 0, width: 0, top: 0, height: 0}, false);
    this.span.set(from, to);
  }

  listen(over) {
    over.tabIndex = 0;
    over.setAttribute('role', 'application');
    over.setAttribute('aria-roledescription', 'plot');
    over.setAttribute('aria-label', `${this.options.title}: arrows read its values`);
    over.addEventListener('dblclick', () => this.span.set(0, this.span.end));
    over.addEventListener('keydown', (event) => this.key(event));
    const touched = (event) => {
      if (event.pointerType !== 'touch') return;
      this.made.setCursor({left: event.clientX - over.getBoundingClientRect().left, top: 10});
    };
    over.addEventListener('pointerdown', touched);
    over.addEventListener('pointermove', touched);
  }

  // Left and right go to the columns that are in the window, with Shift by ten.
  key(event) {
    if (event.key !== 'ArrowLeft' && event.key !== 'ArrowRight') return;
    event.preventDefault();
    event.stopPropagation();
    const [places] = this.data, u = this.made;
    const first = places.findIndex((x) => x >= this.span.from);
    const last = places.findLastIndex((x) => x <= this.span.to);
    if (first < 0 || last < first) return;
    const by = (event.key === 'ArrowLeft' ? -1 : 1) * (event.shiftKey ? 10 : 1);
    this.at = Math.max(first, Math.min(last, (u.cursor.idx ?? this.at) + by));
    u.setCursor({left: u.valToPos(places[this.at], 'x'), top: 10});
    this.tell(this.at);
    say(this.read.textContent);
  }
}

function seriesOf(one) {
  const made = {label: one.label, width: one.width ?? 1.4, spanGaps: Boolean(one.gaps), points: {show: Boolean(one.points), size: 4}};
  const paint = one.colour && colour(one.colour);
  if (one.fill) Object.assign(made, {fill: paint, stroke: paint, width: 0});
  else Object.assign(made, {stroke: paint});
  if (one.dash) made.dash = one.dash;
  if (one.stepped) made.paths = window.uPlot.paths.stepped({align: 1});
  if (one.hidden) made.show = false;
  return made;
}

function around(least, most) {
  if (least === null || least === undefined) return [0, 1];
  const room = least === most ? Math.abs(least || 1) * 0.1 : (most - least) * 0.06;
  return [least - room, most + room];
}

function decades(least, most) {
  const low = Math.floor(Math.log10(Math.max(least ?? 1, 1e-3)));
  const high = Math.ceil(Math.log10(Math.max(most ?? 10, 1e-2)));
  return [10 ** low, 10 ** Math.max(high, low + 1)];
}

// Draws crosses at the top, at places that have no finite value.
export function crosses(u, places) {
  const pen = u.ctx, top = u.bbox.top + 7;
  pen.strokeStyle = colour('odd');
  pen.lineWidth = 2;
  pen.beginPath();
  for (const t of places.slice(0, 2000)) {
    const x = u.valToPos(t, 'x', true);
    if (x < u.bbox.left || x > u.bbox.left + u.bbox.width) continue;
    pen.moveTo(x - 3, top - 3);
    pen.lineTo(x + 3, top + 3);
    pen.moveTo(x + 3, top - 3);
    pen.lineTo(x - 3, top + 3);
  }
  pen.stroke();
}

