// Place topics on a map so that similar topics are near each other.

const MAP = { width: 600, height: 520, filled: 0.3, gap: 1.2, lowest: 360, tallest: 560 };
const FRAME = 25; // milliseconds of layout work between two frames
// The number of layout steps. With more topics a step takes longer, so there are fewer steps.
const STEPS = { most: 300, least: 120, ofTopics: 60000 };

// Run the layout in short pieces of work, so that the page stays responsive, and tell when it has ended. 50 topics take
// 0.1 seconds, so nothing is drawn before. The result is always the same.
function layOut(model, ended) {
  const area = MAP.width * MAP.height * MAP.filled;
  const radius = (weight) => Math.max(2.5, Math.sqrt((weight * area) / Math.PI));
  const nodes = Array.from(model.weights, (weight, topic) => ({ topic, r: radius(weight) }));
  const links = nodes.flatMap(({ topic }) =>
    model.similarTopics(topic).map(({ topic: other, similarity }) => ({ source: topic, target: other, similarity })),
  );
  const spacing = Math.sqrt(area / nodes.length);
  const attraction = d3
    .forceLink(links)
    .distance((one) => one.source.r + one.target.r + spacing * (1 - one.similarity))
    .strength((one) => 0.1 + 0.6 * one.similarity);
  const steps = Math.max(STEPS.least, Math.min(STEPS.most, STEPS.ofTopics / nodes.length));
  const simulation = d3
    .forceSimulation(nodes)
    .alphaDecay(1 - 0.001 ** (1 / steps))
    .force("link", attraction)
    .force("apart", d3.forceManyBody().strength((one) => -1.2 * one.r * one.r - 4).distanceMax(MAP.width / 2))
    .force("overlap", d3.forceCollide((one) => one.r + MAP.gap).iterations(2))
    .force("x", d3.forceX().strength(0.025))
    .force("y", d3.forceY().strength(0.035))
    .stop();
  const on = () => {
    const until = performance.now() + FRAME;
    while (simulation.alpha() > simulation.alphaMin() && performance.now() < until) simulation.tick();
    if (simulation.alpha() > simulation.alphaMin()) setTimeout(on);
    else ended();
  };
  setTimeout(on);
  return nodes;
}

// Find the nearest topic in a direction. Distance to the side counts twice.
function nextTopic(nodes, from, [dx, dy]) {
  return d3.least(
    nodes.filter((one) => (one.px - from.px) * dx + (one.py - from.py) * dy > 0.5),
    (one) => {
      const ahead = (one.px - from.px) * dx + (one.py - from.py) * dy;
      const aside = Math.abs((one.px - from.px) * dy) + Math.abs((one.py - from.py) * dx);
      return ahead + 2 * aside;
    },
  );
}
