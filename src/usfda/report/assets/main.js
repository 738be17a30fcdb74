// What happens when something is chosen.

let waiting = false;
/** Bring everything that depends on the state up to date, once for each frame. */
function refresh() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    for (const [key, view] of Object.entries(VIEWS)) {
      const n = everyone.filter((i) => view.has(i)).length;
      view.button.replaceChildren(`${view.title} `, make("span", { class: "count", text: n.toLocaleString("en") }));
      view.button.setAttribute("aria-pressed", String(key === state.view));
      view.button.hidden = n === 0 && key !== state.view;
    }
    byId("label").value = state.label === null ? "" : String(state.label);
    byId("sort").value = state.sort;
    byId("teaching").hidden = state.view !== "clusters";
    gather();
    layOut();
    drawMap();
    drawScore();
    if (state.chosen !== null) choose(state.chosen);
  });
}

function showView(key) {
  [state.view, state.sort] = [key, VIEWS[key].sort];
  refresh();
}

/** The images of one class, from the summary. */
function showLabel(label) {
  state.label = label;
  showView("classes");
  byId("images").scrollIntoView();
}

/** The cluster of an unknown image, from the summary. */
function showCluster(i) {
  state.label = null;
  showView("clusters");
  requestAnimationFrame(() => {
    byId("images").scrollIntoView({ behavior: "instant" });
    reveal(i);
  });
}

function choose(i) {
  state.chosen = i;
  const panel = byId("inspector");
  panel.hidden = i === null;
  drawTop();
  markCards();
  if (i === null) return;
  const label = labelOf(i),
    source = picture(i),
    facts = [["score", samples.score[i].toFixed(4)]];
  if (label === UNKNOWN && samples.cluster && samples.cluster[i]) facts.push(["cluster", String(samples.cluster[i])]);
  if (samples.ssm) facts.push(["SSM, from 1 to 2.72", samples.ssm[i].toFixed(2)]);
  if (samples.truth) facts.push(["by its label", `${truthOf(i)} – ${isRight(i) ? "right" : "wrong"}`]);
  // The shares are among the classes: of an unknown image they are no probabilities, and are left out.
  const share = (place) => (label === UNKNOWN ? "" : ` ${(samples.share[i][place] / 10).toFixed(0)} %`);
  facts.push([
    label === UNKNOWN ? "most similar classes" : "best classes",
    samples.top[i].map((k, place) => `${data.classes[k]}${share(place)}`).join(", "),
  ]);
  panel.replaceChildren(
    make("button", { type: "button", class: "quiet close", text: "Close", click: () => choose(null) }),
    source ? make("img", { src: source, alt: samples.name[i] }) : null,
    make(
      "div",
      {},
      make("p", { class: "what", text: nameOf(label) }),
      make("dl", {}, ...facts.map(([name, text]) => make("div", {}, make("dt", { text: name }), make("dd", { text })))),
      make("p", { class: "path", text: data.folder + samples.name[i] }),
      map.shown[i]
        ? make("button", { type: "button", class: "quiet", text: "Show in the gallery", click: () => reveal(i) })
        : null,
    ),
  );
}

function setUpTheme() {
  const button = byId("theme");
  const tell = () => {
    readInks();
    button.textContent = inks.dark ? "Light" : "Dark";
    button.setAttribute("aria-label", `${button.textContent} colours`);
  };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    tell();
    refresh();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    tell();
    refresh();
  });
  tell();
}

addEventListener("keydown", (event) => event.key === "Escape" && state.chosen !== null && choose(null));
setUpTheme();
setUpScore();
setUpMap();
setUpViews();
setUpGallery();
if (VIEWS.clusters) setUpTeaching();
showSummary();
showQuality();
showTraining();
showCard();
refresh();
