// What a report does: words at the pointer, themes, plots saved, flame graph, tables that sort.
// Names from a trace only ever become text of a node; nothing here makes HTML of them.
'use strict';
(() => {
  const dftrace = window.dftrace;
  const figures = JSON.parse(document.getElementById('figures').textContent);
  const root = document.documentElement;
  const tip = document.getElementById('tip');
  const said = (value) => value === null ? 'no value' : String(value);

  // A heat map has a path for each colour; which cell it is, the place of the pointer says.
  function cellOf(svg, event) {
    const heat = figures.tensors.maps[Number(svg.dataset.heat)];
    const at = new DOMPoint(event.clientX, event.clientY)
        .matrixTransform(svg.getScreenCTM().inverse());
    const column = Math.floor((at.x - Number(svg.dataset.left)) / Number(svg.dataset.wide));
    const row = Math.floor((at.y - Number(svg.dataset.top)) / Number(svg.dataset.tall));
    if (column < 0 || column >= heat.first.length || row < 0 || row >= heat.layers.length) {
      return '';
    }
    const first = heat.first[column], last = heat.last[column];
    const when = first === last ? `iteration ${first}` : `iterations ${first} to ${last}`;
    return `${heat.layers[row]}\n${when}\n${heat.statistic}: ${said(heat.values[row][column])}`;
  }

  document.addEventListener('pointermove', (event) => {
    const target = event.target instanceof Element ? event.target : null;
    const named = target && target.closest('[data-tip]');
    const heat = target && target.closest('svg[data-heat]');
    const words = named ? named.dataset.tip : heat ? cellOf(heat, event) : '';
    tip.hidden = !words;
    if (!words) return;
    tip.textContent = words;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(0, Math.min(event.clientX + 14, innerWidth - box.width - 6))}px`;
    const below = event.clientY + 16, above = event.clientY - box.height - 8;
    tip.style.top = `${below + box.height > innerHeight ? above : below}px`;
  });
  document.addEventListener('pointerleave', () => { tip.hidden = true; });

  const isDark = () => getComputedStyle(root).colorScheme.includes('dark');
  document.getElementById('theme').addEventListener('click', () => {
    root.dataset.theme = isDark() ? 'light' : 'dark';
  });

  // A plot as it is seen now, with the style and the colours of the theme inside.
  function standalone(svg) {
    const copy = svg.cloneNode(true);
    const style = document.createElementNS('http://www.w3.org/2000/svg', 'style');
    const now = getComputedStyle(root);
    // Programs other than browsers know no variables.
    const settled = (text) => text.replace(/var\((--[a-z-]+)\)/g,
        (_, name) => now.getPropertyValue(name).trim());
    style.textContent = settled(document.getElementById('plot-style').textContent);
    for (const name of ['fill', 'stroke']) {
      for (const one of copy.querySelectorAll(`[${name}^="var("]`)) {
        one.setAttribute(name, settled(one.getAttribute(name)));
      }
    }
    const paper = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
    paper.setAttribute('width', '100%');
    paper.setAttribute('height', '100%');
    paper.setAttribute('fill', settled('var(--paper)'));
    copy.prepend(style, paper);
    return new XMLSerializer().serializeToString(copy);
  }

  function pngOf(svg, scale) {
    return new Promise((done, failed) => {
      const image = new Image();
      image.onload = () => {
        const canvas = document.createElement('canvas');
        canvas.width = svg.viewBox.baseVal.width * scale;
        canvas.height = svg.viewBox.baseVal.height * scale;
        canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
        canvas.toBlob((blob) => blob ? done(blob) : failed(new Error('too large a picture')));
      };
      image.onerror = () => failed(new Error('the plot cannot be drawn'));
      image.src = 'data:image/svg+xml;charset=utf-8,' + encodeURIComponent(standalone(svg));
    });
  }

  function save(blob, name) {
    const link = document.createElement('a');
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  document.addEventListener('click', async (event) => {
    const button = event.target instanceof Element && event.target.closest('button[data-save]');
    if (!button) return;
    const svg = button.closest('figure').querySelector('svg');
    const name = svg.id.replace(/^plot-/, '');
    if (button.dataset.save === 'svg') {
      save(new Blob([standalone(svg)], {type: 'image/svg+xml'}), `${name}.svg`);
    } else {
      save(await pngOf(svg, 2), `${name}.png`);
    }
  });

  for (const table of document.querySelectorAll('table.sorts')) dftrace.sortable(table);

  // Where a script runs, the picture of the flame graph is for paper alone.
  const flame = document.getElementById('plot-flame');
  if (flame) {
    const holder = document.createElement('div');
    flame.before(holder);
    flame.classList.add('paper');
    const graph = dftrace.flameGraph(holder, figures.flame.frames, {all: 'all processes'});
    dftrace.flame = graph;
  }

  window.dftraceReport = {figures, standalone, pngOf};
})();
