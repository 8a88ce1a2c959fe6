// A running job as it is now: who is waited for, what each rank does, asked for again and again.

import {Answered, ask, byId, fill, h} from './dom.js';
import {count, counted, length, share} from './figures.js';

const LOOK_S = 1.5, AGE_S = .5;
const LOOKS = 30, LEAST_HELD = 3;
const MOST_TILES = 16, MOST_NAMED = 6;
const OLD_S = 6;
const PARTS = {dataloader: 'wait', comm: 'comm', compute: 'backward', data: 'data', checkpoint: 'checkpoint', pipeline: 'other',
  device: 'transfer'};

export class Live {
  // `show` shows a rank, `ended` what there is when the job is over.
  constructor(page, id, show, ended = () => {}) {
    Object.assign(this, {page, id, show, ended, held: false, finished: false, taken: 0, looks: []});
    this.tiles = new Map();
    this.title = h('h2', {'aria-live': 'polite'}, 'Looking…');
    this.about = h('p', {className: 'faint num'});
    this.lines = h('pre', {hidden: true});
    this.grid = h('div', {className: 'tiles'});
    this.button = h('button', {type: 'button', 'aria-pressed': 'false', onclick: () => this.hold()}, 'Hold (space)');
    this.mark = h('span', {className: 'state running'}, h('i', {className: 'mark pulse'}, '▶'), 'now');
    this.element = h('div', {className: 'now'}, h('div', {className: 'bar'}, this.mark, this.title,
        h('span', {className: 'grow'}), this.button), this.about, this.lines, this.grid);
    page.every(LOOK_S, () => this.look());
    page.every(AGE_S, () => this.tellAge());
    this.look();
  }

  hold() {
    if (this.finished) return;
    this.held = !this.held;
    this.button.textContent = this.held ? 'Go on (space)' : 'Hold (space)';
    this.button.ariaPressed = String(this.held);
    this.tellAge();
  }

  over() {
    this.finished = true;
    this.button.hidden = true;
    this.mark.firstChild.classList.remove('pulse');
    byId('age').textContent = '';
  }

  tellAge() {
    if (!this.taken || this.finished) return;
    const s = Math.max(0, Date.now() / 1000 - this.taken);
    byId('age').textContent = `${s > OLD_S ? '⚠ ' : ''}${this.held ? 'held, ' : ''}data ${s.toFixed(1)} s old`;
  }

  async look() {
    if (this.held || this.finished) return;
    let told;
    try {
      told = await ask('live', {id: this.id}, this.page.ended.signal);
    } catch (error) {
      // The age beside the theme button says that nothing new has come.
      if (error instanceof Answered || error instanceof TypeError || this.page.left) return;
      throw error;
    }
    if (this.page.left || this.held) return;
    if (told.over !== null) {
      this.title.textContent = 'It has ended.';
      this.about.textContent = told.over;
      this.over();
      this.ended();
      return;
    }
    this.taken = told.taken_s;
    this.take(told);
  }

  take(told) {
    this.looks = [...this.looks, told.waited_for].slice(-LOOKS);
    const often = new Map();
    for (const rank of this.looks.flat()) often.set(rank, (often.get(rank) || 0) + 1);
    const waits = this.looks.filter((one) => one.length).length;
    const [worst, times] = [...often].sort((a, b) => b[1] - a[1])[0] || [null, 0];
    // Who waits in collectives says since when; of other spans only looks tell.
    const looked = waits >= LEAST_HELD && times >= waits / 2;
    this.waited = told.waited.length ? told.waited.map((one) => one.rank) : looked ? [worst] : [];
    const stuck = told.stuck?.stuck;
    const words = stuck ? `Stuck: ${told.stuck_lines[0] || 'a rank does not go on'}` :
      told.waited.length ? waitedFor(told.waited) :
      looked ? `Rank ${worst} is waited for, in ${times} of ${counted(this.looks.length, 'look')}` :
      told.ranks.length > 1 ? 'Nobody is waited for more than others' : 'It runs';
    if (this.title.textContent !== words) this.title.textContent = words;
    this.title.classList.toggle('worse', Boolean(stuck));
    this.lines.hidden = !stuck || told.stuck_lines.length < 2;
    this.lines.textContent = stuck ? told.stuck_lines.join('\n') : '';
    this.about.textContent = about(told);
    this.takeTiles(told.ranks, often);
  }

  // A tile keeps its place once it is there; of very many ranks those that are waited for have one.
  takeTiles(ranks, often) {
    const room = MOST_TILES - this.tiles.size;
    const key = (one) => `${one.rank} ${one.host} ${one.pid}`;
    const fresh = ranks.filter((one) => !this.tiles.has(key(one)))
        .sort((a, b) => (often.get(b.rank) || 0) - (often.get(a.rank) || 0)).slice(0, Math.max(0, room))
        .sort((a, b) => a.rank - b.rank || a.pid - b.pid);
    for (const one of fresh) {
      const tile = new Tile(() => this.show(one.rank));
      this.tiles.set(key(one), tile);
      this.grid.append(tile.element);
    }
    for (const one of ranks) this.tiles.get(key(one))?.take(one, this.waited.includes(one.rank));
  }
}

function waitedFor(waited) {
  const [{share: part, covered_s: seconds}] = waited;
  const ranks = waited.slice(0, MOST_NAMED).map((one) => one.rank).join(', ');
  return waited.length === 1 ? `Rank ${ranks} is waited for, ${share(part)} of the last ${length(seconds)}` :
    `Ranks ${ranks}${waited.length > MOST_NAMED ? ', …' : ''} are waited for in turns, ${share(part)} of the last ${length(seconds)} at most`;
}

const nameOf = (one) => one.rank === null ? `process ${one.pid}` : `rank ${one.rank}`;

function about({ranks, hidden}) {
  const alive = ranks.filter((one) => one.state === 'alive').length;
  const steps = ranks.map((one) => one.step).filter((one) => one !== null);
  const [least, most] = [Math.min(...steps), Math.max(...steps)];
  const quiet = ranks.filter((one) => one.quiet_s !== null).sort((a, b) => b.quiet_s - a.quiet_s)[0];
  const told = ranks.map((one) => one.told_s).filter((age) => age !== null);
  return [counted(ranks.length, 'rank'), `${count(alive)} alive`,
    told.length && `${counted(told.length, 'rank')} of other hosts as told up to ${length(Math.max(...told))} ago`,
    steps.length && `step ${count(least)}${most > least ? ` to ${count(most)}` : ''}`,
    quiet && `${nameOf(quiet)} has been quiet for longest, ${length(quiet.quiet_s)}`,
    hidden > 0 && `${counted(hidden, 'process').replace(/ss$/, 'sses')} on other hosts cannot be looked at`,
  ].filter(Boolean).join(' · ');
}

class Tile {
  constructor(show) {
    this.name = h('span');
    this.step = h('span', {className: 'num'});
    this.span = h('span');
    this.since = h('span');
    this.shares = h('span', {className: 'shares'});
    this.element = h('button', {type: 'button', className: 'tile', onclick: show},
        h('b', {}, this.name, this.step), h('span', {className: 'faint num where'}, this.span, this.since), this.shares);
  }

  take(one, waited) {
    this.name.textContent = nameOf(one);
    this.step.textContent = one.state === 'alive' ? count(one.step) : `✕ ${one.state}`;
    this.span.textContent = one.where || 'in no span';
    this.since.textContent = one.where && one.since_s !== null ? length(one.since_s) : '';
    this.element.classList.toggle('waited', waited);
    const all = Math.max(one.covered_s || 0, 1e-9);
    const shares = Object.entries(one.self_s).sort((a, b) => b[1] - a[1]).map(([category, s]) => [category, s / all]);
    this.element.title = shares.map(([category, part]) => `${category} ${share(part)}`).join(', ');
    fill(this.shares, shares.map(([category, part]) => h('i', {style: {
      width: `${Math.min(100, part * 100)}%`, background: `var(--part-${PARTS[category] || 'other'})`}})));
  }
}
