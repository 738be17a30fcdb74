// The gallery: groups of images in rows. Only the rows near the window exist, so that ten thousand images scroll well.

const NEARBY = 700; // pixels above and below the window in which rows exist
const BORDERLINE = 0.15; // from the strictness
const SORTS = {
  high: ["score, highest first", (a, b) => samples.score[b] - samples.score[a]],
  low: ["score, lowest first", (a, b) => samples.score[a] - samples.score[b]],
  near: ["nearest to strictness", (a, b) => Math.abs(samples.score[a] - state.strictness) - Math.abs(samples.score[b] - state.strictness)],
  name: ["file name", (a, b) => (samples.name[a] < samples.name[b] ? -1 : 1)],
};
// Each view: its name, which samples it has, how they are sorted at first, and into which groups they fall.
const VIEWS = {
  classes: { title: "By class", has: () => true, sort: "high", group: labelOf },
  clusters: { title: "Clusters of the unknown", has: (i) => labelOf(i) === UNKNOWN && samples.cluster[i] > 0, sort: "low", group: (i) => samples.cluster[i] },
  borderline: { title: "Borderline", has: (i) => Math.abs(samples.score[i] - state.strictness) <= BORDERLINE, sort: "near" },
  mistakes: { title: "Mistakes", has: (i) => !isRight(i), sort: "high" },
  changed: { title: "Changed", has: (i) => labelOf(i) !== ownLabelOf(i), sort: "near" },
  all: { title: "All", has: () => true, sort: "name" },
};
if (!samples.cluster || samples.cluster.every((c) => c === 0)) delete VIEWS.clusters;
if (!samples.truth) delete VIEWS.mistakes;

const gallery = { groups: [], rows: [], live: new Map(), columns: 1, cell: 120, order: [], rowOf: new Map() };

function setUpGallery() {
  for (const [key, view] of Object.entries(VIEWS)) {
    view.button = make("button", { type: "button", click: () => showView(key) });
    byId("views").append(view.button);
  }
  const labels = [...data.classes.keys()].sort((a, b) => (data.classes[a] < data.classes[b] ? -1 : 1));
  byId("label").append(make("option", { value: "", text: "all" }), make("option", { value: UNKNOWN, text: "unknown" }), ...labels.map((label) => make("option", { value: label, text: data.classes[label] })));
  for (const [key, [text]] of Object.entries(SORTS)) byId("sort").append(make("option", { value: key, text }));
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("filters").addEventListener("input", () => {
    const number = (id, other) => (byId(id).value === "" ? other : Number(byId(id).value));
    state.label = byId("label").value === "" ? null : Number(byId("label").value);
    state.text = byId("text").value.toLowerCase();
    [state.from, state.to, state.sort] = [number("from", 0), number("to", 1), byId("sort").value];
    refresh();
  });
  const box = byId("gallery");
  box.classList.toggle("bare", !data.pictures);
  const cardOf = (event) => event.target.closest && event.target.closest(".card");
  const indexOf = (event) => (cardOf(event) ? Number(cardOf(event).dataset.i) : null);
  box.addEventListener("click", (event) => cardOf(event) && choose(indexOf(event)));
  box.addEventListener("pointerover", (event) => event.pointerType === "mouse" && point(indexOf(event)));
  box.addEventListener("pointerleave", () => point(null));
  box.addEventListener("focusin", (event) => cardOf(event) && point(indexOf(event)));
  box.addEventListener("keydown", (event) => cardOf(event) && step(event, indexOf(event)));
  addEventListener("scroll", () => requestAnimationFrame(renderRows), { passive: true });
  new ResizeObserver(() => layOut()).observe(box);
  if (VIEWS.clusters) setUpTeaching();
}

// Which images, in which groups.

const matches = (i) =>
  (state.label === null || labelOf(i) === state.label) &&
  samples.score[i] >= state.from && samples.score[i] <= state.to &&
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
  if (view.group) gallery.groups.sort((a, b) => (a.key === UNKNOWN) - (b.key === UNKNOWN) || b.items.length - a.items.length || a.key - b.key);
  map.shown.fill(0);
  for (const i of items) map.shown[i] = 1;
  byId("shown").textContent = items.length === total ? `All ${plural(total)}.` : `${items.length.toLocaleString("en")} of ${plural(total)}.${items.length ? "" : " Nothing fits; widen the filter."}`;
}

// Rows and their places.

const isWide = () => matchMedia("(min-width: 60rem)").matches;
const GAP = 10;

function layOut() {
  const width = byId("gallery").clientWidth;
  if (!width) return;
  const least = data.pictures ? (width < 500 ? 100 : 124) : 150;
  gallery.columns = Math.max(2, Math.floor((width + GAP) / (least + GAP)));
  gallery.cell = Math.floor((width + GAP) / gallery.columns) - GAP;
  const height = (data.pictures ? gallery.cell : 0) + 46; // the picture and two lines of text
  const heading = state.view === "clusters" && width < 500 ? 100 : 58;
  byId("gallery").style.setProperty("--cell", `${gallery.cell}px`);
  [gallery.rows, gallery.order, gallery.rowOf] = [[], [], new Map()];
  let top = 0;
  const add = (row, tall) => {
    gallery.rows.push({ ...row, top, height: tall });
    top += tall;
  };
  for (const group of gallery.groups) {
    const whole = group.key === null || gallery.groups.length === 1 || state.open.has(`${state.view} ${group.key}`);
    const list = whole ? group.items : group.items.slice(0, 2 * gallery.columns);
    if (group.key !== null) add({ group }, heading);
    for (let k = 0; k < list.length; k += gallery.columns) {
      const items = list.slice(k, k + gallery.columns);
      items.forEach((i) => gallery.rowOf.set(i, gallery.rows.length));
      gallery.order.push(...items);
      add({ group, items }, height + GAP);
    }
  }
  for (const element of gallery.live.values()) element.remove();
  gallery.live.clear();
  byId("gallery").style.height = `${top}px`;
  renderRows();
}

function renderRows() {
  const box = byId("gallery");
  const at = box.getBoundingClientRect().top;
  const isNear = (row) => row.top + row.height > -at - NEARBY && row.top < innerHeight - at + NEARBY;
  for (const [k, element] of gallery.live) {
    if (isNear(gallery.rows[k]) || element.contains(document.activeElement)) continue;
    element.remove();
    gallery.live.delete(k);
  }
  let low = 0, high = gallery.rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (gallery.rows[middle].top + gallery.rows[middle].height > -at - NEARBY) high = middle;
    else low = middle + 1;
  }
  for (let k = low; k < gallery.rows.length && isNear(gallery.rows[k]); k++) {
    if (gallery.live.has(k)) continue;
    const row = gallery.rows[k], element = row.items ? rowOf(row) : headingOf(row.group);
    element.style.top = `${row.top}px`;
    element.style.height = `${row.height}px`;
    element.dataset.row = k;
    const next = [...box.children].find((other) => Number(other.dataset.row) > k); // in the order of reading
    box.insertBefore(element, next || null);
    gallery.live.set(k, element);
  }
  markCards();
}

function titleOf(group) {
  if (group.key === null) return VIEWS[state.view].title;
  return state.view === "clusters" ? `Cluster ${group.key}` : nameOf(group.key);
}

function headingOf(group) {
  const key = `${state.view} ${group.key}`;
  const few = 2 * gallery.columns;
  const toggle = gallery.groups.length > 1 && group.items.length > few
    ? make("button", {
        type: "button",
        class: "quiet",
        "aria-expanded": String(state.open.has(key)),
        text: state.open.has(key) ? "Show fewer" : `Show all ${group.items.length.toLocaleString("en")}`,
        "aria-label": `${state.open.has(key) ? "Show fewer" : "Show all"} of ${titleOf(group)}`,
        click: () => {
          if (!state.open.delete(key)) state.open.add(key);
          layOut();
          byId("gallery").querySelector(`[data-key="${CSS.escape(key)}"] button`).focus({ preventScroll: true });
        },
      })
    : null;
  const unknown = state.view === "clusters" || group.key === UNKNOWN;
  const mark = make("i", { "aria-hidden": "true", class: unknown ? "ring" : "" });
  mark.style.color = toneOf(group.items[0]);
  return make("div", { class: "heading", "data-key": key }, mark,
    make("h4", { text: titleOf(group) }), make("span", { class: "count", text: plural(group.items.length) }),
    state.view === "clusters" ? nameBox(group.key) : null, toggle);
}

function rowOf({ group, items }) {
  const cards = items.map((i) => {
    const label = labelOf(i), own = ownLabelOf(i);
    const told = [`${nameOf(label)}, score ${samples.score[i].toFixed(2)}`, samples.name[i]];
    let note = samples.name[i].split(/[\\/]/).pop();
    if (label !== own) told.push((note = `was ${nameOf(own)}`));
    else if (samples.truth && !isRight(i)) told.push((note = `is ${truthOf(i)}`));
    const mark = make("i", { class: label === UNKNOWN ? "ring" : "" });
    mark.style.color = toneOf(i);
    const [image = make("span", { class: "blank" })] = picturesOf(i);
    return make("li", {}, make("button", { type: "button", class: "card", "data-i": i, tabindex: "-1", "aria-label": told.join(", ") },
      data.pictures ? image : null,
      make("span", { class: "line" }, mark, make("span", { class: "name", text: nameOf(label) }), make("span", { class: "score", text: samples.score[i].toFixed(2) })),
      make("span", { class: `note${note.startsWith("was ") || note.startsWith("is ") ? " astray" : ""}`, text: note })));
  });
  const first = group.items.indexOf(items[0]) + 1;
  return make("ul", { class: "cards", "aria-label": `${titleOf(group)}, ${first} to ${first + items.length - 1} of ${group.items.length}` }, ...cards);
}

/** Frames around what is chosen and pointed at; and one card, the last with the focus or the first, is in the order of Tab. */
function markCards() {
  const cards = [...byId("gallery").querySelectorAll(".card")];
  const entry = cards.find((card) => card === document.activeElement) || cards.find((card) => Number(card.dataset.i) === state.chosen) || cards[0];
  for (const card of cards) {
    const i = Number(card.dataset.i);
    card.classList.toggle("pointed", i === state.pointed);
    card.toggleAttribute("aria-current", false);
    if (i === state.chosen) card.setAttribute("aria-current", "true");
    card.tabIndex = card === entry ? 0 : -1;
  }
}

function step(event, i) {
  const at = gallery.order.indexOf(i), row = gallery.rows[gallery.rowOf.get(i)], column = row.items.indexOf(i);
  const beyond = (direction) => {
    for (let k = gallery.rowOf.get(i) + direction; gallery.rows[k]; k += direction)
      if (gallery.rows[k].items) return gallery.rows[k].items[Math.min(column, gallery.rows[k].items.length - 1)];
    return undefined;
  };
  const moves = {
    ArrowRight: () => gallery.order[at + 1],
    ArrowLeft: () => gallery.order[at - 1],
    ArrowDown: () => beyond(1),
    ArrowUp: () => beyond(-1),
    Home: () => gallery.order[0],
    End: () => gallery.order[gallery.order.length - 1],
  };
  if (!moves[event.key]) return;
  event.preventDefault();
  const next = moves[event.key]();
  if (next !== undefined) bringUp(next).focus({ preventScroll: true });
}

/** Scroll to an image that the gallery has, as far as is needed; its card. */
function bringUp(i) {
  const row = gallery.rows[gallery.rowOf.get(i)], box = byId("gallery").getBoundingClientRect();
  const [top, bottom] = [box.top + row.top, box.top + row.top + row.height];
  const above = document.querySelector(".bar").offsetHeight + 12;
  if (top < above || bottom > innerHeight) scrollBy({ top: (top + bottom - innerHeight - above) / 2, behavior: "instant" });
  renderRows();
  return byId("gallery").querySelector(`[data-i="${i}"]`);
}

/** Show an image in the gallery, whose group may have to be opened for it. */
function reveal(i) {
  if (!map.shown[i]) return;
  if (!gallery.rowOf.has(i)) {
    state.open.add(`${state.view} ${VIEWS[state.view].group(i)}`);
    layOut();
  }
  bringUp(i);
}

// Naming clusters: one line teaches all that are named, since teaching numbers the rest anew.

let teachLine = null;
function setUpTeaching() {
  teachLine = commandLine("");
  byId("teaching").append(make("p", { text: "Name the clusters that show one thing; this line turns them into classes. Name all of them before you use it: afterwards the others have new numbers." }), teachLine);
  tellTeaching();
}
const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`); // as a shell reads it
function tellTeaching() {
  const largest = data.findings && data.findings.clusters.length ? data.findings.clusters[0].number : 1;
  const names = state.names.size ? [...state.names].sort((a, b) => a[0] - b[0]) : [[largest, "NAME"]];
  const file = quoted(data.model);
  teachLine.say(`usfda teach ${file} ${names.map(([number, name]) => `--name ${quoted(`${number}=${name}`)}`).join(" ")} -o ${file}`);
}
function nameBox(number) {
  return make("input", {
    type: "text",
    placeholder: "name it",
    "aria-label": `Name of cluster ${number}`,
    value: state.names.get(number) || "",
    maxlength: "255",
    autocomplete: "off",
    input: (event) => {
      const name = event.target.value.trim();
      if (name) state.names.set(number, name);
      else state.names.delete(number);
      tellTeaching();
    },
  });
}
