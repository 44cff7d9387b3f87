// How far the labels are, how good the model is, and what it is doing.

import { byId, count, countOf, element, sentence, svgElement } from "./dom.js";
import { counts, onChange, outbox, state } from "./store.js";

const whole = (value) => String(Math.round(value));

/** "about 21% wrong (12–33%), from 31 checked images" */
export function estimate({ error, low, high, checks }) {
  return `about ${whole(error)}% wrong (${whole(low)}–${whole(high)}%), from ${countOf(checks, "checked image")}`;
}

// --- the curve ----------------------------------------------------------------------------------------------------
const WIDTH = 300, HEIGHT = 112, LEFT = 34, RIGHT = 8, TOP = 8, BOTTOM = 20;

/** Error in percent against labels, with its 95% interval. */
export function drawCurve(curve) {
  const most = Math.max(...curve.map((one) => one.labels)), least = Math.min(...curve.map((one) => one.labels));
  const top = Math.min(100, Math.ceil(Math.max(10, ...curve.map((one) => one.high)) / 10) * 10);
  const x = (labels) => LEFT + (most === least ? 0.5 : (labels - least) / (most - least)) * (WIDTH - LEFT - RIGHT);
  const y = (error) => TOP + (1 - error / top) * (HEIGHT - TOP - BOTTOM);
  const points = (list, key) => list.map((one) => `${x(one.labels).toFixed(1)},${y(one[key]).toFixed(1)}`);
  const text = (content, attributes) => svgElement("text", attributes, content);
  const last = curve.at(-1);
  const ticks = [0, top / 2, top].flatMap((value) => [
    svgElement("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value), class: "rule" }),
    text(`${whole(value)}%`, { x: LEFT - 5, y: y(value) + 3.5, "text-anchor": "end" })]);
  const bars = curve.length === 1
    ? [svgElement("line", { x1: x(last.labels), x2: x(last.labels), y1: y(last.low), y2: y(last.high), class: "bar" })]
    : [svgElement("polygon", { points: [...points(curve, "high"), ...points(curve, "low").reverse()].join(" "), class: "band" }),
      svgElement("polyline", { points: points(curve, "error").join(" "), class: "curve" })];
  const labels = most === least ? [text(`${count(most)} labels`, { x: x(most), y: HEIGHT - 5, "text-anchor": "middle" })]
    : [text(count(least), { x: LEFT, y: HEIGHT - 5 }), text(`${count(most)} labels`, { x: WIDTH - RIGHT, y: HEIGHT - 5, "text-anchor": "end" })];
  return svgElement("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", role: "img",
    "aria-label": `Error against labels: ${curve.map((one) => `${whole(one.error)}% at ${one.labels}`).join(", ")}` },
  ...ticks, ...bars, svgElement("circle", { cx: x(last.labels), cy: y(last.error), r: 3.5, class: "dot" }), ...labels);
}

// --- sentences ------------------------------------------------------------------------------------------------------
function modelSentence({ state: name, labels, why }) {
  if (name === "training") return "The model is learning from your labels …";
  if (name === "ready") return `The model has learned from ${countOf(labels, "label")}.`;
  return why ? `The model is waiting: ${why}.` : "The model is waiting for labels.";
}
const bar = (label, value, most) => element("label", { class: "bar" }, element("span", {}, label),
  element("progress", { value: Math.min(value, most), max: Math.max(1, most) }));

let drawn = "";
function draw() {
  const { labeled, none } = counts(), { total, features, quality, enough, model } = state;
  const shown = JSON.stringify([labeled, none, state.skipped, total, features, quality, enough, model]);
  if (shown === drawn) return;
  drawn = shown;
  const parts = [];
  const also = [[none, "none of the classes"], [state.skipped, "skipped"]].filter(([value]) => value);
  parts.push(element("p", { class: "total" }, `${count(labeled)} of ${countOf(total, "image")} labeled`,
    also.length ? element("span", { class: "muted" }, ` · ${also.map(([value, text]) => `${count(value)} ${text}`).join(" · ")}`) : null));
  if (enough?.suggested) {
    const reached = labeled >= enough.suggested;
    parts.push(bar(reached ? `About ${count(enough.suggested)} labels suggested: reached` : `${count(labeled)} of about ${count(enough.suggested)} labels`,
      labeled, enough.suggested));
  }
  if (enough?.why) parts.push(element("p", { class: "muted" }, sentence(enough.why)));
  if (quality && quality.checks) {
    parts.push(element("p", { class: "estimate" }, sentence(estimate(quality))));
    if (quality.curve?.length) parts.push(drawCurve(quality.curve));
    if (quality.advice) parts.push(element("p", { class: "advice" }, sentence(quality.advice)));
  } else if (quality?.advice) parts.push(element("p", { class: "muted" }, sentence(quality.advice)));
  else parts.push(element("p", { class: "muted" }, "Random checks among the images will measure how often the model is wrong."));
  if (features && features.done < features.total) {
    parts.push(bar(`Features of ${count(features.done)} of ${countOf(features.total, "image")} computed`, features.done, features.total));
  }
  if (model) parts.push(element("p", { class: "muted model" }, modelSentence(model)));
  byId("progress-body").replaceChildren(...parts);
  byId("progress-summary").textContent = quality?.checks
    ? `${count(labeled)} labeled · about ${whole(quality.error)}% wrong` : `${count(labeled)} of ${count(total)} labeled`;
}

function drawUnsaved() {
  const unsaved = byId("unsaved"), { length } = outbox.items;
  unsaved.hidden = !length;
  unsaved.textContent = length ? `${length} unsaved` : "";
}

// On a phone, the image needs the space.
const phone = matchMedia("(max-width: 760px)");
const fold = () => { byId("progress").open = !phone.matches; };
phone.addEventListener("change", fold);
fold();
onChange(draw);
onChange(drawUnsaved);
