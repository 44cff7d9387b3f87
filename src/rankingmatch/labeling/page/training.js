// Train on the labels, watch it, open its report; export class folders.

import { byId, count, duration, element, say, sentence } from "./dom.js";
import { outbox, onChange, setState, state } from "./store.js";

const parts = {
  title: element("h2", {}, "Train a classifier"),
  explanation: element("p", { class: "explanation" }),
  start: element("button", { type: "button", class: "primary", onclick: () => send("/train") }, "Train"),
  stop: element("button", { type: "button", onclick: () => send("/train/stop") }, "Stop"),
  report: element("a", { class: "button", target: "_blank", rel: "noopener" }, "Open the report"),
  bar: element("progress", { "aria-label": "Training" }),
  message: element("p", { role: "status" }),
  problem: element("p", { class: "problem", role: "alert" }),
  code: element("code", { tabindex: "0", "aria-label": "The same on the command line" }),
  copy: element("button", { type: "button", class: "copy", onclick: () => copy() }, "Copy"),
  exportButton: element("button", { type: "button", onclick: () => exportFolders() }, "Export class folders"),
  exported: element("p", { role: "status", class: "muted" }),
};
const commandCard = element("div", {}, element("h3", {}, "The same on the command line"),
  element("div", { class: "command" }, parts.code, parts.copy));
byId("train-body").append(
  element("div", { class: "card" }, parts.title, parts.explanation, element("div", { class: "buttons" }, parts.start, parts.stop, parts.report),
    parts.bar, parts.message, parts.problem, commandCard),
  element("div", { class: "card" }, element("h2", {}, "Export"),
    element("p", { class: "explanation" }, "Writes one folder per class, with the images you labeled. Your own files stay as they are."),
    element("div", { class: "buttons" }, parts.exportButton), parts.exported));

async function send(path) {
  parts.problem.textContent = "";
  for (const button of [parts.start, parts.stop]) button.disabled = true;
  try {
    const answer = await outbox.post(path, {}, { repeatable: false });
    if (answer.state) setState(answer.state);
  } catch (error) {
    parts.problem.textContent = error.message;
  } finally {
    for (const button of [parts.start, parts.stop]) button.disabled = false;
  }
}
async function copy() {
  try {
    await navigator.clipboard.writeText(parts.code.textContent);
    say("Copied.");
  } catch {
    getSelection().selectAllChildren(parts.code); // no clipboard without a secure address
    say("Selected; copy it with Ctrl+C.");
  }
}
async function exportFolders() {
  parts.exportButton.disabled = true;
  parts.exported.textContent = "Exporting …";
  try {
    const answer = await outbox.post("/export", {});
    parts.exported.textContent = `Written to ${answer.path}`;
  } catch (error) {
    parts.exported.textContent = error.message;
  } finally {
    parts.exportButton.disabled = false;
  }
}

function measured(error) {
  if (!error) return "";
  const interval = `${error.low.toFixed(0)}–${error.high.toFixed(0)}%`;
  return ` Error ${error.percent.toFixed(1)}% on ${count(error.checks)} random checks (95% interval ${interval}).`;
}
function messageFor({ state: name, step, steps, eta, message, error, done, total }) {
  if (name === "failed") return sentence(message ?? "the training failed");
  if (name === "done") return `Finished.${measured(error)} ${sentence(message)}`;
  if (!steps) return sentence(total ? `${message}: ${count(done)} of ${count(total)}` : message || "starting");
  return `Step ${count(step)} of ${count(steps)}${eta ? `, about ${duration(eta)} left` : ""}.${measured(error)}`;
}
function draw() {
  if (byId("train").hidden) return;
  const { training } = state, running = training?.state === "running";
  parts.explanation.textContent = `Trains a network on your ${count(state.labeled)} labels and all unlabeled images of ${state.folder}. ` +
    "You can go on labeling meanwhile.";
  parts.start.hidden = running;
  parts.start.textContent = training && !running ? "Train again" : "Train";
  parts.stop.hidden = !running;
  parts.bar.hidden = !running;
  const [done, total] = training?.steps ? [training.step, training.steps] : [training?.done, training?.total];
  parts.bar.max = total || 1;
  if (total) parts.bar.value = done;
  else parts.bar.removeAttribute("value");
  parts.report.hidden = !training?.report?.startsWith("/report");
  if (!parts.report.hidden) parts.report.href = training.report;
  setText(parts.message, training ? messageFor(training) : "");
  parts.message.classList.toggle("problem", training?.state === "failed");
  commandCard.hidden = !training?.command && !state.command;
  setText(parts.code, training?.command ?? state.command ?? "");
}
const setText = (target, text) => { if (target.textContent !== text) target.textContent = text; };
onChange(draw);

export const training = { show: draw, keys: {} };
