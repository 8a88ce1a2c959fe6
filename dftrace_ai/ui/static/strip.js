// The whole run on one strip: what it was doing, what its steps went to, and the window that is shown.

import {fit, gutter, h, say} from './dom.js';
import {TIMES, colour, length, moment, partColour, parts, place, share} from './figures.js';

const HEIGHT = 58, DOING = 15, FOOT = 12;
const FONT = '10.5px system-ui, sans-serif';
const HANDLE = 7, FINGER = 22;
// The later ones lie on top.
const ORDER = ['loop', 'start-up', 'warm-up', 'end', 'evaluation', 'checkpoint', 'stall'];
const PHASES = ['start-up', 'warm-up', 'steady', 'evaluation', 'checkpoint', 'between', 'end'];
const NOBODY = {spent_s: {}, phases: [], lane: {}};
const FAINT = new Set(['start-up', 'warm-up', 'end']);
const STALL = '#a40000';

const paint = {
  'loop': (at) => colour(at % 2 ? 'grid' : 'none'),
  'start-up': () => colour('faint'),
  'warm-up': () => colour('first'),
  'end': () => colour('faint'),
  'evaluation': () => partColour('evaluation'),
  'checkpoint': () => partColour('checkpoint'),
  'stall': () => STALL,
};

// `span` is {from, to, end, set(from, to, soft)}.
export class Strip {
  constructor(span) {
    this.span = span;
    this.told = NOBODY;
    this.drag = null;
    this.canvas = h('canvas', {tabIndex: 0, role: 'slider', 'aria-label': 'Window on the run: arrows move it, + and − zoom'});
    this.outside = h('div', {className: 'legend outside'});
    this.listen();
  }

  take(told) {
    this.told = told || NOBODY;
    this.tellOutside();
    this.draw();
  }

  get width() {
    return Math.max(200, this.outside.clientWidth - gutter());
  }

  x(t) {
    return t / this.span.end * this.width;
  }

  t(event) {
    return Math.max(0, Math.min(this.span.end, (event.offsetX - gutter()) / this.width * this.span.end));
  }

  get whole() {
    return this.span.from <= 0 && this.span.to >= this.span.end;
  }

  draw() {
    const {width, span} = this;
    const pen = fit(this.canvas, width + gutter(), HEIGHT);
    pen.font = FONT;
    pen.fillStyle = colour('faint');
    pen.textAlign = 'right';
    pen.fillText('doing', gutter() - 6, 11);
    pen.fillText('parts', gutter() - 6, 32);
    pen.textAlign = 'left';
    pen.translate(gutter(), 0);
    pen.fillStyle = colour('card');
    pen.fillRect(0, 0, width, HEIGHT);
    this.drawPhases(pen);
    this.drawLane(pen);
    this.drawTime(pen);
    if (!this.whole) this.drawWindow(pen);
    this.canvas.ariaValueMin = '0';
    this.canvas.ariaValueMax = span.end.toFixed(3);
    this.canvas.ariaValueNow = span.from.toFixed(3);
    this.canvas.ariaValueText = `${place(span.from)} to ${place(span.to)} of ${place(span.end)}`;
  }

  drawPhases(pen) {
    const drawn = this.told.phases.filter((one) => one.kind !== 'steady').sort((a, b) => ORDER.indexOf(a.kind) - ORDER.indexOf(b.kind));
    const named = [];
    let loop = 0;
    for (const {begin_s: begin, end_s: end, kind, name} of drawn) {
      const x = this.x(begin), wide = Math.max(kind === 'loop' ? .5 : 1.5, this.x(end) - x);
      const faint = FAINT.has(kind);
      pen.fillStyle = paint[kind](loop);
      if (kind === 'loop') loop += 1;
      pen.globalAlpha = faint ? .4 : 1;
      pen.fillRect(x, 0, wide, DOING);
      pen.globalAlpha = 1;
      if (kind === 'stall') hatch(pen, x, wide);
      named.push([kind, kind === 'loop' ? name : kind, x, x + wide]);
    }
    named.forEach((one, i) => this.drawName(pen, one, named.slice(i + 1)));
  }

  // Where none of the later ones lies on it.
  drawName(pen, [kind, words, from, end], over) {
    const needed = pen.measureText(words).width, x = bare(from, end, over, needed + 8);
    if (x === null) return;
    const onDark = kind === 'stall' || kind === 'checkpoint';
    if (kind === 'stall') {
      pen.fillStyle = STALL;
      pen.fillRect(x + 2, 1, needed + 6, DOING - 2);
    }
    pen.fillStyle = onDark ? '#fff' : kind === 'evaluation' ? '#000' : colour('ink');
    pen.fillText(words, x + 4, 11);
  }

  drawLane(pen) {
    const {lane} = this.told, shown = [...parts.keys()].filter((part) => lane[part]);
    const room = HEIGHT - DOING - FOOT - 2, floor = HEIGHT - FOOT;
    if (!shown.length) {
      pen.fillStyle = colour('faint');
      pen.fillText('no steps', 6, 34);
      return;
    }
    const many = lane[shown[0]].length, wide = this.width / many;
    const below = new Float64Array(many);
    for (const part of shown) {
      pen.fillStyle = partColour(part);
      pen.beginPath();
      for (let i = 0; i < many; i++) {
        const tall = lane[part][i] * room;
        pen.rect(i * wide, floor - below[i] - tall, wide + .4, tall);
        below[i] += tall;
      }
      pen.fill();
    }
  }

  drawTime(pen) {
    const {span, width} = this;
    const apart = TIMES.find((s) => s / span.end * width > 74) || span.end;
    pen.fillStyle = colour('faint');
    for (let i = 0; i * apart <= span.end; i++) {
      const x = this.x(i * apart);
      pen.fillRect(x, HEIGHT - FOOT + 1, 1, FOOT - 2);
      const words = i ? moment(i * apart) : '0';
      if (x + pen.measureText(words).width + 5 < width) pen.fillText(words, x + 4, HEIGHT - 2);
    }
  }

  drawWindow(pen) {
    const {width, span} = this, from = this.x(span.from), to = this.x(span.to);
    pen.fillStyle = colour('veil');
    pen.fillRect(0, 0, from, HEIGHT);
    pen.fillRect(to, 0, width - to, HEIGHT);
    pen.strokeStyle = pen.fillStyle = colour('link');
    pen.lineWidth = 2;
    pen.strokeRect(from, 1, Math.max(2, to - from), HEIGHT - 2);
    for (const x of [from, to]) pen.fillRect(x - 3, HEIGHT / 2 - 9, 6, 18);
  }

  // What the whole run went to; or, of a smaller window, what its time outside of steps went to.
  tellOutside(outside = null) {
    const {whole, span} = this, spent = !whole && outside || this.told.spent_s, all = spent === outside ? span.to - span.from : span.end;
    const said = PHASES.filter((kind) => spent[kind]).map((kind) => h('span', {},
        paint[kind] && h('i', {className: 'swatch', style: {background: paint[kind](0), opacity: FAINT.has(kind) ? .4 : 1}}), kind, ' ',
        h('b', {className: 'num'}, length(spent[kind])),
        h('span', {className: 'faint num'}, ` ${share(spent[kind] / all)}`)));
    const more = this.told.phases_left_out;
    this.outside.replaceChildren(...said.length ? [h('span', {className: 'faint'}, spent === outside ? 'Outside of steps:' : 'The whole run:'), ...said] : [],
        more ? h('span', {className: 'faint'}, `${more} phases are not drawn`) : '');
  }

  // Which of the phases are at a place, the shortest first.
  phasesAt(t) {
    return this.told.phases.filter((one) => one.begin_s <= t && one.end_s >= t)
        .sort((a, b) => (a.end_s - a.begin_s) - (b.end_s - b.begin_s));
  }

  listen() {
    const {canvas, span} = this;
    canvas.addEventListener('pointerdown', (event) => this.pressed(event));
    canvas.addEventListener('pointermove', (event) => this.drag ? this.dragged(event) : this.hovered(event));
    canvas.addEventListener('pointerup', (event) => this.released(event));
    canvas.addEventListener('pointercancel', () => { this.drag = null; });
    canvas.addEventListener('dblclick', () => span.set(0, span.end));
    canvas.addEventListener('wheel', (event) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      const at = this.t(event), by = (event.deltaY || event.deltaX) > 0 ? 1.25 : .8;
      span.set(at - (at - span.from) * by, at + (span.to - at) * by, true);
    }, {passive: false});
    canvas.addEventListener('keydown', (event) => this.key(event));
  }

  pressed(event) {
    const {span, whole} = this, x = event.offsetX - gutter();
    const near = event.pointerType === 'touch' ? FINGER : HANDLE;
    const [from, to] = [this.x(span.from), this.x(span.to)];
    this.canvas.setPointerCapture(event.pointerId);
    const at = this.t(event);
    let kind = 'new';
    if (!whole && Math.abs(x - from) < near && Math.abs(x - from) <= Math.abs(x - to)) kind = 'from';
    else if (!whole && Math.abs(x - to) < near) kind = 'to';
    else if (!whole && x > from && x < to) kind = 'move';
    this.drag = {kind, at, from: span.from, to: span.to, far: false};
  }

  dragged(event) {
    const {drag, span} = this, now = this.t(event);
    drag.far ||= Math.abs(this.x(now) - this.x(drag.at)) > 3;
    if (!drag.far) return;
    if (drag.kind === 'new') span.set(Math.min(now, drag.at), Math.max(now, drag.at), true);
    else if (drag.kind === 'from') span.set(Math.min(now, drag.to), drag.to, true);
    else if (drag.kind === 'to') span.set(drag.from, Math.max(now, drag.from), true);
    else {
      const by = Math.max(-drag.from, Math.min(span.end - drag.to, now - drag.at));
      span.set(drag.from + by, drag.to + by, true);
    }
  }

  released() {
    const {drag, span} = this;
    this.drag = null;
    if (!drag || drag.far || drag.kind === 'from' || drag.kind === 'to') return;
    const [phase] = this.phasesAt(drag.at);
    if (phase) span.set(phase.begin_s, phase.end_s);
  }

  hovered(event) {
    const {span, whole, canvas} = this, x = event.offsetX - gutter(), t = this.t(event);
    const [from, to] = [this.x(span.from), this.x(span.to)];
    const handle = Math.min(Math.abs(x - from), Math.abs(x - to)) < HANDLE;
    canvas.style.cursor = whole ? 'crosshair' : handle ? 'ew-resize' : x > from && x < to ? 'grab' : 'crosshair';
    const phase = this.phasesAt(t).find((one) => one.kind !== 'loop') || this.phasesAt(t)[0];
    const words = phase ? `, ${phase.kind === 'loop' ? phase.name : `${phase.kind} ${phase.name}`.trim()}: ` +
        length(phase.end_s - phase.begin_s) : '';
    canvas.title = place(t) + words;
  }

  key(event) {
    const {span} = this, wide = span.to - span.from;
    const act = {
      ArrowLeft: () => span.move(-.25), ArrowRight: () => span.move(.25),
      Home: () => span.set(0, wide), End: () => span.set(span.end - wide, span.end),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
    say(this.canvas.ariaValueText);
  }
}

// Where the first stretch begins that is so wide and has nothing on it; null where there is none.
function bare(from, end, over, wide) {
  let x = from;
  for (const [, , low, high] of [...over].sort((a, b) => a[2] - b[2])) {
    if (Math.min(low, end) - x >= wide) return x;
    x = Math.max(x, high);
  }
  return end - x >= wide ? x : null;
}

function hatch(pen, x, wide) {
  pen.save();
  pen.beginPath();
  pen.rect(x, 0, wide, DOING);
  pen.clip();
  pen.strokeStyle = '#fff';
  pen.lineWidth = 1;
  for (let at = x - DOING; at < x + wide; at += 6) {
    pen.beginPath();
    pen.moveTo(at, DOING);
    pen.lineTo(at + DOING, 0);
    pen.stroke();
  }
  pen.restore();
}
