// Stacks of samples as a flame graph: of a rank or a run, of some of its steps, and what these have more than others.
//
// A plain script; it needs words.js and flame.js before it:
//
//   const stacks = dftrace.stackGraph(holder, sources, {label: ...})
//   stacks.update(sources)   newer ones; what was chosen stays as far as it is there
//   stacks.choose(0, 1)      the first of them beside the second
//   stacks.end()
//
// A source is what the JSON of `dftrace report` has in `stacks_of_ranks`, and what it is called:
// {name, graph: {frames}, ranges: [{first, last, steps}], range_ns: [[ns in each range] of each frame]}.
//
// Of some steps, and beside others, times are those of a step. A frame is as wide as what it takes where it
// takes more, and has the colour of more or less.
'use strict';
(() => {
  const dftrace = window.dftrace = window.dftrace || {};
  const NOTHING = -1, LEAST_SHARE = 0.005, NORMAL_995 = 2.58;

  function element(tag, attributes, ...inside) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...inside);
    return made;
  }

  const numbered = (names) => names.map((name, at) => [at, name]);

  // A choice of a source and of its steps.
  class Chosen {
    constructor(name, changed) {
      this.source = element('select', {'aria-label': `${name}: of whom`});
      this.from = element('select', {'aria-label': `${name}: from step`});
      this.to = element('select', {'aria-label': `${name}: to step`});
      this.steps = element('span', {class: 'flame-steps'}, 'steps ', this.from, ' to ', this.to);
      this.source.addEventListener('change', () => {
        this.fillSteps();
        changed();
      });
      for (const select of [this.from, this.to]) select.addEventListener('change', changed);
    }

    fill(sources, rows) {
      this.sources = sources;
      const before = this.source.options[this.source.selectedIndex]?.text;
      this.source.replaceChildren(...rows.map(([value, text]) => new Option(text, value)));
      const kept = rows.findIndex(([, text]) => text === before);
      this.source.selectedIndex = Math.max(0, kept);
      this.source.hidden = rows.length < 2;
      this.fillSteps(kept >= 0);
    }

    fillSteps(keeps = false) {
      const ranges = this.of?.ranges ?? [], [from, to] = [this.from.value, this.to.value];
      this.from.replaceChildren(...ranges.map((range, at) => new Option(range.first, at)));
      this.to.replaceChildren(...ranges.map((range, at) => new Option(range.last, at)));
      this.from.selectedIndex = keeps && from < ranges.length ? from : 0;
      this.to.selectedIndex = keeps && to && to < ranges.length ? to : ranges.length - 1;
      this.steps.hidden = ranges.length < 2;
    }

    get of() { return this.sources[Number(this.source.value)]; }

    get isAll() {
      return Number(this.from.value) <= 0 && Number(this.to.value) >= this.of.ranges.length - 1;
    }

    // Nanoseconds of a step of each frame, by its path, and the variance of that: samples come by chance.
    times() {
      const {graph, ranges, range_ns: times} = this.of;
      const ends = [Number(this.from.value), Number(this.to.value)].sort((a, b) => a - b);
      const within = ([first, last], list) => list.slice(first, last + 1);
      const steps = within(ends, ranges).reduce((sum, range) => sum + range.steps, 0) || 1;
      const each = Math.max(0, ...graph.frames.map((frame) => frame.count && frame.total_ns / frame.count));
      const paths = [], found = new Map();
      graph.frames.forEach((frame, at) => {
        const path = `${frame.parent < 0 ? '' : paths[frame.parent]}\n${frame.cat}\t${frame.name}`;
        paths.push(path);
        const ns = within(ends, times[at]).reduce((sum, one) => sum + one, 0) / steps;
        found.set(path, {frame, ns, varies: ns * each / steps, above: frame.parent < 0 ? '' : paths[frame.parent]});
      });
      return found;
    }
  }

  class StackGraph {
    constructor(holder, sources, options) {
      const changed = () => this.show();
      this.shown = new Chosen('Shown', changed);
      this.other = new Chosen('Beside', changed);
      this.note = element('p', {class: 'flame-note', role: 'status'});
      this.bar = element('div', {class: 'flame-bar'},
          element('span', {}, this.shown.source, ' ', this.shown.steps),
          element('label', {}, 'beside ', this.other.source), this.other.steps);
      const inner = element('div', {});
      holder.append(this.bar, this.note, inner);
      this.graph = dftrace.flameGraph(inner, [], {all: 'all samples', noun: 'sample', ...options});
      this.update(sources);
    }

    update(sources) {
      const names = sources.map((one) => one.name);
      this.shown.fill(sources, numbered(names));
      this.other.fill(sources, [[NOTHING, 'nothing'], ...numbered(names)]);
      this.bar.hidden = sources.length < 2 && sources[0].ranges.length < 2;
      this.show();
    }

    show() {
      const {shown, other} = this, isAlone = Number(other.source.value) === NOTHING;
      other.steps.hidden = isAlone || other.of.ranges.length < 2;
      if (isAlone && shown.isAll) {
        this.note.textContent = '';
        this.graph.update(shown.of.graph.frames);
        return;
      }
      const own = shown.times(), theirs = isAlone ? new Map() : other.times();
      const whole = (times) => [...times.values()].reduce((sum, one) => sum + (one.above ? 0 : one.ns), 0);
      const all = Math.max(whole(own), whole(theirs)) || 1;
      const frames = [], places = new Map([['', -1]]);
      // Parents stand before their children in either.
      for (const [path, {frame, above}] of [...own, ...theirs]) {
        if (places.has(path)) continue;
        const [now, before] = [own.get(path)?.ns ?? 0, theirs.get(path)?.ns ?? 0];
        if (!now && !before) continue;
        places.set(path, frames.length);
        const varies = (own.get(path)?.varies ?? 0) + (theirs.get(path)?.varies ?? 0);
        const least = Math.max(LEAST_SHARE * all, NORMAL_995 * Math.sqrt(varies));
        frames.push(isAlone ? this.alone(frame, now, all) : this.beside(frame, now, before, least));
        frames[frames.length - 1].parent = places.get(above);
      }
      this.note.textContent = isAlone ? 'Times are those of a step.' :
          `Widths are times of a step, where it takes more. ▲ more than beside it, ▼ less: ` +
          `${dftrace.timeText(whole(own))} a step, ${dftrace.timeText(whole(theirs))} beside it.`;
      this.graph.update(frames);
    }

    alone(frame, now, all) {
      const told = `${frame.cat ? `${frame.cat}.` : ''}${dftrace.plain(frame.name)}: ${dftrace.timeText(now)} a step, ` +
          `${dftrace.shareText(now / all)} of all samples`;
      return {...frame, total_ns: now, told};
    }

    beside(frame, now, before, least) {
      const more = now - before, isLittle = Math.abs(more) < least;
      const sign = more < 0 ? '▼ −' : '▲ +', change = sign + dftrace.timeText(Math.abs(more));
      const words = `${dftrace.timeText(now)} a step, ${dftrace.timeText(before)} beside it`;
      const told = `${frame.cat ? `${frame.cat}.` : ''}${dftrace.plain(frame.name)}: ${words}: ${isLittle ? 'no more than chance' : change}`;
      const colour = isLittle ? 'none' : more > 0 ? 'second' : 'first';
      return {...frame, total_ns: Math.max(now, before), told, timed: isLittle ? '' : change, colour};
    }

    // Shows one source beside another, by their places.
    choose(shown, other) {
      this.shown.source.value = shown;
      this.other.source.value = other;
      this.shown.fillSteps();
      this.other.fillSteps();
      this.show();
    }

    end() { this.graph.end(); }
  }

  dftrace.stackGraph = (holder, sources, options = {}) => new StackGraph(holder, sources, options);
})();
