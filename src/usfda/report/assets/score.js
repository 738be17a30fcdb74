// The distribution of the score, and the slider that moves the line between known and unknown.

const BINS = 50;
let optionButton = null;

function setUpScore() {
  const slider = byId("strictness");
  slider.value = data.strictness;
  slider.addEventListener("input", () => {
    state.strictness = Number(slider.value);
    refresh();
  });
  const reset = make("button", {
    type: "button",
    class: "quiet",
    text: "Back",
    "aria-label": `Back to ${data.strictness.toFixed(2)}`,
    click: () => {
      state.strictness = data.strictness;
      slider.value = data.strictness;
      if (state.view === "changed") state.view = "classes";
      refresh();
    },
  });
  const show = make("button", {
    type: "button",
    class: "quiet",
    text: "Show them",
    click: () => showView("changed"),
  });
  optionButton = copyButton("Copy option");
  byId("effect-more").append(show, reset, optionButton);
}

function drawScore() {
  const right = new Array(BINS).fill(0),
    wrong = new Array(BINS).fill(0);
  for (const i of everyone) {
    const bin = Math.min(BINS - 1, Math.floor(BINS * samples.score[i]));
    // By the labels, on the wrong side of the line; without labels, nobody knows.
    const astray = samples.truth && samples.score[i] >= state.strictness !== knownByTruth[samples.truth.of[i]];
    (astray ? wrong : right)[bin] += 1;
  }
  const most = Math.max(...right.map((n, k) => n + wrong[k]));
  const height = (n) => 60 * Math.sqrt(n / most);
  const bars = right
    .flatMap((n, k) => {
      const all = n + wrong[k];
      if (!all) return [];
      const x = (200 * k) / BINS,
        side = (k + 0.5) / BINS >= state.strictness ? "known" : "unknown",
        part = height(all) * (wrong[k] / all);
      return [
        make(
          "rect",
          { x: x + 0.4, y: 62 - height(all), width: 200 / BINS - 0.8, height: height(all), class: side },
          make("title", { text: `score ${(k / BINS).toFixed(2)} to ${((k + 1) / BINS).toFixed(2)}: ${plural(all)}` }),
        ),
        wrong[k]
          ? make("rect", { x: x + 0.4, y: 62 - part, width: 200 / BINS - 0.8, height: part, class: "astray" })
          : null,
      ];
    })
    .filter(Boolean);
  const known = everyone.filter((i) => samples.score[i] >= state.strictness).length;
  const told = `Distribution of the score: ${plural(total - known)} below strictness ${state.strictness.toFixed(2)}, ${known} above`;
  byId("histogram").replaceChildren(
    make(
      "svg",
      { viewBox: "0 0 200 64", preserveAspectRatio: "none", role: "img", "aria-label": told },
      ...bars,
      make("line", { x1: 200 * state.strictness, x2: 200 * state.strictness, y1: 0, y2: 64, class: "cut" }),
    ),
    make(
      "p",
      { class: "ends" },
      make("span", { text: "0, unknown" }),
      make("span", { text: samples.truth ? "orange: wrong, by label" : "heights: square roots" }),
      make("span", { text: "known, 1" }),
    ),
  );
  tellEffect(known);
}

function tellEffect(known) {
  const lost = everyone.filter((i) => ownLabelOf(i) !== UNKNOWN && labelOf(i) === UNKNOWN).length;
  const won = everyone.filter((i) => ownLabelOf(i) === UNKNOWN && labelOf(i) !== UNKNOWN).length;
  const at = `At strictness ${state.strictness.toFixed(2)}: ${known.toLocaleString("en")} labelled, ${(total - known).toLocaleString("en")} unknown (${percent(1 - known / total)}).`;
  const moved = state.strictness !== data.strictness;
  const change = lost
    ? ` ${plural(lost)} would become unknown.`
    : won
      ? ` ${plural(won)} would become known.`
      : " Nothing would change.";
  byId("effect").textContent = at + (moved ? change : " This is the model’s own.");
  [byId("effect-hint").hidden, byId("effect-more").hidden] = [moved, !moved];
  optionButton.say(`--strictness ${state.strictness.toFixed(2)}`);
}
