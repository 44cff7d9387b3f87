// Elements, numbers as text, and messages. Text from files and from people is only ever set as text.

export const byId = (id) => document.getElementById(id);

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function svgElement(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// A button with its key.
export function keyButton(text, key, onclick, attributes = {}) {
  const made = element("button", { type: "button", "aria-keyshortcuts": key, ...attributes },
    text ? element("span", {}, text) : null, key ? element("kbd", { "aria-hidden": "true" }, KEY_SYMBOLS[key] ?? key) : null);
  onPress(made, onclick);
  return made;
}
// The focus leaves a button that was clicked with the pointer, so that Space and Enter keep their meaning.
export function onPress(button, handler) {
  button.addEventListener("click", (event) => {
    if (event.detail > 0) button.blur();
    handler();
  });
}
const KEY_SYMBOLS = { ArrowLeft: "←", ArrowRight: "→", Enter: "↵", Space: "space" };

export const count = (value) => value.toLocaleString("en");
export const countOf = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;
export const sentence = (text) => (text ? `${text[0].toUpperCase()}${text.slice(1)}${/[.?!…]$/.test(text) ? "" : "."}` : "");
export const percent = (fraction) => `${Math.round(100 * fraction)}%`;
export function duration(seconds) {
  if (seconds < 90) return countOf(Math.max(1, Math.round(seconds)), "second");
  if (seconds < 5400) return countOf(Math.round(seconds / 60), "minute");
  return `${(seconds / 3600).toFixed(1)} hours`;
}

// Says what changed, to the eye and to a screen reader.
let fading;
export function say(text, problem = false) {
  const message = byId("message");
  message.textContent = text;
  message.classList.toggle("problem", problem);
  message.classList.add("shown");
  clearTimeout(fading);
  fading = setTimeout(() => message.classList.remove("shown"), problem ? 8000 : 2200);
}

// A banner stays until its reason is gone: `text` is null then.
export function banner(key, text) {
  const id = `banner-${key}`;
  const existing = byId(id);
  if (!text) existing?.remove();
  else if (!existing) byId("banners").append(element("p", { id, class: "banner" }, text));
  else if (existing.textContent !== text) existing.textContent = text;
}
