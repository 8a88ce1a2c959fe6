// A flame graph on one canvas: zoom by click, Enter or finger, search with the share of what matches.
//
// A plain script; it needs words.js before it, and palette.css and pieces.css:
//
//   const graph = dftrace.flameGraph(holder, frames, {all: 'all tracks', noun: 'span', zoomed: (index) => ...})
//   graph.zoomTo(index)      -1 is all of it
//   graph.search(text)       as if it had been typed
//   graph.focusSearch()
//   graph.update(frames)     newer ones; zoom, place and search stay where they are there
//   graph.end()              for pages whose parts come and go
//
// `frames` are those of the JSON of `dftrace report`: {cat, name, parent, count, total_ns, self_ns, part},
// parents before their children, `part` being what `--part-NAME` of the palette colours. A frame without
// a category holds others and is no span. What is inside of a frame is drawn below it. `told`, `timed` and
// `colour` of a frame stand in place of what is told of it, written into it, and of the colour of its part.
//
// Keys, while the picture has the focus: Down to the greatest child, Up to the parent, Left and Right to
// siblings, Home and End to the first and last of them, Enter or Space zooms, Escape zooms out by one,
// 0 shows all. In the search: Enter and Shift+Enter go through what matches, Escape empties it. What is
// told of a frame stands above the picture, and what the keyboard did goes to a live region, too.
'use strict';
(() => {
  const dftrace = window.dftrace = window.dftrace || {};
  const ROW = 20, MOST_ROWS = 48, LEAST_WIDTH = 0.4, NAMED_WIDTH = 26, TIMED_WIDTH = 170;
  const FONT = '12px system-ui, sans-serif';

  function element(tag, attributes, ...inside) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...inside);
    return made;
  }

  // The frames as nodes, below one that holds all of them.
  function treeOf(frames, all) {
    const top = {index: -1, cat: '', name: all, part: 'none', count: 0, self_ns: 0, up: null,
      kids: []};
    const nodes = frames.map((frame, index) => ({...frame, index, kids: [],
      cat: dftrace.plain(frame.cat), name: dftrace.plain(frame.name)}));
    for (const node of nodes) {
      node.up = node.parent < 0 ? top : nodes[node.parent];
      node.up.kids.push(node);
    }
    top.total_ns = top.kids.reduce((sum, kid) => sum + kid.total_ns, 0);
    return {top, nodes};
  }

  const fullName = (node) => node.cat ? `${node.cat}.${node.name}` : node.name;

  function isInside(node, around) {
    for (; node; node = node.up) if (node === around) return true;
    return false;
  }

  class FlameGraph {
    constructor(holder, frames, options) {
      this.all = options.all || 'all tracks';
      this.noun = options.noun || 'span';
      this.zoomed = options.zoomed || (() => {});
      const what = this.noun === 'span' ? 'spans' : 'lines';
      this.input = element('input', {type: 'search', placeholder: `Search ${what}`,
        'aria-label': `Search ${what} of the flame graph`, autocomplete: 'off', spellcheck: 'false'});
      this.back = element('button', {type: 'button'}, 'Show all');
      this.found = element('span', {class: 'flame-found', role: 'status'});
      this.told = element('p', {class: 'flame-told'});
      this.heard = element('p', {class: 'heard', 'aria-live': 'polite'});
      this.canvas = element('canvas', {class: 'flame', tabindex: '0', role: 'application',
        'aria-roledescription': 'flame graph', 'aria-label': `${options.label || 'Flame graph'}: ` +
            'arrows go to parent, children and siblings, Enter zooms, Escape zooms out'});
      holder.append(element('div', {class: 'flame-bar'}, this.input, this.back, this.found),
          this.told, this.canvas, this.heard);
      this.wanted = '';
      this.take(frames);
      this.listen();
      this.endTheme = dftrace.onTheme(() => this.draw());
      this.sizes = new ResizeObserver(() => {
        if (this.canvas.clientWidth !== this.width) this.draw();
      });
      this.sizes.observe(holder);
      this.draw();
    }

    take(frames) {
      const {top, nodes} = treeOf(frames, this.all);
      Object.assign(this, {top, nodes, zoom: top, at: top, boxes: [], width: -1});
      this.match();
    }

    listen() {
      const {canvas, input} = this;
      this.back.addEventListener('click', () => this.show(this.top, this.top, true));
      input.addEventListener('input', () => this.search(input.value, false));
      input.addEventListener('keydown', (event) => this.searchKey(event));
      canvas.addEventListener('pointermove', (event) => {
        if (event.pointerType !== 'touch') this.tell(this.nodeAt(event) || this.at);
      });
      canvas.addEventListener('pointerleave', () => this.tell(this.at));
      canvas.addEventListener('click', (event) => {
        const node = this.nodeAt(event);
        if (node) this.show(node, node, true);
      });
      canvas.addEventListener('keydown', (event) => this.key(event));
      canvas.addEventListener('focus', () => this.draw());
      canvas.addEventListener('blur', () => this.draw());
    }

    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const {at, zoom, top} = this;
      const beside = at.up ? at.up.kids : [at], place = beside.indexOf(at);
      const next = {ArrowDown: at.kids[0], ArrowUp: at.up, ArrowLeft: beside[place - 1],
        ArrowRight: beside[place + 1], Home: beside[0], End: beside[beside.length - 1]};
      if (event.key in next) {
        if (next[event.key]) this.goTo(next[event.key]);
      } else if (event.key === 'Enter' || event.key === ' ') {
        this.show(at, at, true);
      } else if (event.key === 'Escape' && zoom !== top) {
        this.show(zoom.up, this.at, true);
      } else if (event.key === '0') {
        this.show(top, this.at, true);
      } else {
        return;
      }
      // Nothing else of the page moves by these.
      event.preventDefault();
      event.stopPropagation();
    }

    // Goes to a frame; where it is not in the picture, that zooms out as far as need be.
    goTo(node) {
      let zoom = this.zoom;
      if (!isInside(zoom, node)) while (!isInside(node, zoom)) zoom = zoom.up;
      this.show(zoom, node, true);
    }

    searchKey(event) {
      if (event.key === 'Enter' && this.matches.length) {
        const last = this.matches.indexOf(this.at), many = this.matches.length;
        const next = event.shiftKey ? (last < 0 ? many : last) - 1 : last + 1;
        this.goTo(this.matches[(next + many) % many]);
        event.preventDefault();
      } else if (event.key === 'Escape' && this.input.value) {
        this.search('');
        event.preventDefault();
        event.stopPropagation();
      }
    }

    // Finds what matches: the frames, and those of them that are not inside of another.
    match() {
      const {wanted} = this;
      this.matches = [];
      for (const node of this.nodes) {
        node.matches = Boolean(wanted && node.cat) && fullName(node).toLowerCase().includes(wanted);
        node.covered = node.up !== null && Boolean(node.up.covered || node.up.matches);
        if (node.matches) this.matches.push(node);
      }
      this.matches.sort((a, b) => b.total_ns - a.total_ns || a.index - b.index);
    }

    search(text, typed = true) {
      if (typed) this.input.value = text;
      this.wanted = text.trim().toLowerCase();
      this.match();
      this.draw();
    }

    // The share is of what is shown.
    tellFound() {
      if (!this.wanted) {
        this.found.textContent = '';
        return;
      }
      const {zoom} = this;
      const inside = this.matches.filter((node) => isInside(node, zoom));
      // A match around the zoom covers all of it.
      const whole = zoom.matches || zoom.covered;
      const outermost = inside.filter((node) => !node.covered);
      const time = whole ? zoom.total_ns : outermost.reduce((sum, node) => sum + node.total_ns, 0);
      const share = zoom.total_ns ? time / zoom.total_ns : 0;
      const words = inside.length || whole ?
          `${dftrace.shareText(share)} of ${fullName(zoom)}: ${dftrace.timeText(time)}` +
          ` in ${dftrace.counted(inside.length, 'frame')}` :
          `nothing in ${fullName(zoom)} matches`;
      if (this.found.textContent !== words) this.found.textContent = words;
    }

    wordsOf(node) {
      const {top} = this, time = dftrace.timeText;
      if (node === top) return `${fullName(top)}: ${time(top.total_ns)} together`;
      if (node.told) return node.told;
      const of = (around) => around.total_ns ?
          `${dftrace.shareText(node.total_ns / around.total_ns)} of ${fullName(around)}` : '';
      const shares = [of(top), node.up.total_ns !== top.total_ns && of(node.up)].filter(Boolean);
      const said = [`${fullName(node)}: ${[time(node.total_ns), ...shares].join(', ')}`];
      if (node.cat) {
        said.push(`self ${time(node.self_ns)}`);
        const mean = node.count > 1 ? ` of ${time(node.total_ns / node.count)} on average` : '';
        said.push(this.noun === 'span' ? dftrace.counted(node.count, 'span') + mean :
            dftrace.counted(node.count, this.noun));
      }
      return said.join('; ');
    }

    tell(node) {
      const words = this.wordsOf(node);
      if (this.told.textContent !== words) this.told.textContent = words;
    }

    say() {
      const {at, zoom} = this, beside = at.up ? at.up.kids : [at];
      const place = `${beside.indexOf(at) + 1} of ${beside.length} here, ` +
          `${dftrace.counted(at.kids.length, 'frame')} inside`;
      this.heard.textContent = `${this.wordsOf(at)}; ${place}${at === zoom ? '; shown whole' : ''}`;
    }

    show(zoom, at, byHand) {
      const other = zoom !== this.zoom;
      Object.assign(this, {zoom, at});
      this.draw();
      if (byHand) this.say();
      if (other && byHand) this.zoomed(zoom.index);
    }

    zoomTo(index) {
      const node = this.nodes[index] || this.top;
      this.show(node, node, false);
    }

    focusSearch() {
      this.input.focus();
    }

    update(frames) {
      const pathOf = (node) => {
        const names = [];
        for (; node.up; node = node.up) names.unshift(`${node.cat}\n${node.name}`);
        return names;
      };
      const [zoom, at] = [pathOf(this.zoom), pathOf(this.at)];
      this.take(frames);
      const found = (names) => {
        let node = this.top;
        for (const name of names) {
          const kid = node.kids.find((one) => `${one.cat}\n${one.name}` === name);
          if (!kid) break;
          node = kid;
        }
        return node;
      };
      this.show(found(zoom), found(at), false);
    }

    end() {
      this.sizes.disconnect();
      this.endTheme();
    }

    nodeAt(event) {
      const row = Math.floor(event.offsetY / ROW);
      // The last one drawn lies on top.
      const found = this.boxes.findLast((box) => box.row === row && event.offsetX >= box.x &&
          event.offsetX < box.x + box.width);
      return found && found.node;
    }

    // Where each frame is: those around the zoom over all the width, and what is inside of it.
    layout() {
      const {zoom, at, width} = this, boxes = [], above = [], wayTo = new Set();
      for (let node = at; node; node = node.up) wayTo.add(node);
      for (let node = zoom.up; node; node = node.up) above.unshift(node);
      // Of very many around it the next ones.
      const shown = above.slice(-MOST_ROWS / 2);
      shown.forEach((node, row) => boxes.push({node, x: 0, width, row, around: true}));
      const waiting = [{node: zoom, x: 0, width, row: shown.length}];
      this.cut = false;
      while (waiting.length) {
        const box = waiting.pop(), {node} = box;
        boxes.push(box);
        if (!node.kids.length) continue;
        if (box.row + 1 >= MOST_ROWS) {
          this.cut = true;
          continue;
        }
        const inside = node.kids.reduce((sum, kid) => sum + kid.total_ns, 0);
        const scale = box.width / (Math.max(node.total_ns, inside) || 1);
        let x = box.x;
        for (const kid of node.kids) {
          const wide = kid.total_ns * scale;
          if (wide >= LEAST_WIDTH || kid.matches || wayTo.has(kid)) {
            waiting.push({node: kid, x, width: wide, row: box.row + 1});
          }
          x += wide;
        }
      }
      return boxes;
    }

    draw() {
      const {canvas, zoom, at, top, wanted} = this;
      this.back.disabled = zoom === top;
      this.tell(at);
      this.tellFound();
      this.width = canvas.clientWidth;
      if (!this.width) return;
      this.boxes = this.layout();
      const rows = 1 + this.boxes.reduce((most, box) => Math.max(most, box.row), 0);
      const height = rows * ROW + (this.cut ? ROW : 0), scale = window.devicePixelRatio || 1;
      canvas.width = Math.round(this.width * scale);
      canvas.height = Math.round(height * scale);
      canvas.style.height = `${height}px`;
      const pen = canvas.getContext('2d'), colours = new Map();
      const colour = (name) => {
        if (!colours.has(name)) colours.set(name, dftrace.colour(name));
        return colours.get(name);
      };
      pen.scale(scale, scale);
      pen.font = FONT;
      pen.textBaseline = 'middle';
      let marked = null;
      for (const box of this.boxes) {
        const {node, x} = box, y = box.row * ROW;
        const aside = box.around || (wanted && !node.matches && node.cat);
        const own = node.colour || `part-${node.part || 'other'}`;
        const fill = aside ? colour('shade') : colour(own) || colour('part-other');
        const least = node.matches ? 2 : 0.6;
        pen.fillStyle = fill;
        pen.fillRect(x, y, Math.max(least, box.width - (box.width > 2 ? 0.7 : 0)), ROW - 1);
        if (node.matches && box.width > 4) {
          pen.strokeStyle = colour('odd');
          pen.lineWidth = 2;
          pen.strokeRect(x + 1, y + 1, box.width - 2.7, ROW - 3);
        }
        if (box.width >= NAMED_WIDTH) {
          pen.fillStyle = aside ? colour('ink') : dftrace.inkOn(fill);
          this.write(pen, node, x, y, box.width);
        }
        if (node === at) marked = box;
      }
      if (this.cut) {
        pen.fillStyle = colour('faint');
        pen.fillText('Deeper ones are shown when zoomed in.', 4, rows * ROW + ROW / 2);
      }
      if (marked && document.activeElement === canvas) {
        pen.strokeStyle = colour('ink');
        pen.lineWidth = 2;
        pen.strokeRect(marked.x + 1, marked.row * ROW + 1, Math.max(2, marked.width - 2), ROW - 3);
      }
    }

    write(pen, node, x, y, width) {
      const share = this.top.total_ns ? node.total_ns / this.top.total_ns : 0;
      const timed = width >= TIMED_WIDTH ?
          `${node.name}  ${node.timed ?? `${dftrace.timeText(node.total_ns)}, ${dftrace.shareText(share)}`}` : node.name;
      const room = width - 7;
      let words = pen.measureText(timed).width <= room ? timed : node.name;
      if (pen.measureText(words).width > room) {
        let letters = [...words.slice(0, 400)];
        const each = pen.measureText(letters.join('')).width / letters.length;
        letters = letters.slice(0, Math.floor(room / each));
        while (letters.length && pen.measureText(letters.join('') + '…').width > room) letters.pop();
        if (letters.length < 2) return;
        words = letters.join('') + '…';
      }
      pen.fillText(words, x + 4, y + ROW / 2);
    }
  }

  dftrace.flameGraph = (holder, frames, options = {}) => new FlameGraph(holder, frames, options);
})();
