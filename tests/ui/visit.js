#!/usr/bin/env node
// visit - walk through the pages of `dftrace ui` in one headless Chromium, and tell what is found there.
//
//   visit.js ORDERS.json
//
// ORDERS is {address, empty, pages: {name: {hash, mark}}, ranks, lines, spare: [FROM, TO], shots?}: the address
// that the command has printed, and that of a folder without runs; pages that are opened in a wide and
// a narrow window, light and dark, and what they mark when they are drawn; the run that is walked
// through by keys, mouse and finger; two whose lines are compared; a folder that appears meanwhile as a new run; a folder for pictures.
// Prints what was found by the name of what was done.

'use strict';
const fs = require('fs');
const os = require('os');
const path = require('path');
const {Browser, findChromium} = require('../perfetto/browser.js');

const MOST_MS = 100000;
const KEYS = {
  Enter: {code: 'Enter', windowsVirtualKeyCode: 13, text: '\r'}, Escape: {code: 'Escape', windowsVirtualKeyCode: 27},
  ArrowLeft: {code: 'ArrowLeft', windowsVirtualKeyCode: 37}, ArrowUp: {code: 'ArrowUp', windowsVirtualKeyCode: 38},
  ' ': {code: 'Space', windowsVirtualKeyCode: 32, text: ' '},
  ArrowRight: {code: 'ArrowRight', windowsVirtualKeyCode: 39}, ArrowDown: {code: 'ArrowDown', windowsVirtualKeyCode: 40},
};

class Tab {
  static async open(browser, address) {
    const {targetId} = await browser.send('Target.createTarget', {url: 'about:blank'});
    const {sessionId} = await browser.send('Target.attachToTarget', {targetId, flatten: true});
    const tab = new Tab();
    Object.assign(tab, {browser, address, targetId, sessionId, errors: [], asked: new Set()});
    browser.listeners.push((m) => m.sessionId === sessionId && tab.heard(m));
    for (const domain of ['Page', 'Runtime', 'Log', 'Network']) await tab.cdp(`${domain}.enable`);
    return tab;
  }

  cdp(method, params) {
    return this.browser.send(method, params, this.sessionId);
  }

  heard({method, params}) {
    if (method === 'Runtime.exceptionThrown') {
      const found = params.exceptionDetails;
      this.errors.push(found.exception && found.exception.description || found.text);
    } else if (method === 'Runtime.consoleAPICalled') {
      this.errors.push(JSON.stringify(params.args.map((one) => one.value)));
    } else if (method === 'Log.entryAdded') {
      this.errors.push(`${params.entry.text} ${params.entry.url || ''}`);
    } else if (method === 'Network.requestWillBeSent' && !params.request.url.startsWith('data:')) {
      this.asked.add(params.request.url.split('?')[0]);
    }
  }

  async ask(expression) {
    const found = await this.cdp('Runtime.evaluate', {expression, awaitPromise: true, returnByValue: true});
    if (found.exceptionDetails) {
      throw new Error(`${expression}: ${found.exceptionDetails.exception.description}`);
    }
    return found.result.value;
  }

  // Waits until something is so, looked at with each picture that the page draws.
  until(expression) {
    return this.ask(`new Promise((done, failed) => {
      const limit = performance.now() + ${MOST_MS};
      (function look() {
        let found = null;
        try { found = (${expression}); } catch (error) { found = null; }
        if (found) done(found);
        else if (performance.now() > limit) failed(new Error('never: ' + ${JSON.stringify(expression)}));
        else setTimeout(look, 20);
      })();
    })`);
  }

  async look({width = 1440, dark = false, finger = false}) {
    await this.cdp('Emulation.setDeviceMetricsOverride', {width, height: 900, deviceScaleFactor: 1, mobile: finger});
    await this.cdp('Emulation.setTouchEmulationEnabled', {enabled: finger});
    await this.cdp('Emulation.setEmulatedMedia', {features: [{name: 'prefers-color-scheme', value: dark ? 'dark' : 'light'}]});
  }

  // Opens a page anew and waits until all that is asked for at its beginning is there.
  async go(hash, mark = '') {
    await this.cdp('Page.navigate', {url: 'about:blank'});
    await this.cdp('Page.navigate', {url: this.address + hash});
    await this.until(mark ? `performance.getEntriesByName('${mark}').length` :
        `document.querySelector('#main h2, #main h1, #main table')`);
    await this.quiet();
  }

  // Until a picture was drawn after everything that was still to be drawn.
  quiet() {
    return this.ask('new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))');
  }

  async key(key, modifiers = 0) {
    const about = KEYS[key] || {text: key};
    await this.cdp('Input.dispatchKeyEvent', {type: 'keyDown', key, modifiers, ...about});
    await this.cdp('Input.dispatchKeyEvent', {type: 'keyUp', key, modifiers, ...about, text: undefined});
    await this.quiet();
  }

  async type(words) {
    for (const one of words) await this.key(one);
  }

  async place(selector, x = .5, y = .5) {
    return this.ask(`(() => {
      const one = document.querySelector(${JSON.stringify(selector)});
      one.scrollIntoView({block: 'center'});
      const box = one.getBoundingClientRect();
      return {x: box.x + box.width * ${x}, y: box.y + box.height * ${y}};
    })()`);
  }

  async mouse(type, at, buttons = 0) {
    await this.cdp('Input.dispatchMouseEvent', {type, ...at, buttons, button: type === 'mouseMoved' ? 'none' : 'left', clickCount: 1});
  }

  async click(selector, x, y) {
    const at = await this.place(selector, x, y);
    await this.mouse('mouseMoved', at);
    await this.mouse('mousePressed', at, 1);
    await this.mouse('mouseReleased', at);
    await this.quiet();
  }

  async drag(selector, from, to, y = .5) {
    const [begin, end] = [await this.place(selector, from, y), await this.place(selector, to, y)];
    await this.mouse('mouseMoved', begin);
    await this.mouse('mousePressed', begin, 1);
    for (const part of [.3, .7, 1]) {
      await this.mouse('mouseMoved', {x: begin.x + (end.x - begin.x) * part, y: begin.y}, 1);
    }
    await this.mouse('mouseReleased', end);
    await this.quiet();
  }

  async swipe(selector, from, to, y = .5) {
    const [begin, end] = [await this.place(selector, from, y), await this.place(selector, to, y)];
    await this.cdp('Input.dispatchTouchEvent', {type: 'touchStart', touchPoints: [begin]});
    for (const part of [.3, .7, 1]) {
      await this.cdp('Input.dispatchTouchEvent', {type: 'touchMove',
        touchPoints: [{x: begin.x + (end.x - begin.x) * part, y: begin.y}]});
    }
    await this.cdp('Input.dispatchTouchEvent', {type: 'touchEnd', touchPoints: []});
    await this.quiet();
  }

  async tap(selector, x, y) {
    await this.cdp('Input.dispatchTouchEvent', {type: 'touchStart', touchPoints: [await this.place(selector, x, y)]});
    await this.cdp('Input.dispatchTouchEvent', {type: 'touchEnd', touchPoints: []});
    await this.quiet();
  }

  focus(selector) {
    return this.ask(`document.querySelector(${JSON.stringify(selector)}).focus()`);
  }

  hash() {
    return this.ask('location.hash');
  }

  async shot(file) {
    const height = await this.ask('Math.min(document.documentElement.scrollHeight, 6000)');
    const {data} = await this.cdp('Page.captureScreenshot', {format: 'png', captureBeyondViewport: true,
      clip: {x: 0, y: 0, width: await this.ask('innerWidth'), height, scale: 1}});
    fs.writeFileSync(file, Buffer.from(data, 'base64'));
  }
}

const NAMES = `[...document.querySelectorAll('#runs tbody td.name a')].map((one) => one.title)`;
const SAID = `document.getElementById('said').textContent`;
const WINDOW = `(location.hash.match(/t=([\\d.]+)-([\\d.]+)/) || []).slice(1).map(Number)`;

// What a screen reader hears no name of, of all that can be used or looked at.
const NAMED = new Set(['button', 'link', 'textbox', 'searchbox', 'checkbox', 'combobox', 'slider', 'application', 'image',
  'Canvas', 'columnheader', 'DisclosureTriangle']);

async function unnamed(tab) {
  const {nodes} = await tab.cdp('Accessibility.getFullAXTree');
  return nodes.filter((one) => !one.ignored && NAMED.has(one.role?.value) && !(one.name?.value || '').trim())
      .map((one) => one.role.value);
}

// Figures that are cut, or stand in a table that has to be scrolled though all of it fits.
const CUT = `[...document.querySelectorAll('.tile .where :last-child, .changes td')].filter((one) => one.scrollWidth > one.clientWidth + 1 ||
    one.getBoundingClientRect().right > innerWidth).map((one) => one.textContent)`;

// Each of the pages, wide and narrow, light and dark: how wide it is, and what stands at its head.
async function looks(tab, {pages, shots}) {
  const found = {};
  for (const [name, {hash, mark}] of Object.entries(pages)) {
    found[name] = {widths: []};
    for (const [width, dark] of [[1440, false], [390, true]]) {
      await tab.look({width, dark, finger: width === 390});
      await tab.go(hash, mark);
      found[name].widths.push(await tab.ask('[document.documentElement.scrollWidth, innerWidth]'));
      found[name].unnamed = await unnamed(tab);
      found[name].cut = await tab.ask(CUT);
      found[name].strip = await tab.ask(`(document.querySelector('#strip canvas') || {clientWidth: main.clientWidth}).clientWidth /
          main.clientWidth`);
      if (shots) await tab.shot(path.join(shots, `${name}-${width}.png`));
    }
    found[name].head = await tab.ask(`(document.querySelector('#main h1, #main h2') || {}).textContent || ''`);
    found[name].words = await tab.ask(`document.getElementById('main').innerText`);
    found[name].title = await tab.ask(`document.title`);
    found[name].images = await tab.ask(`document.querySelectorAll('#main img').length`);
    found[name].theme = await tab.ask('document.documentElement.dataset.theme');
  }
  return found;
}

// The list by keys: filter, sort, choose two and compare, and back.
async function listByKeys(tab) {
  const found = {};
  await tab.look({});
  await tab.go('', 'runs-drawn');
  found.all = await tab.ask(NAMES);
  await tab.key('/');
  await tab.type('rank');
  found.word = await tab.ask(NAMES);
  await tab.ask(`(() => { const one = document.activeElement; one.value = ''; one.dispatchEvent(new Event('input')); })()`);
  await tab.type('ranks>1');
  await tab.until(`performance.getEntriesByType('resource').some((one) => /match.*ranks/.test(one.name))`);
  await tab.until(`${NAMES}.length && ${NAMES}.length < ${found.all.length}`);
  found.condition = await tab.ask(NAMES);
  await tab.ask(`(() => { const one = document.activeElement; one.value = ''; one.dispatchEvent(new Event('input')); })()`);
  await tab.until(`${NAMES}.length === ${found.all.length}`);
  await tab.key('Escape');
  await tab.click('#runs th[data-column=steps] button');
  found.sorted = await tab.ask(`[...document.querySelectorAll('#runs tbody tr')].map((row) =>
      Number(row.cells[6].textContent.replaceAll(',', '')))`);
  found.order = await tab.ask(`document.querySelector('#runs th[data-column=steps]').ariaSort`);
  for (const key of ['j', 'x', 'j', 'x']) await tab.key(key);
  found.chosen = await tab.ask(`document.querySelectorAll('#runs tr.chosen').length`);
  await tab.key('c');
  await tab.until(`performance.getEntriesByName('compare-drawn').length`);
  found.compared = await tab.ask(`document.querySelector('#main h1').textContent`);
  await tab.ask('history.back()');
  await tab.until(`document.querySelector('#runs')`);
  found.back = (await tab.ask(NAMES)).length;
  await tab.key('k');
  await tab.key('Enter');
  await tab.until(`performance.getEntriesByName('run-drawn').length`);
  found.opened = await tab.hash();
  await tab.key('u');
  await tab.until(`document.querySelector('#runs')`);
  // The baseline stays first over a reload, until there is none.
  const based = `(document.querySelector('#runs .baseline') || {closest: () => null}).closest('tr')`;
  const makeBaseline = async () => {
    await tab.key('j');
    await tab.key('j');
    await tab.key('x');
    await tab.ask(`[...document.querySelectorAll('.bar button')].find((one) => /baseline$/.test(one.textContent)).click()`);
  };
  await tab.ask(`document.querySelectorAll('#runs tr.chosen input').forEach((one) => one.click())`);
  await makeBaseline();
  found.baseline = [await tab.ask(`${based}.querySelector('a').title`)];
  await tab.cdp('Page.reload');
  await tab.until(`performance.getEntriesByName('runs-drawn').length && document.querySelector('#runs .baseline')`);
  found.baseline.push(await tab.ask(`${based} === document.querySelector('#runs tbody tr') && ${based}.querySelector('a').title`));
  await tab.key('j');
  await tab.key('x');
  await tab.ask(`[...document.querySelectorAll('.bar button')].find((one) => one.textContent === 'No baseline').click()`);
  found.baseline.push(await tab.ask(`${based} && 'there'`));
  await tab.key('x');
  await tab.key('?');
  found.keys = await tab.ask(`document.getElementById('keys').open`);
  await tab.key('Escape');
  return found;
}

// A folder without a run.
async function nothing(tab, address) {
  await tab.look({width: 390, finger: true});
  await tab.cdp('Page.navigate', {url: address});
  const said = await tab.until(`(document.querySelector('.empty h2') || {}).textContent`);
  await tab.look({});
  return said;
}

// A new run appears while somebody looks: no row moves until that is asked for.
async function listStandsStill(tab, [from, to]) {
  await tab.go('', 'runs-drawn');
  const places = `[...document.querySelectorAll('#runs tbody tr')].map((row) =>
      [row.querySelector('a').title, Math.round(row.getBoundingClientRect().y)])`;
  const before = await tab.ask(places);
  fs.cpSync(from, to, {recursive: true});
  const button = await tab.until(`[...document.querySelectorAll('.bar button.main')].map((one) => !one.hidden && one.textContent)
      .find((words) => /^Show 1 new$/.test(words))`);
  const after = await tab.ask(places);
  await tab.ask(`[...document.querySelectorAll('.bar button.main')].find((one) => one.textContent === 'Show 1 new').click()`);
  return {moved: JSON.stringify(before) === JSON.stringify(after) ? 0 : 1, button, shown: await tab.ask(NAMES)};
}

// A run of several ranks by keys and mouse: its window, its plots, its maps.
async function runByKeys(tab, hash) {
  const found = {};
  await tab.look({});
  await tab.go('', 'runs-drawn');
  await tab.ask(`location.hash = ${JSON.stringify(hash)}`);
  await tab.until(`performance.getEntriesByName('run-drawn').length`);
  found.plots = await tab.ask(`document.querySelectorAll('.u-over').length`);
  await tab.key('+');
  await tab.until(`${WINDOW}.length`);
  found.zoomed = await tab.ask(WINDOW);
  const reads = async () => tab.ask(`document.querySelector('.window .num').textContent`);
  await tab.until(`/step/.test(document.querySelector('.window .num').textContent)`);
  found.window = await reads();
  found.outside = await tab.until(`/^Outside/.test(document.querySelector('.outside').textContent) &&
      document.querySelector('.outside').textContent`);
  await tab.cdp('Page.reload');
  await tab.until(`performance.getEntriesByName('run-drawn').length`);
  found.reloaded = await tab.ask(WINDOW);
  await tab.key('ArrowRight');
  await tab.until(`${WINDOW}[0] > ${found.zoomed[0]}`);
  found.moved = await tab.ask(WINDOW);
  await tab.key('0');
  await tab.until(`!${WINDOW}.length`);
  await tab.drag('#strip canvas', .4, .6);
  await tab.until(`${WINDOW}.length`);
  found.dragged = await tab.ask(WINDOW);
  await tab.focus('#strip canvas');
  await tab.key('ArrowLeft');
  found.strip = await tab.ask(SAID);
  await tab.key('n');
  await tab.until(`${WINDOW}[1] - ${WINDOW}[0] < ${found.dragged[1] - found.dragged[0]}`);
  await tab.key('0');
  await tab.until(`!${WINDOW}.length`);
  if (found.plots) {
    await tab.focus('.u-over');
    await tab.key('ArrowRight');
    await tab.key('ArrowRight', 8);
    found.read = await tab.ask(SAID);
    await tab.drag('.u-over', .3, .5);
    await tab.until(`${WINDOW}.length`);
    found.plotted = await tab.ask(WINDOW);
    await tab.click('.over button:last-child');
    await tab.drag('.u-over', .2, .4);
    await tab.until(`${WINDOW}[1] < ${found.plotted[1]}`);
    found.numbered = await tab.ask(WINDOW);
    await tab.click('.over button:last-child');
  }
  await tab.focus('.heat canvas');
  await tab.key('ArrowDown');
  await tab.key('ArrowRight');
  found.cell = await tab.ask(SAID);
  await tab.key('Enter');
  await tab.until(`/rank=/.test(location.hash)`);
  found.rank = await tab.hash();
  await tab.key('f');
  found.searching = await tab.ask(`document.activeElement.type`);
  await tab.type('forward');
  found.flame = await tab.ask(`document.querySelector('.flame-found').textContent`);
  await tab.key('Escape');
  await tab.key('Escape');
  await tab.click('#main th button.sort');
  found.sorted = await tab.ask(`document.querySelectorAll('#main th[aria-sort]').length`);
  await tab.ask('history.back()');
  await tab.until(`document.querySelector('#runs')`);
  found.back = await tab.hash();
  return found;
}

// A job that runs: what it does now, and that it stands still while it is held.
async function running(tab, hash) {
  await tab.look({});
  await tab.go(hash);
  const found = {tile: await tab.until(`(document.querySelector('.tile') || {}).textContent`)};
  found.age = await tab.until(`document.getElementById('age').textContent`);
  found.title = await tab.ask(`document.querySelector('.now h2').textContent`);
  await tab.key(' ');
  found.held = await tab.ask(`document.querySelector('.now .bar button').ariaPressed`);
  found.aged = await tab.until(`/^held/.test(document.getElementById('age').textContent)`);
  await tab.key(' ');
  return found;
}

// The same with a finger, in a narrow window.
async function runByFinger(tab, hash) {
  const found = {};
  await tab.look({width: 390, finger: true});
  await tab.go(hash, 'run-drawn');
  await tab.swipe('#strip canvas', .4, .8);
  await tab.until(`${WINDOW}.length`);
  found.swiped = await tab.ask(WINDOW);
  await tab.tap('.heat canvas', .5, .5);
  found.read = await tab.until(`/^rank/.test(document.querySelector('.heat').previousElementSibling.textContent) &&
      document.querySelector('.heat').previousElementSibling.textContent`);
  if (await tab.ask(`Boolean(document.querySelector('.u-over'))`)) {
    await tab.tap('.u-over', .5, .5);
    found.step = await tab.until(`/^step/.test(document.querySelector('.over .read').textContent) &&
        document.querySelector('.over .read').textContent`);
  }
  found.small = await tab.ask(`[...document.querySelectorAll('#main button, #main select')].filter((one) => one.offsetParent &&
      !one.closest('th') && one.getBoundingClientRect().height < 22).map((one) => one.textContent)`);
  return found;
}

// What the lines of one run, and of some of its steps, take more than those of another.
async function lines(tab, hash) {
  const SECTION = `[...document.querySelectorAll('section')].find((one) => /^Lines/.test(one.textContent))`;
  await tab.look({});
  await tab.go(hash, 'compare-drawn');
  await tab.until(`!${SECTION}.hidden`);
  const told = async () => [await tab.ask(`${SECTION}.querySelector('.flame-note').textContent`),
    await tab.ask(`${SECTION}.querySelector('.flame-told').textContent`)];
  const search = async (words) => {
    await tab.ask(`(() => { const one = ${SECTION}.querySelector('input'); one.value = '${words}';
        one.dispatchEvent(new Event('input')); one.focus(); })()`);
    await tab.key('Enter');
    return told();
  };
  const found = {runs: await search('grows')};
  const choose = (label, value) => tab.ask(`(() => { const one = ${SECTION}.querySelector('[aria-label="${label}"]');
      one.selectedIndex = ${value}; one.dispatchEvent(new Event('change')); })()`);
  found.ranges = await tab.ask(`[...${SECTION}.querySelector('[aria-label="Shown: from step"]').options].map((one) => one.text)`);
  // Of one run alone: its second half beside the first.
  await choose('Beside: of whom', 2);
  await choose('Shown: from step', 8);
  await choose('Beside: to step', 7);
  found.halves = await search('grows');
  await choose('Beside: of whom', 0);
  found.some = await search('grows');
  return found;
}

// What the policy has to refuse.
const FORBIDDEN = `(async () => {
  const refused = [];
  document.addEventListener('securitypolicyviolation', (event) => refused.push(event.effectiveDirective));
  await fetch('https://example.org/').catch(() => {});
  const script = document.createElement('script');
  script.textContent = 'window.acted = true';
  document.head.append(script);
  await new Promise((done) => setTimeout(done));
  return [refused.sort(), Boolean(window.acted)];
})()`;

async function main() {
  const orders = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));
  const profile = fs.mkdtempSync(path.join(os.tmpdir(), 'visit.'));
  const browser = new Browser(findChromium(), profile, [1440, 900]);
  const told = {};
  try {
    const tab = await Tab.open(browser, orders.address);
    told.looks = await looks(tab, orders);
    told.list = await listByKeys(tab);
    told.nothing = await nothing(tab, orders.empty);
    told.still = await listStandsStill(tab, orders.spare);
    told.run = await runByKeys(tab, orders.ranks);
    told.live = await running(tab, orders.pages.live.hash);
    told.finger = await runByFinger(tab, orders.ranks);
    told.lines = await lines(tab, orders.lines);
    told.errors = tab.errors.slice();
    told.asked = [...tab.asked];
    told.empty = orders.empty;
    told.forbidden = await tab.ask(FORBIDDEN);
    console.log(JSON.stringify(told));
  } finally {
    const ended = new Promise((done) => browser.child.on('exit', done));
    browser.send('Browser.close').catch(() => {});
    await Promise.race([ended, new Promise((done) => setTimeout(done, 5000))]);
    browser.child.kill('SIGKILL');
    fs.rmSync(profile, {recursive: true, force: true, maxRetries: 5});
  }
}

main().catch((error) => {
  process.stderr.write(`visit: ${error.stack || error}\n`);
  process.exitCode = 5;
});
