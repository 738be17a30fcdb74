// Which images the gallery has, and in which groups.

const BORDERLINE = 0.15; // from the strictness
const SORTS = {
  high: ["score, highest first", (a, b) => samples.score[b] - samples.score[a]],
  low: ["score, lowest first", (a, b) => samples.score[a] - samples.score[b]],
  near: [
    "nearest to strictness",
    (a, b) => Math.abs(samples.score[a] - state.strictness) - Math.abs(samples.score[b] - state.strictness),
  ],
  name: ["file name", (a, b) => (samples.name[a] < samples.name[b] ? -1 : 1)],
};
// Each view: its name, which samples it has, how they are sorted at first, and into which groups they fall.
const VIEWS = {
  classes: { title: "By class", has: () => true, sort: "high", group: labelOf },
  clusters: {
    title: "Clusters of the unknown",
    has: (i) => labelOf(i) === UNKNOWN && samples.cluster[i] > 0,
    sort: "low",
    group: (i) => samples.cluster[i],
  },
  borderline: {
    title: "Borderline",
    has: (i) => Math.abs(samples.score[i] - state.strictness) <= BORDERLINE,
    sort: "near",
  },
  mistakes: { title: "Mistakes", has: (i) => !isRight(i), sort: "high" },
  changed: { title: "Changed", has: (i) => labelOf(i) !== ownLabelOf(i), sort: "near" },
  all: { title: "All", has: () => true, sort: "name" },
};
if (!samples.cluster || samples.cluster.every((c) => c === 0)) delete VIEWS.clusters;
if (!samples.truth) delete VIEWS.mistakes;

function setUpViews() {
  for (const [key, view] of Object.entries(VIEWS)) {
    view.button = make("button", { type: "button", click: () => showView(key) });
    byId("views").append(view.button);
  }
  const labels = [...data.classes.keys()].sort((a, b) => (data.classes[a] < data.classes[b] ? -1 : 1));
  byId("label").append(
    make("option", { value: "", text: "all" }),
    make("option", { value: UNKNOWN, text: "unknown" }),
    ...labels.map((label) => make("option", { value: label, text: data.classes[label] })),
  );
  for (const [key, [text]] of Object.entries(SORTS)) byId("sort").append(make("option", { value: key, text }));
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("filters").addEventListener("input", () => {
    const number = (id, other) => (byId(id).value === "" ? other : Number(byId(id).value));
    state.label = byId("label").value === "" ? null : Number(byId("label").value);
    state.text = byId("text").value.toLowerCase();
    [state.from, state.to, state.sort] = [number("from", 0), number("to", 1), byId("sort").value];
    refresh();
  });
  byId("clear").addEventListener("click", () => {
    Object.assign(state, { label: null, text: "", from: 0, to: 1 });
    byId("filters").reset();
    refresh();
    byId("text").focus();
  });
}

const matches = (i) =>
  (state.label === null || labelOf(i) === state.label) &&
  samples.score[i] >= state.from &&
  samples.score[i] <= state.to &&
  (state.text === "" || `${data.folder}${samples.name[i]} ${nameOf(labelOf(i))}`.toLowerCase().includes(state.text));

function gather() {
  const view = VIEWS[state.view];
  const items = everyone.filter((i) => view.has(i) && matches(i)).sort(SORTS[state.sort][1]);
  const groups = new Map();
  for (const i of items) {
    const key = view.group ? view.group(i) : null;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(i);
  }
  gallery.groups = [...groups].map(([key, list]) => ({ key, items: list }));
  if (view.group)
    gallery.groups.sort(
      (a, b) => (a.key === UNKNOWN) - (b.key === UNKNOWN) || b.items.length - a.items.length || a.key - b.key,
    );
  map.shown.fill(0);
  for (const i of items) map.shown[i] = 1;
  byId("clear").hidden = state.label === null && state.text === "" && state.from <= 0 && state.to >= 1;
  byId("shown").textContent =
    items.length === total
      ? `All ${plural(total)}.`
      : `${items.length.toLocaleString("en")} of ${plural(total)}.${items.length ? "" : " Nothing fits; widen the filter."}`;
}
