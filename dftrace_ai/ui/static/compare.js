// Runs beside the first of them: how much longer a step takes, in what, and whether it may be chance.

import './flame.js';
import './stacks.js';
import {Answered, ask, byId, fill, h, svg} from './dom.js';
import {count, counted, learnParts, named, signed, time, unbroken, value} from './figures.js';
import {Plot, lackOfPlots, lineSample, loadPlots} from './plots.js';
import {drawHistogram} from './steps.js';
import {byAxis} from './tracks.js';

const WIDTH = 300, HEIGHT = 24;
const FIRST_SHOWN = 8;
const AGAIN_MS = 1000, MOST_ASKED = 60;
const SEVERITY = {slower: 'critical', faster: 'none', none: 'none', abstained: 'note'};
const TAGS = {slower: '■ B is slower', faster: '✓ B is faster', none: '✓ no difference is sure', abstained: '● no verdict'};
const KINDS = {new: 'only in B', gone: 'only in A', unsure: 'may be chance', same: 'no change that is sure', small: 'very little'};
const COLOURS = ['first', 'second', 'part-optimizer', 'part-comm', 'part-data', 'part-transfer'];
const DASHES = [null, [7, 4], [2, 2], [8, 3, 2, 3], [12, 4], [4, 4]];
const LOOKS = ['solid', 'dashed', 'dotted', 'dash and dot', 'long dashes', 'short dashes'];
const SURE = new Set(['slower', 'faster', 'new', 'gone']);

const added = ({change}) => (change.after_ns ?? 0) - (change.before_ns ?? 0);
const LETTERS = 'ABCDEF';
const pairAddress = (...ids) => `#/compare/${ids.map(encodeURIComponent).join('/')}`;
const addressOf = (id) => `#/run/${encodeURIComponent(id)}`;

// Runs by their own names, or by their folders, too, where these are alike.
function wordsOf(ids) {
  const names = ids.map((id) => named(id)[0]);
  return new Set(names).size === ids.length ? names : ids.map((id) => id === '.' ? named(id)[0] : id);
}

export async function open(page, given) {
  const ids = given.slice(0, LETTERS.length);
  const main = byId('main');
  const names = wordsOf(ids).join(' → ');
  fill(byId('crumbs'), '/ ', h('span', {title: names}, names));
  document.title = `${names} · dftrace`;
  fill(main, h('div', {className: 'waiting'}), h('p', {className: 'faint'}, 'Comparing…'));
  page.keys = {u: () => { location.hash = '#/'; }};
  const {signal} = page.ended;
  const [runs, diffs, plots] = await Promise.all([Promise.all(ids.map((id) => ask('run', {id}, signal))),
    Promise.all(ids.slice(1).map((id) => compared(ids[0], id, signal))), loadPlots()]);
  if (page.left) return;
  learnParts(runs[0].parts);
  const [diff] = diffs;
  fill(main, ids.length > 2 ? beside(runs, diffs) :
      [headline(ids[0], ids[1], diff), distributions(page, diff), changes(diff), lines(page, runs)], differing(runs));
  await metrics(page, runs, plots);
  performance.mark('compare-drawn');
}

async function compared(a, b, signal) {
  try {
    return await ask('diff', {a, b}, signal);
  } catch (error) {
    if (error instanceof Answered) return {error: error.message};
    throw error;
  }
}

function headline(a, b, diff) {
  const {step, verdict} = diff;
  const run = (letter, id, facts) => [h('dt', {}, letter), h('dd', {}, h('a', {href: addressOf(id)}, id),
      facts && h('span', {className: 'faint num'}, ` · ${counted(facts.ranks, 'rank')}, ${counted(facts.judged, 'step')} judged`))];
  return h('div', {className: `headline ${SEVERITY[verdict] || 'note'}`},
      h('div', {className: 'tag'}, diff.error ? '● cannot be compared' : TAGS[verdict]),
      h('h1', {className: 'num'}, unbroken(diff.error || diff.abstained || (step ? ofStep(step) : 'They have no steps to compare.'))),
      h('dl', {}, run('A', a, diff.before), run('B', b, diff.after)),
      diff.notes?.map((note) => h('p', {className: 'faint'}, note)),
      h('p', {}, h('a', {className: 'button', href: pairAddress(b, a)}, 'Exchange A and B')));
}

function ofStep({before_ns: before, after_ns: after, low_ns: low, high_ns: high}) {
  const interval = low === null || !before ? '' : ` (${signed(low / before)} to ${signed(high / before)})`;
  return `A step takes ${time(before)} in A and ${time(after)} in B: ${before ? signed(after / before - 1) : ''}${interval}`;
}

// Of several runs a row for each, with the interval of what its steps take more than those of the first.
function beside(runs, diffs) {
  const names = wordsOf(runs.map((run) => run.id));
  const steps = diffs.map((diff) => diff.step || null);
  const more = (step) => step.after_ns - step.before_ns;
  const most = Math.max(1, ...steps.filter(Boolean).flatMap((step) => [step.low_ns ?? 0, step.high_ns ?? 0, more(step)].map(Math.abs)));
  const row = (run, i) => {
    const diff = diffs[i - 1], step = steps[i - 1];
    const sure = diff && SURE.has(diff.verdict), paint = !sure ? 'faint' : diff.verdict === 'slower' ? 'worse' : 'better';
    const change = step && step.before_ns ? signed(step.after_ns / step.before_ns - 1) : '';
    return h('tr', {}, h('td', {}, h('b', {}, LETTERS[i]), ' ', h('a', {href: addressOf(run.id), title: run.id}, names[i])),
        h('td', {className: 'r', 'data-head': 'a step'}, time(i ? step?.after_ns : run.card?.median_ns)),
        h('td', {className: `r ${paint}`}, i ? change : 'the baseline'),
        h('td', {className: 'interval'}, step && interval({...step, kind: sure ? diff.verdict : 'same'}, more(step), most)),
        h('td', {}, i ? diff.error || diff.abstained || h('a', {href: pairAddress(runs[0].id, run.id)}, TAGS[diff.verdict].replace('B is ', '')) : ''));
  };
  return h('section', {}, h('h2', {}, `How long a step takes, beside that of ${names[0]} `, h('small', {},
      'the bar is the 99.9 % interval of the change; a verdict opens the two beside each other')),
  h('div', {className: 'wide'}, h('table', {className: 'changes'},
      h('thead', {}, h('tr', {}, h('th', {}, 'run'), h('th', {className: 'r'}, 'a step'), h('th', {className: 'r'}, 'change'),
          h('th', {}, h('span', {className: 'heard'}, 'interval')), h('th', {}, 'verdict'))),
      h('tbody', {}, runs.map(row)))));
}

// What the lines of B take more than those of A, where both have samples; a run may still be read.
function lines(page, runs) {
  const holder = h('div');
  const section = h('section', {hidden: true}, h('h2', {}, 'Lines of the program ',
      h('small', {}, 'by samples of stacks')), holder);
  const draw = (read) => {
    const sources = read.flatMap((run, at) => (run.figures?.stacks_of_ranks ?? [])
        .filter((one) => one.graph.frames.length).map((one) => ({...one, name: `${LETTERS[at]}, rank ${one.rank}`, run: at})));
    const [a, b] = [0, 1].map((at) => sources.findIndex((one) => one.run === at));
    if (page.left || a < 0 || b < 0) return;
    section.hidden = false;
    const graph = window.dftrace.stackGraph(holder, sources, {label: 'Lines of the program'});
    graph.choose(b, a);
    page.ended.signal.addEventListener('abort', () => graph.end());
  };
  whenRead(page, runs).then(draw, () => {});
  return section;
}

async function whenRead(page, runs) {
  const {signal} = page.ended;
  let read = runs;
  for (let left = MOST_ASKED; left && !page.left && !read.every((run) => run.figures); left--) {
    await new Promise((done) => setTimeout(done, AGAIN_MS));
    read = await Promise.all(read.map((run) => run.figures ? run : ask('run', {id: run.id}, signal)));
  }
  return read;
}

function distributions(page, {distributions: both, step}) {
  if (!both) return null;
  const canvas = h('canvas', {role: 'img', 'aria-label': `How long steps take: A ${time(step?.before_ns)}, B ${time(step?.after_ns)} in the middle`});
  const section = h('section', {}, h('h2', {}, 'How long steps take ', h('small', {},
      h('span', {className: 'legend'}, h('span', {}, h('i', {className: 'swatch', style: {background: 'var(--first)'}}), 'A, filled'),
          h('span', {}, lineSample('second'), 'B, a line')))), h('div', {}, canvas));
  const draw = () => drawHistogram(canvas, both.edges_us, [[both.a, 'first'], [both.b, 'second', true]],
      step ? [['A', step.before_ns / 1e6], ['B', step.after_ns / 1e6]] : []);
  later(page, section, draw);
  return section;
}

const legend = (many) => h('span', {className: 'legend'}, LOOKS.slice(0, many).map((look, i) =>
  h('span', {}, lineSample(COLOURS[i], DASHES[i]), `${LETTERS[i]}, ${look}`)));

// Draws once it stands on the page, and again with another width or theme.
function later(page, within, draw) {
  requestAnimationFrame(() => {
    if (page.left || !within.isConnected) return;
    draw();
    page.drawn(draw, within);
  });
}

function changes({names}) {
  if (!names?.length) return null;
  const rows = [...names].sort((x, y) => SURE.has(y.change.kind) - SURE.has(x.change.kind) || Math.abs(added(y)) - Math.abs(added(x)));
  const most = Math.max(1, ...rows.flatMap((row) => [Math.abs(row.change.low_ns ?? 0), Math.abs(row.change.high_ns ?? 0), Math.abs(added(row))]));
  return h('section', {}, h('h2', {}, 'What changed in a step ', h('small', {},
      'own time by name; the bar is the 99.9 % interval of the change, left of the line faster, right of it slower')),
  h('div', {className: 'wide'}, h('table', {className: 'changes'},
      h('thead', {}, h('tr', {}, h('th', {}, 'name'), ['A', 'B', 'change'].map((name) => h('th', {className: 'r'}, name)), h('th', {},
          h('span', {className: 'heard'}, 'interval')))),
      h('tbody', {}, rows.map((row) => changeOf(row, most))))));
}

function changeOf(row, most) {
  const {change} = row, by = added(row);
  const name = row.cat === 'none' ? row.name : `${row.cat}.${row.name}`;
  const said = [row.beside && 'beside the step', KINDS[change.kind]].filter(Boolean).join(', '), paint = change.kind === 'slower' ? 'worse' : change.kind === 'faster' ? 'better' : 'faint';
  return h('tr', {},
      h('td', {}, name, said && h('span', {className: 'faint'}, ` ${said}`)),
      h('td', {className: 'r', 'data-head': 'A'}, time(change.before_ns)),
      h('td', {className: 'r', 'data-head': 'B'}, time(change.after_ns)),
      h('td', {className: `r ${paint}`, 'data-head': 'change'}, by > 0 ? `+${time(by)}` : time(by)),
      h('td', {className: 'interval'}, interval(change, by, most)));
}

function interval({kind, low_ns: low, high_ns: high}, by, most) {
  const x = (ns) => WIDTH / 2 + ns / most * (WIDTH / 2 - 8);
  const paint = `var(--${kind === 'slower' ? 'second' : kind === 'faster' ? 'first' : 'faint'})`;
  const made = svg('svg', {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img',
    'aria-label': low === null ? 'no interval' : `${time(low)} to ${time(high)}`},
  svg('line', {x1: WIDTH / 2, x2: WIDTH / 2, y1: 0, y2: HEIGHT, stroke: 'var(--faint)', 'stroke-dasharray': '2 2'}));
  if (low !== null) {
    made.append(svg('line', {x1: x(low), x2: x(high), y1: HEIGHT / 2, y2: HEIGHT / 2, stroke: paint, 'stroke-width': 2}));
  }
  made.append(svg('rect', {x: x(by) - 2, y: 6, width: 4, height: 12, fill: paint}));
  return made;
}

function differing(runs) {
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.params)))];
  const other = names.filter((name) => new Set(runs.map((run) => JSON.stringify(run.params[name]))).size > 1);
  const figures = (cell) => runs.map((run, i) => cell(run, i));
  const table = () => h('table', {className: 'few'},
      h('thead', {}, h('tr', {}, h('th', {}, 'name'), figures((run, i) => h('th', {className: 'r'}, LETTERS[i])))),
      h('tbody', {}, other.map((name) => h('tr', {}, h('td', {}, name),
          figures((run) => h('td', {className: 'r'}, name in run.params ? value(run.params[name]) : '–'))))));
  return h('section', {}, h('h2', {}, 'Hyper-parameters that differ ', names.length > 0 && h('small', {},
      `${count(names.length - other.length)} alike`)),
  other.length ? h('div', {className: 'wide'}, table()) : h('p', {className: 'faint'}, names.length ? 'None.' : 'None were logged.'));
}

// Metrics that the first and another one have, over their steps.
async function metrics(page, runs, plots) {
  const names = runs[0].metrics.map((one) => one.name)
      .filter((name) => runs.slice(1).some((run) => run.metrics.some((one) => one.name === name)));
  if (!names.length) return;
  const found = await Promise.all(runs.map((run) => {
    const asked = run.metrics.flatMap((one, i) => names.includes(one.name) ? [['at', i]] : []);
    return asked.length ? ask('metrics', [['id', run.id], ...asked], page.ended.signal) : {metrics: []};
  }));
  if (page.left) return;
  const grid = h('div', {className: 'beside'});
  byId('main').append(h('section', {}, h('h2', {}, 'Metrics over steps ', h('small', {}, legend(runs.length))),
      plots ? grid : lackOfPlots()));
  if (!plots) return;
  const lines = byAxis(found[0].metrics).map(({name, axis}) =>
    found.map((one) => one.metrics.find((metric) => metric.name === name && metric.axis === axis)));
  const draw = (some) => some.forEach((one) => metric(page, grid, one));
  draw(lines.slice(0, FIRST_SHOWN));
  const more = h('button', {type: 'button', className: 'small', hidden: lines.length <= FIRST_SHOWN, onclick: () => {
    more.hidden = true;
    draw(lines.slice(FIRST_SHOWN));
  }}, `Show ${count(lines.length - FIRST_SHOWN)} more`);
  grid.after(more);
}

// One metric of the runs that have it.
function metric(page, grid, all) {
  const read = h('div', {className: 'read'}), holder = h('div', {className: 'plot'});
  grid.append(h('div', {}, h('h3', {}, all[0].name), read, holder));
  const shown = all.map((one, i) => [one, i]).filter(([one]) => one);
  const steps = [...new Set(shown.flatMap(([one]) => one.step))].sort((x, y) => x - y);
  const column = (one) => {
    const of = new Map(one.step.map((step, i) => [step, typeof one.v[i] === 'number' ? one.v[i] : null]));
    return steps.map((step) => of.get(step));
  };
  const data = [steps, ...shown.map(([one]) => column(one))], first = steps[0] ?? 0, end = steps.at(-1) ?? 1;
  const span = {from: first, to: end, end, set(from, to) {
    Object.assign(span, {from: Math.max(first, from), to: Math.min(end, to)});
    plot.moved();
  }};
  const said = (figure) => figure === undefined ? '–' : figure === null ? 'not finite' : value(figure);
  const each = (figure) => shown.map(([one, i], k) => `${LETTERS[i]} ${figure(one, data[k + 1])}`).join(', ');
  const plot = new Plot(holder, read, span, {title: `${all[0].name} of all runs`, height: 150, unit: '', sync: 'compare', room: 14,
    said: (at) => at === null ? `last: ${each((one) => value(one.v.at(-1)))}` :
      `${all.find(Boolean).axis === 'epoch' ? 'epoch' : 'step'} ${count(steps[at])} · ${each((one, values) => said(values[at]))}`});
  plot.show(data, shown.map(([, i]) => ({label: LETTERS[i], colour: COLOURS[i], dash: DASHES[i], gaps: true, width: 1.6})));
  page.drawn(() => plot.draw(), holder);
}
