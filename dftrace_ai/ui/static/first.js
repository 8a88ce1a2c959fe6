// What is asked for while the other scripts are on their way: the data of the page that the address shows,
// and the scripts that this page needs. What everybody else needs is in index.html.

const MODULES = {
  run: ['run.js', 'live.js', 'pictures.js', 'plots.js', 'ranks.js', 'spent.js', 'steps.js', 'strip.js', 'tensors.js',
    'tracks.js', 'verdict.js', 'flame.js', 'stacks.js', 'tables.js'],
  compare: ['compare.js', 'flame.js', 'stacks.js', 'plots.js', 'steps.js', 'tracks.js'],
};
const PLOTS = [['script', 'uplot.js'], ['style', 'uplot.css']];

// The address behind the mark: which page, of what, and what is asked of it.
export function place() {
  const [path, asked] = location.hash.slice(2).split('?');
  const [page, ...names] = path.split('/').map(decodeURIComponent);
  return {page, names, asked: new URLSearchParams(asked || '')};
}

function link(rel, href, as) {
  document.head.append(Object.assign(document.createElement('link'), {rel, href}, as && {as}));
}

function begun() {
  const {page, names} = place(), known = Object.hasOwn(MODULES, page);
  for (const name of known ? MODULES[page] : ['runs.js']) link('modulepreload', name);
  for (const [as, name] of known ? PLOTS : []) link('preload', name, as);
  if (page === 'run') return `api/run?${new URLSearchParams({id: names[0]})}`;
  return known ? null : 'api/runs?';
}

const address = begun();
let answer = address && fetch(address);
answer?.catch(() => {});  // whoever wants it is told

// The answer to what was asked for at the beginning, once; null for anything else.
export function early(asked) {
  const found = asked === address ? answer : null;
  if (found) answer = null;
  return found;
}

addEventListener('hashchange', () => { answer = null; });
