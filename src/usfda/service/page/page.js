// The page: images in, answers out; an adaptation that is started, watched and decided on; names for clusters.

import { count, element, find, json, keptImage, post } from "./api.js";
import { askAgain, chosen, clear, dropped, onChange, send } from "./results.js";

const CLUSTERS = 6; // that are shown at first
const WATCH = 1000; // milliseconds between two looks at an adaptation
let model = null;
let allClusters = false;
const names = new Map(); // the fields for names of clusters: what is half typed stays when they are shown anew

// Images

const zone = find("drop");
const keep = () => find("keep").checked;
find("choose-files").addEventListener("click", () => find("files").click());
find("choose-folder").addEventListener("click", () => find("folder").click());
for (const id of ["files", "folder"]) {
  find(id).addEventListener("change", (event) => send(chosen(event.target), keep()));
}
find("clear").addEventListener("click", clear);
for (const name of ["dragenter", "dragover"]) {
  document.addEventListener(name, (event) => {
    event.preventDefault();
    zone.classList.add("over");
  });
}
for (const name of ["dragleave", "drop"]) {
  document.addEventListener(name, () => zone.classList.remove("over"));
}
document.addEventListener("drop", async (event) => {
  event.preventDefault();
  send(await dropped(event.dataTransfer.items), keep());
});
onChange(() => Promise.all([showModel(), look()]));

// The model

async function showModel() {
  const now = await json("/model");
  if (now.hash !== model?.hash) names.clear(); // its clusters are others
  model = now;
  find("serving").textContent = `Model ${model.hash.slice(0, 12)} · ${count(model.classes.length, "class", "classes")}`;
  const taught = new Set((model.findings?.taught ?? []).map((one) => one.name));
  find("classes").replaceChildren(...model.classes.map((name) => (
    element("li", { textContent: name, className: taught.has(name) ? "taught" : "" })
  )));
  const said = model.findings?.sentences ?? ["it was not adapted yet"];
  find("model-findings").replaceChildren(...said.map((text) => element("li", { textContent: text })));
  find("rollback").disabled = model.earlier === 0;
  showClusters();
}

find("rollback").addEventListener("click", () => {
  find("sure-text").textContent = `Model ${model.hash.slice(0, 12)}, which serves now, is deleted and cannot be had back.`;
  find("sure").returnValue = "";
  find("sure").showModal();
});
find("sure").addEventListener("close", async () => {
  if (find("sure").returnValue === "") return;
  find("rollback").disabled = true;
  await change(find("model-text"), async () => {
    const { model: now } = await post(`/model/rollback?model=${model.hash}`);
    return `Model ${now.slice(0, 12)} serves again.`;
  });
  find("rollback").disabled = model.earlier === 0;
});

/** Do something that changes the model; then all that depends on it is shown anew. */
async function change(place, action) {
  try {
    const said = await action();
    await Promise.all([showModel(), look()]);
    for (const id of ["state", "taught", "model-text"]) find(id).textContent = "";
    place.textContent = said;
    askAgain();
  } catch (error) {
    place.textContent = error.message;
  }
}

// Clusters

function showClusters() {
  const shown = allClusters ? model.clusters : model.clusters.slice(0, CLUSTERS);
  find("clusters-text").textContent = model.clusters.length
    ? "Images that look alike. Give a cluster a name, and it is a class at once; with the name of a class it joins that one. Unknown images that resemble no cluster are not here."
    : "None among the kept images. An adaptation may find some.";
  const focused = document.activeElement;
  find("clusters").replaceChildren(...shown.map(makeCluster));
  if (focused !== document.activeElement) focused.focus();
  find("all-clusters").hidden = shown.length === model.clusters.length;
}

find("all-clusters").addEventListener("click", () => {
  allClusters = true;
  showClusters();
});

function makeCluster({ number, images, samples, examples }) {
  const field = names.get(number) ?? element("input", {
    type: "text", required: true, maxLength: 255, placeholder: "name", ariaLabel: `Name of cluster ${number}`,
  });
  names.set(number, field);
  const form = element("form", {}, field, element("button", { textContent: "Name it", ariaLabel: `Name cluster ${number}` }));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    change(find("taught"), async () => {
      const name = field.value.trim();
      const done = model.classes.includes(name) ? `Cluster ${number} joined the class ${name}.` : `${name} is a class now.`;
      const { warnings } = await post(`/teach?model=${model.hash}`, { [number]: name });
      find("clusters-title").focus();
      return [done, ...warnings.map((text) => `${text}.`)].join(" ");
    });
  });
  const pictures = examples.map((sha256, i) => keptImage(sha256, `Example ${i + 1} of cluster ${number}`));
  const unseen = `The model was adapted to about ${count(samples, "image")} of it. The name applies to all of them.`;
  return element("li", {},
    element("h3", { textContent: `Cluster ${number}: ${count(images, "kept image")}` }),
    element("div", { className: "examples" }, ...pictures),
    ...(samples ? [element("p", { className: "quiet", textContent: unseen })] : []), form);
}

// Adaptation

const TEXTS = {
  idle: "",
  running: "An adaptation is running; predictions go on.",
  ready: "The adaptation is ready. Nothing changes until you accept it.",
  failed: "The adaptation failed; the log of the service says why.",
};
let timer = 0;
let state = "";

async function look() {
  clearTimeout(timer);
  const now = await json("/adapt");
  const focused = document.activeElement;
  const few = now.kept < now.needed;
  find("kept").textContent = `${count(now.kept, "image")} ${now.kept === 1 ? "is" : "are"} kept${few ? `; an adaptation needs ${now.needed}` : ""}.`;
  if (state !== now.state) find("state").textContent = TEXTS[state = now.state];
  find("progress").hidden = now.state !== "running";
  find("progress").value = Math.max(now.progress, 0.03);
  find("start").hidden = now.state === "running" || now.state === "ready";
  find("start").disabled = few;
  find("accept").hidden = now.state !== "ready";
  find("discard").hidden = now.state === "idle";
  find("discard").textContent = now.state === "running" ? "Stop" : "Discard";
  find("found").hidden = now.state !== "ready";
  if (now.state === "ready") showFound(now);
  if (focused.hidden) focused.parentElement.querySelector("button:not([hidden])").focus();
  if (now.state === "running") timer = setTimeout(watch, WATCH);
}

function watch() {
  look().catch((error) => {
    find("state").textContent = error.message;
    timer = setTimeout(watch, 3 * WATCH);
  });
}

function showFound({ findings, comparison }) {
  find("findings").replaceChildren(...findings.sentences.map((text) => element("li", { textContent: text })));
  find("compared").textContent = `${comparison.changed} of ${count(comparison.images, "label")} would change.`;
  find("changes").hidden = comparison.changed === 0;
  find("changes").replaceChildren(...comparison.changes.slice(0, 100).map(({ image, before, after }) => (
    element("li", {}, keptImage(image, "Kept image"),
      element("span", { className: "labels" }, tag(before), "→", tag(after)))
  )));
}

const tag = (label) => element("span", { className: `tag ${label === "unknown" ? "unknown" : "known"}`, textContent: label });

for (const [id, path] of [["start", "/adapt"], ["discard", "/adapt/discard"]]) {
  find(id).addEventListener("click", async () => {
    try {
      await post(path);
      await look();
    } catch (error) {
      find("state").textContent = error.message;
    }
  });
}
find("accept").addEventListener("click", () => change(find("state"), async () => {
  const { model: now } = await post("/adapt/accept");
  return `Model ${now.slice(0, 12)} serves now.`;
}));

Promise.all([showModel(), look()]).catch((error) => { find("serving").textContent = error.message; });
