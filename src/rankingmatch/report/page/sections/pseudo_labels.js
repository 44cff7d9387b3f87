// Pseudo-labels: what the model predicts for unlabeled images, with filters and a download.

/**
 * @typedef {Object} PseudoLabelsOfRun
 * @property {number} run
 * @property {string} subset
 * @property {string} sprite
 * @property {number} total
 * @property {number|null} threshold
 * @property {number[]} rows
 * @property {number[]} predicted
 * @property {number[]} confidence
 * @property {number[]} truth
 * @property {number[]} thumbnails
 */

const TILES = 96; // shown at first
const BINS = 20;

/** @param {PseudoLabelsOfRun} labels */
function drawPseudoLabels(body, labels, run) {
  const known = labels.truth.some((label) => label >= 0), threshold = labels.threshold;
  const images = `${sampleSize(labels.rows.length, labels.total)} unlabeled images`;
  body.append(paragraph(`Predictions for ${images}, without augmentation. `
    + (threshold === null ? "" : `Confident means a probability of at least τ = ${threshold}. `)
    + (known ? "The true labels are known here; they are used only to evaluate." : "The true labels are not known.")));
  const grid = element("div", { class: "grid" });
  body.append(grid);
  plotConfidence(grid, labels);
  plotClassShares(grid, labels, run, known);
  body.append(heading("Images"));
  drawGallery(body, labels, run, known);
}

function isCorrect(labels, i) { return labels.truth[i] >= 0 && labels.truth[i] === labels.predicted[i]; }
function isWrong(labels, i) { return labels.truth[i] >= 0 && labels.truth[i] !== labels.predicted[i]; }
function isConfident(labels, i) { return labels.threshold !== null && labels.confidence[i] >= labels.threshold; }

// --- plots --------------------------------------------------------------------------------------------------
function plotConfidence(grid, labels) {
  const counts = { correct: Array(BINS).fill(0), wrong: Array(BINS).fill(0), unknown: Array(BINS).fill(0) };
  labels.rows.forEach((_, i) => {
    const verdict = labels.truth[i] < 0 ? "unknown" : isCorrect(labels, i) ? "correct" : "wrong";
    counts[verdict][Math.min(BINS - 1, Math.floor(labels.confidence[i] * BINS))] += 1;
  });
  const x = Array.from({ length: BINS }, (_, bin) => (bin + 0.5) / BINS);
  const colors = () => ({ correct: css("good"), wrong: css("bad"), unknown: css("muted") });
  const threshold = () => (labels.threshold === null ? [] : [{ type: "line", x0: labels.threshold, x1: labels.threshold,
    yref: "paper", y0: 0, y1: 1, line: { color: css("text"), width: 1, dash: "dot" } }]);
  plot(grid, "Confidence", () => [
    Object.keys(counts).filter((verdict) => counts[verdict].some(Boolean)).map((verdict) => ({
      type: "bar", name: verdict, x, y: counts[verdict], marker: { color: colors()[verdict] },
      hovertemplate: `%{y} ${verdict} near %{x:.2f}<extra></extra>`,
    })),
    layoutFor({
      barmode: "stack", bargap: 0.05, showlegend: true, shapes: threshold(),
      xaxis: { title: { text: "confidence" }, range: [0, 1] },
      yaxis: { title: { text: "images (log scale)" }, type: "log", dtick: 1 },
    })]);
}

function plotClassShares(grid, labels, run, known) {
  const names = run.classes.map(plotText), x = names.map((_, label) => label), total = labels.rows.length;
  const sharesOf = (values) => x.map((label) => (100 * values.filter((value) => value === label).length) / total);
  const predicted = sharesOf(labels.predicted), truth = sharesOf(labels.truth);
  const trace = (name, y, color) => ({ type: "bar", name, x, y, text: names, textposition: "none", marker: { color },
    hovertemplate: `%{text}: %{y:.2f}%<extra>${name}</extra>` });
  plot(grid, "Share of each class", () => [
    [trace("pseudo-labels", predicted, css("accent")), ...(known ? [trace("true labels", truth, css("muted"))] : [])],
    layoutFor({ showlegend: known, xaxis: classAxis(names, 30), yaxis: { title: { text: "% of images" } } })]);
}

// --- gallery ------------------------------------------------------------------------------------------------
function drawGallery(body, labels, run, known) {
  const filter = { label: "", verdict: labels.rows.some((_, i) => isWrong(labels, i)) ? "wrong" : "", least: 0, most: 1,
    search: "", order: "descending" };
  const gallery = element("div", { class: "gallery" });
  const summary = element("p", { class: "explanation", role: "status", id: "matches" });
  const more = element("button", { type: "button", class: "more-button" }, "Show more");
  let limit = TILES;
  const fill = () => {
    const found = matches(labels, run, filter), pictured = found.filter((i) => labels.thumbnails[i] >= 0);
    const shown = pictured.slice(0, limit);
    gallery.replaceChildren(...shown.map((i) => tile(labels, run, i)));
    summary.textContent = summaryOf(labels, found, pictured, shown, known);
    more.hidden = pictured.length <= limit;
  };
  const set = (name) => (value) => { filter[name] = value; limit = TILES; fill(); };
  more.addEventListener("click", () => { limit += 2 * TILES; fill(); });
  body.append(filterControls(labels, run, known, filter, set), summary, gallery, more);
  fill();
}

function matches(labels, run, filter) {
  const verdicts = {
    "": () => true, wrong: (i) => isWrong(labels, i), correct: (i) => isCorrect(labels, i),
    confident: (i) => isConfident(labels, i), unconfident: (i) => !isConfident(labels, i),
    confident_wrong: (i) => isConfident(labels, i) && isWrong(labels, i),
  };
  const trueName = (i) => (labels.truth[i] < 0 ? "" : className(run, labels.truth[i]));
  const text = (i) => [className(run, labels.predicted[i]), trueName(i), labels.rows[i]].join(" ").toLowerCase();
  const direction = filter.order === "descending" ? -1 : 1;
  return labels.rows.map((_, i) => i)
    .filter((i) => (filter.label === "" || labels.predicted[i] === Number(filter.label)) && verdicts[filter.verdict](i)
      && labels.confidence[i] >= filter.least && labels.confidence[i] <= filter.most
      && (!filter.search || text(i).includes(filter.search)))
    .sort((a, b) => direction * (labels.confidence[a] - labels.confidence[b]));
}

function summaryOf(labels, found, pictured, shown, known) {
  const wrong = known && found.length ? `, ${count(found.filter((i) => isWrong(labels, i)).length)} of them wrong` : "";
  const missing = pictured.length < found.length ? `; this page has thumbnails of ${count(pictured.length)}` : "";
  return `${count(found.length)} images match${wrong}${missing}; ${count(shown.length)} shown.`;
}

function tile(labels, run, i) {
  return predictionTile(run, {
    sprite: labels.sprite, index: labels.thumbnails[i], description: `training image ${labels.rows[i]}`,
    predicted: labels.predicted[i], truth: labels.truth[i], confidence: labels.confidence[i],
  });
}

function filterControls(labels, run, known, filter, set) {
  const verdicts = [["", "all"]];
  if (known) verdicts.push(["wrong", "wrong"], ["correct", "correct"]);
  if (labels.threshold !== null) verdicts.push(["confident", "confident"], ["unconfident", "not confident"]);
  if (known && labels.threshold !== null) verdicts.push(["confident_wrong", "confident and wrong"]);
  const slider = (text, name) => {
    const value = element("span", { class: "slider-value" }, filter[name].toFixed(2));
    const input = element("input", { type: "range", min: 0, max: 1, step: 0.01, value: filter[name], oninput: () => {
      value.textContent = Number(input.value).toFixed(2);
      set(name)(Number(input.value));
    } });
    return element("label", {}, text, input, value);
  };
  const search = element("input", { type: "search", placeholder: "class or row",
    oninput: () => set("search")(search.value.trim().toLowerCase()) });
  const classes = run.classes.map((name, label) => [String(label), name]);
  const orders = [["descending", "most confident first"], ["ascending", "least confident first"]];
  return element("div", { class: "controls", id: "filters" },
    choice("Pseudo-label", [["", "any"], ...classes], set("label")),
    choice("Show", verdicts, set("verdict"), filter.verdict),
    slider("Confidence from", "least"), slider("to", "most"), choice("Order", orders, set("order")),
    element("label", {}, "Search", search),
    element("button", { type: "button", id: "csv",
      onclick: () => download(csvOf(labels, run, matches(labels, run, filter))) }, "Download as CSV"));
}

// --- download -----------------------------------------------------------------------------------------------
function csvOf(labels, run, indices) {
  const cell = (value) => (/[",\r\n]/.test(String(value)) ? `"${String(value).replace(/"/g, '""')}"` : String(value));
  // A spreadsheet would take a name like =1+1 for a formula.
  const name = (label) => className(run, label).replace(/^(?=[=+\-@\t\r])(?![+-]?[\d.]+$)/, "'");
  const lines = indices.map((i) => [labels.rows[i], name(labels.predicted[i]), labels.confidence[i],
    labels.truth[i] < 0 ? "" : name(labels.truth[i])].map(cell).join(","));
  return ["row,pseudo_label,confidence,truth", ...lines].join("\r\n") + "\r\n";
}
function download(csv) {
  const url = URL.createObjectURL(new Blob([csv], { type: "text/csv" }));
  const link = element("a", { href: url, download: "pseudo-labels.csv" });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

registerSection("pseudo_labels", (container, /** @type {PseudoLabelsOfRun[]} */ items) => drawOneRun(container, items,
  "There are no unlabeled images, or there is no model yet.", drawPseudoLabels));
