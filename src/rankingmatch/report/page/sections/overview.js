// Overview: notes, headline numbers, the comparison of several runs, and how to repeat each run.

/**
 * @typedef {Object} Note
 * @property {string} text
 * @property {string} status
 * @property {string[]} names
 */
/**
 * @typedef {Object} ErrorEstimate
 * @property {string} subset
 * @property {number} images
 * @property {number} error
 * @property {number|null} balanced_error
 * @property {[number, number]} interval
 * @property {number} calibration_error
 */
/**
 * @typedef {Object} Gain
 * @property {number} points
 * @property {number|null} half_width
 * @property {number} supervised_error
 */
/**
 * @typedef {Object} FoldDifference
 * @property {string} dataset
 * @property {number} labels
 * @property {string} method
 * @property {string} baseline
 * @property {number} folds
 * @property {Object<string, number>} differences
 * @property {number} mean
 * @property {number|null} half_width
 */
/**
 * @typedef {Object} RunOverview
 * @property {ErrorEstimate|null} measured
 * @property {Gain|null} gain
 * @property {number|null} test_error
 * @property {number|null} test_balanced_error
 * @property {number|null} val_error
 * @property {number} step
 * @property {number} steps
 * @property {number|null} diverged_at
 * @property {number|null} seconds
 * @property {number|null} memory
 * @property {number|null} confident
 * @property {number|null} purity
 * @property {string} weights
 * @property {string} command
 * @property {Object<string, string>} settings
 * @property {Object<string, string>} environment
 */
/**
 * @typedef {Object} OverviewData
 * @property {Note[]} notes
 * @property {RunOverview[]} runs
 * @property {PanelData[]} panels
 * @property {FoldDifference[]} fold_differences
 */

const SUBSETS = { test: "Test error", validation: "Validation error", unlabeled: "Error on unlabeled images" };
const HEADLINE_RUNS = 3;
const GAIN = "vs. supervised";

/** @param {OverviewData} data */
function drawOverview(container, data) {
  container.append(...data.notes.map(noteOf));
  if (single) {
    container.append(element("div", { class: "cards" }, ...headlineCards(runs[0], data.runs[0])));
  } else {
    container.append(element("div", { class: "cards" }, ...gainCards(data)), heading("Runs"),
      paragraph(`${SUBSETS[subsetOf(data)]} with its 95% confidence interval over the ${subsetOf(data)} images. `
        + explainGain(data)),
      runTable(data));
    if (data.fold_differences.some((row) => row.folds > 1)) drawFoldDifferences(container, data.fold_differences);
    container.append(heading("Curves"));
  }
  plotPanels(container, data.panels);
  const { weights } = data.runs[0];
  if (single && weights) container.append(paragraph(`All predictions on this page were made with ${weights}.`));
  container.append(...data.runs.map((run, index) => howToRepeat(runs[index], run)));
}

function explainGain(data) {
  if (!data.runs.some((run) => run.gain)) return "";
  return `"${GAIN}" is the difference from the supervised run with the same labels and seed, in percentage points; `
    + "its 95% interval is computed from both models' predictions on the same images.";
}

/** @param {Note} note */
function noteOf({ text, status, names }) {
  const about = names.length ? element("b", {}, names.join(", ") + ": ") : null;
  return element("p", { class: `note ${status.replace(" ", "-")}` }, about, text);
}

// --- headline numbers ---------------------------------------------------------------------------------------
function card(label, value, details, verdict = "") {
  return element("div", { class: "card" }, element("div", { class: "label" }, label),
    element("div", { class: `value ${verdict}` }, value),
    details ? element("div", { class: "details" }, details) : null);
}
const intervalText = ([low, high]) => `95% CI ${low.toFixed(2)} – ${high.toFixed(2)}%`;

function headlineCards(header, run) {
  const { measured } = run, cards = [errorCard(run), gainCard(header, run)];
  cards.push(card("Labels", count(header.labels),
    header.unlabeled ? `and ${count(header.unlabeled)} unlabeled images` : ""));
  if (run.confident !== null) {
    cards.push(card("Confident pseudo-labels", percent(100 * run.confident, 1),
      run.purity === null ? "at the last evaluation" : `${percent(100 * run.purity, 1)} of them correct`));
  }
  if (measured) {
    cards.push(card("Balanced error", percent(measured.balanced_error), "mean of the errors of the classes"));
    cards.push(card("Calibration error", percent(measured.calibration_error), "mean gap between confidence and accuracy"));
  }
  cards.push(card("Steps", count(run.step),
    header.status === "finished" ? `in ${duration(run.seconds)}` : `of ${count(run.steps)}`));
  return cards.filter(Boolean);
}
// The error of the model's predictions, or the last recorded one; titled by what it is, unless given a title.
function errorCard({ measured, test_error, val_error }, title) {
  if (measured) {
    const { subset, error, interval, images } = measured;
    return card(title || SUBSETS[subset], percent(error),
      `${intervalText(interval)}, ${count(images)} ${subset} images`);
  }
  const [subset, error] = test_error !== null ? ["test", test_error] : ["validation", val_error];
  return error === null ? null
    : card(title || SUBSETS[subset], percent(error), `${subset} error at the last evaluation`);
}
function gainCard(header, { gain }) {
  if (!gain) {
    return single && header.method !== "supervised"
      ? card(GAIN, "–", "to compare, add a supervised run: rankingmatch report RUN SUPERVISED_RUN") : null;
  }
  const significant = gain.half_width !== null && Math.abs(gain.points) > gain.half_width;
  const interval = gain.half_width === null ? "" : `95% CI ± ${gain.half_width.toFixed(2)}; `;
  const details = `${interval}supervised ${percent(gain.supervised_error)}`;
  return card(GAIN, `${signed(-gain.points)} points`, details,
    significant ? (gain.points > 0 ? "good" : "bad") : "");
}
function gainCards(data) {
  return data.runs.map((run, index) => [runs[index], run]).filter(([, run]) => run.gain && run.measured)
    .slice(0, HEADLINE_RUNS).flatMap(([header, run]) => [errorCard(run, header.name), gainCard(header, run)]);
}

// --- comparison ---------------------------------------------------------------------------------------------
const groupOf = (header) => `${header.dataset} ${header.labels}`;

// What the runs are compared by: test images, or validation images if no run has a test error.
function subsetOf(data) { return data.runs.some((run) => run.test_error !== null) ? "test" : "validation"; }
function errorOf(run, subset) { return subset === "test" ? run.test_error : run.val_error; }

// The lowest error of each dataset and number of labels.
function lowestErrors(data) {
  const lowest = {}, subset = subsetOf(data);
  runs.forEach((header, index) => {
    const error = errorOf(data.runs[index], subset);
    if (error !== null && !(error >= lowest[groupOf(header)])) lowest[groupOf(header)] = error;
  });
  return lowest;
}
function runTable(data) {
  const lowest = lowestErrors(data), subset = subsetOf(data);
  const differs = (key) => new Set(runs.map((header) => header[key])).size > 1;
  const named = { method: runs.every((header) => header.name.startsWith(header.method)) };
  const headerColumns = ["dataset", "method", "labels", "seed"].filter((key) => differs(key) && !named[key]).map((key) =>
    [key, (header) => ({ text: header[key], kind: typeof header[key] === "number" ? "number" : "" })]);
  const isLowest = (header, run) =>
    errorOf(run, subset) !== null && errorOf(run, subset) === lowest[groupOf(header)];
  const gains = [GAIN, (_, { gain }) => ({ text: gainText(gain), kind: "number", value: gain ? -gain.points : null })];
  const columns = [
    ["run", (header) => ({ text: header.name })],
    ...headerColumns,
    [`${subset} error %`, (header, run) =>
      ({ ...numberCell(errorOf(run, subset)), kind: isLowest(header, run) ? "number best" : "number" })],
    ["balanced %", (_, run) => numberCell(balancedError(run, subset))],
    ["95% CI", (_, run) => ({ text: errorInterval(run, subset), kind: "number" })],
    ...(data.runs.some((run) => run.gain) ? [gains] : []),
    ...(subset === "test" ? [["val. error %", (_, run) => numberCell(run.val_error)]] : []),
    ["time", (_, run) => ({ text: duration(run.seconds), kind: "number", value: run.seconds })],
    ["memory MB", (_, run) => numberCell(run.memory === null ? null : run.memory / 2 ** 20, 0)],
    ["status", (header, run) => ({ text: statusText(header, run) })],
  ];
  const rows = runs.map((header, index) => columns.map(([, cell]) => cell(header, data.runs[index])));
  return sortableTable(columns.map(([name]) => name), rows);
}
function balancedError({ measured, test_balanced_error }, subset) {
  if (subset === "test") return test_balanced_error;
  return measured && measured.subset === subset ? measured.balanced_error : null;
}
function errorInterval({ measured }, subset) {
  return measured && measured.subset === subset ? measured.interval.map((end) => end.toFixed(2)).join(" – ") : "";
}
function gainText(gain) {
  if (!gain) return "";
  return signed(-gain.points) + (gain.half_width === null ? "" : ` ± ${gain.half_width.toFixed(2)}`);
}
function statusText(header, run) {
  if (header.status === "finished") return "finished";
  if (header.status === "diverged") return `NaN at step ${run.diverged_at}`;
  return `${count(run.step)} of ${count(run.steps)} steps`;
}

/** @param {FoldDifference[]} rows */
function drawFoldDifferences(container, rows) {
  container.append(heading("Differences over folds"), paragraph("Test error minus the baseline's with the same seed, in "
    + "percentage points: below 0 is better than the baseline. Mean and 95% confidence interval by Student's t; one fold "
    + "has no interval."));
  const severalGroups = new Set(rows.map(groupOf)).size > 1;
  const groupName = (row) => (severalGroups ? ` (${row.dataset}, ${row.labels})` : "");
  const rowName = (row) => plotText(`${row.method} − ${row.baseline}${groupName(row)}`);
  const folds = rows.flatMap((row) =>
    Object.entries(row.differences).map(([seed, value]) => ({ seed, value, name: rowName(row) })));
  plot(container, "", () => [[
    { type: "scatter", mode: "markers", name: "mean", y: rows.map(rowName), x: rows.map((row) => row.mean),
      error_x: { type: "data", array: rows.map((row) => row.half_width || 0), color: css("muted"), thickness: 1.5 },
      marker: { color: css("accent"), size: 10, symbol: "diamond" }, hovertemplate: "mean %{x:.2f}<extra></extra>" },
    { type: "scatter", mode: "markers", name: "fold", y: folds.map((fold) => fold.name),
      x: folds.map((fold) => fold.value), text: folds.map((fold) => fold.seed),
      marker: { color: css("muted"), size: 6, opacity: 0.7 },
      hovertemplate: "seed %{text}: %{x:.2f}<extra></extra>" },
  ], layoutFor({
    xaxis: { title: { text: "percentage points" }, zeroline: true, zerolinecolor: css("bad"), zerolinewidth: 2 },
    yaxis: { autorange: "reversed" },
  })], rows.length > 6 ? "tall" : "");
}

// --- how to repeat a run ------------------------------------------------------------------------------------
function howToRepeat(header, run) {
  const facts = (title, values, kind) => (Object.keys(values).length
    ? element("div", { class: kind }, element("h3", {}, title), factsTable(Object.entries(values))) : null);
  return element("details", { class: "run", open: single ? "" : null },
    element("summary", {}, single ? "How to repeat this run" : `How to repeat ${header.name}`),
    run.command ? commandWithCopy(run.command) : null,
    facts("Settings", run.settings, "columns"), facts("Environment", run.environment, "columns"));
}
function commandWithCopy(command) {
  const code = element("code", {}, command);
  const button = element("button", { type: "button", class: "copy", onclick: () => {
    const range = document.createRange(); // the clipboard API is not available to pages opened from disk
    range.selectNodeContents(code);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    if (document.execCommand("copy")) button.textContent = "Copied";
  } }, "Copy");
  return element("div", { class: "command" }, code, button);
}

registerSection("overview", drawOverview);
