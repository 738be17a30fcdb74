// The gallery: groups of images in rows. Only the rows near the window exist, so that ten thousand images scroll well.

const NEARBY = 700; // pixels above and below the window in which rows exist
const PRINTED = 8000; // pixels of the gallery whose rows exist while it is printed: some pages
const gallery = { groups: [], rows: [], live: new Map(), width: 0, columns: 1, cell: 120, order: [], rowOf: new Map() };

function setUpGallery() {
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
  addEventListener("beforeprint", () => setPrinting(true));
  addEventListener("afterprint", () => setPrinting(false));
  new ResizeObserver(() => box.clientWidth !== gallery.width && layOut()).observe(box);
}

// Rows and their places.

const isWide = () => matchMedia("(min-width: 60rem)").matches;
const GAP = 10;

function layOut() {
  const width = byId("gallery").clientWidth;
  if (!width) return;
  gallery.width = width;
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

/** On paper there is no window: the first rows exist, and a line says how many images there are beside them. */
function setPrinting(begins) {
  gallery.printing = begins;
  renderRows();
  const [there, all] = [byId("gallery").querySelectorAll(".card").length, map.shown.reduce((sum, one) => sum + one, 0)];
  byId("unprinted").hidden = !begins || there >= all;
  byId("unprinted").textContent = `${there} of ${plural(all)}; open this page in a browser to see the others.`;
}

function renderRows() {
  const box = byId("gallery");
  const at = box.getBoundingClientRect().top;
  const [from, to] = gallery.printing ? [0, PRINTED] : [-at - NEARBY, innerHeight - at + NEARBY];
  const isNear = (row) => row.top + row.height > from && row.top < to;
  for (const [k, element] of gallery.live) {
    if (isNear(gallery.rows[k]) || element.contains(document.activeElement)) continue;
    element.remove();
    gallery.live.delete(k);
  }
  let low = 0,
    high = gallery.rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (gallery.rows[middle].top + gallery.rows[middle].height > from) high = middle;
    else low = middle + 1;
  }
  for (let k = low; k < gallery.rows.length && isNear(gallery.rows[k]); k++) {
    if (gallery.live.has(k)) continue;
    const row = gallery.rows[k],
      element = row.items ? rowOf(row) : headingOf(row.group);
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
  const isOpen = state.open.has(key);
  const says = isOpen ? "Show fewer" : `Show all ${group.items.length.toLocaleString("en")}`;
  const toggle = make("button", {
    type: "button",
    class: "quiet",
    "aria-expanded": String(isOpen),
    "aria-label": `${says} of ${titleOf(group)}`,
    text: says,
    hidden: gallery.groups.length === 1 || group.items.length <= few,
    click: () => {
      if (!state.open.delete(key)) state.open.add(key);
      layOut();
      const again = byId("gallery").querySelector(`[data-key="${CSS.escape(key)}"] button`);
      again?.focus({ preventScroll: true });
      again?.scrollIntoView({ block: "nearest" });
    },
  });
  const unknown = state.view === "clusters" || group.key === UNKNOWN;
  const mark = make("i", { "aria-hidden": "true", class: unknown ? "ring" : "" });
  mark.style.color = toneOf(group.items[0]);
  return make(
    "div",
    { class: "heading", "data-key": key },
    mark,
    make("h4", { text: titleOf(group) }),
    make("span", { class: "count", text: plural(group.items.length) }),
    state.view === "clusters" ? nameBox(group.key) : null,
    toggle,
  );
}

function rowOf({ group, items }) {
  const cards = items.map((i) => {
    const label = labelOf(i),
      own = ownLabelOf(i);
    const told = [`${nameOf(label)}, score ${samples.score[i].toFixed(2)}`, samples.name[i]];
    const astray = label !== own ? `was ${nameOf(own)}` : samples.truth && !isRight(i) ? `is ${truthOf(i)}` : null;
    if (astray) told.push(astray);
    const mark = make("i", { class: label === UNKNOWN ? "ring" : "" });
    mark.style.color = toneOf(i);
    const [image = make("span", { class: "blank" })] = picturesOf(i);
    return make(
      "li",
      {},
      make(
        "button",
        { type: "button", class: "card", "data-i": i, tabindex: "-1", "aria-label": told.join(", ") },
        data.pictures ? image : null,
        make(
          "span",
          { class: "line" },
          mark,
          make("span", { class: "name", text: nameOf(label) }),
          make("span", { class: "score", text: samples.score[i].toFixed(2) }),
        ),
        make("span", { class: astray ? "note astray" : "note", text: astray || samples.name[i].split(/[\\/]/).pop() }),
      ),
    );
  });
  const first = group.items.indexOf(items[0]) + 1;
  return make(
    "ul",
    {
      class: "cards",
      "aria-label": `${titleOf(group)}, ${first} to ${first + items.length - 1} of ${group.items.length}`,
    },
    ...cards,
  );
}

/** Frames around what is chosen and pointed at; and one card, the last with the focus or the first, is in the order of Tab. */
function markCards() {
  const cards = [...byId("gallery").querySelectorAll(".card")];
  const entry =
    cards.find((card) => card === document.activeElement) ||
    cards.find((card) => Number(card.dataset.i) === state.chosen) ||
    cards[0];
  for (const card of cards) {
    const i = Number(card.dataset.i);
    card.classList.toggle("pointed", i === state.pointed);
    card.toggleAttribute("aria-current", false);
    if (i === state.chosen) card.setAttribute("aria-current", "true");
    card.tabIndex = card === entry ? 0 : -1;
  }
}

function step(event, i) {
  const at = gallery.order.indexOf(i),
    row = gallery.rows[gallery.rowOf.get(i)],
    column = row.items.indexOf(i);
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
  const row = gallery.rows[gallery.rowOf.get(i)],
    box = byId("gallery").getBoundingClientRect();
  const [top, bottom] = [box.top + row.top, box.top + row.top + row.height];
  const above = document.querySelector(".bar").offsetHeight + 12;
  if (top < above || bottom > innerHeight)
    scrollBy({ top: (top + bottom - innerHeight - above) / 2, behavior: "instant" });
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
