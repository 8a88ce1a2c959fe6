// Two runs beside each other: how much longer a step takes, in what, and whether it may be chance.

import {Answered, ask, byId, fill, h, svg} from './dom.js';
import {count, counted, learnParts, named, signed, time, value} from './figures.js';
import {Plot, lackOfPlots, loadPlots} from './plots.js';
import {drawHistogram} from './steps.js';
import {byAxis} from './tracks.js';

const WIDTH = 300, HEIGHT = 24;
const FIRST_SHOWN = 8;
const SEVERITY = {slower: 'critical', faster: 'none', none: 'none', abstained: 'note'};
const TAGS = {slower: '■ B is slower', faster: '✓ B is faster', none: '✓ no difference is sure', abstained: '● no verdict'};
const KINDS = {new: 'only in B', gone: 'only in A', unsure: 'may be chance', same: 'no change that is sure', small: 'very little'};
const SURE = new Set(['slower', 'faster', 'new', 'gone']);

const added = ({change}) => (change.after_ns ?? 0) - (change.before_ns ?? 0);
const addressOf = (id) => `#/run/${encodeURIComponent(id)}`;

export async function open(page, [a, b]) {
  const main = byId('main');
  const [nameA, nameB] = [a, b].map((id) => named(id)[0]);
  fill(byId('crumbs'), `/ ${nameA} → ${nameB}`);
  document.title = `${nameA} → ${nameB} · dftrace`;
  fill(main, h('div', {className: 'waiting'}), h('p', {className: 'faint'}, 'Comparing…'));
  page.keys = {u: () => { location.hash = '#/'; }};
  const {signal} = page.ended;
  const [A, B, diff] = await Promise.all([ask('run', {id: a}, signal), ask('run', {id: b}, signal), compared(a, b, signal)]);
  const plots = await loadPlots(A.plots);
  if (page.left) return;
  learnParts(A.parts);
  fill(main, headline(a, b, diff), distributions(page, diff), changes(diff), differing(A.params, B.params));
  await metrics(page, A, B, plots);
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
      h('h1', {className: 'num'}, diff.error || diff.abstained || (step ? ofStep(step) : 'They have no steps to compare.')),
      h('dl', {}, run('A', a, diff.before), run('B', b, diff.after)),
      diff.notes?.map((note) => h('p', {className: 'faint'}, note)),
      h('p', {}, h('a', {className: 'button', href: `#/compare/${encodeURIComponent(b)}/${encodeURIComponent(a)}`}, 'Exchange A and B')));
}

function ofStep({before_ns: before, after_ns: after, low_ns: low, high_ns: high}) {
  const interval = low === null || !before ? '' : ` (${signed(low / before)} to ${signed(high / before)})`;
  return `A step takes ${time(before)} in A and ${time(after)} in B: ${before ? signed(after / before - 1) : ''}${interval}`;
}

function distributions(page, {distributions: both, step}) {
  if (!both) return null;
  const canvas = h('canvas', {role: 'img', 'aria-label': `How long steps take: A ${time(step?.before_ns)}, B ${time(step?.after_ns)} in the middle`});
  const section = h('section', {}, h('h2', {}, 'How long steps take ', h('small', {},
      legend('filled', 'a line'))), h('div', {}, canvas));
  const draw = () => drawHistogram(canvas, both.edges_us, [[both.a, 'first'], [both.b, 'second', true]],
      step ? [['A', step.before_ns / 1e6], ['B', step.after_ns / 1e6]] : []);
  later(page, section, draw);
  return section;
}

const legend = (a, b) => h('span', {className: 'legend'},
    h('span', {}, h('i', {className: 'swatch', style: {background: 'var(--first)'}}), `A, ${a}`),
    h('span', {}, h('i', {className: 'swatch', style: {background: 'var(--second)'}}), `B, ${b}`));

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
      h('td', {className: 'r'}, time(change.before_ns)), h('td', {className: 'r'}, time(change.after_ns)),
      h('td', {className: `r ${paint}`}, by > 0 ? `+${time(by)}` : time(by)),
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

function differing(a, b) {
  const names = [...new Set([...Object.keys(a), ...Object.keys(b)])];
  const other = names.filter((name) => JSON.stringify(a[name]) !== JSON.stringify(b[name]));
  const table = () => h('table', {className: 'few'},
      h('thead', {}, h('tr', {}, h('th', {}, 'name'), h('th', {className: 'r'}, 'A'), h('th', {className: 'r'}, 'B'))),
      h('tbody', {}, other.map((name) => h('tr', {}, h('td', {}, name), h('td', {className: 'r'}, value(a[name])),
          h('td', {className: 'r'}, value(b[name]))))));
  return h('section', {}, h('h2', {}, 'Hyper-parameters that differ ', names.length > 0 && h('small', {},
      `${count(names.length - other.length)} alike`)),
  other.length ? h('div', {className: 'wide'}, table()) : h('p', {className: 'faint'}, names.length ? 'None.' : 'None were logged.'));
}

// Metrics that both have, over their steps: A solid, B dashed.
async function metrics(page, A, B, plots) {
  const names = A.metrics.filter((one) => B.metrics.some((two) => two.name === one.name && two.axis === one.axis)).map((one) => one.name);
  if (!names.length) return;
  const asked = (run) => ask('metrics', [['id', run.id], ...names.map((name) => ['name', name])], page.ended.signal);
  const [a, b] = await Promise.all([asked(A), asked(B)]);
  if (page.left) return;
  const grid = h('div', {className: 'beside'});
  byId('main').append(h('section', {}, h('h2', {}, 'Metrics over steps ', h('small', {}, legend('solid', 'dashed'))),
      plots ? grid : lackOfPlots()));
  if (!plots) return;
  const both = byAxis(a.metrics).map((one) => [one, b.metrics.find((two) => two.name === one.name)]).filter(([, other]) => other);
  const draw = (some) => some.forEach(([one, other]) => metric(page, grid, one, other));
  draw(both.slice(0, FIRST_SHOWN));
  const more = h('button', {type: 'button', className: 'small', hidden: both.length <= FIRST_SHOWN, onclick: () => {
    more.hidden = true;
    draw(both.slice(FIRST_SHOWN));
  }}, `Show ${count(both.length - FIRST_SHOWN)} more`);
  grid.after(more);
}

function metric(page, grid, a, b) {
  const read = h('div', {className: 'read'}), holder = h('div', {className: 'plot'});
  grid.append(h('div', {}, h('h3', {}, a.name), read, holder));
  const steps = [...new Set([...a.step, ...b.step])].sort((x, y) => x - y);
  const column = (one) => {
    const of = new Map(one.step.map((step, i) => [step, typeof one.v[i] === 'number' ? one.v[i] : null]));
    return steps.map((step) => of.get(step));
  };
  const data = [steps, column(a), column(b)], first = steps[0] ?? 0, end = steps.at(-1) ?? 1;
  const span = {from: first, to: end, end, set(from, to) {
    Object.assign(span, {from: Math.max(first, from), to: Math.min(end, to)});
    plot.moved();
  }};
  const said = (figure) => figure === undefined ? '–' : figure === null ? 'not finite' : value(figure);
  const plot = new Plot(holder, read, span, {title: `${a.name} of both runs`, height: 150, unit: '', sync: 'compare',
    said: (i) => i === null ? `last: A ${value(a.v.at(-1))}, B ${value(b.v.at(-1))}` :
      `step ${count(steps[i])} · A ${said(data[1][i])} · B ${said(data[2][i])}`});
  plot.show(data, [{label: 'A', colour: 'first', gaps: true, width: 1.6}, {label: 'B', colour: 'second', gaps: true, dash: [7, 4], width: 1.6}]);
  page.drawn(() => plot.draw(), holder);
}
