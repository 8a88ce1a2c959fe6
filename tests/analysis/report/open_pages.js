#!/usr/bin/env node
// open_pages - open pages in one headless Chromium and tell what went wrong in them.
//
//   open_pages.js ORDERS.json
//
// ORDERS is a list of {page, width?, media?, dark?, ask?, shot?, pdf?}: the file to open, the
// window's width, "print" where it is looked at as on paper, whether the system is dark, an expression whose value
// is told, save: {button, folder}, a button to press that saves a file there; where a picture of the whole page and a PDF go. Prints a list with one object for
// each: {errors, answer}, errors being exceptions, refusals of the page's policy and whatever
// else the console shows.

'use strict';
const fs = require('fs');
const os = require('os');
const path = require('path');
const {pathToFileURL} = require('url');
const {Browser, findChromium} = require('../../perfetto/browser.js');

// Presses a button that saves a file, and tells the file's name when it is there.
async function saved(browser, cdp, {button, folder}) {
  await browser.send('Browser.setDownloadBehavior',
      {behavior: 'allow', downloadPath: folder, eventsEnabled: true});
  let name;
  const ended = new Promise((ok) => browser.listeners.push((m) => {
    if (m.method === 'Browser.downloadWillBegin') name = m.params.suggestedFilename;
    if (m.method === 'Browser.downloadProgress' && m.params.state !== 'inProgress') ok();
  }));
  await cdp('Runtime.evaluate',
      {expression: `document.querySelector(${JSON.stringify(button)}).click()`, userGesture: true});
  await ended;
  return name;
}

async function openOne(browser, order) {
  const {targetId} = await browser.send('Target.createTarget', {url: 'about:blank'});
  const {sessionId} = await browser.send('Target.attachToTarget', {targetId, flatten: true});
  const cdp = (method, params) => browser.send(method, params, sessionId);
  const errors = [];
  // The empty page that was there before has a load event, too.
  const loads = new Set();
  let awaited = null, loaded;
  const ready = new Promise((ok) => { loaded = ok; });
  browser.listeners.push((m) => {
    if (m.sessionId !== sessionId) return;
    if (m.method === 'Runtime.exceptionThrown') {
      const x = m.params.exceptionDetails;
      errors.push(x.exception && x.exception.description || x.text);
    } else if (m.method === 'Runtime.consoleAPICalled') {
      errors.push(JSON.stringify(m.params.args.map((a) => a.value)));
    } else if (m.method === 'Log.entryAdded') {
      errors.push(m.params.entry.text);
    } else if (m.method === 'Network.requestWillBeSent') {
      const url = m.params.request.url;
      if (!/^(data|blob):/.test(url) && url !== pathToFileURL(order.page).href) {
        errors.push('asked for ' + url.slice(0, 200));
      }
    } else if (m.method === 'Page.lifecycleEvent' && m.params.name === 'load') {
      loads.add(m.params.loaderId);
      if (m.params.loaderId === awaited) loaded();
    }
  });
  for (const domain of ['Page', 'Runtime', 'Log', 'Network']) await cdp(`${domain}.enable`);
  await cdp('Emulation.setEmulatedMedia', {
    media: order.media || '',
    features: [{name: 'prefers-color-scheme', value: order.dark ? 'dark' : 'light'}]});
  await cdp('Emulation.setDeviceMetricsOverride',
      {width: order.width || 1000, height: 800, deviceScaleFactor: 1, mobile: false});
  await cdp('Page.setLifecycleEventsEnabled', {enabled: true});
  awaited = (await cdp('Page.navigate', {url: pathToFileURL(order.page).href})).loaderId;
  if (!loads.has(awaited)) await ready;
  let answer = null;
  if (order.ask) {
    const r = await cdp('Runtime.evaluate',
        {expression: order.ask, awaitPromise: true, returnByValue: true});
    if (r.exceptionDetails) {
      const x = r.exceptionDetails;
      errors.push('asked: ' + (x.exception && x.exception.description || x.text));
    } else {
      answer = r.result.value;
    }
  }
  if (order.save) answer = await saved(browser, cdp, order.save);
  if (order.shot) {
    const {data} = await cdp('Page.captureScreenshot', {format: 'png', captureBeyondViewport: true});
    fs.writeFileSync(order.shot, Buffer.from(data, 'base64'));
  }
  if (order.pdf) {
    const {data} = await cdp('Page.printToPDF', {printBackground: true, preferCSSPageSize: true});
    fs.writeFileSync(order.pdf, Buffer.from(data, 'base64'));
  }
  await browser.send('Target.closeTarget', {targetId});
  return {errors, answer};
}

async function main() {
  const orders = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));
  const profile = fs.mkdtempSync(path.join(os.tmpdir(), 'open_pages.'));
  const browser = new Browser(findChromium(), profile, [1000, 800]);
  try {
    const told = [];
    for (const order of orders) told.push(await openOne(browser, order));
    console.log(JSON.stringify(told));
  } finally {
    const ended = new Promise((r) => browser.child.on('exit', r));
    browser.send('Browser.close').catch(() => {});
    await Promise.race([ended, new Promise((r) => setTimeout(r, 5000))]);
    browser.child.kill('SIGKILL');
    fs.rmSync(profile, {recursive: true, force: true, maxRetries: 5});
  }
}

main().catch((e) => {
  process.stderr.write('open_pages: ' + (e.stack || e) + '\n');
  process.exitCode = 5;
});
