// The page of a review: one image and one question at a time; every answer is kept as soon as it is given.

import { call, count, element, find, json, post } from "./api.js";

let classes = [];
let questions = []; // {id, name, guess, confidence, picture, answer}
let now = 0;
let busy = false;

const answered = () => questions.filter((one) => one.answer !== null).length;

async function load() {
  const found = await json("/review");
  ({ classes, questions } = found);
  find("classes").replaceChildren(...classes.map((name, i) => {
    const button = element("button", { type: "button", textContent: `${i + 1} ${name}` });
    button.addEventListener("click", () => give(name));
    return element("li", {}, button);
  }));
  now = questions.findIndex((one) => one.answer === null);
  if (now < 0) now = questions.length;
  show();
}

async function show() {
  find("progress").value = questions.length ? answered() / questions.length : 0;
  find("place").textContent = `${answered()} of ${count(questions.length, "question")} answered`;
  find("other").hidden = true;
  find("no").setAttribute("aria-expanded", "false");
  find("wrong").textContent = "";
  find("name").value = "";
  find("back").disabled = now === 0;
  const over = now >= questions.length;
  find("asking").hidden = over;
  find("end").hidden = !over;
  if (over) {
    find("end-title").focus();
    return;
  }
  const one = questions[now];
  find("question").replaceChildren("Is this ", element("span", { className: "tag known", textContent: one.guess }), "?");
  find("about").textContent = `${one.name} · confidence ${one.confidence.toFixed(2)}`;
  const image = find("picture");
  image.removeAttribute("src");
  image.alt = `Image ${now + 1}`;
  find("question").focus();
  const answer = await call(one.picture);
  if (answer.ok && questions[now] === one) image.src = URL.createObjectURL(await answer.blob());
}

/** Keep an answer and go on. */
async function give(text) {
  if (busy || now >= questions.length) return;
  busy = true;
  const one = questions[now];
  try {
    await post("/review", { answers: { [one.id]: text } });
    one.answer = text;
    now += 1;
    while (now < questions.length && questions[now].answer !== null) now += 1;
    show();
  } catch (error) {
    find("wrong").textContent = error.message;
  } finally {
    busy = false;
  }
}

function openOther(start = "") {
  find("other").hidden = false;
  find("no").setAttribute("aria-expanded", "true");
  find("name").value = start;
  find("name").focus();
}

function back() {
  if (now > 0) {
    now -= 1;
    questions[now].answer = null;
    show();
  }
}

find("yes").addEventListener("click", () => give("yes"));
find("no").addEventListener("click", () => openOther());
find("none").addEventListener("click", () => give("none"));
find("skip").addEventListener("click", () => give("skip"));
find("back").addEventListener("click", back);
find("other").addEventListener("submit", (event) => {
  event.preventDefault();
  give(find("name").value.trim());
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || find("asking").hidden) return;
  if (event.target === find("name")) {
    if (event.key === "Escape") show();
    return;
  }
  const actions = { y: () => give("yes"), n: () => openOther(), 0: () => give("none"), s: () => give("skip"), b: back };
  const action = actions[event.key.toLowerCase()] ?? (/^[1-9]$/.test(event.key) ? () => openOther(event.key) : null);
  if (action) {
    event.preventDefault();
    action();
  }
});

find("finish").addEventListener("click", async () => {
  find("finish").disabled = true;
  try {
    const { result } = await post("/review", { answers: {}, finish: true });
    find("end-title").textContent = "The review is finished";
    find("result").replaceChildren(...result.map((text) => element("li", { textContent: text })));
    find("finish").hidden = true;
    find("end-title").focus();
  } catch (error) {
    find("result").replaceChildren(element("li", { textContent: error.message }));
    find("finish").disabled = false;
  }
});

load().catch((error) => { find("place").textContent = error.message; });
