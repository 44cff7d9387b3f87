// One picture at a time. A key shows the next picture at once; its label is posted in the background.

import { byId, element, keyButton, percent, say } from "./dom.js";
import { Frame, preload } from "./frame.js";
import { client, get, Refused } from "./server.js";
import { classById, done, finished, forget, labelName, onChange, outbox, postLabel, setState, state } from "./store.js";
import { drawClasses, flash } from "./classes.js";

const AHEAD = 8;
/** @type {import("./store.js").Picture[]} handed out and not shown yet */
const upcoming = [];
/** @type {import("./store.js").Picture[]} shown, the oldest first; `at` is the one in the frame, or the length: none is */
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
  keyButton(null, "ArrowLeft", () => back(), { "aria-label": "Previous picture", class: "square" }),
  keyButton(null, "ArrowRight", () => forward(), { "aria-label": "Next picture", class: "square" }),
  undoButton, keyButton("Skip", "S", () => choose(null)), noneButton, zoomButton);

// --- which picture ------------------------------------------------------------------------------------------------
let refilling = false;
let modelAsked = null; // labels of the model that chose the upcoming pictures
// While a model is being trained, the one before is in use.
const modelInUse = () => (state.model?.state === "ready" ? state.model.labels : modelAsked ?? 0);
async function refill() {
  const model = modelInUse(), isNew = model !== modelAsked;
  if (refilling || (upcoming.length >= AHEAD && !isNew)) return;
  refilling = true;
  try {
    const answer = await get("/next", nextParameters(isNew));
    modelAsked = model;
    take(answer.pictures, isNew);
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
// A new model chooses other pictures; the next two stay, because they are loaded, with its guesses.
const STAY = 2;
function take(pictures, isNew) {
  if (isNew) {
    const staying = upcoming.slice(0, STAY);
    for (const one of staying) one.guess = pictures.find((other) => other.number === one.number)?.guess ?? one.guess;
    upcoming.splice(0, upcoming.length, ...staying);
  }
  const have = new Set([...upcoming, ...trail].map((one) => one.number));
  upcoming.push(...pictures.filter((one) => !have.has(one.number) && !finished.has(one.number)));
  nothingLeft = !upcoming.length && !outbox.unsaved;
}

function show() {
  while (at >= trail.length && upcoming.length) {
    const next = upcoming.shift();
    if (!finished.has(next.number)) trail.push(next);
  }
  const picture = current();
  if (picture) frame.show(picture.number, `Picture to label: ${picture.name}`);
  else showNothing();
  preload([...trail.slice(at + 1, at + 3), ...upcoming.slice(0, AHEAD)].map((one) => one.number));
  draw();
  refill();
}
function showNothing() {
  if (!nothingLeft) frame.clear(element("p", {}, "Loading …"));
  else frame.clear(element("p", {}, "No picture is left to label here."),
    element("p", { class: "explanation" }, "Look for wrong labels (M), or train."));
}
function forward() {
  if (at < trail.length - 1 || (current() && isDone(current()))) at += 1;
  else say(current() ? "This is the newest picture. A class, S or X continues." : "No picture is left to label here.");
  show();
}
const isDone = (picture) => picture.label !== null || picture.skipped;

async function back() {
  if (at > 0) at -= 1;
  else {
    const earlier = await ask(labeledEarlier);
    if (earlier) trail.unshift(earlier);
    else say("There is no earlier picture.");
  }
  show();
}
// The last picture that was labeled before those of the trail.
async function labeledEarlier() {
  const shown = new Set(trail.map((one) => one.number));
  let { picture } = await get("/history", { client, at: trail[0]?.number ?? -1, step: -1 });
  while (picture && shown.has(picture.number)) {
    ({ picture } = await get("/history", { client, at: picture.number, step: -1 }));
  }
  return picture;
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
  const picture = current();
  if (!picture || held) return;
  if (label !== null && !frame.visible) {
    say("The picture is not shown yet. S skips it.");
    return;
  }
  const before = { label: picture.label, skipped: picture.skipped };
  const saved = postLabel(picture, label, origin);
  Object.assign(picture, { label, skipped: label === null });
  const redone = () => { Object.assign(picture, { label, skipped: label === null }); finished.add(picture.number); show(); };
  const step = { numbers: [picture.number], undone: () => bringBack(picture, before), redone };
  done.push(step);
  flash(label);
  at += 1;
  show();
  say(label === null ? "Skipped." : `Labeled: ${labelName(label)}.`);
  try {
    await saved;
  } catch (error) {
    forget(step);
    bringBack(picture, before);
    say(error.message, true);
  }
}
function bringBack(picture, before) {
  Object.assign(picture, before);
  finished.delete(picture.number);
  if (!trail.includes(picture)) trail.splice(Math.min(at, trail.length), 0, picture);
  at = trail.indexOf(picture);
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
  if (last?.numbers.includes(answer.number) || !answer.picture) say("Undone.");
  else if (last) {
    last.redone?.();
    done.push(last);
    say(`Undone: ${answer.picture.name}, which was labeled in another window.`);
  }
  else {
    const known = trail.find((one) => one.number === answer.number);
    bringBack(known ?? answer.picture, { label: answer.picture.label, skipped: false });
    say(`Undone: ${answer.picture.name}.`);
  }
}
const request = () => outbox.post("/undo", {}, { repeatable: false }).catch((error) => {
  say(error instanceof Refused ? error.message : "The undo was not confirmed. If the label is still there, undo again.", true);
});

function acceptGuess() {
  const guess = shownGuess();
  if (guess) choose(guess.class);
  else say("There is no guess for this picture.");
}
// A random check measures the error, so nothing may suggest its class.
const shownGuess = () => {
  const picture = current();
  return picture && !picture.audit && !isDone(picture) && classById(picture.guess?.class) ? picture.guess : null;
};

// --- drawing --------------------------------------------------------------------------------------------------------
function draw() {
  const picture = current(), guess = shownGuess();
  drawClasses(picture?.label ?? null, guess);
  byId("audit-note").hidden = !picture?.audit || isDone(picture);
  byId("picture-name").textContent = picture?.name ?? "";
  byId("picture-name").title = picture?.name ?? "";
  byId("picture-note").textContent = noteFor(picture, guess);
  noneButton.setAttribute("aria-pressed", String(picture?.label === "none"));
  undoButton.disabled = !state?.undo && !outbox.unsaved && !done.length;
}
function noteFor(picture, guess) {
  if (!picture) return "";
  if (picture.label !== null) return `labeled: ${labelName(picture.label)}`;
  if (picture.skipped) return "skipped";
  const why = picture.audit ? "" : picture.why ?? "";
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
  reconnected: () => { frame.retry(`Picture to label: ${current()?.name}`); refill(); },
  current,
  choose: (label) => choose(label),
  keys: {
    ArrowLeft: back, ArrowRight: forward, z: undo, s: () => choose(null), x: () => choose("none"), Enter: acceptGuess,
    " ": () => frame.zoom(!frame.zoomed), Escape: () => frame.zoom(false),
  },
};
