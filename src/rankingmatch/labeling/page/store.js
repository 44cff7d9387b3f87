// What the page knows: the server's last state, and the effect of what is not saved yet.

import { banner } from "./dom.js";
import { Outbox } from "./outbox.js";
import { client } from "./server.js";

/**
 * @typedef {{id: number, name: string, key: string, count: number}} LabelClass
 * @typedef {number | "none" | null} Label  id of a class, "none" (of the classes), or null: no label
 * @typedef {{number: number, name: string, check: boolean, guess: {class: number, confidence: number} | null,
 *   label: Label, why: string}} LabelImage
 */

export let state = null;
const listeners = [];
export const onChange = (listener) => listeners.push(listener);

// The next image is painted first; counts and progress follow.
const AFTER_PAINT = 25; // milliseconds
let scheduled = false;
function changed() {
  if (scheduled) return;
  scheduled = true;
  setTimeout(() => {
    scheduled = false;
    if (state) for (const listener of listeners) listener();
  }, AFTER_PAINT);
}
export const outbox = new Outbox(changed, () => ({ client, scan }));

/** Takes a state from the server, unless a newer one is known. `fresh`: the server was restarted, so versions count anew. */
let restarted = false;
let scan = null; // names the images that the numbers on this page mean
const CHANGED = "The images in the folder have changed since this page was loaded, and the server was started again. Reload the page.";
export const expectRestart = () => { restarted = true; };
export function setState(received) {
  if (state && !restarted && received.version < state.version) return;
  restarted = false;
  state = received;
  scan ??= received.scan;
  banner("scan", received.scan === scan ? null : CHANGED);
  changed();
}

// --- the classes and counts, with what is not saved yet ---------------------------------------------------------
export const classById = (id) => state?.classes.find((one) => one.id === id);
export const classByKey = (key) => state?.classes.find((one) => one.key?.toLowerCase() === key);
export function labelName(label) {
  if (label === "none") return "none of the classes";
  return label === null ? "no label" : classById(label)?.name ?? "a removed class";
}
export function counts() {
  const perClass = new Map(state.classes.map((one) => [one.id, one.count]));
  let { labeled, none } = state;
  for (const { effect } of outbox.items) {
    for (const { from, to } of effect ?? []) {
      for (const [label, sign] of [[from, -1], [to, 1]]) {
        if (label === "none") none += sign;
        else if (perClass.has(label)) {
          perClass.set(label, perClass.get(label) + sign);
          labeled += sign;
        }
      }
    }
  }
  return { perClass, labeled, none };
}

// --- images that were labeled here, so that no other list offers them again -------------------------------------
export const finished = new Set();

// --- what was done here, so that an undo can show it at once ------------------------------------------------------
/** @type {{numbers: number[], undone: () => void}[]} */
export const done = [];
// A step that the server has refused cannot be undone.
export function forget(step) {
  if (done.includes(step)) done.splice(done.indexOf(step), 1);
}
// Undoing a change of the classes shows no image.
export const classStep = () => ({ numbers: [null], undone: () => {} });

export async function postLabel(image, label, origin = "hand") {
  const effect = [{ from: image.label, to: label }];
  finished.add(image.number);
  const answer = await outbox.post("/label", { number: image.number, class: label, origin }, { effect });
  setState(answer.state);
}
