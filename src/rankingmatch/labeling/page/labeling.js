// One image at a time. A key shows the next image at once; its label is posted in the background.

import { byId, element, keyButton, percent, say } from "./dom.js";
import { Frame, preload } from "./frame.js";
import { client, get, Refused } from "./server.js";
import { classById, done, finished, forget, labelName, onChange, outbox, postLabel, setState, state } from "./store.js";
import { drawClasses, flash } from "./classes.js";

const AHEAD = 8;
/** @type {import("./store.js").LabelImage[]} handed out and not shown yet */
const upcoming = [];
/** @type {import("./store.js").LabelImage[]} shown, the oldest first; `at` is the one in the frame, or the length: none is */
const trail = [];
let at = 0;
let held = false; // keys wait for the answer of the server
let nothingLeft = false;
const current = () => trail[at];

const zoomButton = keyButton("Zoom", "Space", () => frame.zoom(!frame.zoomed), { "aria-pressed": "false" });
const frame = new Frame(byId("label-frame"), (zoomed) => zoomButton.setAttribute("aria-pressed", String(zoomed)));
const undoButton = keyButton("Undo", "Z", () => undo());
const noneButton = keyButton("None of these", "X", () => choose("none"), { id: "none-button" });
byId("label-actions").append(
  keyButton(null, "ArrowLeft", () => back(), { "aria-label": "Previous image", class: "square" }),
  keyButton(null, "ArrowRight", () => forward(), { "aria-label": "Next image", class: "square" }),
  undoButton, keyButton("Skip", "S", () => choose(null)), noneButton, zoomButton);

// --- which image ------------------------------------------------------------------------------------------------
let refilling = false;
let modelAsked = null; // labels of the model that chose the upcoming images
// While a model is being trained, the one before is in use.
const modelInUse = () => (state.model?.state === "ready" ? state.model.labels : modelAsked ?? 0);
async function refill() {
  const model = modelInUse(), isNew = model !== modelAsked;
  if (refilling || (upcoming.length >= AHEAD && !isNew)) return;
  refilling = true;
  try {
    const answer = await get("/next", nextParameters(isNew));
    modelAsked = model;
    take(answer.images, isNew);
  } catch (error) {
    if (error instanceof Refused) say(error.message, true);
  } finally {
    refilling = false;
  }
  preload(upcoming.slice(0, AHEAD).map((one) => one.number));
  if (current()) return;
  if (upcoming.length) show();
  else showNothing();
}
// What this page has already, and what the server does not know yet because it is not saved.
function nextParameters(isNew) {
  const known = new Set([...(isNew ? [] : upcoming), ...trail.slice(at)].map((one) => one.number));
  for (const { body } of outbox.items) for (const number of body.numbers ?? [body.number ?? -1]) known.add(number);
  const wanted = isNew ? AHEAD : AHEAD - upcoming.length;
  return [["client", client], ["count", wanted], ...[...known].map((number) => ["after", number])];
}
// A new model chooses other images; the next two stay, because they are loaded, with its guesses.
const STAY = 2;
function take(images, isNew) {
  if (isNew) {
    const staying = upcoming.slice(0, STAY);
    for (const one of staying) one.guess = images.find((other) => other.number === one.number)?.guess ?? one.guess;
    upcoming.splice(0, upcoming.length, ...staying);
  }
  const have = new Set([...upcoming, ...trail].map((one) => one.number));
  upcoming.push(...images.filter((one) => !have.has(one.number) && !finished.has(one.number)));
  nothingLeft = !upcoming.length && !outbox.unsaved;
}

function show() {
  while (at >= trail.length && upcoming.length) {
    const next = upcoming.shift();
    if (!finished.has(next.number)) trail.push(next);
  }
  const image = current();
  if (image) frame.show(image.number, `Image to label: ${image.name}`);
  else showNothing();
  preload([...trail.slice(at + 1, at + 3), ...upcoming.slice(0, AHEAD)].map((one) => one.number));
  draw();
  refill();
}
function showNothing() {
  if (!nothingLeft) frame.clear(element("p", {}, "Loading …"));
  else frame.clear(element("p", {}, "No image is left to label here."),
    element("p", { class: "explanation" }, "Look for wrong labels (M), or train."));
}
function forward() {
  if (at < trail.length - 1 || (current() && isDone(current()))) at += 1;
  else say(current() ? "This is the newest image. A class, S or X continues." : "No image is left to label here.");
  show();
}
const isDone = (image) => image.label !== null || image.skipped;

async function back() {
  if (at > 0) at -= 1;
  else {
    const earlier = await ask(labeledEarlier);
    if (earlier) trail.unshift(earlier);
    else say("There is no earlier image.");
  }
  show();
}
// The last image that was labeled before those of the trail.
async function labeledEarlier() {
  const shown = new Set(trail.map((one) => one.number));
  let { image } = await get("/history", { at: trail[0]?.number ?? -1 });
  while (image && shown.has(image.number)) {
    ({ image } = await get("/history", { at: image.number }));
  }
  return image;
}
// Holds the keys until the server has answered; null if it has not.
async function ask(question) {
  if (held) return null;
  held = true;
  try {
    return await question();
  } catch (error) {
    say(error.message, true);
    return null;
  } finally {
    held = false;
  }
}

// --- labels --------------------------------------------------------------------------------------------------------
/** @param {import("./store.js").Label} label */
export async function choose(label, origin = "hand") {
  const image = current();
  if (!image || held) return;
  if (label !== null && !frame.visible) {
    say("The image is not shown yet. S skips it.");
    return;
  }
  const before = { label: image.label, skipped: image.skipped };
  const saved = postLabel(image, label, origin);
  Object.assign(image, { label, skipped: label === null });
  const redone = () => { Object.assign(image, { label, skipped: label === null }); finished.add(image.number); show(); };
  const step = { numbers: [image.number], undone: () => bringBack(image, before), redone };
  done.push(step);
  flash(label);
  at += 1;
  show();
  say(label === null ? "Skipped." : `Labeled: ${labelName(label)}.`);
  try {
    await saved;
  } catch (error) {
    forget(step);
    bringBack(image, before);
    say(error.message, true);
  }
}
function bringBack(image, before) {
  Object.assign(image, before);
  finished.delete(image.number);
  if (!trail.includes(image)) trail.splice(Math.min(at, trail.length), 0, image);
  at = trail.indexOf(image);
  show();
}

// The last thing done here is shown again at once. The server decides what is undone; it may be the work of another page.
export async function undo() {
  if (held) return;
  const last = done.pop();
  last?.undone();
  const answer = await (last ? request() : ask(request));
  if (!answer) return;
  setState(answer.state);
  if (answer.number !== null && answer.number !== undefined) finished.delete(answer.number);
  if (last?.numbers.includes(answer.number) || !answer.image) say("Undone.");
  else if (last) {
    last.redone?.();
    done.push(last);
    say(`Undone: ${answer.image.name}, which was labeled in another window.`);
  }
  else {
    const known = trail.find((one) => one.number === answer.number);
    bringBack(known ?? answer.image, { label: answer.image.label, skipped: false });
    say(`Undone: ${answer.image.name}.`);
  }
}
const request = () => outbox.post("/undo", {}, { repeatable: false }).catch((error) => {
  say(error instanceof Refused ? error.message : "The undo was not confirmed. If the label is still there, undo again.", true);
});

function acceptGuess() {
  const guess = shownGuess();
  if (guess) choose(guess.class);
  else say("There is no guess for this image.");
}
// A random check measures the error, so nothing may suggest its class.
const shownGuess = () => {
  const image = current();
  return image && !image.check && !isDone(image) && classById(image.guess?.class) ? image.guess : null;
};

// --- drawing --------------------------------------------------------------------------------------------------------
function draw() {
  const image = current(), guess = shownGuess();
  drawClasses(image?.label ?? null, guess);
  byId("check-note").hidden = !image?.check || isDone(image);
  byId("image-name").textContent = image?.name ?? "";
  byId("image-name").title = image?.name ?? "";
  byId("image-note").textContent = noteFor(image, guess);
  noneButton.setAttribute("aria-pressed", String(image?.label === "none"));
  undoButton.disabled = !state?.undo && !outbox.unsaved && !done.length;
}
function noteFor(image, guess) {
  if (!image) return "";
  if (image.label !== null) return `labeled: ${labelName(image.label)}`;
  if (image.skipped) return "skipped";
  const why = image.check ? "" : image.why ?? "";
  return guess ? `${why ? `${why} · ` : ""}guess: ${labelName(guess.class)}, ${percent(guess.confidence)}` : why;
}
onChange(() => {
  if (byId("label").hidden) return;
  if (!current()) show();
  else {
    draw();
    if (modelInUse() !== modelAsked) refill();
  }
});

export const labeling = {
  show,
  reconnected: () => { frame.retry(`Image to label: ${current()?.name}`); refill(); },
  current,
  choose: (label) => choose(label),
  keys: {
    ArrowLeft: back, ArrowRight: forward, z: undo, s: () => choose(null), x: () => choose("none"), Enter: acceptGuess,
    " ": () => frame.zoom(!frame.zoomed), Escape: () => frame.zoom(false),
  },
};
