// A headless Chromium with a fresh profile, driven over --remote-debugging-pipe.

'use strict';
const fs = require('fs');
const path = require('path');
const childProcess = require('child_process');

function findChromium(given) {
  if (given || process.env.CHROMIUM) return given || process.env.CHROMIUM;
  for (const name of ['chromium', 'chromium-browser', 'google-chrome']) {
    for (const dir of (process.env.PATH || '').split(path.delimiter)) {
      if (dir && fs.existsSync(path.join(dir, name))) return path.join(dir, name);
    }
  }
  throw new Error('no chromium on the path; install one, or give --chromium');
}

// The DevTools protocol over the pipe on descriptors 3 and 4: JSON messages,
// each ended by a zero byte.
class Browser {
  constructor(binary, profile, size) {
    this.child = childProcess.spawn(binary, [
      '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
      '--no-default-browser-check', '--disable-background-networking',
      '--disable-component-update', '--disable-sync', '--disable-extensions',
      '--disable-dev-shm-usage', '--hide-scrollbars', '--mute-audio',
      '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',
      `--user-data-dir=${profile}`, `--window-size=${size[0]},${size[1]}`,
      '--remote-debugging-pipe', 'about:blank',
    ], {stdio: ['ignore', 'ignore', 'pipe', 'pipe', 'pipe']});
    this.log = '';
    this.child.stderr.on('data', (d) => { this.log = (this.log + d).slice(-20000); });
    this.waiting = new Map();
    this.listeners = [];
    this.next = 1;
    let held = [];
    this.child.stdio[4].on('data', (d) => {
      for (let at = 0; ;) {
        const end = d.indexOf(0, at);
        if (end < 0) { held.push(d.subarray(at)); break; }
        held.push(d.subarray(at, end));
        const text = Buffer.concat(held).toString('utf8');
        held = [];
        at = end + 1;
        this.got(JSON.parse(text));
      }
    });
    this.gone = new Promise((_, no) => {
      this.child.on('exit', (c, s) => no(new Error(`chromium ended (${c}/${s}): ${this.log.slice(-1500)}`)));
      this.child.on('error', no);
    });
    this.gone.catch(() => {});
    this.child.stdio[3].on('error', () => {});
  }
  got(m) {
    if (m.id) {
      const w = this.waiting.get(m.id);
      this.waiting.delete(m.id);
      if (w) m.error ? w.no(new Error(m.error.message)) : w.ok(m.result);
    } else for (const l of this.listeners) l(m);
  }
  send(method, params = {}, sessionId) {
    const id = this.next++;
    const reply = new Promise((ok, no) => this.waiting.set(id, {ok, no}));
    this.child.stdio[3].write(JSON.stringify({id, method, params, sessionId}) + '\0');
    return Promise.race([reply, this.gone]);
  }
}

module.exports = {Browser, findChromium};
