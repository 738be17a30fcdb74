// What the labels say: figures, classes, confusions, calibration.

const MANY = 60; // classes that the table of confusions has room for

function showQuality() {
  const quality = data.quality;
  if (!quality) return;
  for (const part of document.querySelectorAll("#quality, a[href='#quality']")) part.hidden = false;
  const list = make("dl", { class: "metrics" });
  for (const [key, text] of Object.entries(quality.meanings))
    list.append(
      make(
        "div",
        {},
        make("dt", {}, make("code", { text: key }), make("span", { text })),
        make("dd", { text: quality[key] === null ? "–" : quality[key].toFixed(1) }),
      ),
    );
  byId("metrics").append(
    list,
    make("p", {
      class: "hint",
      text: "In percent; – where there is nothing to measure it by. For ece less is better, for the others down to auroc more is.",
    }),
  );
  showPerClass(quality);
  showReliability(quality.reliability);
  showConfusion(quality.confusion);
}

function showPerClass(quality) {
  const taken = new Map(); // by the true class: how often each wrong answer was given
  for (const i of everyone) {
    if (isRight(i)) continue;
    const answers = taken.get(truthOf(i)) || new Map();
    answers.set(labelOf(i), (answers.get(labelOf(i)) || 0) + 1);
    taken.set(truthOf(i), answers);
  }
  const rows = Object.entries(quality.per_class)
    .sort((a, b) => a[1].accuracy - b[1].accuracy)
    .map(([name, { accuracy, samples: n }]) => {
      const wrong = [...(taken.get(name) || [])].sort((a, b) => b[1] - a[1])[0];
      return make(
        "tr",
        {},
        make("th", { scope: "row", text: name }),
        make("td", { text: data.classes.includes(name) ? "known" : "new" }),
        make("td", { class: "figure", text: n.toLocaleString("en") }),
        make("td", { class: "figure", text: `${accuracy.toFixed(0)} %` }),
        make("td", { text: wrong ? `${nameOf(wrong[0])} (${wrong[1]})` : "" }),
      );
    });
  const head = ["class", "to the model", plural(2).slice(2), "right", "mostly taken for"];
  byId("per-class").append(
    make("caption", {
      class: "unseen",
      text: "Class by class: the share that is labelled rightly, or, of a new class, called unknown",
    }),
    make(
      "thead",
      {},
      make(
        "tr",
        {},
        ...head.map((text, k) => make("th", { scope: "col", text, class: k === 2 || k === 3 ? "figure" : null })),
      ),
    ),
    make("tbody", {}, ...rows),
  );
}

function showConfusion({ labels, matrix }) {
  const used = [...labels.keys()].filter((k) => matrix[k].some((n) => n) || matrix.some((row) => row[k]));
  const wrongs = (k) => matrix[k].reduce((sum, n, j) => sum + (j === k ? 0 : n + matrix[j][k]), 0);
  const shown =
    used.length > MANY
      ? [...used]
          .sort((a, b) => wrongs(b) - wrongs(a))
          .slice(0, MANY)
          .sort((a, b) => a - b)
      : used;
  const caption =
    "Rows: what it is. Columns: what it is called. Shade: share of the row." +
    (shown.length < used.length ? ` The ${MANY} classes with the most errors.` : "");
  const head = make(
    "tr",
    {},
    make("td", {}),
    ...shown.map((k) => make("th", { scope: "col" }, make("span", { text: labels[k] }))),
  );
  const rows = shown.map((k) => {
    const all = matrix[k].reduce((sum, n) => sum + n, 0) || 1;
    return make(
      "tr",
      {},
      make("th", { scope: "row", text: labels[k] }),
      ...shown.map((j) => {
        const n = matrix[k][j];
        const cell = make("td", { text: n || "", class: n ? (j === k ? "right" : "wrong") : null });
        cell.style.setProperty("--share", n ? (0.1 + 0.32 * (n / all)).toFixed(2) : 0);
        return cell;
      }),
    );
  });
  byId("confusion-hint").textContent = caption;
  byId("confusion").append(
    make("caption", { class: "unseen", text: "What is taken for what" }),
    make("thead", {}, head),
    make("tbody", {}, ...rows),
  );
}

function showReliability(bins) {
  const most = Math.max(...bins.map(([n]) => n));
  const told = bins
    .map(([n, score, known]) => `score ${score.toFixed(2)}: ${(100 * known).toFixed(0)} % known, of ${n}`)
    .join("; ");
  const axis = (text, attributes) => make("text", { ...attributes, text });
  byId("reliability").append(
    make(
      "svg",
      { viewBox: "0 0 220 200", role: "img", "aria-label": `Reliability. ${told}` },
      make("rect", { x: 30, y: 10, width: 180, height: 160, class: "frame" }),
      make("line", { x1: 30, y1: 170, x2: 210, y2: 10, class: "ideal" }),
      ...bins.map(([n, score, known]) =>
        make(
          "circle",
          { cx: 30 + 180 * score, cy: 170 - 160 * known, r: 2.5 + 5 * Math.sqrt(n / most), class: "bin" },
          make("title", {
            text: `score ${score.toFixed(2)}, known ${(100 * known).toFixed(0)} %, ${plural(n, "sample")}`,
          }),
        ),
      ),
      axis("0", { x: 30, y: 182, class: "tick" }),
      axis("1", { x: 206, y: 182, class: "tick" }),
      axis("score", { x: 108, y: 194, class: "tick" }),
      axis("100 %", { x: 2, y: 14, class: "tick" }),
      axis("0 %", { x: 10, y: 172, class: "tick" }),
    ),
  );
}
