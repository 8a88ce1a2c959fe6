// The steps of the window by what they go to: columns over time, the slowest of them, how long they take.

import {ask, fill, fit, gutter, h} from './dom.js';
import {colour, count, counted, micros, parts, place, share, time} from './figures.js';
import {Plot} from './plots.js';

const MOST_COLUMNS = 900, LEAST_COLUMNS = 120;
// A column stands out of the picture where it is so many times what most of them are.
const ROOM = 2.2, LEAST_ROOM = 1.5;
const BARS = 96;

// The window by numbers of steps, for who wants them evenly: what is chosen there is a stretch of time.
class Numbers {
  constructor(steps) {
    this.steps = steps;
  }

  get from() {
    return this.steps.told.first[0] ?? 0;
  }

  get to() {
    return this.from + Math.max(1, this.steps.told.count);
  }

  get end() {
    return this.steps.told.total;
  }

  set(from, to) {
    const {run} = this.steps;
    if (from <= 0 && to >= this.end) run.span.set(0, run.span.end);
    else run.span.set(this.time(from), this.time(to));
  }

  time(number) {
    const {first, t, te, count: many} = this.steps.told;
    const i = Math.max(0, first.findLastIndex((one) => one <= number));
    const wide = (first[i + 1] ?? first[0] + many) - first[i];
    return t[i] + (te[i] - t[i]) * Math.min(1, Math.max(0, (number - first[i]) / wide));
  }
}

export class Steps {
  // `run` has {id, rank, span, plots, step(at, long)}.
  constructor(run) {
    this.run = run;
    this.tall = false;
    this.numbered = false;
    this.axis = h('button', {type: 'button', className: 'small', hidden: !run.plots, onclick: () => {
      this.numbered = !this.numbered;
      this.redraw();
    }});
    this.about = h('small');
    this.read = h('div', {className: 'read'});
    this.chart = h('div', {className: 'plot'});
    this.higher = h('button', {type: 'button', className: 'small', hidden: true, onclick: () => {
      this.tall = !this.tall;
      this.draw();
    }});
    this.longestRead = h('div', {className: 'read'});
    this.longestChart = h('div', {className: 'plot'});
    this.longest = h('div', {hidden: true}, this.longestRead, this.longestChart);
    this.legend = h('div', {className: 'legend'});
    this.slowest = h('div', {className: 'bar'});
    this.bars = h('canvas', {role: 'img'});
    this.percentiles = h('div', {className: 'faint num'});
    this.element = h('section', {}, h('h2', {}, 'Step time, by what it goes to ', this.about),
        h('div', {className: 'over'}, this.read, this.higher, this.axis), this.chart, this.longest,
        h('div', {className: 'two'},
            h('div', {}, this.legend, h('h3', {}, 'Slowest in this window'), this.slowest),
            h('div', {}, h('h3', {}, 'How long steps take in this window'), this.bars, this.percentiles)));
    const numbers = new Numbers(this);
    this.drawn = {time: this.plotsOver(run.span, {}), number: this.plotsOver(numbers, {unit: '', sync: 'numbers'})};
  }

  plotsOver(span, axis) {
    return {
      columns: new Plot(this.chart, this.read, span, {
        title: 'Step time by parts', height: 230, said: (index) => this.said(index), format: (ns) => ns ? time(ns) : '0', ...axis,
      }),
      longest: new Plot(this.longestChart, this.longestRead, span, {
        title: 'Longest and median step of each column', height: 74, low: true, logarithmic: true, format: micros,
        said: (index) => this.saidOfLongest(index), ...axis,
      }),
    };
  }

  get shown() {
    return this.drawn[this.numbered ? 'number' : 'time'];
  }

  async load(signal) {
    const {id, rank, span, told} = this.run;
    const columns = Math.min(MOST_COLUMNS, Math.max(LEAST_COLUMNS, this.element.clientWidth - gutter()));
    // The whole run comes with what is told of it, in as many columns as are drawn at most.
    const known = span.whole && told.steps?.rank === rank && told.steps.t.length <= columns;
    this.told = known ? told.steps : await ask('steps', {id, rank, a: span.from, b: span.to, n: columns}, signal);
    this.draw();
    return this.told;
  }

  draw() {
    const {told} = this;
    if (!told) return;
    const many = told.per > 1.01;
    this.shownParts = [...parts.keys()].filter((part) => told.parts[part]);
    this.about.textContent = `rank ${told.rank} · ${count(told.count)} of ${counted(told.total, 'step')}` +
        (many ? ` · a column is ${counted(Math.round(told.per), 'step')}: parts are means, the longest stands below` : '');
    this.axis.textContent = this.numbered ? 'Over time' : 'By step';
    this.drawLegend();
    this.drawSlowest();
    this.drawBars();
    if (!this.run.plots) return;
    this.drawColumns(many);
    this.longest.hidden = !many;
    if (many) {
      const [x, at] = this.places();
      const column = (values) => at.map((i) => i < 0 ? null : Math.max(values[i], .001));
      this.shown.longest.show([x, column(told.mid), column(told.high)], [
        {label: 'median', colour: 'faint', width: 1, stepped: true},
        {label: 'longest', colour: 'ink', width: 1.2, stepped: true},
      ]);
    }
  }

  // Where nothing is between two columns the picture is bare, so that an evaluation is no long step.
  places() {
    const {t, te, per, first, count: many} = this.told, x = [], at = [];
    if (this.numbered) return [[...first, (first[0] ?? 0) + many], [...first.map((_, i) => i), -1]];
    for (let i = 0; i < t.length; i++) {
      x.push(t[i]);
      at.push(i);
      const end = Math.max(te[i], t[i] + 1e-9), next = i + 1 < t.length ? t[i + 1] : Infinity;
      if (next - end > .2 * (end - t[i]) / Math.max(1, per)) {
        x.push(end);
        at.push(-1);
      }
    }
    return [x, at];
  }

  drawColumns(many) {
    const {told, shownParts} = this, stack = [];
    let below = new Float64Array(told.t.length);
    for (const part of shownParts) {
      below = below.map((sum, i) => sum + told.parts[part][i] * 1000);
      stack.push(below);
    }
    const [x, at] = this.places();
    this.columnAt = at;
    const tops = [...below].sort((a, b) => a - b), most = tops.at(-1) || 1;
    const usual = Math.max(tops[Math.floor(tops.length * .95)] * ROOM, tops[Math.floor(tops.length * .5)] * LEAST_ROOM);
    const cap = this.tall || !tops.length ? most * 1.06 : Math.min(most * (many ? 1.15 : 1.06), usual);
    const clipped = (this.numbered ? told.first : told.t).filter((_, i) => below[i] > cap);
    this.higher.hidden = !clipped.length && !this.tall;
    this.higher.textContent = this.tall ? 'Fit the height' : `▲ ${count(clipped.length)} higher, to ${time(most)}: show`;
    // The highest is drawn first, and the others over it.
    const order = shownParts.map((_, i) => shownParts.length - 1 - i);
    const column = (values) => at.map((i) => i < 0 ? 0 : values[i]);
    this.shown.columns.show([x, ...order.map((i) => column(stack[i]))],
        order.map((i) => ({label: shownParts[i], colour: `part-${shownParts[i]}`, fill: true, stepped: true})),
        {range: [0, cap || 1], marks: (u) => triangles(u, clipped)});
  }

  said(index) {
    const {told, shownParts} = this;
    if (index === null) return told?.count ? 'Drag to zoom, double click for all.' : 'No step lies in this window.';
    const i = this.columnAt[index];
    if (i === undefined || i < 0) return 'between steps';
    const many = told.per > 1.01, numbers = told.number || told.first;
    const last = many ? (told.first[i + 1] ?? told.first[0] + told.count) - told.first[i] - 1 : 0;
    const worst = shownParts.map((part) => [told.parts[part][i], part]).sort((a, b) => b[0] - a[0]).slice(0, 4)
        .filter(([us]) => us > 0).map(([us, part]) => `${parts.get(part)} ${micros(us)}`);
    return `step ${count(numbers[i])}${last > 0 ? ` to ${count(numbers[i] + last)}` : ''} at ${place(told.t[i])} · ` +
        micros(told.mid[i]) + (many ? ` (${micros(told.low[i])} to ${micros(told.high[i])})` : '') + ` · ${worst.join(', ')}`;
  }

  saidOfLongest(index) {
    const {told} = this;
    const i = index === null ? -1 : this.columnAt[index];
    if (i < 0) return 'Longest of each column (strong) and median (faint), by logarithm';
    return `longest ${micros(told.high[i])}, median ${micros(told.mid[i])}`;
  }

  drawLegend() {
    const {told, shownParts} = this;
    const sums = new Map(shownParts.map((part) => [part, told.parts[part].reduce((a, b) => a + b, 0)]));
    const all = [...sums.values()].reduce((a, b) => a + b, 0) || 1;
    fill(this.legend, [...sums].sort((a, b) => b[1] - a[1]).map(([part, sum]) => h('span', {},
        h('i', {className: 'swatch', style: {background: `var(--part-${part})`}}), parts.get(part), ' ',
        h('b', {className: 'num'}, share(sum / all)))));
  }

  drawSlowest() {
    fill(this.slowest, this.told.worst.map(({step, t, us}) => h('button', {
      type: 'button', className: 'small num', title: 'show it', onclick: () => this.run.step(t, us / 1e6),
    }, `step ${count(step)} · ${micros(us)}`)));
  }

  drawBars() {
    const {hist, p} = this.told;
    this.bars.hidden = !hist;
    this.percentiles.textContent = p ? `p50 ${time(p[1] * 1e6)} · p95 ${time(p[2] * 1e6)} · ` +
        `p99 ${time(p[3] * 1e6)}; width by logarithm` : 'No step lies in this window.';
    if (!hist) return;
    this.bars.ariaLabel = `median ${time(p[1] * 1e6)}, 95th percentile ${time(p[2] * 1e6)}, longest ${time(p[4] * 1e6)}`;
    drawHistogram(this.bars, hist.edges_us, [[hist.n, 'first']], [['p50', p[1]], ['p95', p[2]], ['p99', p[3]]]);
  }

  redraw() {
    for (const {columns, longest} of Object.values(this.drawn)) {
      columns.end();
      longest.end();
    }
    this.draw();
  }

  // The numbers of a window are known when its steps are.
  moved() {
    if (this.numbered) return;
    this.shown.columns.moved();
    this.shown.longest.moved();
  }
}

// Bars over microseconds by logarithm, those of a second run as a line over them, and marks in milliseconds.
export function drawHistogram(canvas, edges, shown, marks) {
  const width = Math.max(180, canvas.parentElement.clientWidth || 280), floor = 76;
  const pen = fit(canvas, width, BARS);
  const [first, last] = [edges[0], edges.at(-1)];
  const x = (us) => 4 + Math.log(us / first) / (Math.log(last / first) || 1) * (width - 8);
  for (const [bars, paint, line] of shown) {
    const most = Math.max(...bars, 1);
    pen.fillStyle = pen.strokeStyle = colour(paint);
    pen.lineWidth = 1.6;
    pen.beginPath();
    bars.forEach((many, i) => {
      const tall = many ? Math.max(2, many / most * 60) : 0;
      const [from, to] = [x(edges[i]), x(edges[i + 1])];
      if (line) {
        pen.lineTo(from, floor - tall);
        pen.lineTo(to, floor - tall);
      } else {
        pen.rect(from, floor - tall, Math.max(1, to - from - .7), tall);
      }
    });
    if (line) pen.stroke();
    else pen.fill();
  }
  pen.font = '11px system-ui, sans-serif';
  pen.fillStyle = colour('faint');
  pen.strokeStyle = colour('ink');
  pen.lineWidth = 1;
  let end = -1;
  for (const [name, ms] of marks) {
    const at = x(ms * 1000);
    pen.setLineDash([3, 3]);
    pen.beginPath();
    pen.moveTo(at, 14);
    pen.lineTo(at, floor);
    pen.stroke();
    const left = at > width - 26;
    if (at - (left ? 26 : 0) <= end) continue;
    pen.textAlign = left ? 'right' : 'left';
    pen.fillText(name, left ? at - 2 : at + 2, 12);
    end = left ? at : at + 26;
  }
  pen.setLineDash([]);
  pen.textAlign = 'left';
  pen.fillText(micros(first), 2, 90);
  pen.textAlign = 'right';
  pen.fillText(micros(last), width - 2, 90);
  pen.textAlign = 'left';
}

// A triangle at the top of what is higher than the picture.
function triangles(u, places) {
  const pen = u.ctx, top = u.bbox.top + 1;
  pen.fillStyle = colour('ink');
  let before = -1;
  for (const t of places) {
    const x = Math.round(u.valToPos(t, 'x', true)) + 2;
    if (x - before < 4 || x < u.bbox.left || x > u.bbox.left + u.bbox.width) continue;
    before = x;
    pen.beginPath();
    pen.moveTo(x, top);
    pen.lineTo(x - 4, top + 7);
    pen.lineTo(x + 4, top + 7);
    pen.fill();
  }
}
