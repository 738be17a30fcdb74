"use strict";
// The data, what is chosen, and small helpers. All text from outside goes through textContent.

const data = JSON.parse(document.getElementById("data").textContent);
const samples = data.samples;
const total = samples.score.length;
const UNKNOWN = -1; // instead of the position of a class
const everyone = Array.from({ length: total }, (_, i) => i);

const state = {
  strictness: data.strictness, // exactly the model's, until the slider moves
  view: "classes",
  sort: "high",
  label: null, // null: all; the position of a class, or UNKNOWN
  text: "",
  from: 0,
  to: 1,
  colour: "label",
  open: new Set(), // groups that are shown in full
  names: new Map(), // of clusters, as the reader types them
  chosen: null, // the image in the inspector
  pointed: null, // the image under the mouse or with the focus
};

const byId = (id) => document.getElementById(id);

/** An element with attributes and children; "text" is its text, a function is a listener. */
function make(tag, attributes = {}, ...children) {
  const place = ["svg", "path", "polyline", "line", "circle", "rect", "title", "text"].includes(tag);
  const element = place ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

const labelOf = (i) => (samples.score[i] >= state.strictness ? samples.best[i] : UNKNOWN);
const ownLabelOf = (i) => (samples.score[i] >= data.strictness ? samples.best[i] : UNKNOWN);
const nameOf = (label) => (label === UNKNOWN ? "unknown" : data.classes[label]);
const truthOf = (i) => samples.truth.names[samples.truth.of[i]];
const knownByTruth = samples.truth ? samples.truth.names.map((name) => data.classes.includes(name)) : [];
/** Whether a sample is labelled rightly; a class that the model does not have is rightly unknown. */
function isRight(i) {
  const label = labelOf(i);
  return label === UNKNOWN ? !knownByTruth[samples.truth.of[i]] : truthOf(i) === data.classes[label];
}
const plural = (n, word = data.word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)}\u00a0%`;
const picture = (i) => (data.pictures && data.pictures[i] ? `data:image/webp;base64,${data.pictures[i]}` : null);
const picturesOf = (i) =>
  picture(i) ? [make("img", { src: picture(i), alt: "", decoding: "async", draggable: "false" })] : [];
const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.…]$/.test(text) ? "" : ".");

/** A button that copies a text; where the browser lets nobody write to the clipboard, it shows the text instead. */
function copyButton(title) {
  const button = make("button", {
    type: "button",
    class: "quiet",
    text: title,
    click: () =>
      navigator.clipboard.writeText(button.copied).then(
        () => {
          button.textContent = "Copied";
          setTimeout(() => (button.textContent = title), 1500);
        },
        () => (button.textContent = button.copied),
      ),
  });
  button.say = (text) => {
    button.copied = text;
    button.setAttribute("aria-label", `${title}: ${text}`);
  };
  return button;
}

/** A command with a button that copies it. */
function commandLine(command) {
  const code = make("code"),
    button = copyButton("Copy");
  const line = make("div", { class: "command" }, code, button);
  line.say = (text) => {
    // A line breaks between words, and within a word only where it is longer than the line.
    code.replaceChildren(
      ...text
        .split(" ")
        .flatMap((word) => [make("span", { text: word }), " "])
        .slice(0, -1),
    );
    button.say(text);
  };
  line.say(command);
  return line;
}

// Colours, as the style has them for the present theme: a canvas knows no variables.

const probe = make("span", { hidden: true });
document.body.append(probe);
let inks = {};
function readInks() {
  for (const name of ["ink", "faint", "line", "panel", "accent", "unknown", "warn"]) {
    probe.style.color = `var(--${name})`;
    inks[name] = getComputedStyle(probe).color;
  }
  inks.dark = isDark();
}
const isDark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

const HUES = [212, 28, 152, 338, 266, 48, 186, 4, 96, 304]; // far apart; what follows goes on by the golden angle
const rank = new Map(); // of a class by its size, so that the largest have the hues that differ most
[...data.classes.keys()]
  .sort((a, b) => data.counts[b] - data.counts[a])
  .forEach((label, place) => rank.set(label, place));
const colourAt = (place) => {
  const hue = place < HUES.length ? HUES[place] : (137.5 * place) % 360;
  return inks.dark ? `hsl(${hue} 62% 64%)` : `hsl(${hue} 58% 42%)`;
};
const colourOf = (label) => (label === UNKNOWN ? inks.unknown : colourAt(rank.get(label)));
const clusterRank = new Map(); // likewise
if (samples.cluster) {
  const sizes = new Map();
  for (const i of everyone)
    if (ownLabelOf(i) === UNKNOWN) sizes.set(samples.cluster[i], (sizes.get(samples.cluster[i]) || 0) + 1);
  const all = [...new Set(samples.cluster)].sort((a, b) => (sizes.get(b) || 0) - (sizes.get(a) || 0) || a - b);
  all.forEach((cluster, place) => clusterRank.set(cluster, place));
}
const colourOfCluster = (cluster) => colourAt(clusterRank.get(cluster));
/** The colour that stands for a sample: of its cluster where clusters are looked at, else of its label. */
const toneOf = (i) =>
  state.view === "clusters" && labelOf(i) === UNKNOWN ? colourOfCluster(samples.cluster[i]) : colourOf(labelOf(i));
/** From low (orange) over grey to high (the accent's green). */
function colourOfScore(score) {
  const [low, middle, high] = inks.dark
    ? [
        [232, 150, 84],
        [150, 154, 160],
        [92, 200, 184],
      ]
    : [
        [190, 92, 20],
        [150, 154, 160],
        [12, 112, 104],
      ];
  const [a, b, t] = score < 0.5 ? [low, middle, 2 * score] : [middle, high, 2 * score - 1];
  return `rgb(${a.map((value, k) => Math.round(value + t * (b[k] - value))).join(" ")})`;
}
