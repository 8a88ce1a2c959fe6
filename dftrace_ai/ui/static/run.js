// One run, from top to bottom, with one window of time for all that is drawn.

import {Answered, ask, byId, fill, h} from './dom.js';
import {count, counted, learnParts, named, place, time, value} from './figures.js';
import {Live} from './live.js';
import {Pictures} from './pictures.js';
import {lackOfPlots, loadPlots} from './plots.js';
import {Ranks} from './ranks.js';
import {Spent} from './spent.js';
import {Steps} from './steps.js';
import {Strip} from './strip.js';
import {Tensors} from './tensors.js';
import {Tracks} from './tracks.js';
import {facts, headline, losses, recovery, withoutFigures} from './verdict.js';

const AGAIN_S = 15;
const READING_S = 2;
const SETTLED_MS = 90;
const LEAST_WINDOW_S = 1e-6;
const MANY_RANKS = 8;
const PROCESSES = 3;

// The window of time, which all panels share.
class Span {
  constructor(end, changed) {
    Object.assign(this, {from: 0, to: end, end, changed});
  }

  toString() {
    return `${this.from} ${this.to}`;
  }

  get whole() {
    return this.from <= 0 && this.to >= this.end;
  }

  // `soft` while a finger or a key is still on its way.
  set(from, to, soft = false) {
    const least = Math.min(this.end, LEAST_WINDOW_S);
    this.from = Math.max(0, Math.min(from, this.end - least));
    this.to = Math.min(this.end, Math.max(to, this.from + least));
    this.changed(soft);
  }

  // By so many of its widths; it keeps its width at the ends.
  move(by) {
    const wide = this.to - this.from;
    const from = Math.max(0, Math.min(this.end - wide, this.from + by * wide));
    this.set(from, from + wide, true);
  }

  zoom(by) {
    const middle = (this.from + this.to) / 2, half = (this.to - this.from) * by / 2;
    this.set(middle - half, middle + half, true);
  }

  grow(end) {
    const {whole} = this;
    this.end = end;
    if (whole || this.to > end) this.to = end;
    this.from = Math.min(this.from, Math.max(0, end - LEAST_WINDOW_S));
  }
}

export async function open(page, [id], asked) {
  const [name, folder] = named(id);
  fill(byId('crumbs'), '/ ', folder && h('span', {className: 'faint'}, `${folder}/`), h('span', {title: id}, name));
  document.title = `${name} · dftrace`;
  fill(byId('main'), h('div', {className: 'waiting'}),
      h('p', {className: 'faint'}, 'Reading the traces; the first time takes longer.'));
  page.keys = {u: () => { location.hash = '#/'; }};
  const [told, plots] = await Promise.all([ask('run', {id}, page.ended.signal), loadPlots()]);
  learnParts(told.parts);
  if (page.left) return;
  if (told.figures) new Run(page, told, plots, asked).show();
  else unread(page, id, told);
}

async function recover(id) {
  const got = await fetch(`api/recover?${new URLSearchParams({id})}`, {method: 'POST'});
  const answer = await got.json();
  if (!got.ok) throw new Answered(answer.error);
  return answer;
}

// Without figures: what is known, until there are some.
function unread(page, id, told) {
  const box = h('div');
  let live = null, seen = '';
  const show = (now) => {
    const state = JSON.stringify([now.state, now.card]);
    if (state === seen) return;
    seen = state;
    if (now.state === 'running') live ??= new Live(page, id, () => {});
    else live?.over();
    fill(box, withoutFigures(now, () => recover(id)));
    fill(byId('main'), live && live.element, box);
  };
  page.keys[' '] = () => live?.hold();
  show(told);
  page.every(READING_S, async () => {
    const now = await ask('run', {id}, page.ended.signal).catch((error) => { if (!page.left) throw error; });
    if (page.left || page.pressed) return;
    if (now.figures) dispatchEvent(new HashChangeEvent('hashchange'));
    else show(now);
  });
}

class Run {
  constructor(page, told, plots, asked) {
    Object.assign(this, {page, told, plots, id: told.id, signal: page.ended.signal, slow: 0});
    this.rank = this.firstRank = told.strip?.rank ?? 0;
    this.span = new Span(this.length(), (soft) => this.changed(soft));
    this.fromAddress(asked);
  }

  length() {
    return Math.max(this.told.strip?.wall_s ?? this.told.figures.wall_s ?? 0, LEAST_WINDOW_S);
  }

  fromAddress(asked) {
    const found = /^([\d.]+)-([\d.]+)$/.exec(asked.get('t') || '');
    if (found && Number(found[1]) < Number(found[2])) {
      this.span.from = Math.min(Number(found[1]), this.span.end);
      this.span.to = Math.min(Number(found[2]), this.span.end);
    }
    const rank = Number(asked.get('rank'));
    if (asked.has('rank') && this.told.step_ranks.includes(rank)) this.rank = rank;
  }

  show() {
    const {told, page} = this;
    const steps = told.step_ranks.length > 0;
    this.top = h('div');
    this.facts = h('div', {className: 'facts num'});
    this.strip = new Strip(this.span);
    this.window = h('span', {className: 'num'});
    this.whole = h('button', {type: 'button', className: 'small', onclick: () => this.span.set(0, this.span.end)}, 'Whole run (0)');
    this.menu = h('select', {'aria-label': 'Rank', hidden: told.step_ranks.length < 2,
      onchange: () => this.showRank(Number(this.menu.value))},
    told.step_ranks.map((rank) => h('option', {value: rank, selected: rank === this.rank}, `rank ${rank}`)));
    this.steps = steps && new Steps(this);
    this.ranks = told.step_ranks.length > 1 && new Ranks(this, told.measures);
    this.tracks = new Tracks(this);
    this.tensors = new Tensors(this);
    this.pictures = new Pictures(this);
    this.spent = new Spent();
    this.rest = h('div');
    this.panels = [this.steps, this.ranks, this.tracks, this.tensors].filter(Boolean);
    this.live = told.state === 'running' && new Live(page, this.id, (rank) => this.showRank(rank), () => this.refresh(true));
    fill(byId('main'), this.live && this.live.element, this.top, this.facts,
        h('div', {id: 'strip'}, this.strip.canvas,
            h('div', {className: 'window'}, this.window, h('span', {className: 'grow'}), this.menu, this.whole)),
        this.strip.outside, steps ? this.steps.element : noSteps(), steps && !this.plots && lackOfPlots(),
        this.panels.slice(1).map((one) => one.element), this.pictures.element, this.spent.element, this.rest);
    page.keys = this.keys();
    page.drawn(() => this.redraw(), byId('main'));
    this.signal.addEventListener('abort', () => this.spent.end());
    this.take();
    this.load().then(() => performance.mark('run-drawn'));
    if (this.live) page.every(AGAIN_S, () => this.refresh());
    if (this.live && told.stale && Date.now() / 1000 - told.card.as_of_s > AGAIN_S) this.refresh();
    // What was read before the files changed is shown at once, and what they hold now as soon as it is read.
    page.every(READING_S, () => this.told.stale && !this.live && this.refresh());
  }

  // Puts a reading on the page: all that does not depend on the window.
  take() {
    const {told} = this;
    const completing = recovery(told, async () => {
      const answer = await recover(this.id);
      this.refresh(true);
      return answer;
    });
    fill(this.top, headline(told, (rank) => this.showRank(rank)), losses(told),
        completing.length > 0 && h('div', {className: 'loss'}, completing));
    fill(this.facts, facts(told), h('span', {className: 'grow'}),
        h('button', {type: 'button', title: 'The window, and of many ranks the one that is shown', onclick: () => this.perfetto()},
            'Open in Perfetto (p)'));
    this.strip.take(told.figures.phases);
    this.tensors.take(told);
    this.pictures.take(told);
    this.spent.take(told);
    fill(this.rest, params(told.params), notRecorded(told.not_recorded), processes(told.figures));
    this.taken = this.tracks.take(told);
  }

  async refresh(now = false) {
    if (!now && (this.live?.held || this.page.pressed)) return;
    let told;
    try {
      told = await ask('run', {id: this.id, refresh: 1}, this.signal);
    } catch (error) {
      if (error instanceof Answered || this.page.left) return;
      throw error;
    }
    if (this.page.left || !told.figures || this.live?.held && !now || this.page.pressed) return;
    this.told = told;
    if (told.state !== 'running' && this.live) this.live.over();
    this.span.grow(this.length());
    this.take();
    await this.load();
  }

  changed(soft) {
    this.tellWindow();
    this.strip.draw();
    for (const panel of this.panels) panel.moved();
    clearTimeout(this.later);
    this.later = setTimeout(() => this.load(), soft ? SETTLED_MS : 0);
  }

  // One round of requests at a time; the last window wins.
  async load() {
    this.address();
    if (this.loading) {
      this.again = true;
      return;
    }
    this.loading = true;
    try {
      do {
        this.again = false;
        const asked = String(this.span);
        const [stepsTold] = await Promise.all([this.steps && this.steps.load(this.signal), this.ranks && this.ranks.load(this.signal),
          this.taken]);
        Object.assign(this, {stepsTold: stepsTold || null, toldOf: asked});
        this.tellWindow();
      } while (this.again && !this.page.left);
    } catch (error) {
      if (this.page.left) return;
      if (!(error instanceof Answered)) throw error;
      this.window.textContent = `⚠ ${error.message}`;
    } finally {
      this.loading = false;
    }
  }

  tellWindow() {
    const {span, stepsTold: told} = this;
    this.whole.disabled = span.whole;
    const steps = told?.count && told.rank === this.rank ? [
      `steps ${count((told.number || told.first)[0])} to ${count((told.number || told.first)[0] + told.count - 1)}`,
      `p50 ${time(told.p[1] * 1e6)}`, `p95 ${time(told.p[2] * 1e6)}`, `longest ${time(told.p[4] * 1e6)}`] : [];
    // Steps are those of the window before until others have come.
    if (span.whole || this.toldOf === String(span)) this.strip.tellOutside(steps.length ? told.outside : null);
    this.window.textContent = [`${span.from.toFixed(3)} to ${place(span.to)}`, ...steps].join(', ');
  }

  address() {
    const {span} = this, asked = new URLSearchParams();
    if (!span.whole) asked.set('t', `${span.from.toFixed(6)}-${span.to.toFixed(6)}`);
    if (this.rank !== this.firstRank) asked.set('rank', this.rank);
    const query = asked.size ? `?${asked}` : '';
    history.replaceState(null, '', `#/run/${encodeURIComponent(this.id)}${query}`);
  }

  showRank(rank) {
    if (!this.told.step_ranks.includes(rank)) return;
    this.rank = rank;
    this.menu.value = rank;
    this.load();
  }

  step(at, long) {
    this.span.set(at - long * 1.5, at + long * 2.5);
  }

  nextSlow() {
    const {worst} = this.firstWorst || this.stepsTold || {};
    if (!worst?.length) return;
    this.firstWorst ||= this.stepsTold;
    const {t, us} = worst[this.slow++ % worst.length];
    this.step(t, us / 1e6);
  }

  perfetto() {
    const {span, told} = this, asked = new URLSearchParams({id: this.id});
    if (!span.whole && told.strip) {
      asked.set('at', `${(span.from + told.strip.zero_s).toFixed(6)}s+${(span.to - span.from).toFixed(6)}s`);
    }
    if (told.step_ranks.length > MANY_RANKS) asked.set('ranks', this.rank);
    window.open(`perfetto?${asked}`, '_blank', 'noopener');
  }

  redraw() {
    this.strip.draw();
    for (const panel of this.panels) panel.redraw();
  }

  keys() {
    const {span} = this;
    return {
      ArrowLeft: () => span.move(-.25), ArrowRight: () => span.move(.25),
      '+': () => span.zoom(.5), '=': () => span.zoom(.5), '-': () => span.zoom(2), '0': () => span.set(0, span.end),
      n: () => this.nextSlow(), p: () => this.perfetto(), f: () => this.spent.search(),
      u: () => { location.hash = '#/'; }, ' ': () => this.live && this.live.hold(),
    };
  }
}

const noSteps = () => h('section', {}, h('h2', {}, 'Steps'), h('p', {}, 'None were found. A step is the body of a loop over ',
    h('code', {}, 'ai.dataloader.fetch.iter(loader)'), ', or a span ', h('code', {}, 'ai.pipeline.step'), '.'));

function params(given) {
  const all = Object.entries(given);
  if (!all.length) return null;
  return h('section', {}, h('h2', {}, 'Hyper-parameters'), h('div', {className: 'facts'}, all.map(([name, one]) =>
    h('span', {}, h('span', {className: 'faint'}, `${name} `), h('b', {}, value(one))))));
}

function notRecorded(lacks) {
  if (!lacks.length) return null;
  return h('section', {}, h('p', {className: 'faint'}, 'Not recorded: ', lacks.flatMap(({what, setting}, i) =>
    [i ? ', ' : '', what, ' (', h('code', {}, setting), ')'])));
}

function processes({processes: all, processes_left_out: more}) {
  const words = (one) => [`${one.process} on ${one.host}`, one.python && `Python ${one.python}`, one.torch && `torch ${one.torch}`,
    one.cpus && counted(one.cpus, 'CPU')].filter(Boolean).join(' · ');
  const rest = all.length - PROCESSES + more;
  if (!all.length) return null;
  return h('section', {}, h('h2', {}, 'Processes'), all.slice(0, PROCESSES).map((one) =>
    h('p', {className: 'faint'}, words(one), one.command && [' · ', h('code', {}, one.command)])),
  rest > 0 && h('p', {className: 'faint'}, `and ${count(rest)} more`));
}
