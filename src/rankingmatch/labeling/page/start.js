// The first screen: asks for the classes.

import { byId, countOf, element } from "./dom.js";
import { imageAddress } from "./server.js";
import { classStep, done, outbox, setState, state } from "./store.js";

const names = [];
let adding = false;
/** The first screen stays until all classes are there. */
export const isStarting = () => adding || !state.classes.length;
const input = byId("start-input"), problem = byId("start-problem");

function draw() {
  byId("start-names").replaceChildren(...names.map((name, index) => element("li", {}, element("span", { class: "name" }, name),
    element("button", { type: "button", "aria-label": `Remove ${name}`, onclick: () => { names.splice(index, 1); draw(); input.focus(); } }, "✕"))));
  input.placeholder = names.length ? "" : "shirt, shoes, hat";
}
function take(text) {
  problem.textContent = "";
  for (const name of text.split(",").map((one) => one.trim()).filter(Boolean)) {
    if (name.length > 100) problem.textContent = "A class name has at most 100 characters.";
    else if (!names.includes(name)) names.push(name);
  }
  draw();
}
input.addEventListener("input", () => {
  const comma = input.value.lastIndexOf(",");
  if (comma < 0) return;
  take(input.value.slice(0, comma));
  input.value = input.value.slice(comma + 1).trimStart();
});
input.addEventListener("keydown", (event) => {
  if (event.key === "Backspace" && !input.value && names.length) { names.pop(); draw(); }
  if (event.key === "Enter" && input.value.trim() && !event.isComposing) {
    event.preventDefault(); // one more name; Enter in the empty field starts
    take(input.value);
    input.value = "";
  }
});
byId("start-field").addEventListener("click", (event) => { if (event.target === event.currentTarget) input.focus(); });
byId("start-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  take(input.value);
  input.value = "";
  if (!names.length) problem.textContent = "Type the name of at least one class.";
  adding = true;
  try {
    while (names.length) {
      setState((await outbox.post("/classes", { add: names[0] })).state);
      done.push(classStep());
      names.shift();
      draw();
    }
    adding = false;
    setState(state);
  } catch (error) {
    problem.textContent = error.message;
  }
});

const SHOWN = 12;
export function drawStart() {
  byId("start-title").textContent = `Which classes do your ${countOf(state.total, "image")} belong to?`;
  const images = byId("start-images");
  if (images.children.length || !state.total) return;
  const step = Math.max(1, Math.floor(state.total / SHOWN));
  for (let number = 0; number < state.total && images.children.length < SHOWN; number += step) {
    const image = element("img", { src: imageAddress(number, "thumbnail"), alt: "", loading: "lazy" });
    image.addEventListener("error", () => { image.hidden = true; });
    images.append(image);
  }
  if (!matchMedia("(pointer: coarse)").matches) input.focus(); // on a phone, the keyboard would cover the page
}
