// Training: curves over the steps.

/** @param {PanelData[]} panels */
function drawTraining(container, panels) {
  if (!panels.length) {
    container.append(note("There is no evaluation yet, so there are no curves."));
    return;
  }
  container.append(paragraph("Averages over the last steps before each evaluation. Losses are the terms of Eq. (1); errors "
    + "are those of the averaged (EMA) weights. If one class takes over the pseudo-labels, its share rises."));
  plotPanels(container, panels);
}
registerSection("training", drawTraining);
