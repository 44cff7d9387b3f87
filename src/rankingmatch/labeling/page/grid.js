// Images that the model predicts as one class, a page at a time: mark the wrong ones, accept the rest.

import { byId, countOf, element, keyButton, percent, say } from "./dom.js";
import { get, imageAddress } from "./server.js";
import { classById, done, finished, forget, labelName, onChange, outbox, postLabel, setState, state } from "./store.js";

const PAGE = 24;
let chosen = null; // id of the class
let order = "sure";
let page = []; // the images shown
let buffer = []; // the images of the next page, loaded ahead
let loading = null;
const wrong = new Set(); // marked on this page
const rejected = new Map(); // id of a class → numbers that are not offered again for it

const classSelect = element("select", { "aria-label": "Class", onchange: () => open(Number(classSelect.value), order) });
const orderSelect = element("select", { "aria-label": "Order", onchange: () => open(chosen, orderSelect.value) },
  element("option", { value: "sure" }, "surest first"), element("option", { value: "unsure" }, "least sure first"));
byId("grid-controls").append(element("label", {}, "Predicted as", classSelect), orderSelect);
const acceptButton = keyButton("Accept", "Enter", () => accept(), { class: "primary" });
byId("grid-actions").append(keyButton("Undo", "Z", () => undo()), acceptButton);
let undo = () => {};
export const onGridUndo = (handler) => { undo = handler; };

// --- pages --------------------------------------------------------------------------------------------------------
const offered = (image) => !finished.has(image.number) && !rejected.get(chosen)?.has(image.number);

// Accepted images leave the server's pages and rejected ones stay, so each search begins at the first page.
async function fill() {
  const wanted = [chosen, order].join();
  const known = new Set([...page, ...buffer].map((one) => one.number));
  for (let number = 0, pages = 1; number < pages && buffer.length < PAGE; number += 1) {
    const answer = await get("/grid", { class: chosen, order, page: number });
    if (wanted !== [chosen, order].join()) return;
    pages = answer.pages;
    const fresh = answer.images.filter((one) => !known.has(one.number) && offered(one));
    buffer.push(...fresh);
    for (const one of fresh) {
      known.add(one.number);
      new Image().src = imageAddress(one.number, "thumbnail");
    }
  }
}
// One search at a time: it may not see what the one before has found.
function load() {
  loading = (loading ?? Promise.resolve()).then(fill).catch((error) => say(error.message, true));
  return loading;
}
let turns = 0;
async function turn() {
  turns += 1;
  const turning = turns;
  wrong.clear();
  page = [];
  if (buffer.length < PAGE) await load();
  if (turning !== turns) return; // undone or turned again meanwhile
  buffer = buffer.filter(offered);
  page = buffer.splice(0, PAGE);
  draw();
  focusTile(0);
  load();
}
async function open(id, wantedOrder) {
  [chosen, order, buffer] = [id, wantedOrder, []];
  classSelect.value = String(id);
  orderSelect.value = order;
  await turn();
}

// --- tiles --------------------------------------------------------------------------------------------------------
function tileFor(image) {
  const tile = element("button", { type: "button", class: "tile", "data-number": image.number, tabindex: "-1" },
    element("img", { src: imageAddress(image.number, "thumbnail"), alt: "", draggable: "false" }),
    element("span", { class: "caption-line" }));
  tile.addEventListener("click", () => toggle(image));
  tile.addEventListener("focus", () => rove(tile));
  return tile;
}
function drawTile(tile, image) {
  const marked = wrong.has(image.number), labeled = image.label !== null;
  const name = labeled ? labelName(image.label) : marked ? "wrong" : percent(image.guess?.confidence ?? 0);
  tile.classList.toggle("wrong", marked);
  tile.classList.toggle("labeled", labeled);
  tile.setAttribute("aria-pressed", String(marked));
  tile.setAttribute("aria-label", `${image.name}: ${labeled ? `labeled ${name}` : marked ? "marked as wrong" : `${name} sure`}`);
  tile.lastChild.textContent = name;
}
function draw() {
  const holder = byId("tiles");
  if ([...holder.children].map((one) => one.dataset.number).join() !== page.map((one) => one.number).join()) {
    holder.replaceChildren(...page.map(tileFor));
  }
  page.forEach((image, index) => drawTile(holder.children[index], image));
  const rest = remaining().length, name = labelName(chosen);
  byId("grid-note").textContent = page.length ? instructions(name)
    : state.model?.state === "ready" || state.model?.labels
      ? `The model predicts no further image as “${name}”. Choose another class.`
      : `There are no predictions yet. ${state.model?.why ? `The model is waiting: ${state.model.why}.` : "The model needs more labels."}`;
  acceptButton.firstChild.textContent = rest || !page.length ? `Accept ${countOf(rest, "image")} as ${name}` : "Next page";
  acceptButton.disabled = !page.length;
}
const touch = matchMedia("(pointer: coarse)");
const instructions = (name) => (touch.matches ? `Tap what is not “${name}”, then accept the rest.`
  : `Mark what is not “${name}”: click, or arrow keys and Space. A class key gives the right class. Enter accepts the rest and shows the next page.`);
const remaining = () => page.filter((one) => one.label === null && !wrong.has(one.number));

function toggle(image) {
  if (image.label !== null) return;
  if (!wrong.delete(image.number)) wrong.add(image.number);
  draw();
}
function rove(tile) {
  for (const one of byId("tiles").children) one.tabIndex = one === tile ? 0 : -1;
}
function focusTile(index) {
  const tiles = byId("tiles").children, tile = tiles[Math.max(0, Math.min(index, tiles.length - 1))];
  if (tile) { rove(tile); tile.focus({ focusVisible: true }); tile.scrollIntoView({ block: "nearest" }); }
}
const focused = () => page.findIndex((one) => String(one.number) === document.activeElement?.dataset?.number);
function columns() {
  const tiles = [...byId("tiles").children], first = tiles[0]?.offsetTop;
  return tiles.filter((one) => one.offsetTop === first).length || 1;
}
const move = (step) => focusTile(focused() < 0 ? 0 : focused() + step);

// --- labels -------------------------------------------------------------------------------------------------------
function accept() {
  if (!page.length) return;
  const accepted = remaining(), shown = page, id = chosen, marked = [...wrong], numbers = accepted.map((one) => one.number);
  if (!rejected.has(id)) rejected.set(id, new Set());
  for (const number of marked) rejected.get(id).add(number);
  for (const number of numbers) finished.add(number);
  turn();
  if (!numbers.length) return;
  const undone = () => {
    for (const number of numbers) finished.delete(number);
    for (const number of marked) rejected.get(id).delete(number);
    if (chosen === id) showAgain(shown, marked);
  };
  const step = { numbers, undone };
  done.push(step);
  say(`Accepted ${countOf(numbers.length, "image")} as ${labelName(id)}.`);
  outbox.post("/accept", { class: id, numbers }, { effect: numbers.map(() => ({ from: null, to: id })) })
    .then((answer) => setState(answer.state), (error) => {
      forget(step);
      undone();
      say(error.message, true);
    });
}
function showAgain(images, marked) {
  turns += 1;
  buffer.unshift(...page);
  page = images;
  wrong.clear();
  for (const number of marked) wrong.add(number);
  draw();
  focusTile(0);
}
async function choose(label) {
  const image = page[focused()];
  if (!image) {
    say("Choose an image first, with the arrow keys.");
    return;
  }
  const before = image.label;
  const saved = postLabel(image, label);
  const undone = () => { image.label = before; finished.delete(image.number); draw(); };
  image.label = label;
  wrong.delete(image.number);
  const step = { numbers: [image.number], undone };
  done.push(step);
  draw();
  say(`Labeled: ${labelName(label)}.`);
  await saved.catch((error) => { forget(step); undone(); say(error.message, true); });
}

function drawClasses() {
  const wanted = state.classes.map((one) => `${one.id} ${one.name}`).join("\n");
  if (classSelect.dataset.names === wanted) return;
  classSelect.dataset.names = wanted;
  classSelect.replaceChildren(...state.classes.map(({ id, name }) => element("option", { value: id }, name)));
  classSelect.value = String(chosen);
}
onChange(() => {
  if (byId("grid").hidden) return;
  drawClasses();
  if (!classById(chosen)) open(state.classes[0]?.id, order);
  else if (!page.length && !buffer.length) turnWhenReady();
});
// The model may have become ready, or may predict more images as this class.
let tried = null;
function turnWhenReady() {
  const now = `${chosen} ${order} ${state.model?.labels} ${state.model?.state}`;
  if (tried !== now) { tried = now; turn(); }
}

export const grid = {
  show() {
    drawClasses();
    buffer = [];
    if (classById(chosen)) turn();
    else if (state.classes.length) open(state.classes.reduce((most, one) => (one.count > most.count ? one : most)).id, order);
  },
  reconnected: () => { if (!page.length) turn(); },
  choose,
  keys: {
    Enter: accept, a: accept, z: () => undo(), x: () => choose("none"),
    ArrowLeft: () => move(-1), ArrowRight: () => move(1), ArrowUp: () => move(-columns()), ArrowDown: () => move(columns()),
  },
  tileKeys: true,
};
