// The headline of a run: what is slow, why, who, what to do; or what is the matter with the run.

import {Answered, fill, h} from './dom.js';
import {MARKS, STATES, counted, count, date, length, share, time, unbroken} from './figures.js';

const MOST_RANKS = 6;
const MOST_LOSSES = 3;
// What costs nothing that could be saved.
const NO_GAIN = new Set(['compute-bound']);
const SEVERITY_WORDS = {critical: 'critical', warning: 'warning', info: 'note'};
const OPEN = /no closing line|torn/;

function ranksAsButtons(ranks, show) {
  const buttons = ranks.slice(0, MOST_RANKS).map((rank) =>
    h('button', {type: 'button', className: 'small', onclick: () => show(rank)}, `rank ${rank}`));
  return [buttons.flatMap((one, i) => i ? [' ', one] : [one]),
    ranks.length > MOST_RANKS && ` and ${counted(ranks.length - MOST_RANKS, 'more')}`.replace(/s$/, '')];
}

// The verdict of a reading; `show` shows a rank.
export function headline(told, show) {
  const {verdict} = told.figures, {card} = told;
  const finding = verdict.findings[0];
  const severity = finding?.severity || card.severity;
  const tag = [`${MARKS[severity] || '●'} ${card.words || verdict.verdict}`, finding && SEVERITY_WORDS[finding.severity],
    finding && `${finding.confidence} confidence`].filter(Boolean).join(' · ');
  const asOf = (told.state === 'running' || told.stale) && h('span', {className: 'faint'},
      ` as of ${verdict.steps ? `step ${count(verdict.steps.count - 1)}, ` : ''}${date(card.as_of_s).slice(11)}`);
  return h('div', {className: `headline ${severity}`},
      h('div', {className: 'tag'}, tag, asOf),
      h('h1', {}, unbroken(finding ? finding.what : nothingFound(verdict))),
      h('dl', {}, rows(told, finding, show)),
      others(verdict, show), unknown(verdict));
}

function nothingFound(verdict) {
  if (!verdict.steps) return 'No steps were found in this run.';
  return verdict.verdict === 'none' ? 'Nothing stands out.' : verdict.abstained[0]?.why || 'No verdict.';
}

function rows(told, finding, show) {
  const {verdict} = told.figures;
  const row = (name, ...said) => [h('dt', {}, name), h('dd', {}, said)];
  const made = [];
  const bad = verdict.nonfinite;
  if (bad) {
    made.push(row('not finite', h('b', {className: 'worse'}, bad.tensor),
        bad.step === null ? '' : `, first in step ${count(bad.step)}`,
        verdict.ranks > 1 ? [' on ', ranksAsButtons([bad.rank], show)] : ''));
  }
  if (finding?.because) made.push(row('because', finding.because));
  for (const line of finding?.lines ?? []) if (line.text) made.push(row('because', line.text));
  const late = told.card.late_ranks || [];
  const other = verdict.of_some_ranks.find((one) => one.ranks.length <= 3);
  if (late.length) made.push(row('who differs', ranksAsButtons(late, show)));
  else if (other) made.push(row('who differs', ranksAsButtons(other.ranks, show), ' ', other.what));
  if (finding?.next) made.push(row('do next', h('b', {}, finding.next)));
  if (finding?.share_of === 'steps' && !NO_GAIN.has(finding.kind)) {
    const median = verdict.steps?.median_ns;
    made.push(row('at best', `steps ${share(finding.share)} shorter`,
        median ? ` (${time(median)} to ${time(median * (1 - finding.share))})` : ''));
  }
  return made;
}

function others(verdict, show) {
  const more = [...verdict.findings.slice(1), ...verdict.of_some_ranks];
  if (!more.length) return null;
  return h('details', {}, h('summary', {}, counted(more.length, 'more finding')),
      h('ul', {}, more.map((one) => h('li', {className: one.severity},
          h('i', {className: 'mark', 'aria-label': one.severity}, MARKS[one.severity]), ` ${one.what} `,
          verdict.of_some_ranks.includes(one) && [ranksAsButtons(one.ranks, show), ' '],
          h('span', {className: 'faint'}, one.next)))));
}

function unknown(verdict) {
  const said = [...verdict.abstained.map((one) => `${one.what}: ${one.why}`), ...verdict.notes,
    ...verdict.unseen.map((one) => `not seen: ${one}`)];
  if (!said.length) return null;
  return h('details', {}, h('summary', {}, 'What this cannot know'), h('ul', {}, said.map((one) => h('li', {}, one))));
}

export function losses(told) {
  // Of a job that runs, or can be completed, that is no loss.
  const open = told.state === 'running' || told.card.hint;
  const lost = told.figures.losses.map((line) => line.replace(/^\S*\/(?=\S+: )/, ''))
      .filter((line) => !(open && OPEN.test(line)));
  if (!lost.length) return null;
  const more = lost.length - MOST_LOSSES;
  return h('div', {className: 'loss'}, h('b', {}, 'Lost or unreadable: '), lost.slice(0, MOST_LOSSES).join('; '),
      more > 0 && ` and ${count(more)} more`);
}

export function facts(told) {
  const {verdict, processes} = told.figures, {card} = told;
  const found = [
    ['state', [h('span', {className: told.state}, h('i', {className: 'mark', 'aria-hidden': 'true'},
        STATES[told.state] || '')), told.state]],
    ['began', date(card.began_s)], ['length', length(card.wall_s)], ['ranks', count(verdict.ranks || card.ranks || null)],
    ['steps', count(verdict.steps?.count || 0)],
    ['a step', verdict.steps ? `${time(verdict.steps.median_ns)} (median)` : ''],
    ['events', count(card.events)],
    ['host', hosts(processes)],
  ];
  return found.filter(([, said]) => said !== '').map(([name, said]) =>
    h('span', {}, h('span', {className: 'faint'}, `${name} `), h('b', {}, said)));
}

function hosts(processes) {
  const names = new Set(processes.map((one) => one.host));
  return names.size === 1 ? [...names][0] : names.size ? counted(names.size, 'host') : '';
}

// What completes the trace of a process that died: the command, and a button that does the same.
export function recovery({state, card}, recover) {
  if (state !== 'died' || !card?.hint) return [];
  const said = h('div', {role: 'status'});
  const button = h('button', {type: 'button', className: 'main', onclick: async () => {
    button.disabled = true;
    said.textContent = 'Completing…';
    try {
      const {done, failed} = await recover();
      fill(said, [...done, ...failed].map((line) => h('p', {}, line)));
    } catch (error) {
      if (!(error instanceof Answered)) throw error;
      said.textContent = error.message;
      button.disabled = false;
    }
  }}, 'Complete its trace');
  return [h('p', {}, 'Its trace is not complete; do: ', h('code', {}, card.hint)), button, said];
}

// A run of which there are no figures: it is being read, cannot be read, or died and is incomplete.
export function withoutFigures(told, recover) {
  const {card} = told;
  const severity = told.state === 'died' ? 'warning' : card?.severity || 'note';
  const box = h('div', {className: `headline ${severity}`, role: 'status'},
      h('div', {className: 'tag'}, `${STATES[told.state] || ''} ${told.state}`),
      h('h1', {}, card?.what || 'It is being read; the first time takes longer.'));
  box.append(...recovery(told, recover));
  return box;
}
