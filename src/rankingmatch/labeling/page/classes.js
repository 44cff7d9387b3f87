// Class buttons, and the dialogs that add, rename and merge classes.

import { byId, count, countOf, element, onPress, percent, say } from "./dom.js";
import { classById, classStep, counts, done, outbox, setState, state } from "./store.js";

let choose = () => {};
export const onChoose = (handler) => { choose = handler; };

const buttons = new Map(); // id → its elements
const MANY = 9;

function buttonFor(id) {
  const parts = {
    key: element("kbd"), name: element("span", { class: "name" }), hint: element("span", { class: "hint" }),
    count: element("span", { class: "count" }),
  };
  parts.button = element("button", { type: "button", class: "class" }, parts.key,
    element("span", { class: "names" }, parts.name, parts.hint), parts.count);
  onPress(parts.button, () => choose(id));
  parts.button.addEventListener("contextmenu", (event) => { event.preventDefault(); editClasses(id); });
  return parts;
}

/** Draws the buttons of all classes. `chosen` is the label of the image, `guess` what the model suggests, or null. */
export function drawClasses(chosen, guess) {
  const { perClass } = counts(), panel = byId("classes");
  panel.classList.toggle("many", state.classes.length > MANY);
  for (const id of buttons.keys()) if (!classById(id)) buttons.delete(id);
  for (const { id, name, key } of state.classes) {
    if (!buttons.has(id)) buttons.set(id, buttonFor(id));
    const parts = buttons.get(id), total = perClass.get(id), guessed = guess?.class === id;
    const drawn = JSON.stringify([name, key, total, guessed && guess.confidence, chosen === id]);
    if (parts.drawn === drawn) continue;
    parts.drawn = drawn;
    parts.key.textContent = (key ?? "").toUpperCase();
    parts.name.textContent = name;
    parts.count.textContent = count(total);
    parts.hint.replaceChildren(...(guessed ? [percent(guess.confidence), element("span", { class: "enter" }, " ↵")] : []));
    parts.button.title = name;
    parts.button.classList.toggle("guessed", guessed);
    parts.button.setAttribute("aria-pressed", String(chosen === id));
    if (key) parts.button.setAttribute("aria-keyshortcuts", key.toUpperCase());
    parts.button.setAttribute("aria-label",
      `${name}, ${countOf(total, "label")}${guessed ? `, the model's guess, ${percent(guess.confidence)} sure` : ""}`);
  }
  const wanted = state.classes.map(({ id }) => buttons.get(id).button);
  if (wanted.length !== panel.children.length || wanted.some((one, index) => one !== panel.children[index])) {
    panel.replaceChildren(...wanted);
  }
}
const calm = matchMedia("(prefers-reduced-motion: reduce)");
export function flash(id) {
  if (!calm.matches) buttons.get(id)?.button.animate([{ transform: "scale(.95)" }, {}], 200);
}

// --- dialogs ------------------------------------------------------------------------------------------------------
export function openDialog(title, ...children) {
  const dialog = byId("dialog");
  if (dialog.open) dialog.close();
  dialog.replaceChildren(element("div", { class: "dialog-head" }, element("h2", { id: "dialog-title" }, title),
    element("button", { type: "button", class: "square quiet", "aria-label": "Close", onclick: () => dialog.close() }, "✕")),
  ...children);
  dialog.showModal();
  return dialog;
}
byId("dialog").addEventListener("click", (event) => {
  if (event.target === event.currentTarget) event.currentTarget.close(); // outside of its content
});

// Posts a change of the classes; a refusal is shown in the dialog, which stays open.
async function change(body, problem) {
  try {
    setState((await outbox.post("/classes", body)).state);
    done.push(classStep());
    return true;
  } catch (error) {
    problem.textContent = error.message;
    return false;
  }
}

/** @param {((id: number) => void) | null} label  labels the image in the frame with the new class */
export function addClass(label) {
  const input = element("input", { id: "new-class", type: "text", maxlength: "100", autocomplete: "off", required: "", spellcheck: "false" });
  const problem = element("p", { class: "problem", role: "alert" });
  const only = element("button", { type: "submit", value: "only", class: label ? null : "primary" }, label ? "Only add" : "Add class");
  const both = label ? element("button", { type: "submit", value: "both", class: "primary" }, "Add and label this image") : null;
  const form = element("form", { novalidate: "" }, element("label", { for: "new-class" }, "Name of the new class"), input, problem,
    element("div", { class: "buttons" }, both, only));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const name = input.value.trim();
    if (!name) problem.textContent = "Type a name.";
    else if (await change({ add: name }, problem)) {
      byId("dialog").close();
      const added = state.classes.find((one) => one.name === name);
      if (event.submitter !== only && label && added) label(added.id);
      else say(`Added the class ${name}.`);
    }
  });
  openDialog("New class", form);
  input.focus();
}

export function editClasses(selected = state.classes[0]?.id) {
  if (selected === undefined) return;
  const options = () => state.classes.map(({ id, name }) => element("option", { value: id, selected: id === selected ? "" : null }, name));
  const which = element("select", { id: "edit-which" }, ...options());
  const name = element("input", { id: "edit-name", type: "text", maxlength: "100", autocomplete: "off", spellcheck: "false" });
  const into = element("select", { id: "edit-into" });
  const problem = element("p", { class: "problem", role: "alert" });
  const explanation = element("p", { class: "explanation small" });
  const merge = element("button", { type: "button" }, "Merge");
  const chosen = () => classById(Number(which.value));
  function fill() {
    name.value = chosen().name;
    into.replaceChildren(...options().filter((one) => one.value !== which.value));
    merge.disabled = !into.children.length;
    explanation.textContent = `Merging gives the ${countOf(chosen().count, "label")} of this class to the other one and removes this class.`;
  }
  which.addEventListener("change", () => { problem.textContent = ""; fill(); });
  merge.addEventListener("click", async () => {
    const [from, to] = [chosen(), classById(Number(into.value))];
    if (await change({ merge: from.id, into: to.id }, problem)) {
      byId("dialog").close();
      say(`Merged ${from.name} into ${to.name}.`);
    }
  });
  const form = element("form", { novalidate: "" }, element("label", { for: "edit-which" }, "Class"), which,
    element("label", { for: "edit-name" }, "New name"),
    element("div", { class: "with-button" }, name, element("button", { type: "submit", class: "primary" }, "Rename")),
    element("label", { for: "edit-into" }, "Merge into"), element("div", { class: "with-button" }, into, merge), explanation, problem);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const before = chosen().name, wanted = name.value.trim();
    if (await change({ rename: chosen().id, name: wanted }, problem)) {
      byId("dialog").close();
      say(`Renamed ${before} to ${wanted}.`);
    }
  });
  fill();
  openDialog("Rename or merge classes", form);
  name.focus();
  name.select();
}
