// Asks the search of a built site, by the program that it runs in browsers: node search.js SITE < questions, a line each.
// Prints for each question a line of JSON: the addresses that are found, best first.
"use strict";
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const site = process.argv[2];
const workers = path.join(site, "assets", "javascripts", "workers");
const program = fs.readdirSync(workers).find((name) => /^search\..*\.js$/.test(name));

const READY = 1;
const FOUND = 3;
let answered = () => {};
const self = { postMessage: (message) => answered(message) };
vm.runInNewContext(fs.readFileSync(path.join(workers, program), "utf-8"), { self, Intl });

function ask(message, wanted) {
  return new Promise((resolve, reject) => {
    answered = ({ type, data }) =>
      type === wanted ? resolve(data) : reject(new Error(`the search answers with ${type}`));
    self.onmessage({ data: message });
  });
}

const all = { type: "operator", data: { operator: "and", operands: [] } };

async function main() {
  const index = JSON.parse(fs.readFileSync(path.join(site, "search.json"), "utf-8"));
  await ask({ type: 0, data: index }, READY);
  for (const question of fs.readFileSync(0, "utf-8").split("\n").filter(Boolean)) {
    const query = { input: question, filter: { input: all, aggregation: { input: [] } } };
    const { items } = await ask({ type: 2, data: query }, FOUND);
    console.log(JSON.stringify(items.map(({ id }) => index.items[id].location)));
  }
}

main();
