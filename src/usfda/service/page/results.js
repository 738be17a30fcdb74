// Images are sent a few at a time; each has a card with its answer, and is asked again when the model changes.

import { count, element, find, json } from "./api.js";

const FILES = 8; // in a request
const BYTES = 8 * 2 ** 20; // likewise, so that a slow line is in time
const SENDERS = 2; // requests at a time
const CARDS = 400; // that are shown; older ones make way
const cards = []; // {file, name, item, record}
const waiting = [];
let sent = 0;
let total = 0;
let senders = 0;
let changed = () => {};

export const onChange = (f) => { changed = f; };

/** Files of a drop, those of folders too. */
export async function dropped(items) {
  const entries = [...items].filter((item) => item.kind === "file")
    .map((item) => [item.webkitGetAsEntry?.(), item.getAsFile()]);
  const found = [];
  for (const [entry, file] of entries) {
    if (entry?.isDirectory) await walk(entry, found);
    else if (file) found.push({ file, name: file.name });
  }
  return found;
}

async function walk(folder, found) {
  const reader = folder.createReader();
  for (;;) { // a reader gives a hundred at a time
    const entries = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!entries.length) return;
    for (const entry of entries) {
      if (entry.isDirectory) await walk(entry, found);
      else keepImage(await new Promise((resolve, reject) => entry.file(resolve, reject)), entry.fullPath.slice(1), found);
    }
  }
}

/** Of a folder, only what looks like an image. */
function keepImage(file, name, found) {
  if (file.type.startsWith("image/") && !file.name.startsWith(".")) found.push({ file, name });
}

/** Files of an input. */
export function chosen(input) {
  const found = [];
  for (const file of input.files) {
    if (file.webkitRelativePath) keepImage(file, file.webkitRelativePath, found);
    else found.push({ file, name: file.name });
  }
  input.value = "";
  return found;
}

/** Send files and show their answers. */
export function send(files, keep) {
  const made = files.map(({ file, name }) => (
    { file, name, keep, record: null, was: null, item: makeCard(file, name) }
  ));
  cards.push(...made);
  waiting.push(...made);
  find("results").prepend(...made.map((card) => card.item));
  while (cards.length > CARDS && cards[0].record) remove(cards.shift());
  total += files.length;
  find("clear").hidden = cards.length === 0;
  go();
}

/** Ask again for every image on the page: another model answers now. */
export function askAgain() {
  for (const card of cards) {
    if (card.record && !waiting.includes(card)) {
      card.keep = false;
      card.was = card.record.label ?? null;
      waiting.push(card);
      total += 1;
    }
  }
  go();
}

/** Take all cards away. */
export function clear() {
  while (cards.length) remove(cards.pop());
  waiting.length = 0;
  summarise();
}

function remove(card) {
  URL.revokeObjectURL(card.item.querySelector("img").src);
  card.item.remove();
}

function go() {
  summarise();
  while (senders < SENDERS && senders < Math.ceil(waiting.length / FILES)) {
    senders += 1;
    work().finally(() => {
      senders -= 1;
      if (!senders && !waiting.length) {
        sent = total = 0;
        summarise();
        changed();
      }
    });
  }
}

async function work() {
  while (waiting.length) {
    const batch = [waiting.shift()];
    let bytes = batch[0].file.size;
    while (waiting.length && batch.length < FILES && waiting[0].keep === batch[0].keep
      && bytes + waiting[0].file.size <= BYTES) {
      bytes += waiting[0].file.size;
      batch.push(waiting.shift());
    }
    const body = new FormData();
    for (const card of batch) body.append("files", card.file, card.name);
    let records;
    try {
      records = (await json(`/predict?keep=${batch[0].keep}`, { method: "POST", body })).results;
    } catch (error) {
      records = batch.map(() => ({ error: error.message }));
    }
    batch.forEach((card, i) => show(card, records[i]));
    sent += batch.length;
    summarise();
  }
}

function summarise() {
  const done = cards.filter((card) => card.record);
  const unknown = done.filter((card) => card.record.label === "unknown").length;
  const wrong = done.filter((card) => card.record.error).length;
  const parts = [`${done.length - unknown - wrong} known`, `${unknown} unknown`];
  if (wrong) parts.push(`${wrong} not read`);
  const going = sent < total;
  find("summary").textContent = cards.length === 0 ? "No image yet."
    : going ? `${sent} of ${total} answered …` : `${count(done.length, "image")}: ${parts.join(", ")}.`;
  find("sending").hidden = !going;
  find("sending").value = total ? sent / total : 0;
  find("clear").hidden = cards.length === 0;
}

function makeCard(file, name) {
  const image = element("img", { src: URL.createObjectURL(file), alt: name, loading: "lazy" });
  image.addEventListener("error", () => { image.hidden = true; }); // no picture to this browser; its name stands below
  return element("li", {},
    element("div", { className: "picture" }, image),
    element("div", { className: "answer" }, ...answer({ tag: "waiting", text: "…" }, name)));
}

function answer({ tag, text, beside = "" }, name, ...more) {
  const label = element("p", { className: "label" },
    element("span", { className: `tag ${tag}`, textContent: text }),
    element("span", { className: "score", textContent: beside }));
  return [label, ...more, element("p", { className: "name", textContent: name, title: name })];
}

function show(card, record) {
  card.record = record;
  const parts = [];
  if (record.error) {
    parts.push(...answer({ tag: "wrong", text: "not read" }, card.name,
      element("p", { className: "was", textContent: record.error })));
  } else {
    const unknown = record.label === "unknown";
    const score = `score ${record.score.toFixed(2)}`;
    const beside = unknown && record.cluster ? `cluster ${record.cluster} · ${score}` : score;
    const more = [];
    if (card.was && card.was !== record.label) {
      more.push(element("p", { className: "was", textContent: `was ${card.was}` }));
    }
    if (!unknown) { // of an unknown image the shares are no probabilities
      const rows = record.top.map(([name, share]) => element("div", {},
        element("dt", { textContent: name, title: name }),
        element("dd", {}, element("progress", { max: 1, value: share, ariaLabel: `share of ${name}` })),
        element("dd", { textContent: `${Math.round(100 * share)} %` })));
      more.push(element("dl", { className: "best", ariaLabel: "The three best classes" }, ...rows));
    }
    parts.push(...answer({ tag: unknown ? "unknown" : "known", text: record.label, beside }, card.name, ...more));
  }
  card.item.querySelector(".answer").replaceChildren(...parts);
}
