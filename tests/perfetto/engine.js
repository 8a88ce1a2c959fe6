// engine - the Perfetto UI's trace_processor.wasm, run in plain node.
//
// The UI's own worker script, engine_bundle.js, is evaluated inside a small
// imitation of a web worker, and spoken to with TraceProcessorRpc messages, as
// the UI does. Needs node >= 18 and nothing from npm; opens no socket. As in
// the UI, the build with 64-bit memory (16 GiB, not 4) is taken where the
// runtime has it, which node does from 24 on.

'use strict';
const fs = require('fs');
const path = require('path');

// ---------------------------------------------------------------- protobuf
class Writer {
  constructor() { this.parts = []; }
  varint(v) {
    v = BigInt.asUintN(64, BigInt(v));
    const out = [];
    do {
      const low = Number(v & 0x7fn);
      v >>= 7n;
      out.push(v ? low | 0x80 : low);
    } while (v);
    this.parts.push(Uint8Array.from(out));
    return this;
  }
  int(field, v) { return this.varint(field << 3).varint(v); }
  bytes(field, b) {
    this.varint((field << 3) | 2).varint(b.length);
    this.parts.push(b);
    return this;
  }
  text(field, s) { return this.bytes(field, new TextEncoder().encode(s)); }
  done() { return new Uint8Array(Buffer.concat(this.parts)); }
}

// Yields [field, value]: BigInt for a varint, Uint8Array for a
// length-delimited field, 8 bytes for fixed64, 4 for fixed32.
function* fieldsOf(buf) {
  let at = 0;
  const varint = () => {
    let v = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const b = buf[at++];
      if (b === undefined) throw new Error('protobuf: cut short');
      v |= BigInt(b & 0x7f) << shift;
      if (b < 0x80) return v;
    }
  };
  const take = (n) => {
    if (at + n > buf.length) throw new Error('protobuf: cut short');
    at += n;
    return buf.subarray(at - n, at);
  };
  while (at < buf.length) {
    const tag = Number(varint());
    const field = tag >>> 3;
    switch (tag & 7) {
      case 0: yield [field, varint()]; break;
      case 1: yield [field, take(8)]; break;
      case 2: yield [field, take(Number(varint()))]; break;
      case 5: yield [field, take(4)]; break;
      default: throw new Error('protobuf: wire type ' + (tag & 7));
    }
  }
}

function packedVarints(buf) {
  const out = [];
  let v = 0n, shift = 0n;
  for (const b of buf) {
    v |= BigInt(b & 0x7f) << shift;
    if (b & 0x80) { shift += 7n; continue; }
    out.push(BigInt.asIntN(64, v));
    v = 0n; shift = 0n;
  }
  return out;
}

const utf8 = new TextDecoder('utf-8');

// ------------------------------------------------------------------ engine
// What every engine of this process is made of, read and compiled once.
const scripts = new Map();  // by path
const binaries = new Map();  // by path
const modules = new Map();  // by the memory that holds the binary
function once(kept, key, make) {
  if (!kept.has(key)) kept.set(key, make());
  return kept.get(key);
}

const APPEND = 1, FINALIZE = 2, QUERY = 3, STATUS = 10;  // TraceProcessorMethod
const CELL = {NULL: 1, INT: 2, FLOAT: 3, STRING: 4, BLOB: 5};

class Engine {
  constructor(dir, onLog) {
    this.crashed = null;
    this.log = [];
    this.replies = [];
    this.seq = 0;
    const say = (...a) => {
      const line = a.join(' ');
      this.log.push(line);
      if (this.log.length > 400) this.log.shift();
      if (onLog) onLog(line);
    };
    const worker = {location: {href: 'http://127.0.0.1/engine_bundle.js'}};
    const opened = (name) => { this.wasm = name; };
    // The wasm is fetched by a synchronous XMLHttpRequest; serve it from disk.
    class FileRequest {
      open(_method, url) { this.url = url; }
      send() {
        opened(path.basename(this.url));
        this.status = 200;
        const file = path.join(dir, path.basename(this.url));
        this.response = once(binaries, file, () => new Uint8Array(fs.readFileSync(file)).buffer);
      }
    }
    // Keep hold of the engine's memory, to tell how much of it is in use.
    const keep = (instance) => { this.memory = this.memory || instance.exports.memory; };
    class Instance {
      constructor(...a) {
        const instance = new WebAssembly.Instance(...a);
        keep(instance);
        return instance;
      }
    }
    // The bundle also compiles small modules of its own making.
    class Module {
      constructor(bytes) {
        const memory = bytes.buffer || bytes;
        const compile = () => new WebAssembly.Module(bytes);
        return [...binaries.values()].includes(memory) ? once(modules, memory, compile) : compile();
      }
    }
    const wasm = Object.create(WebAssembly, {Instance: {value: Instance}, Module: {value: Module}});
    const quiet = {log: say, warn: say, error: say, info: say, debug: say};
    // Names given here hide node's own, so that the bundle takes itself to be
    // in a worker: WorkerGlobalScope is there, process and window are not.
    const seen = {
      self: worker, location: worker.location, console: quiet,
      WorkerGlobalScope: function WorkerGlobalScope() {},
      XMLHttpRequest: FileRequest, WebAssembly: wasm, process: undefined, window: undefined,
      document: undefined, require: undefined, module: undefined,
    };
    const script = path.join(dir, 'engine_bundle.js');
    const start = once(scripts, script,
        () => new Function(...Object.keys(seen), fs.readFileSync(script, 'utf8')));
    start(...Object.values(seen));
    this.port = {postMessage: (m) => this.replies.push(m), onmessage: null};
    worker.onmessage({data: this.port});
  }

  // The runtime finishes starting in a promise callback.
  async ready() {
    for (let i = 0; i < 5; i++) await new Promise((r) => setImmediate(r));
    for (const [f, v] of fieldsOf(this.call(STATUS, null)[0])) {
      if (f !== 210) continue;
      for (const [g, w] of fieldsOf(v)) if (g === 2) this.version = utf8.decode(w);
    }
  }

  get mib() { return Math.round(this.memory.buffer.byteLength / 1048576); }

  // One request; its reply messages (TraceProcessorRpc bytes), all of which
  // have arrived when the synchronous call into the wasm returns.
  call(method, fill) {
    if (this.crashed) throw new EngineCrash(this.crashed);
    const rpc = new Writer().int(1, this.seq++).int(2, method);
    if (fill) fill(rpc);
    const stream = new Writer().bytes(1, rpc.done()).done();
    this.replies.length = 0;
    try {
      this.port.onmessage({data: stream});
    } catch (e) {
      this.crashed = String(e && e.message || e);
      throw new EngineCrash(this.crashed);
    }
    const out = [];
    for (const [f, v] of fieldsOf(Buffer.concat(this.replies))) {
      if (f !== 1) continue;
      for (const [g, w] of fieldsOf(v)) {
        if (g === 5) throw new EngineCrash(utf8.decode(w));
        if (g === 4) throw new Error('engine does not know request ' + w);
      }
      out.push(v);
    }
    return out;
  }

  errorIn(replies, resultField, errorField) {
    for (const r of replies) {
      for (const [f, v] of fieldsOf(r)) {
        if (f !== resultField) continue;
        for (const [g, w] of fieldsOf(v)) {
          if (g === errorField && w.length) return utf8.decode(w);
        }
      }
    }
    return null;
  }

  append(bytes) {
    return this.errorIn(this.call(APPEND, (m) => m.bytes(101, bytes)), 201, 2);
  }

  finalize() { return this.errorIn(this.call(FINALIZE), 212, 1); }

  query(sql) {
    const began = process.hrtime.bigint();
    const args = new Writer().text(1, sql).done();
    let columns = [], error = null;
    const rows = [];
    let row = [];
    for (const reply of this.call(QUERY, (m) => m.bytes(103, args))) {
      for (const [f, result] of fieldsOf(reply)) {
        if (f !== 203) continue;
        for (const [g, v] of fieldsOf(result)) {
          if (g === 1) columns.push(utf8.decode(v));
          else if (g === 2 && v.length) error = utf8.decode(v);
          else if (g === 3) {
            for (const cell of cellsOf(v)) {
              row.push(cell);
              if (row.length === columns.length) { rows.push(row); row = []; }
            }
          }
        }
      }
    }
    const ms = Number(process.hrtime.bigint() - began) / 1e6;
    return {sql, columns, rows, error, ms: Math.round(ms * 10) / 10};
  }
}

class EngineCrash extends Error {}

function* cellsOf(batch) {
  let kinds = [], ints = [], floats = [], strings = [];
  const blobs = [];
  for (const [f, v] of fieldsOf(batch)) {
    if (f === 1) kinds = kinds.concat(packedVarints(v));
    else if (f === 2) ints = ints.concat(packedVarints(v));
    else if (f === 3) {
      const d = new DataView(v.buffer, v.byteOffset, v.length);
      for (let i = 0; i + 8 <= v.length; i += 8) floats.push(d.getFloat64(i, true));
    } else if (f === 4) blobs.push(Buffer.from(v).toString('hex'));
    else if (f === 5) strings = utf8.decode(v).split('\0');
  }
  let i = 0, d = 0, s = 0, b = 0;
  for (const k of kinds) {
    switch (Number(k)) {
      case CELL.NULL: yield null; break;
      case CELL.INT: yield ints[i++]; break;
      case CELL.FLOAT: yield floats[d++]; break;
      case CELL.STRING: yield strings[s++]; break;
      case CELL.BLOB: yield blobs[b++]; break;
      default: throw new Error('cell kind ' + k);
    }
  }
}

// Feeds the file in pieces of chunkBytes and fills in what became of it:
// out.engine, .bytes, .load_ok, .load_error, .load_ms.
async function openTrace(dir, file, chunkBytes, onLog, out) {
  const engine = new Engine(dir, onLog);
  out.engine = engine;
  await engine.ready();
  const began = Date.now();
  const fd = fs.openSync(file, 'r');
  try {
    out.bytes = fs.fstatSync(fd).size;
    const buf = new Uint8Array(Math.max(1, Math.min(chunkBytes, out.bytes)));
    for (;;) {
      const n = fs.readSync(fd, buf, 0, buf.length, null);
      if (!n) break;
      out.load_error = engine.append(buf.subarray(0, n));
      if (out.load_error) break;
    }
  } finally { fs.closeSync(fd); }
  if (!out.load_error) out.load_error = engine.finalize();
  out.load_ok = !out.load_error;
  out.load_ms = Date.now() - began;
  return engine;
}

module.exports = {EngineCrash, openTrace};
