// Where the time goes: the flame graph, and below it spans by name.

import './flame.js';
import './stacks.js';
import './tables.js';
import {fill, h} from './dom.js';
import {count, micros, share} from './figures.js';

const FIRST_ROWS = 40;
const FIGURES = [
  ['count', 'count', count], ['self', 'self_us', micros], ['total', 'total_us', micros], ['mean', 'mean_us', micros],
  ['p50', 'p50_us', micros], ['p99', 'p99_us', micros], ['max', 'max_us', micros], ['share', 'share', share],
];

export class Spent {
  constructor() {
    this.flame = h('div');
    this.lines = h('div');
    this.body = h('tbody');
    this.table = h('table', {}, h('thead', {}, h('tr', {}, h('th', {}, 'span'),
        FIGURES.map(([title]) => h('th', {className: 'r'}, title)))), this.body);
    this.more = h('button', {type: 'button', className: 'small', hidden: true, onclick: () => this.rows(Infinity)});
    this.element = h('div', {},
        h('section', {}, h('h2', {}, 'Where the time goes ',
            h('small', {}, 'width is time, summed over all tracks; a click zooms')), this.flame),
        this.ofLines = h('section', {hidden: true}, h('h2', {}, 'Lines of the program ',
            h('small', {}, 'width is the time that samples of stacks stand for')), this.lines),
        this.names = h('section', {}, h('h2', {}, 'By name'), h('div', {className: 'wide'}, this.table), this.more));
  }

  take(told) {
    const {flame, stacks_of_ranks: stacks, summary} = told.figures;
    this.element.firstChild.hidden = !flame.frames.length;
    if (this.graph) this.graph.update(flame.frames);
    else if (flame.frames.length) this.graph = window.dftrace.flameGraph(this.flame, flame.frames, {all: 'all tracks'});
    const sources = (stacks ?? []).filter((one) => one.graph.frames.length)
        .map((one) => ({...one, name: `rank ${one.rank}`}));
    this.ofLines.hidden = !sources.length;
    if (this.graphOfLines && sources.length) this.graphOfLines.update(sources);
    else if (sources.length) {
      this.graphOfLines = window.dftrace.stackGraph(this.lines, sources, {label: 'Lines of the program'});
    }
    this.spans = [...summary.spans].sort((a, b) => b.self_us - a.self_us);
    this.names.hidden = !this.spans.length;
    this.rows(FIRST_ROWS);
  }

  rows(most) {
    const shown = this.spans.slice(0, most);
    fill(this.body, shown.map((span) => h('tr', {}, h('td', {}, `${span.cat}.${span.name}`),
        FIGURES.map(([, key, said]) => h('td', {className: 'r', 'data-value': span[key]}, said(span[key]))))));
    this.more.hidden = shown.length === this.spans.length;
    this.more.textContent = `Show all ${count(this.spans.length)}`;
    window.dftrace.sortable(this.table);
  }

  search() {
    this.graph?.focusSearch();
  }

  end() {
    this.graph?.end();
    this.graphOfLines?.end();
  }
}
