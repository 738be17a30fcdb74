// Calls to the service, with the token where it asks for one; elements that are made of texts, never of markup.

const KEY = "usfda-token";
const dialog = document.getElementById("ask");
let asking = null;

/** Ask for the token, once for all calls that need it. */
function askForToken() {
  asking ??= new Promise((resolve) => {
    const field = document.getElementById("token");
    field.value = "";
    const given = sessionStorage.getItem(KEY) !== null;
    document.getElementById("ask-text").textContent = given
      ? "That was not the right token. It is what the service was started with."
      : "This service asks for a token. It is kept until this tab is closed.";
    dialog.addEventListener("close", () => {
      if (field.value) sessionStorage.setItem(KEY, field.value);
      asking = null;
      resolve();
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}

/** The answer to a request; an Error with the service's own words where it refuses. */
export async function call(path, options = {}) {
  for (;;) {
    const token = sessionStorage.getItem(KEY);
    const headers = { ...options.headers, ...(token && { Authorization: `Bearer ${token}` }) };
    let answer;
    try {
      answer = await fetch(path, { ...options, headers });
    } catch {
      throw new Error("The service cannot be reached.");
    }
    if (answer.status === 401) {
      await askForToken();
    } else if (answer.status === 429) {
      await new Promise((resolve) => setTimeout(resolve, 1000));
    } else {
      return answer;
    }
  }
}

/** The same, as JSON. */
export async function json(path, options) {
  const answer = await call(path, options);
  const content = await answer.json();
  if (!answer.ok && !content.results) throw new Error(content.detail);
  return content;
}

export const post = (path, body) => json(path, {
  method: "POST",
  ...(body && { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } }),
});

const pictures = new Map();

/** The address of the small picture of a kept image, by its sha256; an empty text where it is kept no more. */
export function picture(sha256) {
  if (!pictures.has(sha256)) {
    pictures.set(sha256, call(`/kept/${sha256}`).then(async (answer) => (
      answer.ok ? URL.createObjectURL(await answer.blob()) : ""
    )).catch(() => ""));
  }
  return pictures.get(sha256);
}

/** An img element for a kept image. */
export function keptImage(sha256, text) {
  const image = element("img", { alt: text, loading: "lazy" });
  picture(sha256).then((address) => { if (address) image.src = address; });
  return image;
}

/** An element with properties and children. */
export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

export const find = (id) => document.getElementById(id);
export const count = (n, one, many = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
