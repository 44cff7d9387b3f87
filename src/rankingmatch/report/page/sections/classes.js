// Classes: confusion matrix, calibration, error by class, and the most confident mistakes.

/**
 * @typedef {Object} CalibrationBin
 * @property {number} confidence
 * @property {number} accuracy
 * @property {number} count
 */
/**
 * @typedef {Object} ClassRow
 * @property {number} label
 * @property {number} images
 * @property {number|null} error
 * @property {number|null} recall
 * @property {number|null} precision
 * @property {[number, number][]} confused_with
 */
/**
 * @typedef {Object} Mistake
 * @property {number} thumbnail
 * @property {number} row
 * @property {number} truth
 * @property {number} predicted
 * @property {number} confidence
 */
/**
 * @typedef {Object} ClassesOfRun
 * @property {number} run
 * @property {string} subset
 * @property {string} sprite
 * @property {number} images
 * @property {number|null} balanced_error
 * @property {number} calibration_error
 * @property {number[][]} confusion
 * @property {ClassRow[]} classes
 * @property {CalibrationBin[]} calibration
 * @property {Mistake[]} mistakes
 * @property {number} mistake_count
 */

const MOST_NAMED_CLASSES = 20;

/** @param {ClassesOfRun} classes */
function drawClasses(body, classes, run) {
  const { images, subset, mistake_count, balanced_error } = classes;
  body.append(paragraph(`${count(images)} ${subset} images, ${count(mistake_count)} of them misclassified. `
    + `Balanced error, the mean of the errors of the classes: ${percent(balanced_error)}.`));
  const grid = element("div", { class: "grid" });
  body.append(grid);
  plotConfusion(grid, classes, run.classes.map(plotText));
  plotCalibration(grid, classes);
  body.append(heading("Error by class"), paragraph("Click a column heading to sort."), classTable(classes, run));
  body.append(heading("Most confident mistakes"), ...mistakeGallery(classes, run));
}

function plotConfusion(grid, { confusion }, names) {
  const totals = confusion.map((row) => Math.max(1, row.reduce((sum, images) => sum + images, 0)));
  const shares = confusion.map((row, label) => row.map((images) => (100 * images) / totals[label]));
  const few = names.length <= MOST_NAMED_CLASSES, labels = names.map((_, label) => label);
  const axis = { ...classAxis(names, MOST_NAMED_CLASSES), showgrid: false, zeroline: false };
  let unit = "images";
  const cellText = (images, share) =>
    (images === 0 ? "" : unit === "images" ? images : share.toFixed(share < 10 ? 1 : 0));
  const make = () => [[{
    type: "heatmap", x: labels, y: labels, z: shares, zmin: 0, zmax: 100, colorscale: colorScale(), showscale: false,
    xgap: few ? 1 : 0, ygap: few ? 1 : 0, texttemplate: few ? "%{text}" : undefined,
    text: few ? confusion.map((row, i) => row.map((images, j) => cellText(images, shares[i][j]))) : undefined,
    customdata: confusion.map((row, i) => row.map((images, j) => [images, names[i], names[j]])),
    hovertemplate: "%{customdata[1]} predicted as %{customdata[2]}<br>"
      + "%{customdata[0]} images, %{z:.1f}% of the class<extra></extra>",
  }], layoutFor({
    margin: { l: 70, r: 8, t: 8, b: 60 },
    xaxis: { title: { text: "predicted class" }, ...axis },
    yaxis: { title: { text: "true class" }, autorange: "reversed", ...axis },
  })];
  const area = plot(grid, "Confusion matrix", make, "square");
  if (few) {
    area.before(element("div", { class: "controls in-plot" },
      choice("Show", [["images", "images"], ["percent", "% of the true class"]], (value) => {
        unit = value;
        Plotly.react(area, ...make());
      })));
  }
}

function plotCalibration(grid, { calibration, calibration_error }) {
  const confidence = calibration.map((bin) => bin.confidence), images = calibration.map((bin) => bin.count);
  plot(grid, `Calibration: expected calibration error ${percent(calibration_error)}`, () => [[
    { type: "bar", name: "images", x: confidence, y: images, yaxis: "y2", width: 0.03, marker: { color: css("line") },
      hovertemplate: "%{y} images<extra></extra>" },
    { type: "scatter", mode: "lines", name: "perfect calibration", x: [0, 1], y: [0, 1],
      line: { dash: "dot", color: css("muted"), width: 1.5 }, hoverinfo: "skip" },
    { type: "scatter", mode: "lines+markers", name: "model", x: confidence, y: calibration.map((bin) => bin.accuracy),
      line: { color: css("accent"), width: 2 }, marker: { size: 7 }, customdata: images,
      hovertemplate: "confidence %{x:.3f}<br>accuracy %{y:.3f}<br>%{customdata} images<extra></extra>" },
  ], layoutFor({
    xaxis: { title: { text: "confidence" }, range: [0, 1.03] },
    yaxis: { title: { text: "accuracy" }, range: [0, 1.03] },
    yaxis2: { overlaying: "y", side: "right", visible: false, rangemode: "tozero" },
  })], "square");
}

function classTable(classes, run) {
  const columns = ["class", "images", "error %", "recall %", "precision %", "most often confused with"];
  return sortableTable(columns, classes.classes.map((row) => [
    { text: className(run, row.label) }, numberCell(row.images, 0), numberCell(row.error), numberCell(row.recall),
    numberCell(row.precision),
    { text: row.confused_with.map(([label, images]) => `${className(run, label)} (${images})`).join(", ") },
  ]));
}

function mistakeGallery(classes, run) {
  if (!classes.mistakes.length) return [paragraph("There are none.")];
  const tiles = classes.mistakes.map((mistake) => predictionTile(run, {
    ...mistake, sprite: classes.sprite, index: mistake.thumbnail, description: `${classes.subset} image ${mistake.row}`,
  }));
  return [paragraph("Predicted class in red, label and confidence below."),
    element("div", { class: "gallery" }, ...tiles)];
}

registerSection("classes", (container, /** @type {ClassesOfRun[]} */ items) => drawOneRun(container, items,
  "There is no model yet, or no labels are known for the evaluated images, so there is no error by class.",
  drawClasses));
