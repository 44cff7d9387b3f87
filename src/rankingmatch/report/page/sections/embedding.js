// Embedding: t-SNE of logits and representations; the image of a point appears under the pointer.

/**
 * @typedef {Object} EmbeddingOfRun
 * @property {number} run
 * @property {string} subset
 * @property {string} sprite
 * @property {number|null} error
 * @property {number} total
 * @property {number[]} rows
 * @property {number[]} thumbnails
 * @property {number[]} truth
 * @property {number[]} predicted
 * @property {number[]} confidence
 * @property {Object<string, number[][]>} points
 */

const TITLES = { logits: "Logits", representations: "Representations" };
const COLORINGS = [["truth", "label"], ["predicted", "prediction"], ["verdict", "correct or wrong"]];
const VERDICTS = [["correct", "#9aa5b5"], ["wrong", "#dd3333"], ["unknown", "#6677aa"]];
const MOST_LEGEND_ENTRIES = 30; // with more classes there is one trace and no legend: hundreds of traces are slow

/** @param {EmbeddingOfRun[]} items */
function drawEmbeddings(container, items) {
  if (!items.length) {
    container.append(note("There is no model yet, or there are too few images for t-SNE."));
    return;
  }
  const [first] = items, kinds = Object.keys(first.points), grid = element("div", { class: "grid" });
  const chosen = { kind: kinds[0], color: first.truth.some((label) => label >= 0) ? "truth" : "predicted" };
  const fill = () => {
    grid.replaceChildren();
    const withError = (title, item) => (item.error === null ? title : `${title}: error ${percent(item.error)}`);
    if (single) for (const kind of kinds) plotEmbedding(grid, first, kind, chosen.color, withError(TITLES[kind], first));
    else for (const item of items.filter((one) => one.points[chosen.kind])) {
      plotEmbedding(grid, item, chosen.kind, chosen.color, withError(runs[item.run].name, item));
    }
  };
  const set = (name) => (value) => { chosen[name] = value; fill(); };
  const sampled = first.rows.length < first.total ? ", drawn at random" : "";
  container.append(
    paragraph(`t-SNE of ${sampleSize(first.rows.length, first.total)} ${first.subset} images${sampled}. Point at a dot `
      + "to see its image. Click a class in the legend to hide it, double-click to show it alone."),
    element("div", { class: "controls" },
      single ? null : choice("Show", kinds.map((kind) => [kind, kind]), set("kind")),
      choice("Color by", COLORINGS, set("color"), chosen.color)),
    grid);
  fill();
}

// The number of the legend entry of a point: a class, or a verdict.
function entryOf(item, point, color) {
  const truth = item.truth[point], predicted = item.predicted[point];
  if (color === "verdict") return truth < 0 ? 2 : truth === predicted ? 0 : 1;
  return color === "predicted" || truth < 0 ? predicted : truth;
}

/** @param {EmbeddingOfRun} item */
function plotEmbedding(grid, item, kind, color, title) {
  const run = runs[item.run], [x, y] = item.points[kind];
  const entries = x.map((_, point) => entryOf(item, point, color));
  const ink = (entry) => (color === "verdict" ? VERDICTS[entry][1] : colorOf(entry, run.classes.length));
  const entryName = (entry) => (color === "verdict" ? VERDICTS[entry][0] : run.classes[entry]);
  const shown = [...new Set(entries)].sort((a, b) => a - b), all = x.map((_, point) => point);
  const groups = shown.length <= MOST_LEGEND_ENTRIES
    ? shown.map((entry) => [entryName(entry), all.filter((point) => entries[point] === entry)]) : [["", all]];
  const make = () => [groups.map(([name, points]) => ({
    type: "scatter", mode: "markers", hoverinfo: "none", name: plotText(name), customdata: points,
    x: points.map((point) => x[point]), y: points.map((point) => y[point]),
    marker: { size: x.length > 1200 ? 4.5 : 6, opacity: 0.8, color: points.map((point) => ink(entries[point])) },
  })), layoutFor({
    hovermode: "closest", dragmode: innerWidth < 640 ? false : "pan", margin: { l: 8, r: 8, t: 6, b: 8 },
    showlegend: groups.length > 1, legend: { ...LEGEND, itemsizing: "constant" },
    xaxis: { visible: false }, yaxis: { visible: false, scaleanchor: "x" },
  })];
  const area = plot(grid, title, make, "square");
  const showImage = (event) => {
    const point = event.points[0].customdata;
    showHoverCard(event.event, item.sprite, item.thumbnails[point], [
      `label: ${className(run, item.truth[point])}`, `prediction: ${className(run, item.predicted[point])}`,
      `confidence: ${percent(100 * item.confidence[point], 1)}`, `${item.subset} image ${item.rows[point]}`]);
  };
  area.on("plotly_hover", showImage);
  area.on("plotly_click", showImage);
  area.on("plotly_unhover", () => { byId("hover").hidden = true; });
}

registerSection("embedding", drawEmbeddings);
