// All runs: a table that is filtered and sorted, and in which nothing moves until somebody asks for it.

import {Answered, ask, byId, fill, h, svg} from './dom.js';
import {MARKS, SEVERITIES, STATES, ago, count, date, length, named, share, signed, value} from './figures.js';

const MOST_ROWS = 1000;
// More than a window holds: the others follow when these are seen.
const FIRST_ROWS = 60;
const METRICS = 2, PARAMS = 3;
const AGAIN_S = 2;
const MANY_TIMES = 3;
const MOST_COMPARED = 6;
const STATE_BUTTONS = ['all', 'running', 'ended', 'died'];
const CONDITION = /^[^<>=!]+(<=|>=|!=|==|=|<|>).+$/;
// One that is still being typed.
const BEGUN = /^[^<>=!]+(<=|>=|!=?|==|=|<|>)$/;

// What was chosen here stays while other pages are looked at.
const chosen = {
  sort: 'began', down: true, filter: '', state: 'all', picked: [], columns: null, baseline: null,
  all: false,
};

const numeric = (title, of, shown) => ({title, className: 'r', of, shown});

// The columns that every list has; `of` is what is sorted by, `shown` what stands in the cell.
const COLUMNS = {
  state: {title: 'State', className: 'is', of: (row) => row.state, shown: (row) => stateOf(row.state)},
  name: {title: 'Name', className: 'name', of: (row) => named(row.id)[0], shown: nameOf},
  began: {title: 'When', className: 'when', of: began, shown: () => ''},
  wall_s: numeric('Length', (row) => row.card?.wall_s, (row) => length(row.card?.wall_s)),
  ranks: numeric('Ranks', (row) => row.card?.ranks || null, (row) => count(row.card?.ranks || null)),
  steps: numeric('Steps', (row) => row.card?.steps || null, (row) => count(row.card?.steps || null)),
  steps_per_s: {
    title: 'Steps/s', className: 'r speed', of: (row) => row.card?.steps_per_s, shown: speedOf,
  },
  verdict: {title: 'Verdict', className: 'verdict', of: severity, shown: (row) => verdictOf(row.card)},
};

function began(row) {
  return row.card?.began_s || row.changed_s;
}

function severity(row) {
  if (!row.card) return null;
  return SEVERITIES.length - SEVERITIES.indexOf(row.card.severity) + (row.card.share || 0);
}

function stateOf(state) {
  return h('span', {className: `state ${state}`},
      h('i', {className: 'mark', 'aria-hidden': 'true'}, STATES[state] || ''), state);
}

function verdictOf(card) {
  if (!card) return h('span', {className: 'words faint'}, h('i', {className: 'mark'}, '…'), 'reading');
  const told = card.severity !== 'none' && card.share !== null;
  return h('span', {className: `words ${card.severity}`, title: card.what},
      h('i', {className: 'mark', 'aria-label': card.severity}, MARKS[card.severity] || '●'), card.words,
      told && h('span', {className: 'faint num'}, ` ${share(card.share)}`));
}

function nameOf(row) {
  const [name, folder] = named(row.id);
  return [h('a', {href: `#/run/${encodeURIComponent(row.id)}`, title: row.id, tabIndex: 0}, name),
    row.id === chosen.baseline && h('span', {className: 'baseline'}, 'baseline'),
    folder && h('span', {className: 'faint'}, ` ${folder}`)];
}

// Steps a second, beside those of the baseline where there is one, and as they were over time.
function speedOf(row) {
  const speed = row.card?.steps_per_s;
  if (!speed) return '';
  const base = row.id !== chosen.baseline && chosen.speed;
  const ratio = speed / base;
  const beside = ratio < MANY_TIMES ? signed(ratio - 1) : `${value(Number(ratio.toPrecision(2)))} times`;
  return [base && h('span', {className: 'faint'}, `${beside}  `),
    value(+speed.toPrecision(3)), spark(row.card.spark)];
}

function spark(values, width = 90, height = 18) {
  if (values.length < 2) return '';
  const most = Math.max(...values) || 1;
  const places = values.map((one, at) => `${(at / (values.length - 1) * width).toFixed(1)} ` +
      (height - 1 - one / most * (height - 2)).toFixed(1));
  return svg('svg', {class: 'spark', width, height, 'aria-hidden': 'true'},
      svg('path', {d: `M${places.join('L')}`}));
}

// The names that most runs have, those of most first.
function common(runs, kind) {
  const seen = new Map();
  for (const row of runs) {
    for (const name of Object.keys(row.card?.[kind] || {})) seen.set(name, (seen.get(name) || 0) + 1);
  }
  return [...seen].sort((a, b) => b[1] - a[1]).map(([name]) => name);
}

const logged = (kind, name) => numeric(name, (row) => row.card?.[kind]?.[name], (row) => {
  const given = row.card?.[kind]?.[name];
  return given === 'NaN' ? h('b', {className: 'worse'}, given) : h('span', {title: value(given)}, value(given));
});

// Words, those in double quotes whole, told apart from conditions on values.
function written(filter) {
  const joined = filter.replace(/\s*(<=|>=|!=|==|=|<|>)\s*/g, '$1');
  const words = [...joined.matchAll(/(?:"[^"]*"|[^\s"])+/g)].map((match) => match[0]);
  const plain = words.filter((one) => !CONDITION.test(one) && !BEGUN.test(one));
  return [plain.map((one) => one.replaceAll('"', '').toLowerCase()), words.filter((one) => CONDITION.test(one))];
}

export async function open(page, names, asked) {
  const main = byId('main');
  fill(byId('crumbs'), '');
  document.title = 'runs · dftrace';
  if (!main.firstChild) fill(main, h('div', {className: 'waiting'}));
  const told = await ask('runs');
  if (page.left) return;
  if (asked.has('q')) chosen.filter = asked.get('q');
  if (told.runs.length) list(page, told);
  else nothing(page, told.root);
}

function nothing(page, root) {
  fill(byId('main'), h('div', {className: 'empty'}, h('h2', {}, 'No runs below ', h('code', {}, root)),
      h('p', {}, 'A run is a folder with trace files. This makes one:'),
      h('p', {}, h('code', {}, 'dftrace run train.py')),
      h('p', {className: 'faint'}, 'The page sees it by itself.')));
  page.every(AGAIN_S, async () => {
    const told = await ask('runs');
    if (told.runs.length && !page.left) list(page, told);
  });
}

function list(page, first) {
  let told = first, shown = [], at = -1, matching = null;
  const made = new Map();
  // It is kept over a reload, for this folder.
  const place = `baseline ${first.root}`;
  chosen.baseline = localStorage.getItem(place);
  const byName = () => new Map(told.runs.map((row) => [row.id, row]));

  const search = h('input', {
    type: 'search', placeholder: 'Filter: name, verdict, lr=0.1, loss<0.5   ( / )', value: chosen.filter,
    'aria-label': 'Filter', oninput: filtered,
  });
  const states = STATE_BUTTONS.map((state) => h('button', {
    type: 'button', onclick: () => { chosen.state = state; order(); },
  }, state));
  const compare = h('button', {type: 'button', className: 'main', onclick: compared}, 'Compare');
  const base = h('button', {type: 'button', hidden: true, onclick: based}, 'Make it the baseline');
  const news = h('button', {type: 'button', className: 'main', hidden: true, onclick: () => order()});
  const number = h('span', {className: 'faint num', role: 'status'});
  const wrong = h('p', {id: 'top-filter-error', hidden: true});
  const menu = h('div');
  const body = h('tbody'), head = h('tr');
  const table = h('div', {}, h('table', {id: 'runs'}, h('thead', {}, head), body));
  const all = h('button', {type: 'button', hidden: true, onclick: () => { chosen.all = true; order(); }});
  fill(byId('main'),
      h('div', {className: 'bar'}, search, states, compare, base, news, h('span', {className: 'grow'}), number,
          h('details', {className: 'columns'}, h('summary', {}, 'Columns'), menu)),
      wrong, table, h('p', {}, all),
      h('p', {className: 'faint'}, 'Folder ', h('code', {}, told.root), `. Choose two to ${MOST_COMPARED} runs to compare them.`,
          told.more ? ` ${count(told.more)} more folders are not listed.` : ''));

  // Of metrics and parameters those of most runs, until somebody chooses others.
  let columns = [], columnsSeen = '';
  function columnsChosen() {
    const offered = [...common(told.runs, 'metrics').map((name) => ['metrics', name]),
      ...common(told.runs, 'params').map((name) => ['params', name])];
    const first = (kind, most) => offered.filter((one) => one[0] === kind).slice(0, most);
    const kept = chosen.columns || [...first('metrics', METRICS), ...first('params', PARAMS)].map(String);
    const seen = JSON.stringify([offered, kept]);
    if (seen === columnsSeen) return false;
    columnsSeen = seen;
    made.clear();
    columns = [...Object.entries(COLUMNS).filter(([key]) => !kept.includes(`-${key}`)),
      ...offered.filter((one) => kept.includes(String(one))).map((one) => [String(one), logged(...one)])];
    const box = (key, title, on, off) => h('label', {}, h('input', {
      type: 'checkbox', checked: on, onchange: (event) => {
        chosen.columns = event.target.checked === off.startsWith('-') ?
            kept.filter((one) => one !== off) : [...kept, off];
        columnsChosen();
        order();
      },
    }), ` ${title}`);
    fill(menu,
        Object.entries(COLUMNS).filter(([key]) => key !== 'name').map(([key, column]) =>
          box(key, column.title, !kept.includes(`-${key}`), `-${key}`)),
        offered.map((one) => box(String(one), one[1], kept.includes(String(one)), String(one))));
    fill(head, h('th', {}, h('span', {className: 'heard'}, 'Choose')),
        columns.map(([key, column]) => h('th', {className: column.className, 'data-column': key},
            h('button', {type: 'button', onclick: () => sorted(key)}, column.title))));
    sortShown();
    return true;
  }

  const sortedBy = () => columns.find(([key]) => key === chosen.sort) || columns.find(([key]) => key === 'name');

  function sortShown() {
    const [key] = sortedBy();
    for (const th of head.querySelectorAll('th[data-column]')) {
      if (th.dataset.column === key) th.ariaSort = chosen.down ? 'descending' : 'ascending';
      else th.removeAttribute('aria-sort');
    }
  }

  function sorted(key) {
    chosen.down = chosen.sort === key ? !chosen.down : key !== 'name';
    chosen.sort = key;
    order();
  }

  // Cells are made once; later only what is in them changes.
  function rowOf(row) {
    let one = made.get(row.id);
    if (!one) {
      const box = h('input', {type: 'checkbox', 'aria-label': `choose ${row.id}`, onclick: () => pick(row.id)});
      const cells = columns.map(([, column]) => h('td', {className: column.className}));
      const element = h('tr', {onclick: (event) => {
        if (!event.target.closest('td.choose, a')) go(row.id);
      }}, h('td', {className: 'choose'}, h('label', {}, box)), cells);
      made.set(row.id, one = {element, box, cells, seen: ''});
    }
    const seen = JSON.stringify([row.state, row.card, chosen.baseline, chosen.speed]);
    columns.forEach(([key, column], i) => {
      if (key === 'began') {
        one.cells[i].textContent = ago(began(row), told.now_s);
        one.cells[i].title = date(began(row));
      } else if (seen !== one.seen) {
        fill(one.cells[i], column.shown(row));
      }
    });
    one.seen = seen;
    return one.element;
  }

  function passes(row) {
    if (chosen.state !== 'all' && row.state !== chosen.state) return false;
    if (matching && !matching.has(row.id)) return false;
    const card = row.card || {};
    const text = `${row.id} ${row.state} ${card.words} ${card.verdict} ${card.severity}`.toLowerCase();
    return written(chosen.filter)[0].every((word) => text.includes(word));
  }

  function compareRows(a, b, of) {
    const [x, y] = [of(a), of(b)];
    const none = (one) => one === null || one === undefined || Number.isNaN(one);
    if (none(x) || none(y)) return none(x) - none(y);
    const less = typeof x === typeof y ? x < y : String(x) < String(y);
    return x === y ? 0 : less === chosen.down ? 1 : -1;
  }

  // Puts the rows that are still to come below those that are there.
  let rest = () => {};

  // Only here rows get another place: on a click, a key or a word in the filter.
  function order(first = Infinity) {
    const here = shown[at]?.id;
    const {of} = sortedBy()[1];
    const found = told.runs.filter(passes).sort((a, b) => compareRows(a, b, of));
    const baseline = told.runs.find((row) => row.id === chosen.baseline);
    chosen.speed = baseline?.card?.steps_per_s || null;
    if (baseline) found.splice(0, found.length, baseline, ...found.filter((row) => row !== baseline));
    shown = chosen.all ? found : found.slice(0, MOST_ROWS);
    at = shown.findIndex((row) => row.id === here);
    body.replaceChildren(...shown.slice(0, first).map(rowOf));
    rest = () => {
      rest = () => {};
      if (shown.length <= first || page.left) return;
      body.append(...shown.slice(first).map(rowOf));
      marked();
      fits();
    };
    sortShown();
    states.forEach((button, i) => { button.ariaPressed = String(STATE_BUTTONS[i] === chosen.state); });
    news.hidden = true;
    all.hidden = shown.length === found.length;
    all.textContent = `Show all ${count(found.length)}`;
    marked();
    tell();
    fits();
  }

  // Very many columns scroll within the page; otherwise their heads stay in sight.
  function fits() {
    table.classList.remove('wide');
    table.classList.toggle('wide', table.scrollWidth > table.clientWidth + 1);
  }

  function tell() {
    const of = shown.length < told.runs.length ? ` of ${count(told.runs.length)}` : '';
    number.textContent = `${count(shown.length)}${of} ${told.runs.length === 1 ? 'run' : 'runs'}` +
        (told.reading ? `, reading ${count(told.reading)}` : '');
  }

  function marked() {
    const known = byName();
    chosen.picked = chosen.picked.filter((id) => known.has(id));
    for (const [id, one] of made) {
      const on = chosen.picked.includes(id);
      one.box.checked = on;
      one.element.classList.toggle('chosen', on);
      one.element.classList.toggle('here', shown[at]?.id === id);
    }
    const pair = comparedRuns();
    compare.disabled = !pair;
    const many = chosen.picked.length;
    compare.textContent = many ? `Compare ${many}${many < 2 ? '/2' : ''}` : 'Compare';
    if (pair && many === 1) compare.textContent = 'Compare with the baseline';
    base.hidden = chosen.picked.length !== 1;
    base.textContent = chosen.picked[0] === chosen.baseline ? 'No baseline' : 'Make it the baseline';
  }

  function pick(id) {
    chosen.picked = chosen.picked.includes(id) ? chosen.picked.filter((one) => one !== id) :
        [...chosen.picked, id].slice(-MOST_COMPARED);
    marked();
  }

  // Those that are chosen, the baseline and then the older ones first; or the baseline and the one that is.
  function comparedRuns() {
    const known = byName();
    if (chosen.picked.length >= 2) {
      return [...chosen.picked].sort((a, b) => (b === chosen.baseline) - (a === chosen.baseline) ||
          began(known.get(a)) - began(known.get(b)));
    }
    if (chosen.picked.length === 1 && known.has(chosen.baseline) && chosen.picked[0] !== chosen.baseline) {
      return [chosen.baseline, chosen.picked[0]];
    }
    return null;
  }

  function compared() {
    const pair = comparedRuns();
    if (pair) location.hash = `#/compare/${pair.map(encodeURIComponent).join('/')}`;
  }

  function based() {
    chosen.baseline = chosen.picked[0] === chosen.baseline ? null : chosen.picked[0];
    if (chosen.baseline === null) localStorage.removeItem(place);
    else localStorage.setItem(place, chosen.baseline);
    order();
  }

  async function matched() {
    const conditions = written(chosen.filter)[1];
    let error = '';
    if (!conditions.length) {
      matching = null;
    } else {
      const answer = await ask('match', conditions.map((one) => ['where', one]));
      matching = new Set(answer.ids);
      error = answer.error;
    }
    wrong.hidden = !error;
    wrong.textContent = error;
  }

  let typing = 0;
  async function filtered() {
    chosen.filter = search.value;
    const mine = ++typing;
    if (written(chosen.filter)[1].length) await new Promise((done) => setTimeout(done, 120));
    if (mine !== typing) return;
    await matched();
    if (mine === typing && !page.left) order();
  }

  function go(id) {
    location.hash = `#/run/${encodeURIComponent(id)}`;
  }

  function move(by) {
    rest();
    if (!shown.length) return;
    at = Math.max(0, Math.min(shown.length - 1, at + by));
    marked();
    const row = made.get(shown[at].id).element;
    row.scrollIntoView({block: 'nearest'});
    row.querySelector('a').focus({preventScroll: true});
  }

  const here = (act) => () => { if (at >= 0) act(shown[at].id); };
  page.keys = {
    '/': () => search.focus(),
    j: () => move(1), k: () => move(-1), ArrowDown: () => move(1), ArrowUp: () => move(-1),
    Enter: here(go), x: here(pick), c: compared,
    Escape: () => { menu.parentElement.open = false; },
    s: () => { chosen.sort = 'steps_per_s'; chosen.down = true; order(); },
  };

  columnsChosen();
  if (chosen.filter) filtered();
  order(FIRST_ROWS);
  page.drawn(fits, byId('main'));
  performance.mark('runs-drawn');
  requestAnimationFrame(() => setTimeout(() => {
    rest();
    performance.mark('runs-whole');
    requestIdleCallback(() => import('./run.js'));  // most people open one next
  }));

  page.every(AGAIN_S, async () => {
    let next;
    try {
      next = await ask('runs', {}, page.ended.signal);
      if (matching) await matched();
    } catch (error) {
      if (!page.left) byId('age').textContent = error instanceof Answered ? '⚠ ' + error.message : '⚠ no answer';
      return;
    }
    if (page.left) return;
    byId('age').textContent = '';
    told = next;
    const known = byName();
    shown = shown.map((row) => known.get(row.id) || row);
    if (!menu.parentElement.open && !page.pressed && columnsChosen()) {
      const focused = body.contains(document.activeElement);
      body.replaceChildren(...shown.map(rowOf));
      marked();
      fits();
      if (focused && at >= 0) made.get(shown[at].id).element.querySelector('a').focus({preventScroll: true});
    } else {
      shown.forEach(rowOf);
    }
    const places = new Set(shown.map((row) => row.id));
    const fresh = shown.length < MOST_ROWS || chosen.all ?
        told.runs.filter((row) => !places.has(row.id) && passes(row)).length : 0;
    news.hidden = !fresh;
    news.textContent = `Show ${count(fresh)} new`;
    tell();
  });
}
