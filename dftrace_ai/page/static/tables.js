// Tables that sort by a click, Enter or Space on the head of a column.
//
// A plain script, without modules, so that a page of one file may hold it and a server may give it:
//
//   dftrace.sortable(table, {changed: (column, downwards) => ...})
//
// `table` has a head with one row, and bodies whose rows have a cell for each column. A cell is sorted
// by its `data-value`, a number, where it has one, else by its words; one without either stands last,
// whichever way. The first click puts the greatest number or the first word on top, the second turns
// that round, the third restores the order in which the rows were. A head with `data-fixed` stays as it is.
// Call it again after new rows have come: they are sorted as the rows were before.
'use strict';
(() => {
  const dftrace = window.dftrace = window.dftrace || {};
  const words = new Intl.Collator('en', {numeric: true, sensitivity: 'base'});

  function keyOf(row, column) {
    const cell = row.cells[column];
    if (!cell) return null;
    if ('value' in cell.dataset) {
      const value = cell.dataset.value;
      return value === '' || Number.isNaN(Number(value)) ? null : Number(value);
    }
    const said = cell.textContent.trim();
    return said === '' || said === '-' ? null : said;
  }

  // Numbers before words; what has no value last, whichever way the others go.
  function compared(a, b, downwards) {
    if (a === null || b === null) return (a === null) - (b === null);
    if (typeof a !== typeof b) return typeof a === 'number' ? -1 : 1;
    const way = typeof a === 'number' ? a - b : words.compare(a, b);
    return downwards ? -way : way;
  }

  const states = new WeakMap();

  function arrange(table, state) {
    const {column, downwards} = state;
    for (const body of table.tBodies) {
      const rows = [...body.rows];
      for (const row of rows) if (!state.places.has(row)) state.places.set(row, state.next++);
      const place = (row) => state.places.get(row);
      if (column === null) {
        rows.sort((a, b) => place(a) - place(b));
      } else {
        const keys = new Map(rows.map((row) => [row, keyOf(row, column)]));
        rows.sort((a, b) => compared(keys.get(a), keys.get(b), downwards) || place(a) - place(b));
      }
      body.append(...rows);
    }
    [...table.tHead.rows[0].cells].forEach((head, at) => {
      if (at === column) {
        head.setAttribute('aria-sort', downwards ? 'descending' : 'ascending');
      } else {
        head.removeAttribute('aria-sort');
      }
    });
  }

  function pressed(table, state, column) {
    const keys = [...table.tBodies].flatMap((body) => [...body.rows])
        .map((row) => keyOf(row, column));
    const first = typeof keys.find((key) => key !== null) === 'number';
    if (state.column !== column) {
      Object.assign(state, {column, downwards: first});
    } else if (state.downwards === first) {
      state.downwards = !first;
    } else {
      state.column = null;
    }
    arrange(table, state);
    state.changed(state.column, state.downwards);
  }

  dftrace.sortable = (table, options = {}) => {
    let state = states.get(table);
    if (state) {
      if (state.column !== null) arrange(table, state);
      return;
    }
    state = {column: null, downwards: true, places: new WeakMap(), next: 0,
      changed: options.changed || (() => {})};
    states.set(table, state);
    for (const body of table.tBodies) {
      for (const row of body.rows) state.places.set(row, state.next++);
    }
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      if ('fixed' in head.dataset || !head.textContent.trim()) return;
      const button = document.createElement('button');
      button.type = 'button';
      button.className = 'sort';
      button.append(...head.childNodes);
      button.addEventListener('click', () => pressed(table, state, column));
      head.append(button);
    });
  };
})();
