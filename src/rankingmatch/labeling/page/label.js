// The entry: views, keys, and the connection.

import { banner, byId, count, element, onPress, sentence } from "./dom.js";
import { get, listen } from "./server.js";
import { classByKey, expectRestart, onChange, outbox, setState, state } from "./store.js";
import { addClass, editClasses, onChoose, openDialog } from "./classes.js";
import { choose, labeling, undo } from "./labeling.js";
import { grid, onGridUndo } from "./grid.js";
import { mistakes, onMistakesUndo } from "./mistakes.js";
import { training } from "./training.js";
import { drawStart, isStarting } from "./start.js";
import "./progress.js";

const VIEWS = { label: labeling, grid, mistakes, train: training };
let view = null; // "start" while there are no classes

// --- views --------------------------------------------------------------------------------------------------------
function open(name) {
  const wanted = isStarting() ? "start" : name, changed = view !== wanted;
  view = wanted;
  document.body.classList.toggle("starting", view === "start");
  for (const section of document.querySelectorAll("main > section")) section.hidden = section.id !== view;
  for (const tab of document.querySelectorAll("nav a")) {
    if (tab.dataset.view === view) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
  if (view === "start") drawStart();
  else if (changed) VIEWS[view].show();
}
const viewInAddress = () => (location.hash.slice(1) in VIEWS ? location.hash.slice(1) : "label");
function go(name) {
  if (location.hash === `#${name}`) open(name);
  else location.hash = name;
}
addEventListener("hashchange", () => { if (state) open(viewInAddress()); });

onGridUndo(undo);
onMistakesUndo(undo);

// --- keys ---------------------------------------------------------------------------------------------------------
const isLabeling = () => view === "label" && labeling.current();
const openAddClass = () => addClass(isLabeling() ? choose : null);
const EVERYWHERE = {
  n: openAddClass, "+": openAddClass, "?": help, g: () => go("grid"), m: () => go("mistakes"), t: () => go("train"), Escape: () => go("label"),
};
const REPEATED = new Set(["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"]);

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || !state || view === "start") return;
  const { target } = event;
  if (byId("dialog").open || target.matches("input, select, textarea")) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const tile = target.matches(".tile");
  // A focused button, link or summary keeps Enter and Space; a tile only Space.
  if (target.closest("button, a, summary") && (key === " " || (key === "Enter" && !tile))) return;
  if (event.repeat && !REPEATED.has(key)) { event.preventDefault(); return; } // a key that is held labels one image
  const action = actionFor(key, event);
  if (!action) return;
  event.preventDefault();
  action();
}
function actionFor(key, event) {
  const command = VIEWS[view].keys[key] ?? EVERYWHERE[key];
  if (command) return command;
  // Where digits need the shift key, the key without it still means its digit.
  const digit = event.shiftKey ? null : /^(?:Digit|Numpad)(\d)$/.exec(event.code)?.[1];
  const found = classByKey(key) ?? (digit ? classByKey(digit) : null);
  return found && VIEWS[view].choose ? () => VIEWS[view].choose(found.id) : null;
}
addEventListener("keydown", onKey);

// --- help ---------------------------------------------------------------------------------------------------------
const KEYS = [
  ["1 – 9, 0, letters", "label with the class"], ["Enter", "accept the model's guess"], ["X", "belongs to none of the classes"],
  ["S", "skip"], ["Z", "undo, as often as you like"], ["← →", "previous and next image"], ["Space", "zoom (or click the image)"],
  ["N or +", "new class"], ["G", "grid: accept many images of one class"], ["M", "mistakes: labels the model contradicts"],
  ["T", "train and export"], ["Esc", "back to one image at a time"], ["?", "this list"],
];
const GRID_KEYS = [["arrow keys", "choose an image"], ["Space", "mark it as wrong"], ["a class key", "give it the right class"],
  ["Enter or A", "accept the others, next page"]];
const MISTAKE_KEYS = [["←", "keep your label"], ["→", "change it to the guess"], ["a class key", "change it to another class"]];
const keyTable = (rows) => element("dl", { class: "keys" }, ...rows.flatMap(([key, text]) =>
  [element("dt", {}, element("kbd", {}, key)), element("dd", {}, text)]));
function help() {
  openDialog("Keys", keyTable(KEYS), element("h3", {}, "In the grid"), keyTable(GRID_KEYS),
    element("h3", {}, "In the mistakes"), keyTable(MISTAKE_KEYS),
    element("p", { class: "explanation small" }, "Every fifth image or so is a random check: it has no hint, is not trained on, and measures how often the model is wrong."));
}
onPress(byId("help-button"), help);
onPress(byId("add-class"), openAddClass);
onPress(byId("edit-classes"), () => editClasses());
onChoose((id) => choose(id));

// --- state --------------------------------------------------------------------------------------------------------
onChange(() => {
  byId("title").textContent = state.folder;
  document.title = `${count(state.labeled)} labeled · ${state.folder}`;
  banner("problem", state.problem);
  banner("failure", sentence(state.failure));
  if (view === null || (view === "start") !== isStarting()) open(viewInAddress());
});
addEventListener("beforeunload", (event) => { if (outbox.unsaved) event.preventDefault(); });
listen(setState, () => {
  expectRestart();
  outbox.wake();
  VIEWS[view]?.reconnected?.();
});
get("/state").then(setState, (error) => banner("connection", error.message));
