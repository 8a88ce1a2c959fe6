// Pictures that the run has logged: one of each name at a time, by the step.

import {ask, fill, h} from './dom.js';
import {count, counted} from './figures.js';

const FIRST_SHOWN = 6;

export class Pictures {
  constructor(run) {
    this.run = run;
    this.made = new Map();
    this.box = h('div', {className: 'pictures'});
    this.element = h('section', {hidden: true}, h('h2', {}, 'Pictures'), this.box);
  }

  take(told) {
    this.element.hidden = !told.media.length;
    for (const [at, {name, count: many}] of told.media.slice(0, FIRST_SHOWN).entries()) {
      const known = this.made.get(name);
      if (known?.many === many) continue;
      const figure = known?.figure || h('figure');
      this.made.set(name, {figure, many});
      if (!known) this.box.append(figure);
      this.load(name, at, figure);
    }
  }

  async load(name, at, figure) {
    // By its place: an address may be shorter than a name.
    const {items} = await ask('media', {id: this.run.id, at}, this.run.signal);
    if (!items.length) return;
    const image = h('img', {alt: '', loading: 'lazy'}), said = h('span', {className: 'faint num'});
    const slide = h('input', {type: 'range', min: 0, max: items.length - 1, value: items.length - 1,
      'aria-label': `which picture of ${name}`, hidden: items.length < 2, oninput: () => show(Number(slide.value))});
    const show = (i) => {
      image.src = `api/picture?${new URLSearchParams({id: this.run.id, at, n: items[i].n})}`;
      image.alt = `${name} at step ${items[i].step}`;
      said.textContent = ` step ${count(items[i].step)}${items.length > 1 ? `, ${i + 1} of ${counted(items.length, 'picture')}` : ''}`;
    };
    fill(figure, h('figcaption', {}, h('b', {}, name), said), slide, image);
    show(items.length - 1);
  }
}
