// Pairs: how similar the outputs and the representations of two images are.

/**
 * @typedef {Object} SimilarityHistogram
 * @property {number[]} same_class
 * @property {number[]} other_class
 * @property {number|null} same_class_mean
 * @property {number|null} other_class_mean
 */
/**
 * @typedef {Object} ExamplePair
 * @property {number} label
 * @property {[number, number]} rows
 * @property {[number, number]} thumbnails
 * @property {number} outputs
 * @property {number} representations
 */
/**
 * @typedef {Object} PairsOfRun
 * @property {number} run
 * @property {string} subset
 * @property {string} sprite
 * @property {number} images
 * @property {number} total
 * @property {ExamplePair[]} examples
 * @property {SimilarityHistogram} outputs
 * @property {SimilarityHistogram} representations
 */

/** @param {PairsOfRun} pairs */
function drawPairs(body, pairs, run) {
  const images = `${sampleSize(pairs.images, pairs.total)} ${pairs.subset} images`;
  body.append(paragraph("RankingMatch ranks outputs, not representations: two images of one class should have similar "
    + `outputs, however different they look. Cosine similarities of all pairs of ${images}.`));
  const grid = element("div", { class: "grid" });
  body.append(grid);
  plotHistogram(grid, "Outputs (logits)", pairs.outputs);
  plotHistogram(grid, "Representations", pairs.representations);
  body.append(heading("Similar outputs, different representations"),
    paragraph("For each class, the correctly classified pair with the largest gap between the two cosine similarities."));
  body.append(pairs.examples.length
    ? element("div", { class: "grid" }, ...pairs.examples.map((pair) => examplePair(pairs, pair, run)))
    : paragraph("No class has two correctly classified images."));
}

/** @param {SimilarityHistogram} histogram */
function plotHistogram(grid, title, histogram) {
  const bins = histogram.same_class.length, x = histogram.same_class.map((_, bin) => -1 + (2 * (bin + 0.5)) / bins);
  const withMean = (name, mean) => (mean === null ? name : `${name}, mean ${mean.toFixed(3)}`);
  const trace = (name, y, color) => ({
    type: "scatter", mode: "lines", fill: "tozeroy", line: { color, width: 2, shape: "hvh" }, x, y, name,
    hovertemplate: "%{y:.2f}% of pairs near %{x:.2f}<extra></extra>",
  });
  plot(grid, title, () => [[
    trace(withMean("same class", histogram.same_class_mean), histogram.same_class, css("accent")),
    trace(withMean("different classes", histogram.other_class_mean), histogram.other_class, css("muted")),
  ], layoutFor({
    xaxis: { title: { text: "cosine similarity" }, range: [-1, 1] }, yaxis: { title: { text: "% of pairs" } },
  })]);
}

/** @param {ExamplePair} pair */
function examplePair(pairs, pair, run) {
  return element("div", { class: "card pair" },
    ...pair.thumbnails.map((index, side) =>
      thumbnail(pairs.sprite, index, 84, `${pairs.subset} image ${pair.rows[side]}`)),
    factsTable([["class", className(run, pair.label)], ["outputs", pair.outputs.toFixed(4)],
      ["representations", pair.representations.toFixed(4)]]));
}

registerSection("pairs", (container, /** @type {PairsOfRun[]} */ items) => drawOneRun(container, items,
  "There is no model yet, no labels are known for the evaluated images, or the network returns no representations.",
  drawPairs));
