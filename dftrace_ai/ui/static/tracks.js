// Metrics, the machine and counters: a low plot for each, all over the window of the strip.

import {ask, fill, h} from './dom.js';
import {bytes, count, counted, parts, place, share, value} from './figures.js';
import {Plot, crosses, lackOfPlots, lineSample} from './plots.js';

const MACHINE = /^(cpu|memory|gpu|device|disk|net|network|io|power|temperature|clock)/i;
// Of more than the second so many as the first says.
const FIRST_SHOWN = 8, MOST_SHOWN = 11;
const LINES = ['first', 'part-wait', 'part-optimizer', 'part-comm', 'part-data', 'part-transfer'];
const DASHES = [null, [6, 3], [2, 2], [8, 3, 2, 3], [10, 4], [4, 4]];
const FEW = 40;

const lookOf = (i) => [LINES[i % LINES.length], DASHES[i % DASHES.length]];
const finite = (given) => typeof given === 'number' && Number.isFinite(given);
const constant = (line) => line.v.every((one) => one === line.v[0]);

// Tracks of a run's figures: {title, lines: [{label, t, v, step}], percent}.
function ofMachine({loader, counters}) {
  const found = [];
  if (loader && loader.wait.length) {
    const t = loader.edges_s.slice(0, -1);
    const lines = [{label: parts.get('wait') || 'wait', t, v: loader.wait}];
    if (loader.busy.length) lines.push({label: 'workers busy', t, v: loader.busy});
    found.push({title: 'loader', lines, format: share});
  }
  return [...found, ...ofCounters(counters).filter((one) => one.machine)];
}

// By its name: the counters of the machine say their units there.
const formatOf = (counter) => counter.endsWith('bytes') ? bytes : counter.endsWith('%') ? (one) => `${value(one)} %` : undefined;

function ofCounters(counters) {
  return counters.map(({counter, key, lines, lines_left_out: more}) => ({
    title: `${counter} · ${key}`, machine: MACHINE.test(counter), more, format: formatOf(counter),
    lines: lines.map(({process, values}) => ({
      label: process, t: values.first, v: values.middle.map((one, i) => values.non_finite[i] && one === null ? NaN : one),
      bad: values.first.filter((_, i) => values.non_finite[i]),
    })),
  }));
}

// Those of iterations before the sums of epochs.
export const byAxis = (metrics) => [...metrics].sort((a, b) => (a.axis === 'epoch') - (b.axis === 'epoch'));

const ofMetrics = (metrics) => byAxis(metrics).map(({name, t, v, step}) => ({
  title: name, lines: [{label: name, t, v, step, bad: t.filter((_, i) => v[i] !== null && !finite(v[i]))}],
}));

// All columns over one axis, as a plot takes them.
function columns(lines) {
  if (lines.length === 1) return [lines[0].t, lines[0].v.map((one) => finite(one) ? one : null)];
  const t = [...new Set(lines.flatMap((line) => line.t))].sort((a, b) => a - b);
  return [t, ...lines.map((line) => {
    const of = new Map(line.t.map((at, i) => [at, line.v[i]]));
    return t.map((at) => of.has(at) ? finite(of.get(at)) ? of.get(at) : null : undefined);
  })];
}

class Track {
  constructor(span, {title, lines, format, more}) {
    Object.assign(this, {lines, format: format || value});
    this.read = h('span', {className: 'read'});
    this.holder = h('div', {className: 'plot'});
    this.element = h('div', {className: 'track'},
        h('h3', {}, title, lines.length > 1 && h('small', {className: 'legend'}, lines.map((line, i) =>
          h('span', {}, lineSample(...lookOf(i)), line.label))),
        more ? h('small', {}, ` ${counted(more, 'more line')} not shown`) : '', this.read), this.holder);
    this.bad = lines.flatMap((line) => line.bad || []).sort((a, b) => a - b);
    this.data = columns(lines);
    this.plot = new Plot(this.holder, this.read, span, {
      title, height: 62, low: true, said: (index) => this.said(index), format: format || undefined,
    });
  }

  draw() {
    const points = this.data[0].length < FEW;
    this.plot.show(this.data, this.lines.map((line, i) => ({
      label: line.label, colour: lookOf(i)[0], dash: lookOf(i)[1], points, gaps: this.lines.length > 1,
    })), {marks: (u) => crosses(u, this.bad)});
  }

  said(index) {
    const several = this.lines.length > 1, [t, ...values] = this.data;
    const named = (figure, i) => several ? `${this.lines[i].label} ${figure}` : figure;
    if (index === null) {
      const last = values.map((column, i) => named(this.told(column.findLast((one) => one !== undefined)), i));
      return `last ${last.join(', ')}` + (this.bad.length ? ` · ${count(this.bad.length)} not finite, first at ${place(this.bad[0])}` : '');
    }
    const step = this.lines[0].step?.[index];
    return `${place(t[index])}${step === undefined ? '' : ` · step ${count(step)}`} · ` + values.map((column, i) => named(this.told(column[index]), i)).join(', ');
  }

  told(given) {
    return given === undefined ? '–' : given === null ? 'not finite' : this.format(given);
  }
}

export class Tracks {
  constructor(run) {
    this.run = run;
    this.tracks = [];
    this.open = new Set();
    this.element = h('div');
  }

  async take(told) {
    // By their places: names may be longer than an address.
    const places = told.metrics.map((_, i) => ['at', i]);
    const answer = places.length ? await ask('metrics', [['id', this.run.id], ...places], this.run.signal) : {metrics: []};
    const {figures} = told;
    this.groups = [
      ['Metrics', ofMetrics(answer.metrics)],
      ['Machine', ofMachine(figures)],
      ['Counters', ofCounters(figures.counters).filter((one) => !one.machine)],
    ];
    this.build();
  }

  build() {
    for (const track of this.tracks) track.plot.end();
    this.tracks = [];
    fill(this.element, this.groups.map(([name, tracks]) => this.group(name, tracks)));
    if (this.run.plots) for (const track of this.tracks) track.draw();
  }

  // Those that never change are told in words; of very many the first ones stand there at once.
  group(name, all) {
    if (!all.length) return null;
    const still = all.filter(({lines}) => lines.every(constant)), moving = all.filter((one) => !still.includes(one));
    const shown = this.open.has(name) || moving.length <= MOST_SHOWN ? moving : moving.slice(0, FIRST_SHOWN);
    const words = still.length ? `constant: ${still.map(({title, lines, format}) => `${title} ${(format || value)(lines[0].v[0])}`).join(', ')}` : '';
    const made = this.run.plots ? shown.map((one) => new Track(this.run.span, one)) : [];
    this.tracks.push(...made);
    const more = moving.length - shown.length;
    return h('section', {}, h('h2', {}, name, h('small', {}, words)), made.map((one) => one.element),
        !this.run.plots && moving.length && [lackOfPlots(), lastValues(moving)],
        more > 0 && this.run.plots && h('button', {type: 'button', className: 'small', onclick: () => {
          this.open.add(name);
          this.build();
        }}, `Show ${count(more)} more`));
  }

  redraw() {
    for (const track of this.tracks) {
      track.plot.end();
      track.draw();
    }
  }

  moved() {
    for (const track of this.tracks) track.plot.moved();
  }
}

// Without plots: what was last, in a table.
function lastValues(tracks) {
  const last = (line) => [...line.v].reverse().find((one) => one !== null);
  return h('div', {className: 'wide'}, h('table', {}, h('tbody', {}, tracks.flatMap(({title, lines, format}) => lines.map((line) =>
    h('tr', {}, h('td', {}, title), h('td', {className: 'faint'}, lines.length > 1 ? line.label : ''),
        h('td', {className: 'r'}, (format || value)(last(line)))))))));
}
