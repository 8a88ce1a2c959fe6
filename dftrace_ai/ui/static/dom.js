// Elements, canvases and requests. Whatever a run is called becomes the text of a node, and no more.

import {early} from './first.js';

const SVG = 'http://www.w3.org/2000/svg';

// An element: properties by their names, attributes with a dash or that are `role`, what happens by `on...`.
export function h(tag, properties, ...inside) {
  const made = document.createElement(tag);
  for (const name in properties) {
    const value = properties[name];
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else if (name === 'style') Object.assign(made.style, value);
    else if (name in made && name !== 'role') made[name] = value;
    else made.setAttribute(name, value === true ? '' : value);
  }
  return put(made, ...inside);
}

// What turns letters around or has no shape would make a name look like another; as in the report.
const UNSEEN = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const seen = (words) => words.replace(UNSEEN, (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`);

// Puts nodes and words into an element, those that are nothing left out.
export function put(into, ...inside) {
  for (const one of inside) {
    if (Array.isArray(one)) put(into, ...one);
    else if (one !== null && one !== undefined && one !== false) into.append(typeof one === 'string' ? seen(one) : one);
  }
  return into;
}

export function fill(into, ...inside) {
  into.replaceChildren();
  return put(into, ...inside);
}

export function svg(tag, attributes, ...inside) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...inside);
  return made;
}

export const byId = (id) => document.getElementById(id);

// A canvas that is as sharp as the screen; returns what draws on it, in pixels of the page.
export function fit(canvas, width, height) {
  const sharp = devicePixelRatio || 1;
  canvas.width = Math.round(width * sharp);
  canvas.height = Math.round(height * sharp);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const drawn = canvas.getContext('2d');
  drawn.scale(sharp, sharp);
  return drawn;
}

export function say(words) {
  byId('said').textContent = words;
}

export const narrow = () => innerWidth < 700;

// The room left of what is drawn over time, equal in all panels, so that their edges are.
export const gutter = () => narrow() ? 52 : 60;

// What the server says of a request that it does not answer otherwise.
export class Answered extends Error {}

async function answer(what, asked, signal) {
  const address = `api/${what}?${new URLSearchParams(asked)}`;
  const got = await (early(address) || fetch(address, {signal}));
  if (got.ok) return got;
  const told = await got.json().catch(() => ({}));
  throw new Answered(told.error || `the server answered ${got.status}`);
}

export async function ask(what, asked = {}, signal = null) {
  return (await answer(what, asked, signal)).json();
}

// An answer of a head in JSON, its length before it, and bytes behind it.
export async function askBytes(what, asked, signal = null) {
  const whole = await (await answer(what, asked, signal)).arrayBuffer();
  const length = new DataView(whole).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(whole, 4, length)));
  return [head, new Uint8Array(whole, 4 + length)];
}
