// Labels that the model contradicts, one at a time: keep the label or change it.

import { byId, element, keyButton, percent, say } from "./dom.js";
import { Frame, preload } from "./frame.js";
import { get } from "./server.js";
import { classById, done, forget, labelName, onChange, postLabel, state } from "./store.js";

let queue = []; // the first one is shown
let loaded = false;
const settled = new Set(); // numbers that were kept or changed since the page was opened
const frame = new Frame(byId("mistakes-frame"));
const current = () => queue[0];

let undo = () => {};
export const onMistakesUndo = (handler) => { undo = handler; };
const keepButton = keyButton("Keep", "ArrowLeft", () => keep(), { class: "side-button" });
const changeButton = keyButton("Change", "ArrowRight", () => change(current()?.guess.class), { class: "side-button" });
const side = (heading, button) => element("div", { class: "side" }, element("p", { class: "muted" }, heading), button);
byId("versus").append(side("Your label", keepButton), side("The model's guess", changeButton));
byId("mistakes-actions").append(keyButton("Undo", "Z", () => undo()), keyButton("None of these", "X", () => change("none")),
  keyButton("Zoom", "Space", () => frame.zoom(!frame.zoomed)));

async function load() {
  try {
    for (let number = 0, pages = 1; number < pages && queue.length < 8; number += 1) {
      const answer = await get("/mistakes", { page: number });
      const known = new Set(queue.map((one) => one.number));
      queue.push(...answer.images.filter((one) => !settled.has(one.number) && !known.has(one.number) && classById(one.guess?.class)));
      pages = answer.pages;
    }
    loaded = true;
  } catch (error) {
    say(error.message, true);
  }
  preload(queue.slice(0, 8).map((one) => one.number));
  draw();
}

function draw() {
  const image = current();
  for (const id of ["versus", "mistakes-actions"]) byId(id).hidden = !image;
  byId("mistakes-name").textContent = image?.name ?? "";
  byId("mistakes-note").textContent = image ? "The model contradicts this label, judged by the other labels. " +
    "← keeps your label, → changes it to the guess, a class key gives another class." : "";
  if (!image) {
    const why = state.model?.state === "waiting" && state.model.why ? `The model is waiting: ${state.model.why}.` : "The model agrees with your labels.";
    frame.clear(element("p", {}, loaded ? `No label to check. ${why}` : "Loading …"));
    return;
  }
  frame.show(image.number, `Labeled ${labelName(image.label)}: ${image.name}`);
  fillSide(keepButton, "Keep", labelName(image.label));
  fillSide(changeButton, "Change to", `${labelName(image.guess.class)}, ${percent(image.guess.confidence)}`);
}
function fillSide(button, verb, name) {
  button.firstChild.replaceChildren(element("span", { class: "muted" }, `${verb} `), element("strong", {}, name));
}

function next(image) {
  settled.add(image.number);
  queue.shift();
  const step = { numbers: [image.number], undone: () => {
    settled.delete(image.number);
    queue.unshift(image);
    draw();
  } };
  done.push(step);
  draw();
  if (queue.length < 4) load();
  return step;
}
const keep = () => settle(current()?.label, "kept");
const change = (label) => settle(label, "hand");
async function settle(label, origin) {
  const image = current();
  if (!image || label === undefined) return;
  const saved = postLabel(image, label, origin), step = next(image);
  say(origin === "kept" ? `Kept: ${labelName(label)}.` : `Changed to ${labelName(label)}.`);
  await saved.catch((error) => {
    forget(step);
    step.undone();
    say(error.message, true);
  });
}

onChange(() => { if (!byId("mistakes").hidden && !current() && loaded) draw(); });

export const mistakes = {
  show() { queue = []; loaded = false; draw(); load(); },
  reconnected: load,
  choose: change,
  keys: {
    ArrowLeft: keep, ArrowRight: () => change(current()?.guess.class), z: () => undo(), x: () => change("none"),
    " ": () => frame.zoom(!frame.zoomed),
  },
};
