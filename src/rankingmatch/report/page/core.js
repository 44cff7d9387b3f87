"use strict";
// Content, elements, numbers as text, thumbnails, theme and tabs.
// Text from the data is only ever set as text: with `append` here, with `plotText` for Plotly, which parses tags.

/**
 * @typedef {Object} RunHeader
 * @property {string} name
 * @property {string} directory
 * @property {string} dataset
 * @property {string} method
 * @property {number} labels
 * @property {number} unlabeled
 * @property {number} seed
 * @property {string[]} classes
 * @property {string} status
 */
/**
 * @typedef {Object} SpriteData
 * @property {string} image
 * @property {number} width
 * @property {number} height
 * @property {number} tile_width
 * @property {number} tile_height
 * @property {number} columns
 * @property {number} rows
 */
/**
 * @typedef {Object} PageContent
 * @property {string} created
 * @property {string} title
 * @property {RunHeader[]} runs
 * @property {Object<string, *>} sections
 * @property {Object<string, SpriteData|null>} sprites
 */

/** @type {PageContent} */
const content = JSON.parse(document.getElementById("content").textContent);
const runs = content.runs, single = runs.length === 1;
const byId = (id) => document.getElementById(id);

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}
const paragraph = (text) => element("p", { class: "explanation" }, text);
const heading = (text) => element("h2", {}, text);
const note = (text) => element("p", { class: "note" }, text);

// --- numbers and names as text ------------------------------------------------------------------------------
const plotText = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const count = (value) => value.toLocaleString("en");
const isMissing = (value) => value === null || value === undefined;
const fixed = (value, digits = 2) => (isMissing(value) ? "–" : value.toFixed(digits));
const percent = (value, digits = 2) => (isMissing(value) ? "–" : value.toFixed(digits) + "%");
const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
const className = (run, label) => (label < 0 ? "unknown" : run.classes[label]);
const sampleSize = (shown, total) => (shown < total ? `${count(shown)} of ${count(total)}` : count(total));

function duration(seconds) {
  if (isMissing(seconds)) return "–";
  if (seconds < 60) return seconds.toFixed(1) + " s";
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? minutes + " min" : (seconds / 3600).toFixed(1) + " h";
}

// --- thumbnails ---------------------------------------------------------------------------------------------
const spriteKeys = Object.keys(content.sprites);
document.head.append(element("style", {}, spriteKeys.filter((key) => content.sprites[key]).map((key) =>
  `.sprite-${spriteKeys.indexOf(key)}{background-image:url("${content.sprites[key].image}")}`).join("\n")));

// The thumbnail with this index in a sprite, `side` pixels on its longer side.
function thumbnail(key, index, side, description) {
  const sprite = content.sprites[key], scale = side / Math.max(sprite.width, sprite.height);
  const width = sprite.tile_width * scale, height = sprite.tile_height * scale;
  const made = element("span",
    { class: `thumbnail sprite-${spriteKeys.indexOf(key)}`, role: "img", "aria-label": description });
  made.style.width = sprite.width * scale + "px";
  made.style.height = sprite.height * scale + "px";
  const column = index % sprite.columns, row = Math.floor(index / sprite.columns);
  made.style.backgroundPosition = `-${column * width}px -${row * height}px`;
  made.style.backgroundSize = `${sprite.columns * width}px ${sprite.rows * height}px`;
  return made;
}

// --- light and dark -----------------------------------------------------------------------------------------
const plots = []; // {area, make}: redrawn when the theme changes
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  for (const { area, make } of plots) if (area.isConnected) Plotly.react(area, ...make());
}
setTheme(prefersDark.matches);
prefersDark.addEventListener("change", (event) => setTheme(event.matches));
byId("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme !== "dark"));

// --- sections -----------------------------------------------------------------------------------------------
const drawSection = {}; // key → function
const tabs = [...document.querySelectorAll("nav [role=tab]")];

// A section module calls this once. `draw(container, data)` is called when the section is first shown; `data` is
// what the Python module of the same name built.
function registerSection(key, draw) {
  drawSection[key] = draw;
}
function show(key) {
  for (const tab of tabs) {
    const selected = tab.getAttribute("aria-controls") === key;
    tab.setAttribute("aria-selected", String(selected));
    tab.tabIndex = selected ? 0 : -1;
    byId(tab.getAttribute("aria-controls")).hidden = !selected;
    if (selected) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  byId("hover").hidden = true;
  const container = byId(key);
  if (!container.dataset.drawn) {
    container.dataset.drawn = "yes";
    drawSection[key](container, content.sections[key]);
  }
}
function start() {
  const keys = tabs.map((tab) => tab.getAttribute("aria-controls"));
  const fromAddress = () => (keys.includes(location.hash.slice(1)) ? location.hash.slice(1) : keys[0]);
  tabs.forEach((tab, index) => {
    tab.addEventListener("click", () => {
      history.replaceState(null, "", "#" + keys[index]);
      show(keys[index]);
      window.scrollTo(0, 0);
    });
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = tabs[(index + step + tabs.length) % tabs.length];
      next.focus();
      next.click();
    });
  });
  window.addEventListener("hashchange", () => show(fromAddress()));
  show(fromAddress());
}
