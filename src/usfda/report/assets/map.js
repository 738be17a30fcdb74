// The map: two canvases, one with all points and one above it with what is pointed at.

const NEAR = { mouse: 14, touch: 28 }; // pixels from a point within which it is meant
const map = { width: 0, height: 0, zoom: 1, x: 0.5, y: 0.5, shown: new Uint8Array(total) };

function setUpMap() {
  const box = byId("map");
  map.base = make("canvas", { role: "img" });
  map.top = make("canvas", { "aria-hidden": "true", class: "over" });
  map.tip = make("div", { class: "tip", "aria-hidden": "true", hidden: true });
  const zoom = (factor) => () => zoomTo(factor === 0 ? 1 : map.zoom * factor);
  const buttons = [
    ["+", "Enlarge the map", 1.6],
    ["−", "Shrink the map", 1 / 1.6],
    ["⟲", "The whole map", 0],
  ];
  box.append(map.base, map.top);
  document.body.append(map.tip);
  byId("zoom").append(
    ...buttons.map(([text, told, factor]) =>
      make("button", { type: "button", text, "aria-label": told, click: zoom(factor) }),
    ),
  );
  for (const [value, text] of [
    ["label", "label"],
    ["score", "score"],
    ...(samples.truth ? [["truth", "right or wrong"]] : []),
  ])
    byId("colour").append(make("option", { value, text }));
  byId("colour").addEventListener("change", (event) => {
    state.colour = event.target.value;
    drawMap();
  });
  let drag = null;
  map.top.addEventListener("pointerdown", (event) => {
    drag = { x: event.clientX, y: event.clientY, from: [map.x, map.y], moved: false };
  });
  map.top.addEventListener("pointermove", (event) => {
    if (drag && map.zoom > 1 && event.buttons) {
      const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
      if (Math.hypot(dx, dy) > 4) drag.moved = true;
      if (drag.moved) {
        [map.x, map.y] = [drag.from[0] - dx / map.width / map.zoom, drag.from[1] - dy / map.height / map.zoom];
        drawMap();
      }
    } else if (event.pointerType === "mouse") point(nearest(event, NEAR.mouse), true);
  });
  map.top.addEventListener("pointerleave", () => point(null, true));
  map.top.addEventListener("click", (event) => {
    if (drag && drag.moved) return;
    const i = nearest(event, event.pointerType === "mouse" ? NEAR.mouse : NEAR.touch);
    if (i === null) return;
    choose(i);
    if (isWide()) reveal(i);
  });
  new ResizeObserver(() => {
    [map.width, map.height] = [box.clientWidth, box.clientHeight];
    for (const canvas of [map.base, map.top]) {
      canvas.width = Math.round(map.width * devicePixelRatio);
      canvas.height = Math.round(map.height * devicePixelRatio);
    }
    drawMap();
  }).observe(box);
}

function zoomTo(zoom) {
  map.zoom = Math.min(12, Math.max(1, zoom));
  drawMap();
}

const EDGE = 10; // pixels around the points
/** Where a sample is on the canvas, in pixels of the page. */
function placeOf(i) {
  return [
    EDGE + (map.width - 2 * EDGE) * ((samples.x[i] / 1000 - map.x) * map.zoom + 0.5),
    EDGE + (map.height - 2 * EDGE) * ((samples.y[i] / 1000 - map.y) * map.zoom + 0.5),
  ];
}

function nearest(event, within) {
  const box = map.top.getBoundingClientRect();
  const [x, y] = [event.clientX - box.left, event.clientY - box.top];
  let best = null,
    least = within;
  for (const i of everyone) {
    if (!map.shown[i]) continue;
    const [a, b] = placeOf(i);
    const distance = Math.hypot(a - x, b - y);
    if (distance < least) [best, least] = [i, distance];
  }
  return best;
}

function inkOf(i) {
  if (state.colour === "score") return colourOfScore(samples.score[i]);
  if (state.colour === "truth") return isRight(i) ? inks.accent : inks.warn;
  return toneOf(i);
}

/** All points: those of the gallery in colour, the others faint; unknown ones are rings. */
function drawMap() {
  if (!map.width) return;
  const margin = 0.5 / map.zoom;
  [map.x, map.y] = [map.x, map.y].map((value) => Math.min(1 - margin, Math.max(margin, value)));
  byId("map").classList.toggle("zoomed", map.zoom > 1); // then a finger moves the map, not the page
  const context = map.base.getContext("2d");
  context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
  context.clearRect(0, 0, map.width, map.height);
  const radius = (total > 5000 ? 1.6 : total > 1000 ? 2.4 : 3.4) * Math.sqrt(map.zoom);
  context.fillStyle = inks.line;
  for (const i of everyone) if (!map.shown[i]) dot(context, i, 0.7 * radius, true);
  context.lineWidth = Math.max(1, 0.42 * radius);
  for (const i of everyone) {
    if (!map.shown[i]) continue;
    const known = labelOf(i) !== UNKNOWN;
    context.fillStyle = context.strokeStyle = inkOf(i);
    dot(context, i, known ? radius : 0.8 * radius, known);
  }
  const n = map.shown.reduce((sum, shown) => sum + shown, 0);
  map.base.setAttribute(
    "aria-label",
    `Map of ${plural(total)}, on which similar ones lie near each other; ${n} of them are in the gallery, where each can be reached by keyboard.`,
  );
  drawLegend();
  drawTop();
}

function dot(context, i, radius, filled) {
  const [x, y] = placeOf(i);
  if (x < -9 || y < -9 || x > map.width + 9 || y > map.height + 9) return;
  context.beginPath();
  context.arc(x, y, radius, 0, 7);
  if (filled) context.fill();
  else context.stroke();
}

function drawTop() {
  const context = map.top.getContext("2d");
  context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
  context.clearRect(0, 0, map.width, map.height);
  for (const [i, width] of [
    [state.chosen, 3],
    [state.pointed, 2],
  ]) {
    if (i === null) continue;
    context.fillStyle = inkOf(i);
    dot(context, i, 5, true);
    context.strokeStyle = inks.ink;
    context.lineWidth = width;
    dot(context, i, 8, false);
  }
}

/** The image under the mouse, or with the focus: a ring on the map, a frame in the gallery, and, from the map, a picture. */
function point(i, fromMap = false) {
  if (i === state.pointed) return;
  state.pointed = i;
  drawTop();
  markCards();
  map.tip.hidden = i === null || !fromMap;
  if (map.tip.hidden) return;
  const source = picture(i);
  map.tip.replaceChildren(
    ...(source ? [make("img", { src: source, alt: "" })] : []),
    make("strong", { text: nameOf(labelOf(i)) }),
    make("span", { text: `score ${samples.score[i].toFixed(2)}` }),
    make("span", { class: "path", text: samples.name[i] }),
  );
  const box = map.top.getBoundingClientRect(),
    [x, y] = placeOf(i);
  const [left, top] = [box.left + x, box.top + y];
  map.tip.style.left = `${Math.min(Math.max(left, 90), innerWidth - 90)}px`;
  map.tip.style.top = `${top}px`;
  map.tip.classList.toggle("below", top < innerHeight / 2);
}

const LISTED = 14; // labels in the legend
function drawLegend() {
  const item = (colour, text, ring = false) => {
    const mark = make("i", { class: ring ? "ring" : "" });
    mark.style.color = colour;
    return make("li", {}, mark, text);
  };
  let items;
  if (state.colour === "score")
    items = [0, 0.25, 0.5, 0.75, 1].map((score) => item(colourOfScore(score), score.toFixed(2)));
  else if (state.colour === "truth") items = [item(inks.accent, "right"), item(inks.warn, "wrong")];
  else if (state.view === "clusters") {
    items = gallery.groups
      .slice(0, LISTED)
      .map((group) => item(colourOfCluster(group.key), `cluster ${group.key}`, true));
    if (gallery.groups.length > LISTED) items.push(make("li", { text: `and ${gallery.groups.length - LISTED} more` }));
  } else {
    const there = [...new Set(everyone.filter((i) => map.shown[i]).map(labelOf))]
      .filter((label) => label !== UNKNOWN)
      .sort((a, b) => rank.get(a) - rank.get(b));
    items = there.slice(0, LISTED).map((label) => item(colourOf(label), nameOf(label)));
    if (there.length > LISTED) items.push(make("li", { text: `and ${there.length - LISTED} more` }));
  }
  if (state.colour !== "label") items.push(item(inks.unknown, "a ring: unknown", true));
  else if (state.view !== "clusters") items.push(item(inks.unknown, "unknown", true));
  byId("legend").replaceChildren(make("ul", {}, ...items));
}
