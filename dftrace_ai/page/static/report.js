// What a report does beside what every page does: plots saved, the flame graph, heat maps to choose from.
// Names from a trace only ever become text of a node; nothing here makes HTML of them.
'use strict';
(() => {
  const dftrace = window.dftrace;
  const figures = JSON.parse(document.getElementById('figures').textContent);
  const root = document.documentElement;
  const said = (value) => value === null ? 'no value' : String(value);

  // The cells of a heat map, which has a path for each colour and not one for each cell.
  dftrace.heatOf = (svg) => {
    const ofRanks = svg.dataset.rows === 'rank';
    const heat = (ofRanks ? figures.rank_maps : figures.tensors.maps)[Number(svg.dataset.heat)];
    const noun = ofRanks ? 'step' : 'iteration';
    return {rows: heat.layers.length, columns: heat.first.length, words: (row, column) => {
      const first = heat.first[column], last = heat.last[column];
      const when = first === last ? `${noun} ${first}` : `${noun}s ${first} to ${last}`;
      const words = [heat.layers[row], when, `${heat.statistic}: ${said(heat.values[row][column])}`];
      return words.map(dftrace.plain).join('\n');
    }};
  };

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

  // Where a script runs, the picture of the flame graph is for paper alone.
  const flame = document.getElementById('plot-flame');
  if (flame) {
    const holder = document.createElement('div');
    flame.before(holder);
    flame.classList.add('paper');
    document.addEventListener('keydown', (event) => {
      const {target} = event, typed = target instanceof Element && target.matches('input, select');
      if (event.key !== 'f' || event.ctrlKey || event.metaKey || event.altKey || typed) return;
      event.preventDefault();
      dftrace.flame.focusSearch();
    });
    dftrace.flame = dftrace.flameGraph(holder, figures.flame.frames, {all: 'all processes'});
  }

  const lines = document.getElementById('plot-lines');
  if (lines) {
    const holder = document.createElement('div');
    lines.before(holder);
    lines.classList.add('paper');
    const sources = figures.stacks_of_ranks.map((one) => ({...one, name: `rank ${one.rank}`}));
    dftrace.lines = dftrace.stackGraph(holder, sources, {label: 'Lines of the program'});
  }

  // On paper all of them are seen.
  for (const select of document.querySelectorAll('select[data-of]')) {
    const shown = [...document.getElementById(select.dataset.of).children];
    const choose = () => shown.forEach((one, at) => {
      one.classList.toggle('aside', at !== Number(select.value));
    });
    select.addEventListener('change', choose);
    select.closest('[hidden]').hidden = false;
    choose();
  }

  window.dftraceReport = {figures, standalone, pngOf};
})();
