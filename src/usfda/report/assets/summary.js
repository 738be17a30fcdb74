// The summary, the training and the card: what does not change while one looks.

function showSummary() {
  const found = data.findings;
  byId("about").textContent = `${data.target} · seen by ${data.model} · ${data.made}`;
  byId("lead").textContent = sentence(data.answers[0]);
  const unknown = data.counts.reduce((left, n) => left - n, total);
  const figures = [
    [plural(total).replace(/^\S+ /, ""), total.toLocaleString("en"), null],
    ["called unknown", percent(unknown / total), null],
    ["classes used", `${data.counts.filter((n) => n > 0).length} of ${data.classes.length}`, null],
  ];
  const known = found && found.unknown_interval;
  if (known) {
    const [low, high] = known;
    figures[1][2] = interval(unknown / total, low / 100, high / 100, data.findings.earlier_samples);
  }
  if (found && found.clusters.length) figures.push(["clusters of the unknown", String(found.clusters.length), null]);
  if (data.quality && data.quality.h_score !== null)
    figures.push(["H-score, by the labels", data.quality.h_score.toFixed(1), null]);
  for (const [name, value, more] of figures)
    byId("figures").append(
      make(
        "div",
        {},
        make("dt", { text: name }),
        make("dd", { text: value }),
        more && make("dd", { class: "more" }, more),
      ),
    );
  for (const line of data.answers.slice(1)) byId("found").append(make("li", { text: sentence(line) }));
  if (found) {
    const earlier = found.earlier_samples ? ` and ${found.earlier_samples} earlier ones` : "";
    const when = `When it was adapted, to ${plural(found.samples, "sample")}${earlier} with method ${found.method}:`;
    const list = make("ul", {}, ...found.sentences.map((line) => make("li", { text: sentence(line) })));
    if (found.sentences.length) byId("found").append(make("li", { text: when }, list));
  }
  byId("trust").textContent = sentence(data.trust);
  for (const step of data.steps)
    byId("steps").append(
      make(
        "li",
        {},
        make("p", {}, make("strong", { text: sentence(step.name).slice(0, -1) }), ` – ${step.why}`),
        commandLine(step.command),
      ),
    );
  const images = sentence(plural(2).slice(2)).slice(0, -1);
  for (const part of document.querySelectorAll("#images-title, a[href='#images']")) part.textContent = images;
  byId("footer").textContent =
    `usfda ${data.version} · ${data.made} · this file holds everything that it shows and asks for nothing else`;
  showClasses();
  showClusters();
}

/** A bar from 0 to 1 with the range that is likely, and a mark at what is called unknown. */
function interval(share, low, high, earlier) {
  const of = earlier ? " of all so far" : "";
  const text = `likely between ${(100 * low).toFixed(0)} and ${percent(high, 0)}${of}`;
  const drawing = make(
    "svg",
    { viewBox: "0 0 100 6", preserveAspectRatio: "none", class: "interval", "aria-hidden": "true" },
    make("rect", { x: 0, y: 2.5, width: 100, height: 1, class: "whole" }),
    make("rect", { x: 100 * low, y: 1.5, width: Math.max(1, 100 * (high - low)), height: 3, class: "likely" }),
    make("rect", { x: Math.min(99, 100 * share), y: 0, width: 1, height: 6, class: "mark" }),
  );
  return make("span", {}, drawing, make("span", { text }));
}

const FEW = 24; // classes that are listed at first

function showClasses() {
  const order = [...data.classes.keys()].sort((a, b) => data.counts[b] - data.counts[a]);
  const most = Math.max(1, ...data.counts);
  const best = []; // the surest sample of each class
  for (const i of everyone) {
    const label = labelOf(i);
    if (label !== UNKNOWN && !(samples.score[best[label]] >= samples.score[i])) best[label] = i;
  }
  const absent = new Set(data.findings ? data.findings.absent : []);
  const items = order.map((label) => {
    const n = data.counts[label];
    const said = n === 0 ? "none" : absent.has(data.classes[label]) ? `${n}, seems absent` : n.toLocaleString("en");
    const bar = make("span", { class: "fill", "aria-hidden": "true" });
    bar.style.width = `${(100 * n) / most}%`;
    const content = [
      ...(best[label] === undefined ? [] : picturesOf(best[label])),
      make("span", { class: "name", text: data.classes[label] }),
      make("span", { class: "track" }, bar),
      make("span", { class: "number", text: said }),
    ];
    const show = () => showLabel(label);
    return make(
      "li",
      {},
      n ? make("button", { type: "button", click: show }, ...content) : make("div", { class: "none" }, ...content),
    );
  });
  const more = byId("all-classes");
  items.slice(FEW).forEach((item) => (item.hidden = true));
  byId("classes").append(...items);
  if (items.length > FEW) {
    more.hidden = false;
    more.textContent = `Show all ${items.length} classes`;
    more.addEventListener("click", () => {
      items.forEach((item) => (item.hidden = false));
      more.hidden = true;
    });
  }
}

const LARGEST = 8; // clusters that the summary shows
const MOSAIC = 4; // pictures of each

function showClusters() {
  if (!VIEWS.clusters || !data.pictures) return;
  const groups = new Map();
  for (const i of everyone.filter(VIEWS.clusters.has)) {
    if (!groups.has(samples.cluster[i])) groups.set(samples.cluster[i], []);
    groups.get(samples.cluster[i]).push(i);
  }
  const largest = [...groups].sort((a, b) => b[1].length - a[1].length || a[0] - b[0]).slice(0, LARGEST);
  byId("unknown-part").hidden = largest.length === 0;
  for (const [number, items] of largest) {
    const some = items.sort((a, b) => samples.score[a] - samples.score[b]).slice(0, MOSAIC);
    byId("clusters").append(
      make(
        "li",
        {},
        make(
          "button",
          { type: "button", click: () => showCluster(some[0]) },
          make("span", { class: "mosaic" }, ...some.flatMap(picturesOf)),
          make("span", { text: `Cluster ${number} ` }),
          make("span", { class: "count", text: plural(items.length) }),
        ),
      ),
    );
  }
}

function showTraining() {
  if (!data.curves.length) return;
  for (const part of document.querySelectorAll("#training, a[href='#training']")) part.hidden = false;
  for (const curve of data.curves) {
    const low = Math.min(...curve.values),
      high = Math.max(...curve.values);
    const points = curve.values.map((value, k) => {
      const x = (100 * k) / (curve.values.length - 1),
        y = 38 - (36 * (value - low)) / (high - low || 1);
      return `${x.toFixed(2)},${y.toFixed(2)}`;
    });
    const short = (value) => Number(value.toPrecision(3)).toString();
    const first = curve.values[0],
      last = curve.values[curve.values.length - 1];
    const told = `${curve.stage}, ${curve.name}: from ${short(first)} to ${short(last)} in ${curve.steps} steps`;
    byId("curves").append(
      make(
        "figure",
        {},
        make(
          "figcaption",
          {},
          make("strong", { text: `${curve.stage}: ${curve.name}` }),
          make("span", { text: curve.text }),
        ),
        make(
          "svg",
          { viewBox: "0 0 100 40", preserveAspectRatio: "none", role: "img", "aria-label": told },
          make("polyline", { points: points.join(" ") }),
        ),
        make(
          "p",
          { class: "ends" },
          make("span", { text: short(first) }),
          make("span", { text: plural(curve.steps, "step") }),
          make("span", { text: short(last) }),
        ),
      ),
    );
  }
}

/** A key whose line may break after a dot or an underscore. */
const breakable = (key) => key.split(/(?<=[._])/).flatMap((part) => [part, make("wbr")]);

function showCard() {
  const titles = { deployment: "Adaptation", procurement: "Procurement", backbone: "Backbone" };
  for (const [part, rows] of Object.entries(data.card)) {
    const body = rows.map(([key, text]) =>
      make("tr", {}, make("th", { scope: "row" }, ...breakable(key)), make("td", { text })),
    );
    const table = make(
      "table",
      {},
      make("caption", { class: "unseen", text: titles[part] }),
      make("tbody", {}, ...body),
    );
    byId("parts").append(
      make(
        "details",
        {},
        make("summary", { text: titles[part] }),
        make("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": titles[part] }, table),
      ),
    );
  }
}
