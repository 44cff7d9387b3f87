"use strict";
// Everything from the data is put on the page as text: textContent here, plotText for Plotly, which reads tags.
const content = JSON.parse(document.getElementById("content").textContent);
const runs = content.runs, single = runs.length === 1, detailed = runs.filter((run) => run.detail);
const byId = (id) => document.getElementById(id);

function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const plotText = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const percent = (value, digits = 2) => (value === null || value === undefined ? "–" : value.toFixed(digits) + " %");
const count = (value) => value.toLocaleString("en");
const nameOf = (run, label) => (label < 0 ? "unknown" : run.classes[label]);
const say = (text) => el("p", { class: "say" }, text);

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 60) return seconds.toFixed(1) + " s";
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? minutes + " min" : (seconds / 3600).toFixed(1) + " h";
}

// --- thumbnails ---------------------------------------------------------------------------------------------
const sheetNumbers = Object.keys(content.sheets);
document.head.append(el("style", {}, sheetNumbers.map((key, number) =>
  content.sheets[key] ? `.sheet-${number}{background-image:url("${content.sheets[key].image}")}` : "").join("\n")));

function thumb(key, place, side, alt) {
  const sheet = content.sheets[key], scale = side / Math.max(sheet.width, sheet.height);
  const x = (place % sheet.columns) * sheet.stepX * scale, y = Math.floor(place / sheet.columns) * sheet.stepY * scale;
  const made = el("span", { class: `thumb sheet-${sheetNumbers.indexOf(key)}`, role: "img", "aria-label": alt });
  made.style.width = sheet.width * scale + "px";
  made.style.height = sheet.height * scale + "px";
  made.style.backgroundPosition = `-${x}px -${y}px`;
  made.style.backgroundSize = `${sheet.columns * sheet.stepX * scale}px ${sheet.rows * sheet.stepY * scale}px`;
  return made;
}

// --- light and dark -----------------------------------------------------------------------------------------
const plots = []; // {area, make}: what is drawn, to be drawn anew when the colours change
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  for (const { area, make } of plots) if (area.isConnected) Plotly.react(area, ...make());
}
setTheme(prefersDark.matches);
prefersDark.addEventListener("change", (event) => setTheme(event.matches));
byId("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme !== "dark"));

// --- sections -----------------------------------------------------------------------------------------------
const sections = {}; // id → the function that fills a section when it is first shown
const tabs = document.querySelector("nav");
function show(id) {
  for (const section of document.querySelectorAll("main > section")) {
    section.hidden = section.id !== id;
    const tab = tabs.querySelector(`[aria-controls="${section.id}"]`);
    tab.setAttribute("aria-selected", String(section.id === id));
    tab.tabIndex = section.id === id ? 0 : -1;
  }
  byId("hover").hidden = true;
  const section = byId(id);
  if (!section.dataset.drawn) {
    section.dataset.drawn = "yes";
    sections[id](section);
  }
}
function start() {
  for (const section of document.querySelectorAll("main > section")) {
    tabs.append(el("button", { type: "button", role: "tab", "aria-controls": section.id,
      onclick: () => { history.replaceState(null, "", "#" + section.id); show(section.id); window.scrollTo(0, 0); } },
      section.dataset.title));
  }
  tabs.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const all = [...tabs.children], next = all[(all.indexOf(document.activeElement) + step + all.length) % all.length];
    next.focus(); next.click();
  });
  const fromAddress = () => (Object.hasOwn(sections, location.hash.slice(1)) ? location.hash.slice(1) : "overview");
  window.addEventListener("hashchange", () => show(fromAddress()));
  show(fromAddress());
}

function choice(label, options, onchange, selected) {
  const select = el("select", { onchange: () => onchange(select.value) },
    ...options.map(([value, text]) => el("option", { value, selected: value === selected ? "" : null }, text)));
  return el("label", {}, label, select);
}
// What a section shows of one run, with a choice of the run where there are several.
function perRun(section, has, missing, draw) {
  const able = detailed.filter(has);
  if (!able.length) { section.append(el("p", { class: "note" }, missing)); return; }
  const body = el("div");
  const fill = (number) => { body.replaceChildren(); draw(body, able[number]); };
  if (!single) {
    section.append(el("div", { class: "controls" },
      choice("Run", able.map((run, number) => [String(number), run.name]), (value) => fill(Number(value)))));
  }
  section.append(body);
  fill(0);
}
